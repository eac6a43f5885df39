//! Answers the questions of a decision that was made before, as they were answered then.

mod handles;

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use bindery_core::{
    Answer, Claim, ClaimKey, ClaimRef, Class, Cluster, ColumnRequirement, ColumnSet, Counted, DecisionLimits,
    Exchange, Handle, Lookup, MatchVerdict, Page, Quantity, Query, Question, QuestionBudget, Reason,
    ReclaimVerdict, RelatedLookup, Scanned, Siblings, Slot, Source, Spread, Stop, Tally, Text, Uid, Volume,
    VolumeIndex, VolumeRow, VolumeTarget,
};

use self::handles::{Handles, Named};
use crate::change::{Fact, Revision, Wanted, WantedSets, facts_of};
use crate::environment::Environment;
use crate::live::LiveReads;
use crate::session::Session;
use crate::state::{FreeVolume, Since};
use crate::store::Store;

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
///
/// Each question has a [`Session`] of its own. So the store is not locked while an engine computes, and an
/// engine that takes long delays no decision.
pub struct AsOf<'a> {
    store: &'a Store,
    environment: &'a dyn Environment,
    live: LiveReads,
    limits: DecisionLimits,
    budget: QuestionBudget,
    asker: Option<(ClaimKey, Uid)>,
    at: Revision,
    evidence: &'a [Exchange],
    counted: &'a [Counted],
    volumes: Handles,
    is_known: Cell<bool>,
}

impl<'a> AsOf<'a> {
    /// The cluster of a decision that was made on the store of that revision, with its questions and answers,
    /// and what its policies have counted of siblings. `None` if the store does not know any more what was
    /// then.
    pub fn new(
        store: &'a Store,
        environment: &'a dyn Environment,
        limits: DecisionLimits,
        at: Revision,
        evidence: &'a [Exchange],
        counted: &'a [Counted],
    ) -> Option<Self> {
        let (live, volumes, budget) = (LiveReads::new(), Handles::default(), QuestionBudget::new(limits));
        let (asker, is_known) = (None, Cell::new(true));
        let as_of = Self {
            store,
            environment,
            live,
            limits,
            budget,
            asker,
            at,
            evidence,
            counted,
            volumes,
            is_known,
        };
        as_of.session().since(at)?;
        Some(as_of)
    }

    /// Sets the claim that is decided about; see [`Session::for_claim`].
    #[must_use]
    pub fn for_claim(mut self, key: ClaimKey, uid: Uid) -> Self {
        self.asker = Some((key, uid));
        self
    }

    /// Whether no fact has changed that was asked of the store as it is now.
    pub fn is_known(&self) -> bool {
        self.is_known.get()
    }

    /// The free volume of that name, as it was then; any other as it is now.
    pub fn volume_then(&self, name: &str) -> Option<Arc<Volume>> {
        let session = self.session();
        if let Some(free) = self.since(&session).and_then(|since| since.free_volume(name)) {
            return Some(Arc::clone(&free.volume));
        }
        session.volume_now(name).found()
    }

    /// The store as it is now, locked.
    fn session(&self) -> Session<'_> {
        let session = self.store.session(self.environment, &self.live, self.limits);
        match self.asker.clone() {
            Some((key, uid)) => session.for_claim(key, uid),
            None => session,
        }
    }
    /// What the earlier decision was told.
    fn told(&self, question: &Question) -> Option<&'a Answer> {
        let mut told = self.evidence.iter();
        told.find(|exchange| exchange.question == *question).map(|exchange| &exchange.answer)
    }

    /// What has changed since then; `None` if that is not known any more, and then nothing is known.
    fn since<'s>(&self, session: &'s Session<'_>) -> Option<Since<'s>> {
        let since = session.since(self.at);
        if since.is_none() {
            self.is_known.set(false);
        }
        since
    }

    fn rests_on(&self, session: &Session<'_>, facts: &[Fact]) {
        let Some(since) = self.since(session) else { return };
        if facts.iter().any(|fact| has_changed(session, &since, fact)) {
            self.is_known.set(false);
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
        let mut session = self.session();
        if let Question::Volume(Source::Overlay, name) = &question
            && let Some(free) = self.since(&session).and_then(|since| since.free_volume(name))
        {
            return Ok(Answer::Volume(Lookup::Found(Arc::clone(&free.volume))));
        }
        let answer = session.answer(question.clone())?;
        self.rests_on(&session, &facts_of(&[Exchange { question, answer: answer.clone() }]));
        Ok(answer)
    }

    fn page(&mut self, query: &Query, after: Option<Handle>, limit: u32) -> Result<Page, Stop> {
        let after = match after.map(|after| self.volumes.get(after)).transpose()? {
            None => None,
            Some(Named::Volume(volume)) => Some((volume.capacity.unwrap_or_default(), volume.name.clone())),
            Some(Named::Told(_)) => return Err(Stop::Nonsense("a handle that is not in a page")),
        };
        let rows = (limit as usize).min(self.budget.rows_left().saturating_add(1));
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
        self.budget.take_rows(found.len())?;
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
        let session = self.session();
        self.rests_on(&session, &[Fact::Volume(Source::Overlay, target.name.clone())]);
        session.volume_now(&target.name).found().ok_or(Stop::NotRecorded)
    }

    fn reserved(&mut self, question: Question) -> Result<Vec<Handle>, Stop> {
        if let Some(Answer::Reserved(handles)) = self.told(&question) {
            return Ok(handles.iter().map(|handle| self.volumes.push(Named::Told(*handle))).collect());
        }
        let Question::ReservedFor { key, .. } = &question else { return Ok(Vec::new()) };
        let mut session = self.session();
        self.rests_on(&session, &[Fact::ReservedFor(key.clone())]);
        let Answer::Reserved(handles) = session.answer(question)? else { return Ok(Vec::new()) };
        let named = handles.iter().filter_map(|handle| session.name(*handle));
        let volumes: Vec<_> = named.filter_map(|name| session.volume_now(&name).found()).collect();
        drop(session);
        self.budget.take_rows(volumes.len())?;
        Ok(volumes.iter().map(|volume| self.volumes.of(volume)).collect())
    }

    fn tallies(&mut self, query: &Query) -> Result<Vec<Tally>, Stop> {
        let question = Question::Tallies(query.clone());
        if let Some(Answer::Tallies(tallies)) = self.told(&question) {
            // Those that a policy rejects are for the chain to count.
            return Ok(tallies.iter().filter(|tally| tally.reason != Reason::Rejected).cloned().collect());
        }
        let wanted = Wanted { query: Arc::new(query.clone()), sets: WantedSets::Containing, narrowed: None };
        let mut session = self.session();
        self.rests_on(&session, &[Fact::Candidates(wanted)]);
        match session.answer(question)? {
            Answer::Tallies(tallies) => Ok(tallies),
            _ => Ok(Vec::new()),
        }
    }
}

impl Cluster for AsOf<'_> {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        self.budget.take_question(&question)?;
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
        let mut session = self.session();
        let before = self.since(&session).map(|since| since.free_volumes()).unwrap_or_default();
        let mut undone: BTreeMap<(Quantity, &Text), &FreeVolume> = before
            .values()
            .flatten()
            .filter(|free| wanted.is_met_by(&free.volume))
            .map(|free| ((free.volume.capacity.unwrap_or_default(), &free.volume.name), free))
            .collect();
        let is_asker = |free: &FreeVolume| session.is_for_asker(free.picked_for.as_ref());
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
        session.scan(query, requirements, columns, &mut |scanned| {
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
}

impl RelatedLookup for AsOf<'_> {
    fn namespace_labels(&self, name: &str) -> Lookup<Arc<BTreeMap<Text, Text>>> {
        let session = self.session();
        self.rests_on(&session, &[Fact::Namespace(name.into())]);
        session.namespace_labels(name)
    }

    fn last_claim(&self, claim_ref: &ClaimRef) -> Option<Arc<Claim>> {
        self.session().last_claim(claim_ref)
    }

    fn class_of(&self, name: &str) -> Lookup<Arc<Class>> {
        let session = self.session();
        self.rests_on(&session, &[Fact::Class(name.into())]);
        session.class_of(name)
    }

    fn siblings(&self, claim: &Claim, spread: &Spread) -> Counted {
        let session = self.session();
        let now = session.siblings(claim, spread);
        if let Some(then) = self.counted.iter().find(|counted| counted.siblings == now.siblings) {
            return then.clone();
        }
        // A claim's own volumes do not count.
        let is_other =
            |(by, siblings): &(ClaimKey, Arc<Siblings>)| *by != claim.key && **siblings == now.siblings;
        if self.since(&session).is_none_or(|since| since.siblings().any(is_other)) {
            self.is_known.set(false);
        }
        now
    }
}

/// Whether a fact has changed since.
fn has_changed(session: &Session<'_>, since: &Since<'_>, fact: &Fact) -> bool {
    match fact {
        Fact::Candidates(wanted) => {
            let is_new = |volume: &Volume| volume.claim_ref.is_none() && wanted.is_met_by(volume);
            since.free_volumes().iter().any(|(name, before)| {
                before.is_none() && session.volume_now(name).found().is_some_and(|volume| is_new(&volume))
            })
        }
        Fact::AccessSets(containing) => {
            since.has_changed(|fact| matches!(fact, Fact::AccessSets(set) if set.contains(*containing)))
        }
        fact => since.has_changed(|changed| changed == fact),
    }
}
