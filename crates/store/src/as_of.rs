//! Answers the questions of a decision that was made before, as they were answered then.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use bindery_core::{
    Answer, Claim, ClaimKey, ClaimRef, Class, Cluster, ColumnRequirement, ColumnSet, Counted, Exchange,
    Handle, Lookup, MatchVerdict, Page, Quantity, Query, Question, Reason, ReclaimVerdict, Scanned, Siblings,
    Slot, Source, Spread, Stop, Tally, Text, Volume, VolumeIndex, VolumeRow, VolumeTarget,
};

use crate::change::{Fact, Revision, Wanted, WantedSets, facts_of};
use crate::session::Session;
use crate::state::{FreeVolume, Since};

/// The cluster of an earlier decision, for another engine or other policies.
///
/// - What the decision was told is told again, but for free volumes and for what policies say.
/// - Free volumes are those of the store, with every later change undone: the decision's own write, and those
///   of others.
/// - Anything else is asked of the store as it is now. It counts only if no fact of the answer has changed
///   since; if one has, [`AsOf::is_known`] says so, and the answers are worth nothing.
///
/// Tallies are those of now: engines put them into events, which is all that they are for. They do not count
/// if a volume has become free since that they would have counted among the others.
pub struct AsOf<'a> {
    session: Session<'a>,
    evidence: &'a [Exchange],
    counted: &'a [Counted],
    since: Since,
    volumes: Handles,
    is_known: Cell<bool>,
}

/// The volumes of one call, numbered by first mention.
#[derive(Default)]
struct Handles {
    named: Vec<Named>,
    by_name: HashMap<Text, Handle>,
}

/// What a handle stands for.
#[derive(Clone)]
enum Named {
    Volume(Arc<Volume>),
    /// The handle of the earlier decision.
    Told(Handle),
}

impl Handles {
    fn push(&mut self, named: Named) -> Handle {
        self.named.push(named);
        // There are no more handles than rows, which the budget bounds.
        Handle(u32::try_from(self.named.len() - 1).unwrap_or(u32::MAX))
    }

    fn of(&mut self, volume: &Arc<Volume>) -> Handle {
        if let Some(handle) = self.by_name.get(&volume.name) {
            return *handle;
        }
        let handle = self.push(Named::Volume(Arc::clone(volume)));
        self.by_name.insert(volume.name.clone(), handle);
        handle
    }

    fn get(&self, handle: Handle) -> Result<&Named, Stop> {
        let named = self.named.get(handle.0 as usize);
        named.ok_or(Stop::Nonsense("a handle that was not given in this call"))
    }
}

impl<'a> AsOf<'a> {
    /// The cluster of a decision that was made on the store of that revision, with its questions and answers,
    /// and what its policies have counted of siblings. `None` if the store does not know any more what was
    /// then.
    pub fn new(
        session: Session<'a>,
        at: Revision,
        evidence: &'a [Exchange],
        counted: &'a [Counted],
    ) -> Option<Self> {
        let since = session.since(at)?;
        let (volumes, is_known) = (Handles::default(), Cell::new(true));
        Some(Self { session, evidence, counted, since, volumes, is_known })
    }

    /// Whether no fact has changed that was asked of the store as it is now.
    pub fn is_known(&self) -> bool {
        self.is_known.get()
    }

    /// The free volume of that name, as it was then; any other as it is now.
    pub fn volume_then(&self, name: &str) -> Option<Arc<Volume>> {
        if let Some(Some(FreeVolume { volume, .. })) = self.since.before.get(name) {
            return Some(Arc::clone(volume));
        }
        match self.session.volume_now(name) {
            Lookup::Found(volume) => Some(volume),
            _ => None,
        }
    }

    /// What the earlier decision was told.
    fn told(&self, question: &Question) -> Option<&'a Answer> {
        let mut told = self.evidence.iter();
        told.find(|exchange| exchange.question == *question).map(|exchange| &exchange.answer)
    }

    fn rests_on(&self, facts: &[Fact]) {
        if facts.iter().any(|fact| self.has_changed(fact)) {
            self.is_known.set(false);
        }
    }

    fn has_changed(&self, fact: &Fact) -> bool {
        match fact {
            Fact::Candidates(wanted) => self.since.before.iter().any(|(name, before)| {
                let is_new = |volume: &Volume| volume.claim_ref.is_none() && wanted.is_met_by(volume);
                before.is_none()
                    && matches!(self.session.volume_now(name), Lookup::Found(volume) if is_new(&volume))
            }),
            Fact::AccessSets(containing) => self
                .since
                .facts
                .iter()
                .any(|fact| matches!(fact, Fact::AccessSets(set) if set.contains(*containing))),
            fact => self.since.facts.contains(fact),
        }
    }

    fn answer(&mut self, question: Question) -> Result<Answer, Stop> {
        match &question {
            Question::Candidates { query, after, limit } => {
                return Ok(Answer::Page(self.page(query, *after, *limit)?));
            }
            Question::Identify(handle) => return self.identify(*handle).map(Answer::Identity),
            Question::Describe(handle) => return self.describe(*handle).map(Answer::Described),
            Question::ReservedFor { .. } => return self.reserved(question).map(Answer::Reserved),
            Question::Tallies(query) => return self.tallies(query).map(Answer::Tallies),
            // The policies answer before the store, where some apply.
            Question::Verdict(_) => return Ok(Answer::Verdict(MatchVerdict::Allowed)),
            Question::Reclaim(_) => return Ok(Answer::Reclaim(ReclaimVerdict::default())),
            _ => {}
        }
        if let Some(answer) = self.told(&question) {
            return Ok(answer.clone());
        }
        if let Question::Volume(Source::Overlay, name) = &question
            && let Some(Some(FreeVolume { volume, .. })) = self.since.before.get(name)
        {
            return Ok(Answer::Volume(Lookup::Found(Arc::clone(volume))));
        }
        let answer = self.session.answer(question.clone())?;
        self.rests_on(&facts_of(&[Exchange { question, answer: answer.clone() }]));
        Ok(answer)
    }

    fn page(&mut self, query: &Query, after: Option<Handle>, limit: u32) -> Result<Page, Stop> {
        let after = match after.map(|after| self.volumes.get(after)).transpose()? {
            None => None,
            Some(Named::Volume(volume)) => Some((volume.capacity.unwrap_or_default(), volume.name.clone())),
            Some(Named::Told(_)) => return Err(Stop::Nonsense("a handle that is not in a page")),
        };
        let rows = (limit as usize).min(self.session.budget().rows_left().saturating_add(1));
        let (mut page, mut found) = (Page::default(), Vec::new());
        let columns = Arc::new(ColumnSet::new(Default::default(), Default::default()));
        self.scan(query, &[], &columns, &mut |Scanned { volume, row, slot }| {
            let is_later = after
                .as_ref()
                .is_none_or(|(capacity, name)| (row.capacity, &volume.name) > (*capacity, name));
            if is_later && found.len() == rows {
                page.more = true;
                return ControlFlow::Break(());
            }
            if is_later {
                found.push(Arc::clone(volume));
                page.whole.push(row.capacity.whole);
                page.nanos.push(row.capacity.nanos);
                page.slots.push(slot);
            }
            ControlFlow::Continue(())
        });
        self.session.budget().take_rows(found.len())?;
        page.handles = found.iter().map(|volume| self.volumes.of(volume)).collect();
        Ok(page)
    }

    /// The target that the earlier decision was told of one of its handles.
    fn told_of(&self, handle: Handle) -> Option<VolumeTarget> {
        match self.told(&Question::Identify(handle))? {
            Answer::Identity(target) => Some(target.clone()),
            _ => None,
        }
    }

    fn described(&self, handle: Handle) -> Option<Arc<Volume>> {
        match self.told(&Question::Describe(handle))? {
            Answer::Described(volume) => Some(Arc::clone(volume)),
            _ => None,
        }
    }

    fn identify(&mut self, handle: Handle) -> Result<VolumeTarget, Stop> {
        let told = match self.volumes.get(handle)?.clone() {
            Named::Volume(volume) => return Ok(volume.target()),
            Named::Told(told) => told,
        };
        let described = || self.described(told).map(|volume| volume.target());
        self.told_of(told).or_else(described).ok_or(Stop::NotRecorded)
    }

    fn describe(&mut self, handle: Handle) -> Result<Arc<Volume>, Stop> {
        let told = match self.volumes.get(handle)?.clone() {
            Named::Volume(volume) => return Ok(volume),
            Named::Told(told) => told,
        };
        if let Some(volume) = self.described(told) {
            return Ok(volume);
        }
        let target = self.told_of(told).ok_or(Stop::NotRecorded)?;
        self.rests_on(&[Fact::Volume(Source::Overlay, target.name.clone())]);
        match self.session.volume_now(&target.name) {
            Lookup::Found(volume) => Ok(volume),
            _ => Err(Stop::NotRecorded),
        }
    }

    fn reserved(&mut self, question: Question) -> Result<Vec<Handle>, Stop> {
        if let Some(Answer::Reserved(handles)) = self.told(&question) {
            return Ok(handles.iter().map(|handle| self.volumes.push(Named::Told(*handle))).collect());
        }
        let Question::ReservedFor { key, .. } = &question else { return Ok(Vec::new()) };
        self.rests_on(&[Fact::ReservedFor(key.clone())]);
        let Answer::Reserved(handles) = self.session.answer(question)? else { return Ok(Vec::new()) };
        let names: Vec<Text> = handles.iter().filter_map(|handle| self.session.name(*handle)).collect();
        let volumes = names.iter().filter_map(|name| match self.session.volume_now(name) {
            Lookup::Found(volume) => Some(volume),
            _ => None,
        });
        Ok(volumes.collect::<Vec<_>>().iter().map(|volume| self.volumes.of(volume)).collect())
    }

    fn tallies(&mut self, query: &Query) -> Result<Vec<Tally>, Stop> {
        let question = Question::Tallies(query.clone());
        if let Some(Answer::Tallies(tallies)) = self.told(&question) {
            // Those that a policy rejects are for the chain to count.
            return Ok(tallies.iter().filter(|tally| tally.reason != Reason::Rejected).cloned().collect());
        }
        let wanted = Wanted { query: Arc::new(query.clone()), sets: WantedSets::Containing, narrowed: None };
        self.rests_on(&[Fact::Candidates(wanted)]);
        match self.session.answer(question)? {
            Answer::Tallies(tallies) => Ok(tallies),
            _ => Ok(Vec::new()),
        }
    }
}

impl Cluster for AsOf<'_> {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        self.session.budget().take_question(&question)?;
        self.answer(question)
    }
}

impl VolumeIndex for AsOf<'_> {
    fn scan(
        &mut self,
        query: &Query,
        requirements: &[ColumnRequirement],
        columns: &Arc<ColumnSet>,
        each: &mut dyn FnMut(Scanned<'_>) -> ControlFlow<()>,
    ) {
        let wanted = Wanted { query: Arc::new(query.clone()), sets: WantedSets::Exact, narrowed: None };
        let before = &self.since.before;
        let mut undone: BTreeMap<(Quantity, &Text), &FreeVolume> = before
            .values()
            .flatten()
            .filter(|free| wanted.is_met_by(&free.volume))
            .map(|free| ((free.volume.capacity.unwrap_or_default(), &free.volume.name), free))
            .collect();
        let is_asker = |free: &FreeVolume| self.session.is_for_asker(free.picked_for.as_ref());
        let slots: HashMap<&Text, Slot> = undone
            .values()
            .map(|free| (&free.volume.name, if is_asker(free) { Slot::Free } else { Slot::InFlight }))
            .collect();
        let give = |free: &FreeVolume, each: &mut dyn FnMut(Scanned<'_>) -> ControlFlow<()>| {
            let cells: Vec<_> = columns.cells(&free.volume).collect();
            let row = VolumeRow::new(&free.volume, &cells);
            let slot = slots.get(&free.volume.name).copied().unwrap_or(Slot::Free);
            each(Scanned { volume: &free.volume, row, slot })
        };
        let mut is_broken = false;
        self.session.scan(query, requirements, columns, &mut |scanned| {
            while let Some(entry) = undone.first_entry() {
                if *entry.key() > (scanned.row.capacity, &scanned.volume.name) {
                    break;
                }
                let free = entry.remove();
                if give(free, &mut *each).is_break() {
                    is_broken = true;
                    return ControlFlow::Break(());
                }
            }
            if before.contains_key(&scanned.volume.name) {
                return ControlFlow::Continue(());
            }
            let flow = each(scanned);
            is_broken = flow.is_break();
            flow
        });
        if !is_broken {
            let _ = undone.values().try_for_each(|free| give(free, &mut *each));
        }
    }

    fn handle(&mut self, volume: &str) -> Option<Handle> {
        let volume = self.volume_then(volume)?;
        Some(self.volumes.of(&volume))
    }

    fn namespace_labels(&self, name: &str) -> Lookup<Arc<BTreeMap<Text, Text>>> {
        self.rests_on(&[Fact::Namespace(name.into())]);
        self.session.namespace_labels(name)
    }

    fn last_claim(&self, claim_ref: &ClaimRef) -> Option<Arc<Claim>> {
        self.session.last_claim(claim_ref)
    }

    fn class_of(&self, name: &str) -> Lookup<Arc<Class>> {
        self.rests_on(&[Fact::Class(name.into())]);
        self.session.class_of(name)
    }

    fn siblings(&self, claim: &Claim, spread: &Spread) -> Counted {
        let now = self.session.siblings(claim, spread);
        if let Some(then) = self.counted.iter().find(|counted| counted.siblings == now.siblings) {
            return then.clone();
        }
        // A claim's own volumes do not count.
        let is_other =
            |(by, siblings): &(ClaimKey, Arc<Siblings>)| *by != claim.key && **siblings == now.siblings;
        if self.since.siblings.iter().any(is_other) {
            self.is_known.set(false);
        }
        now
    }
}
