//! The conversation of one decision.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::{Arc, RwLockReadGuard};

use bindery_core::{
    Answer, Claim, ClaimKey, ClaimRef, Class, Cluster, ColumnRequirement, ColumnSet, Counted, DecisionLimits,
    Handle, Lookup, MatchVerdict, Page, PluginMatch, Quantity, Query, Question, QuestionBudget,
    ReclaimVerdict, RelatedLookup, Scanned, Slot, Source, Spread, Stop, Text, Uid, Volume, VolumeIndex,
    VolumeRow,
};
use rustc_hash::FxBuildHasher;

use crate::change::Revision;
use crate::environment::Environment;
use crate::index::Row;
use crate::live::LiveReads;
use crate::state::{Since, State, VolumeId};

/// Answers the questions of one decision from the store and an [`Environment`].
///
/// Sees one state of the store from its first question to its end, because it holds the store's read lock:
/// handles are plain numbers of volumes, pages continue where they stopped, and no answer contradicts an
/// earlier one. A snapshot would give that too, but copying on write costs the index far more than the lock
/// costs the writers: decisions take some 20 us and run in parallel, and a delivery waits for those in flight
/// at most. What the session saw is named by [`Session::revision`], so that a change after it is never lost.
///
/// While a session lives, its thread must not call the store: a writer that waits in between would make that
/// wait for ever. It is not `Send`, so it cannot live across an `await`.
pub struct Session<'a> {
    state: RwLockReadGuard<'a, State>,
    environment: &'a dyn Environment,
    live: &'a LiveReads,
    budget: QuestionBudget,
    since: Revision,
    asker: Option<(ClaimKey, Uid)>,
    handles: Handles,
    /// The last volume of a page that a decision in flight has picked.
    in_flight: Option<VolumeId>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        state: RwLockReadGuard<'a, State>,
        environment: &'a dyn Environment,
        live: &'a LiveReads,
        limits: DecisionLimits,
    ) -> Self {
        let since = live.begin(state.revision());
        let handles = Handles::default();
        let (asker, in_flight) = (None, None);
        let budget = QuestionBudget::new(limits);
        Self { state, environment, live, budget, since, asker, handles, in_flight }
    }

    /// Sets the claim that is decided about: a volume that is picked for it is free for it
    /// ([`Slot::Free`]), and a volume whose claimRef names it is not tallied as reserved for another.
    #[must_use]
    pub fn for_claim(mut self, key: ClaimKey, uid: Uid) -> Self {
        self.asker = Some((key, uid));
        self
    }

    /// Revision of the store that the session sees.
    pub fn at(&self) -> Revision {
        self.state.revision()
    }

    /// Revision of the store since which the decision is made: that of this session, or of the first one that
    /// used the same [`LiveReads`]. For [`crate::Subscriptions::subscribe`].
    pub fn revision(&self) -> Revision {
        self.since
    }

    /// The volume that a handle of this call stands for.
    pub fn name(&self, handle: Handle) -> Option<Text> {
        self.handles.id(handle).map(|id| self.state.volumes.get(id).name.clone())
    }

    /// The last volume that pages had as [`Slot::InFlight`]: binds take the first ones first. A decision that
    /// waits because of it depends on [`crate::Fact::Reservation`].
    pub fn in_flight(&self) -> Option<Text> {
        self.in_flight.map(|id| self.state.volumes.get(id).name.clone())
    }

    /// What has changed since a revision; `None` if that is not known.
    pub(crate) fn since(&self, revision: Revision) -> Option<Since<'_>> {
        self.state.since(revision)
    }

    /// The volume of that name, as the overlay has it.
    pub(crate) fn volume_now(&self, name: &str) -> Lookup<Arc<Volume>> {
        self.state.volume(Source::Overlay, name)
    }

    /// Whether the volume that a decision has picked for a claim, or for none, can be taken.
    pub(crate) fn is_for_asker(&self, picked_for: Option<&ClaimKey>) -> bool {
        picked_for.is_none_or(|claim| self.asker.as_ref().is_some_and(|(key, _)| key == claim))
    }

    pub(crate) fn answer(&mut self, question: Question) -> Result<Answer, Stop> {
        Ok(match question {
            Question::Claim(Source::Live, _) | Question::Volume(Source::Live, _) => {
                return self.live.next(&question).ok_or(Stop::LiveRead(question));
            }
            Question::Claim(source, key) => Answer::Claim(self.state.claim(source, &key)),
            Question::Volume(source, name) => Answer::Volume(self.state.volume(source, &name)),
            Question::Pods(key) => Answer::Pods(self.state.pods_using(&key)),
            Question::Node(name) => Answer::Node(self.state.node(&name)),
            Question::Class(name) => Answer::Class(self.state.class(&name)),
            Question::DefaultClasses => Answer::DefaultClasses(self.state.default_classes()),
            Question::Plugin(name) => Answer::Plugin(self.environment.plugin(&name)),
            Question::PluginForVolume(name) => Answer::PluginMatch(self.plugin_for_volume(&name)),
            Question::PluginReady(name, operation) => {
                Answer::Ready(self.environment.plugin_ready(&name, operation))
            }
            Question::Migration(name) => Answer::Migration(self.environment.migration(&name)),
            Question::DynamicProvisioning => {
                Answer::DynamicProvisioning(self.environment.dynamic_provisioning())
            }
            Question::Operation(kind, uid) => Answer::Operation(self.environment.operation(kind, &uid)),
            Question::AccessSets(containing) => Answer::AccessSets(self.state.index.access_sets(containing)),
            Question::Candidates { query, after, limit } => Answer::Page(self.page(&query, after, limit)?),
            Question::ReservedFor { key, uid } => Answer::Reserved(self.reserved_for(&key, &uid)?),
            Question::Identify(handle) => {
                Answer::Identity(self.state.volumes.indexed(self.volume(handle)?).target())
            }
            Question::Describe(handle) => {
                Answer::Described(self.state.volumes.indexed(self.volume(handle)?).clone())
            }
            Question::Tallies(query) => Answer::Tallies(self.state.tallies(&query, self.asker.as_ref())),
            // The store knows no policies; where some apply, their chain answers before it.
            Question::Verdict(_) => Answer::Verdict(MatchVerdict::Allowed),
            Question::Reclaim(_) => Answer::Reclaim(ReclaimVerdict::default()),
        })
    }

    fn plugin_for_volume(&self, name: &str) -> PluginMatch {
        let volume = self.state.volumes.find(name).and_then(|entry| entry.cached.overlay().ok());
        volume.map_or(PluginMatch::None, |volume| self.environment.plugin_for_volume(volume))
    }

    fn volume(&self, handle: Handle) -> Result<VolumeId, Stop> {
        self.handles.id(handle).ok_or(Stop::Nonsense("a handle that was not given in this call"))
    }

    fn page(&mut self, query: &Query, after: Option<Handle>, limit: u32) -> Result<Page, Stop> {
        let mut page = page_of(limit);
        self.handles.reserve(limit);
        let after = after.map(|handle| self.volume(handle)).transpose()?;
        let (state, handles, in_flight) = (&*self.state, &mut self.handles, &mut self.in_flight);
        let after = after.map(|id| (id, &**state.volumes.indexed(id)));
        // One row too many shows that the limit is exceeded; more would be work for nothing.
        let rows = (limit as usize).min(self.budget.rows_left().saturating_add(1));
        page.more = state.index.scan(query, &[], after, |row, is_picked, _| {
            if page.handles.len() == rows {
                return ControlFlow::Break(());
            }
            page.handles.push(handles.of(row.id));
            page.whole.push(row.whole);
            page.nanos.push(row.nanos);
            let slot = slot(state, &self.asker, row, is_picked);
            page.slots.push(slot);
            if slot == Slot::InFlight {
                *in_flight = Some(row.id);
            }
            ControlFlow::Continue(())
        });
        self.budget.take_rows(page.handles.len())?;
        Ok(page)
    }

    fn reserved_for(&mut self, key: &ClaimKey, uid: &Uid) -> Result<Vec<Handle>, Stop> {
        // Counted before they are sorted, which is the work.
        let count = usize::try_from(self.state.index.count_reserved_for(key));
        self.budget.take_rows(count.unwrap_or(usize::MAX))?;
        let ids = self.state.index.reserved_for(&self.state.volumes, key, uid);
        Ok(ids.into_iter().map(|id| self.handles.of(id)).collect())
    }
}

impl Cluster for Session<'_> {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        self.budget.take_question(&question)?;
        self.answer(question)
    }
}

impl VolumeIndex for Session<'_> {
    fn scan(
        &mut self,
        query: &Query,
        requirements: &[ColumnRequirement],
        columns: &Arc<ColumnSet>,
        each: &mut dyn FnMut(Scanned<'_>) -> ControlFlow<()>,
    ) {
        let (state, in_flight) = (&*self.state, &mut self.in_flight);
        let (are_shown, mut read) = (state.index.shows(columns), Vec::new());
        state.index.scan(query, requirements, None, |row, is_picked, shown| {
            let slot = slot(state, &self.asker, row, is_picked);
            if slot == Slot::InFlight {
                *in_flight = Some(row.id);
            }
            let volume = state.volumes.indexed(row.id);
            if !are_shown {
                read.clear();
                read.extend(columns.cells(volume));
            }
            let capacity = Quantity { whole: row.whole, nanos: row.nanos, ..Quantity::ZERO };
            let cells = if are_shown { shown } else { &read };
            each(Scanned { volume, row: VolumeRow { capacity, cells }, slot })
        });
    }

    fn handle(&mut self, volume: &str) -> Option<Handle> {
        self.state.volumes.id(volume).map(|id| self.handles.of(id))
    }
}

impl RelatedLookup for Session<'_> {
    fn namespace_labels(&self, name: &str) -> Lookup<Arc<BTreeMap<Text, Text>>> {
        self.state.namespace_labels(name)
    }

    fn last_claim(&self, claim_ref: &ClaimRef) -> Option<Arc<Claim>> {
        self.state.last_claim(claim_ref)
    }

    fn class_of(&self, name: &str) -> Lookup<Arc<Class>> {
        self.state.class(name)
    }

    fn siblings(&self, claim: &Claim, spread: &Spread) -> Counted {
        self.state.siblings(claim, spread)
    }
}

/// Whether the asking claim can take a free volume.
fn slot(state: &State, asker: &Option<(ClaimKey, Uid)>, row: &Row, is_picked: bool) -> Slot {
    let is_ours = || asker.as_ref().is_some_and(|(key, _)| state.picked_for(&row.name) == Some(key));
    if !is_picked || is_ours() { Slot::Free } else { Slot::InFlight }
}

/// An empty page, with room for the rows of most pages.
fn page_of(limit: u32) -> Page {
    let rows = room(limit);
    Page {
        handles: Vec::with_capacity(rows),
        whole: Vec::with_capacity(rows),
        nanos: Vec::with_capacity(rows),
        slots: Vec::with_capacity(rows),
        more: false,
    }
}

/// Rows to allocate at first: engines begin with small pages, and larger ones grow as needed.
fn room(limit: u32) -> usize {
    limit.min(16) as usize
}

/// The volumes of one call, numbered by first mention.
#[derive(Default)]
struct Handles {
    ids: Vec<VolumeId>,
    /// By a fast hash: callers cannot choose numbers that collide.
    by_id: HashMap<VolumeId, Handle, FxBuildHasher>,
}

impl Handles {
    fn reserve(&mut self, limit: u32) {
        self.ids.reserve(room(limit));
        self.by_id.reserve(room(limit));
    }

    fn of(&mut self, id: VolumeId) -> Handle {
        *self.by_id.entry(id).or_insert_with(|| {
            self.ids.push(id);
            // Each id is there once, and ids are numbers of 32 bits themselves: so the last place is one,
            // too.
            Handle(u32::try_from(self.ids.len() - 1).expect("there are no more places than ids"))
        })
    }

    fn id(&self, handle: Handle) -> Option<VolumeId> {
        self.ids.get(handle.0 as usize).copied()
    }
}
