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
use crate::evidence::Rejects;
use crate::rejections::Counted;
use crate::rounds::{Judging, Rounds};
use crate::spread::{Rejected, Rests};
use crate::{Basis, Chain, Kept, Rejections, Surroundings, Waits};

/// Stands between the store and the recorder of a decision about a claim.
///
/// No matcher is called here, because the store is locked. Where an answer needs one, the question ends the
/// call with [`Stop::Judge`]; [`Rounds`] then has the work, and the claim is decided again.
pub struct Filtered<'a> {
    index: &'a mut dyn VolumeIndex,
    claim: &'a Claim,
    applied: Applied<'a>,
    /// Set if a policy that may apply gives no answer: then the claim newly gets no volume and no class.
    waits: Option<Waits>,
    rounds: &'a mut Rounds,
    lists: BTreeMap<AccessModes, List>,
    /// The volumes that the engine has read by name, as it was told them last.
    told: BTreeMap<Text, Arc<Volume>>,
    /// The judgements about all candidates of an access-mode set, where the engine has asked for so many.
    counted: BTreeMap<AccessModes, Counted>,
    /// What policies that spread have rejected.
    rejected: Rejected,
    /// What policies that judge have rejected, by the last scan of each access-mode set.
    rejects: BTreeMap<AccessModes, Rejects>,
    /// The volumes that the engine has asked for a verdict about.
    named: BTreeMap<Text, Arc<Volume>>,
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
    pub fn new(
        index: &'a mut dyn VolumeIndex,
        claim: &'a Claim,
        chain: &'a Chain,
        kept: &Kept,
        rounds: &'a mut Rounds,
    ) -> Option<Self> {
        let around = Surroundings {
            namespace: index.namespace_labels(&claim.key.namespace),
            class: index.class_of(claim.class_or_empty()),
            siblings: &|spread| index.siblings(claim, spread),
        };
        let (applied, waits) = match chain.applied(claim, &around, kept, &rounds.failed) {
            Ok(applied) if applied.asked.is_empty() && applied.skipped.is_empty() => return None,
            Ok(applied) => (applied, None),
            Err(waits) => (Applied { asked: Vec::new(), skipped: Vec::new() }, Some(waits)),
        };
        let (lists, told, rejects, named) = Default::default();
        let (counted, rejected) = (BTreeMap::new(), Rejected::new());
        Some(Self { index, claim, applied, waits, rounds, lists, told, counted, rejected, rejects, named })
    }

    /// What the policies have said, as far as the answers rest on it.
    pub fn basis(&self) -> Basis {
        let rows = self.lists.values().flat_map(|list| &list.rows);
        let allowed = rows.filter(|row| row.slot != Slot::Withheld).map(|row| &row.volume);
        let allowed = allowed.filter(|volume| !self.named.contains_key(&volume.name));
        Basis::of_claim(&self.applied, self.named.values().chain(allowed), self.rejects.values())
    }

    /// Has every policy narrow before it is known which volumes the claim may newly get, and whether there is
    /// one. Volumes whose claimRef names the claim do not depend on policies.
    fn narrowed(&mut self) -> Result<(), Stop> {
        match &self.waits {
            Some(waits) => Err(waits.clone().into()),
            None => self.rounds.narrowed(&self.applied),
        }
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

    fn has_reserved(&mut self) -> Result<bool, Stop> {
        let Claim { key, uid, .. } = self.claim;
        let handles = (self.index as &mut dyn Cluster).reserved_for(key.clone(), uid.clone())?;
        Ok(!handles.is_empty())
    }

    fn page(&mut self, query: &Query, after: Option<Handle>, limit: u32) -> Result<Page, Stop> {
        match self.narrowed() {
            // The volume that is reserved for the claim may have more access modes than these candidates.
            Err(Stop::Waits { .. }) if self.has_reserved()? => return Ok(Page::default()),
            narrowed => narrowed?,
        }
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
        let (mut withheld, mut counted, mut rejects) = (Vec::new(), Counted::default(), Rejects::default());
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
                    rejects.add(&by, volume);
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
        self.rejects.insert(query.access_set, rejects);
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
        self.narrowed()?;
        let mut rejected: Vec<(Quantity, Text)> = Vec::new();
        for access_set in (self.index as &mut dyn Cluster).access_sets(query.access_set)? {
            let applied = &self.applied;
            let (mut counted, mut rejects) = (Counted::default(), Rejects::default());
            self.index.scan(&Query { access_set, ..query.clone() }, &mut |volume, _| {
                let judgement = applied.judgement(volume);
                counted.add(&judgement);
                if let Judgement::Rejected(by) = judgement {
                    rejects.add(&by, volume);
                    rejected.push((volume.capacity.unwrap_or_default(), volume.name.clone()));
                }
                ControlFlow::Continue(())
            });
            self.counted.insert(access_set, counted);
            self.rejects.insert(access_set, rejects);
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
        self.narrowed()?;
        let Some(volume) = self.told.get(volume) else {
            return Err(Stop::Nonsense("a verdict about a volume that was not read before"));
        };
        self.named.insert(volume.name.clone(), Arc::clone(volume));
        if let Judgement::Rejected(by) = self.applied.judgement(volume) {
            self.applied.remember(&by, volume, &mut self.rejected);
        }
        self.applied.verdict(volume, self.rounds)
    }
}

impl Cluster for Filtered<'_> {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        // Every policy of the claim was skipped.
        if self.applied.asked.is_empty() && self.waits.is_none() {
            return self.index.ask(question);
        }
        match question {
            Question::Candidates { query, after, limit } => {
                Ok(Answer::Page(self.page(&query, after, limit)?))
            }
            Question::Tallies(query) => Ok(Answer::Tallies(self.tallies(query)?)),
            Question::Verdict(volume) => Ok(Answer::Verdict(self.verdict(&volume)?)),
            // What an engine asks before it sets a class or has a volume provisioned.
            question @ (Question::DefaultClasses | Question::DynamicProvisioning) => {
                self.narrowed()?;
                self.index.ask(question)
            }
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
