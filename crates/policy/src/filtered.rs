//! The cluster as an engine sees it where policies apply: volumes that they reject are left out, and the
//! others come in the order of their scores.

mod allowed;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use bindery_core::{
    AccessModes, Answer, Cell, Claim, Cluster, Handle, Lookup, MatchVerdict, NEAREST_MAX, Narrowed, Page,
    Quantity, Query, Question, Reason, Scanned, Slot, Stop, Tally, Text, Volume, VolumeIndex, VolumeRow,
};

pub use self::allowed::{AllowedVolumes, Scored, allowed};
use crate::chain::{Applied, Judgement};
use crate::evidence::Rejects;
use crate::rejections::JudgementCounts;
use crate::rounds::{Judging, Rounds};
use crate::spread::{Rejected, SpreadCounts};
use crate::{AnswerCache, Chain, CollectedEvidence, Rejections, RelatedObjects, Unscored, Waits};

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
    /// Set if more candidates were found than are scored.
    unscored: Option<Unscored>,
    /// What policies that spread have rejected.
    rejected: Rejected,
    /// The last scan of each access-mode set.
    scans: BTreeMap<AccessModes, Scan>,
    /// The volumes that the engine has asked for a verdict about.
    named: BTreeMap<Text, Arc<Volume>>,
    /// Whether all candidates are wanted, and not the first ones.
    wants_all: bool,
}

/// The candidates of one access-mode set.
#[derive(Default)]
struct List {
    rows: Vec<Row>,
    /// Whether no candidate follows after the rows.
    is_complete: bool,
}

/// What a scan of the candidates of one access-mode set has seen.
#[derive(Default)]
struct Scan {
    /// The query, where the scan has seen all volumes that meet it.
    all_of: Option<Query>,
    /// Whether the engine has asked for so many.
    is_asked_for: bool,
    counts: JudgementCounts,
    rejects: Rejects,
    /// Capacities and names of the first volumes that are rejected.
    nearest: Vec<(Quantity, Text)>,
}

impl Scan {
    fn add(&mut self, judgement: &Judgement, volume: &Arc<Volume>) {
        self.counts.add(judgement);
        if let Judgement::Rejected(by) = judgement {
            self.rejects.add(by, volume);
            if self.nearest.len() < NEAREST_MAX {
                self.nearest.push((volume.capacity.unwrap_or_default(), volume.name.clone()));
            }
        }
    }
}

struct Row {
    volume: Arc<Volume>,
    score: u32,
    slot: Slot,
    /// Set when the engine is told of the row.
    handle: Option<Handle>,
}

impl Row {
    fn new(volume: &Arc<Volume>, slot: Slot, score: u32) -> Self {
        Self { volume: Arc::clone(volume), score, slot, handle: None }
    }
}

impl<'a> Filtered<'a> {
    /// The cluster for a decision about `claim`; `None` if no policy applies to it.
    pub fn new(
        index: &'a mut dyn VolumeIndex,
        claim: &'a Claim,
        chain: &'a Chain,
        kept: &AnswerCache,
        rounds: &'a mut Rounds,
    ) -> Option<Self> {
        let filtered = Self::over(index, claim, chain, kept, rounds);
        (!filtered.is_unpoliced() || !filtered.applied.skipped.is_empty()).then_some(filtered)
    }

    fn over(
        index: &'a mut dyn VolumeIndex,
        claim: &'a Claim,
        chain: &'a Chain,
        kept: &AnswerCache,
        rounds: &'a mut Rounds,
    ) -> Self {
        let applied =
            RelatedObjects::of(claim, &*index, |related| chain.applied(claim, related, kept, &rounds.failed));
        let (applied, waits) = match applied {
            Ok(applied) => (applied, None),
            Err(waits) => {
                let (asked, skipped) = Default::default();
                (Applied { asked, skipped, columns: chain.columns() }, Some(waits))
            }
        };
        Self {
            index,
            claim,
            applied,
            waits,
            rounds,
            lists: BTreeMap::new(),
            told: BTreeMap::new(),
            unscored: None,
            rejected: Rejected::new(),
            scans: BTreeMap::new(),
            named: BTreeMap::new(),
            wants_all: false,
        }
    }

    /// Whether no policy is asked.
    fn is_unpoliced(&self) -> bool {
        self.applied.asked.is_empty() && self.waits.is_none()
    }

    /// What the policies have said, as far as the answers rest on it.
    pub fn collected(&mut self) -> CollectedEvidence {
        let rows = self.lists.values().flat_map(|list| &list.rows);
        let allowed = rows.filter(|row| row.slot != Slot::Withheld).map(|row| &row.volume);
        let allowed = allowed.filter(|volume| !self.named.contains_key(&volume.name));
        let first = self.named.values().chain(allowed);
        let mut collected =
            CollectedEvidence::of_claim(&self.applied, first, self.scans.values().map(|scan| &scan.rejects));
        collected.unscored = self.unscored.clone();
        collected.judged = std::mem::take(&mut self.rounds.judged);
        collected
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
    pub fn into_spread_counts(self) -> SpreadCounts {
        self.applied.spread_counts(self.rejected)
    }

    /// What the policies require of volumes before they judge any; `None` for nothing.
    pub fn required(&self) -> Option<Narrowed> {
        self.applied.required()
    }

    /// How many volumes the policies reject. `None` if that is none, or if the engine has asked neither for
    /// tallies nor for all candidates of a claim that rejected volumes hold back.
    pub fn rejections(&self) -> Option<Rejections> {
        let scans = self.scans.values().filter(|scan| scan.is_asked_for);
        JudgementCounts::sum(scans.map(|scan| &scan.counts), &self.applied)
    }

    /// The policy that scores fewer candidates than there are.
    pub fn unscored(&self) -> Option<Unscored> {
        self.unscored.clone()
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
        for Row { volume, slot, handle, .. } in list.rows.iter_mut().skip(from).take(limit as usize) {
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
        let (fewest, waits) = (applied.scores_fewest(), applied.waits());
        let (known, mut found, mut is_complete) = (list.rows.len(), Vec::new(), true);
        let wants_all = self.wants_all;
        let mut judging = Judging::new(applied, self.rounds.batch());
        let (mut withheld, mut scan) = (Vec::new(), Scan::default());
        // Where rejected volumes hold the claim back, they are looked at too.
        let requirements = if waits { Vec::new() } else { applied.requirements().collect() };
        let at_most = applied.at_most().filter(|_| !waits);
        let (kept, mut is_whole) = (applied.kept(), requirements.is_empty());
        self.index.scan(query, &requirements, applied.columns, &mut |Scanned { volume, row, slot }| {
            if at_most.is_some_and(|most| row.capacity > most) {
                is_whole = false;
                return ControlFlow::Break(());
            }
            if let Some((policy, max)) = fewest.filter(|(_, max)| found.len() >= *max) {
                self.unscored = Some(Unscored { policy: policy.clone(), max });
                is_whole = false;
                return ControlFlow::Break(());
            }
            let judgement = applied.judgement(&kept, &row);
            scan.add(&judgement, volume);
            match judgement {
                Judgement::Rejected(by) => {
                    applied.remember(&by, &row, rejected);
                    if applied.holds_back(&by) && withheld.len() < NEAREST_MAX {
                        withheld.push(Row::new(volume, Slot::Withheld, 0));
                    }
                }
                Judgement::Unjudged(policy, key) => judging.add(policy, key, &row),
                Judgement::Allowed(score) => {
                    found.push(Row::new(volume, slot, score));
                    if fewest.is_none() && !wants_all && slot == Slot::Free && found.len() > known {
                        is_complete = false;
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
        scan.all_of = (is_whole && is_complete).then(|| query.clone());
        let known = self.scans.entry(query.access_set).or_default();
        if known.all_of.as_ref() != Some(query) {
            *known = scan;
        }
        known.is_asked_for |= is_complete && waits;
        // Stable: candidates of equal scores stay in ascending (capacity, name).
        found.sort_by_key(|row| Reverse(row.score));
        list.rows = found;
        list.is_complete = is_complete;
        if is_complete {
            list.rows.extend(withheld);
        }
        Ok(())
    }

    /// The tallies of the index, and one of the volumes that policies reject.
    fn tallies(&mut self, query: Query) -> Result<Vec<Tally>, Stop> {
        self.narrowed()?;
        let (mut count, mut nearest) = (0, Vec::new());
        for access_set in (self.index as &mut dyn Cluster).access_sets(query.access_set)? {
            let query = Query { access_set, ..query.clone() };
            let known = self.scans.remove(&access_set).filter(|scan| scan.all_of.as_ref() == Some(&query));
            let mut scan = known.unwrap_or_else(|| self.scan_all(query));
            scan.is_asked_for = true;
            count += scan.counts.rejected();
            nearest.extend(scan.nearest.iter().cloned());
            self.scans.insert(access_set, scan);
        }
        let mut tallies = (self.index as &mut dyn Cluster).tallies(query)?;
        if count > 0 {
            nearest.sort_unstable();
            let nearest = nearest.into_iter().take(NEAREST_MAX).map(|(_, name)| name).collect();
            tallies.push(Tally { reason: Reason::Rejected, count, nearest });
        }
        Ok(tallies)
    }

    fn scan_all(&mut self, query: Query) -> Scan {
        let (applied, mut scan) = (&self.applied, Scan::default());
        let kept = applied.kept();
        self.index.scan(&query, &[], applied.columns, &mut |Scanned { volume, row, .. }| {
            scan.add(&applied.judgement(&kept, &row), volume);
            ControlFlow::Continue(())
        });
        Scan { all_of: Some(query), ..scan }
    }

    /// What the policies say about a volume that the claim names, as the engine has read it.
    fn verdict(&mut self, volume: &Text) -> Result<MatchVerdict, Stop> {
        self.narrowed()?;
        let Some(volume) = self.told.get(volume) else {
            return Err(Stop::Nonsense("a verdict about a volume that was not read before"));
        };
        self.named.insert(volume.name.clone(), Arc::clone(volume));
        let cells: Vec<Cell> = self.applied.columns.cells(volume).collect();
        let row = VolumeRow::new(volume, &cells);
        let judgement = self.applied.judgement(&self.applied.kept(), &row);
        if let Judgement::Rejected(by) = judgement {
            self.applied.remember(&by, &row, &mut self.rejected);
        }
        self.applied.verdict(volume, self.rounds)
    }
}

impl Cluster for Filtered<'_> {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        // Every policy of the claim was skipped.
        if self.is_unpoliced() {
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
