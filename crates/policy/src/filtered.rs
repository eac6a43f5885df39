//! The cluster as an engine sees it where policies apply: volumes that they reject are left out, and the
//! others come in the order of their scores.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use bindery_core::{
    AccessModes, Answer, Claim, Cluster, Handle, Lookup, NEAREST_MAX, Narrowed, Page, Quantity, Query,
    Question, Reason, Slot, Stop, Tally, Text, Verdict, Volume, VolumeIndex,
};

use crate::chain::{Applied, Judgement};
use crate::rejections::Counted;
use crate::rounds::{Judging, Rounds};
use crate::spread::{Rejected, Rests};
use crate::{Chain, Kept, Rejections, Surroundings};

/// Stands between the store and the recorder of a decision about a claim.
///
/// No matcher is called here, because the store is locked. Where an answer needs one, the question ends the
/// call with [`Stop::Judge`]; [`Rounds`] then has the work, and the claim is decided again.
pub struct Filtered<'a> {
    index: &'a mut dyn VolumeIndex,
    applied: Applied<'a>,
    rounds: &'a mut Rounds,
    lists: BTreeMap<AccessModes, List>,
    /// The volumes that the engine has read by name, as it was told them last.
    told: BTreeMap<Text, Arc<Volume>>,
    /// The judgements about all candidates of an access-mode set, where the engine has asked for so many.
    counted: BTreeMap<AccessModes, Counted>,
    /// What policies that spread have rejected.
    rejected: Rejected,
}

/// The candidates of one access-mode set.
#[derive(Default)]
struct List {
    rows: Vec<Row>,
    /// Whether no candidate follows after the rows.
    is_complete: bool,
}

struct Row {
    volume: Arc<Volume>,
    slot: Slot,
    /// Set when the engine is told of the row.
    handle: Option<Handle>,
}

impl Row {
    fn new(volume: &Arc<Volume>, slot: Slot) -> Self {
        Self { volume: Arc::clone(volume), slot, handle: None }
    }
}

impl<'a> Filtered<'a> {
    /// The cluster for a decision about `claim`; `None` if no policy applies to it.
    ///
    /// # Errors
    ///
    /// The claim waits, because a policy that may apply to it gives no answer.
    pub fn new(
        index: &'a mut dyn VolumeIndex,
        claim: &'a Claim,
        chain: &'a Chain,
        kept: &Kept,
        rounds: &'a mut Rounds,
    ) -> Result<Option<Self>, Stop> {
        let around = Surroundings {
            namespace: index.namespace_labels(&claim.key.namespace),
            class: index.class_of(claim.class_or_empty()),
            siblings: &|spread| index.siblings(claim, spread),
        };
        let applied = chain.applied(claim, &around, kept, &rounds.failed)?;
        if applied.asked.is_empty() {
            return Ok(None);
        }
        let (lists, told) = (BTreeMap::new(), BTreeMap::new());
        let (counted, rejected) = (BTreeMap::new(), Rejected::new());
        Ok(Some(Self { index, applied, rounds, lists, told, counted, rejected }))
    }

    /// The numbers of siblings' volumes that the answers rest on.
    pub fn into_rests(self) -> Rests {
        self.applied.rests(self.rejected)
    }

    /// What the policies require of volumes before they judge any; `None` for nothing.
    pub fn required(&self) -> Option<Narrowed> {
        self.applied.required()
    }

    /// How many volumes the policies reject. `None` if that is none, or if the engine has asked neither for
    /// tallies nor for all candidates of a claim that rejected volumes hold back.
    pub fn rejections(&self) -> Option<Rejections> {
        Counted::sum(self.counted.values(), &self.applied)
    }

    fn page(&mut self, query: &Query, after: Option<Handle>, limit: u32) -> Result<Page, Stop> {
        self.rounds.narrowed(&self.applied)?;
        let mut list = self.lists.remove(&query.access_set).unwrap_or_default();
        let from = match after {
            None => 0,
            Some(after) => match list.rows.iter().position(|row| row.handle == Some(after)) {
                Some(at) => at + 1,
                None => return Err(Stop::Nonsense("a handle that is not in the pages of this query")),
            },
        };
        if from == list.rows.len() && !list.is_complete {
            self.fill(query, &mut list)?;
        }
        let mut page = Page::default();
        for Row { volume, slot, handle } in list.rows.iter_mut().skip(from).take(limit as usize) {
            let capacity = volume.capacity.unwrap_or_default();
            *handle = self.index.handle(&volume.name);
            page.handles.extend(*handle);
            page.whole.push(capacity.whole);
            page.nanos.push(capacity.nanos);
            page.slots.push(*slot);
        }
        page.more = from + page.handles.len() < list.rows.len() || !list.is_complete;
        self.lists.insert(query.access_set, list);
        Ok(page)
    }

    /// Adds candidates: all of them where a policy scores, else up to the next one that can be taken.
    fn fill(&mut self, query: &Query, list: &mut List) -> Result<(), Stop> {
        let (applied, rejected) = (&self.applied, &mut self.rejected);
        let (scores, waits, rows_max) = (applied.scores(), applied.waits(), applied.max_candidates());
        let (known, mut found, mut is_complete) = (list.rows.len(), Vec::new(), true);
        let mut judging = Judging::new(applied, self.rounds.batch());
        let (mut withheld, mut counted) = (Vec::new(), Counted::default());
        // Where rejected volumes hold the claim back, they are looked at too.
        let narrowed = if waits { query.clone() } else { applied.narrowed(query) };
        let at_most = applied.at_most().filter(|_| !waits);
        self.index.scan(&narrowed, &mut |volume, slot| {
            if at_most.is_some_and(|most| volume.capacity.unwrap_or_default() > most) {
                return ControlFlow::Break(());
            }
            let judgement = applied.judgement(volume);
            counted.add(&judgement);
            match judgement {
                Judgement::Rejected(by) => {
                    applied.remember(&by, volume, rejected);
                    if applied.holds_back(&by) && withheld.len() < NEAREST_MAX {
                        withheld.push(Row::new(volume, Slot::Withheld));
                    }
                }
                Judgement::Unjudged(policy) => judging.add(policy, volume),
                Judgement::Allowed(score) => {
                    found.push((Reverse(score), Row::new(volume, slot)));
                    let is_next = !scores && slot == Slot::Free && found.len() > known;
                    if is_next || (scores && found.len() >= rows_max) {
                        is_complete = scores;
                        return ControlFlow::Break(());
                    }
                }
            }
            if judging.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if !judging.is_empty() {
            let work = judging.into_work();
            return Err(self.rounds.stop(work));
        }
        // Stable: candidates of equal scores stay in ascending (capacity, name).
        found.sort_by_key(|(score, _)| *score);
        list.rows = found.into_iter().map(|(_, row)| row).collect();
        list.is_complete = is_complete;
        if is_complete {
            list.rows.extend(withheld);
        }
        if is_complete && waits {
            self.counted.insert(query.access_set, counted);
        }
        Ok(())
    }

    /// The tallies of the index, and one of the volumes that policies reject.
    fn tallies(&mut self, query: Query) -> Result<Vec<Tally>, Stop> {
        self.rounds.narrowed(&self.applied)?;
        let mut rejected: Vec<(Quantity, Text)> = Vec::new();
        for access_set in (self.index as &mut dyn Cluster).access_sets(query.access_set)? {
            let applied = &self.applied;
            let mut counted = Counted::default();
            self.index.scan(&Query { access_set, ..query.clone() }, &mut |volume, _| {
                let judgement = applied.judgement(volume);
                counted.add(&judgement);
                if let Judgement::Rejected(_) = judgement {
                    rejected.push((volume.capacity.unwrap_or_default(), volume.name.clone()));
                }
                ControlFlow::Continue(())
            });
            self.counted.insert(access_set, counted);
        }
        let mut tallies = (self.index as &mut dyn Cluster).tallies(query)?;
        if !rejected.is_empty() {
            rejected.sort_unstable();
            let count = u32::try_from(rejected.len()).unwrap_or(u32::MAX);
            let nearest = rejected.into_iter().take(NEAREST_MAX).map(|(_, name)| name).collect();
            tallies.push(Tally { reason: Reason::Rejected, count, nearest });
        }
        Ok(tallies)
    }

    /// What the policies say about a volume that the claim names, as the engine has read it.
    fn verdict(&mut self, volume: &Text) -> Result<Verdict, Stop> {
        let Some(volume) = self.told.get(volume) else {
            return Err(Stop::Nonsense("a verdict about a volume that was not read before"));
        };
        self.rounds.narrowed(&self.applied)?;
        if let Judgement::Rejected(by) = self.applied.judgement(volume) {
            self.applied.remember(&by, volume, &mut self.rejected);
        }
        self.applied.verdict(volume, self.rounds)
    }
}

impl Cluster for Filtered<'_> {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        match question {
            Question::Candidates { query, after, limit } => {
                Ok(Answer::Page(self.page(&query, after, limit)?))
            }
            Question::Tallies(query) => Ok(Answer::Tallies(self.tallies(query)?)),
            Question::Verdict(volume) => Ok(Answer::Verdict(self.verdict(&volume)?)),
            question => {
                let answer = self.index.ask(question)?;
                if let Answer::Volume(Lookup::Found(volume)) = &answer {
                    self.told.insert(volume.name.clone(), Arc::clone(volume));
                }
                Ok(answer)
            }
        }
    }
}
