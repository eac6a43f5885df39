//! The store, as everyone else sees it: one lock around the state.

mod own;
mod read;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bindery_core::{Claim, ClaimKey, DecisionLimits, Volume};

use crate::environment::Environment;
use crate::intern::Interner;
use crate::live::LiveReads;
use crate::session::Session;
use crate::state::State;

/// What the watches say, with the binder's own writes laid over it, and the index that engines ask.
///
/// Shared by reference between threads. A read takes the lock for a look-up, a [`Session`] for a decision, a
/// delivery for an update of the index (microseconds each).
#[derive(Debug, Default)]
pub struct Store {
    state: RwLock<State>,
    /// Beside the state, so that deliveries are made compact before they take its lock.
    texts: Mutex<Interner>,
}

/// Another decision in flight has picked the volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the volume is picked for claim {0} by a decision in flight; it is decided again when that one is done"
)]
pub struct HeldBy(pub ClaimKey);

impl Store {
    /// A store that knows nothing yet.
    pub fn new() -> Self {
        Self::default()
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

    // A panic under the lock is a bug that leaves the index half changed: everyone who comes after must not
    // decide on it.
    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().expect("no code panics while it holds the store's lock")
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().expect("no code panics while it holds the store's lock")
    }

    fn share_volume(&self, volume: &mut Arc<Volume>) {
        self.texts().share_volume(volume);
        self.state().share_claim_ref(volume);
    }

    fn share_claim(&self, claim: &mut Arc<Claim>) {
        self.texts().share_claim(claim);
        self.state().share_volume_name(claim);
    }

    /// Only a cache: whatever a panic left in it is right.
    fn texts(&self) -> MutexGuard<'_, Interner> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
