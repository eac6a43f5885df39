//! The store: one lock around the state.

mod read;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bindery_core::{Claim, ClaimKey, ColumnSet, Counted, DecisionLimits, Spread, Volume};

use crate::change::Change;
use crate::delivery::{Delivery, Kind, Object, Observed};
use crate::environment::Environment;
use crate::intern::Interner;
use crate::live::LiveReads;
use crate::session::Session;
use crate::state::State;

/// The objects that watches deliver, with the binder's own writes laid over them, and the index that engines
/// ask.
///
/// Shared by reference between threads. A read takes the lock for a look-up, a [`Session`] for a decision, a
/// delivery for an update of the index (microseconds each).
#[derive(Debug, Default)]
pub struct Store {
    state: RwLock<State>,
    /// Beside the state, so that deliveries are made compact before they take its lock.
    texts: Mutex<Interner>,
}

/// Why a volume cannot be reserved; the claim has to be decided again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReserved {
    /// Another decision in flight has picked it.
    #[error(
        "the volume is picked for claim {0} by a decision in flight; it is decided again when that one is \
         done"
    )]
    PickedFor(ClaimKey),
    /// The decision counts on other numbers of siblings' volumes than there are.
    #[error("the volumes of the claim's siblings have changed")]
    Siblings,
}

impl Store {
    /// A store that knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps the labels of namespaces from now on, because a policy reads them. They are listed before the
    /// store counts as synced.
    pub fn keep_namespaces(&self) {
        self.state_mut().keep_namespaces();
    }

    /// Keeps the last state of each claim that is gone from now on, for as long as a volume names it, because
    /// a reclaimer reads it.
    pub fn keep_last_claims(&self) {
        self.state_mut().keep_last_claims();
    }

    /// Forgets the last states of claims that are gone: they lack facts that a policy reads from now on, and
    /// a fact that was not decoded is not known to be absent.
    pub fn forget_last_claims(&self) {
        self.state_mut().forget_last_claims();
    }

    /// Keeps these columns of free volumes by row from now on, because policies read them. Where they are not
    /// kept, [`bindery_core::VolumeIndex::scan`] reads them from each volume, which takes ten times as long.
    pub fn keep_columns(&self, columns: Arc<ColumnSet>) {
        self.state_mut().keep_columns(columns);
    }

    /// Counts the volumes of siblings from now on, because policies spread volumes in these ways.
    pub fn keep_spreads(&self, spreads: &BTreeSet<Spread>) {
        self.state_mut().keep_spreads(spreads);
    }

    /// Remembers the latest changes from now on, so that questions can be answered as of an earlier revision
    /// ([`crate::AsOf`]), or forgets them and remembers none.
    pub fn keep_history(&self, is_kept: bool) {
        self.state_mut().keep_history(is_kept);
    }

    /// The known object that equals this one, if there is one, so that a list of known objects needs no
    /// memory for them. Looks at volumes and claims only.
    pub fn known(&self, object: &Object) -> Option<Object> {
        self.state().known(object)
    }

    /// Takes what a watch delivers. After the first list of every kind the store is synced.
    pub fn deliver(&self, mut delivery: Delivery) -> Change {
        delivery.objects_mut().iter_mut().for_each(|delivered| self.compact(&mut delivered.object));
        self.state_mut().deliver(delivery)
    }

    /// A consistent list of the kind is about to be requested, to be delivered when it is complete. One list
    /// of a kind is under way at a time; a list that was given up is forgotten when the next one begins.
    pub fn list_begins(&self, kind: Kind) {
        self.state_mut().list_begins(kind);
    }

    /// How many lists of the kind have begun. An object that was known when a list began, and that the list
    /// lacks, is gone.
    pub fn lists_begun(&self, kind: Kind) -> u64 {
        self.state().lists_begun(kind)
    }

    /// No decision may rest on what is known: each kind counts as synced again when its next list is
    /// complete.
    pub fn mark_unsynced(&self) {
        self.state_mut().mark_unsynced();
    }

    /// A write returned this volume: it is laid over the watch cache until the watch has caught up.
    ///
    /// Not taken ([`Change::fresh`] is `false`) where the watch does not know the volume (it is not created
    /// there yet, or is gone again), knows another one of that name, or knows the same or a newer version.
    pub fn assume_volume(&self, mut volume: Arc<Volume>) -> Change {
        self.compact_volume(&mut volume);
        self.state_mut().assume_volume(volume)
    }

    /// A write returned this claim; see [`Store::assume_volume`].
    pub fn assume_claim(&self, mut claim: Arc<Claim>) -> Change {
        self.compact_claim(&mut claim);
        self.state_mut().assume_claim(claim)
    }

    /// Picks a volume for a claim, before the decision is carried out: until [`Store::unreserve`], other
    /// claims see the volume as [`bindery_core::Slot::InFlight`], and siblings count it. May be repeated for
    /// the same claim. `counted` is what the decision counts on.
    ///
    /// Another decision that saw the volume as free and picks it too is refused here. So it changes nothing
    /// that others have to be told, but the numbers of siblings' volumes ([`crate::Fact::Siblings`]).
    ///
    /// # Errors
    ///
    /// The volume is picked for another claim, or siblings have other volumes than counted; decide again.
    pub fn reserve(
        &self,
        volume: &str,
        claim: &ClaimKey,
        counted: &[Counted],
    ) -> Result<Change, NotReserved> {
        self.state_mut().reserve(volume, claim, counted)
    }

    /// Ends a reservation, however the decision ended. Does nothing where the claim holds none.
    pub fn unreserve(&self, volume: &str, claim: &ClaimKey) -> Change {
        self.state_mut().unreserve(volume, claim)
    }

    /// A conversation for one decision. It sees the store as it is at its first question, until it is
    /// dropped; see [`Session`] for why, and for what must not be done meanwhile.
    pub fn session<'a>(
        &'a self,
        environment: &'a dyn Environment,
        live: &'a LiveReads,
        limits: DecisionLimits,
    ) -> Session<'a> {
        Session::new(self.state(), environment, live, limits)
    }

    // A panic under the lock is a bug that leaves the index half changed: no later decision may rest on it.
    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().expect("no code panics while it holds the store's lock")
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().expect("no code panics while it holds the store's lock")
    }

    /// Shares texts with other objects while the object has one owner.
    fn compact(&self, object: &mut Object) {
        match object {
            Object::Volume(_, Observed::Readable(volume)) => self.compact_volume(volume),
            Object::Claim(_, Observed::Readable(claim)) => self.compact_claim(claim),
            _ => {}
        }
    }

    fn compact_volume(&self, volume: &mut Arc<Volume>) {
        self.texts().share_volume(volume);
        self.state().share_claim_ref(volume);
    }

    fn compact_claim(&self, claim: &mut Arc<Claim>) {
        self.texts().share_claim(claim);
        self.state().share_volume_name(claim);
    }

    /// A panic cannot leave it wrong: every content of this cache is valid.
    fn texts(&self) -> MutexGuard<'_, Interner> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
