//! The comparison of observe mode: whether upstream bound each claim as Bindery would have.
//!
//! Upstream's choice shows in a write: a volume's claimRef gets the UID of a claim, or, if another program
//! had done that (an external provisioner, the scheduler, a user), the claim gets bind-completed. Just before
//! the store takes that write, it has the state that upstream chose from, so Bindery decides at that moment.
//! An earlier decision would differ if upstream took another claim first, and a later one would see the
//! choice.
//!
//! That state may include changes that came after upstream had chosen and before its write. Upstream binds
//! one claim after the other, and it must have known the claim and the volume in the versions that its write
//! names. If the volume that Bindery prefers is younger than all of these, the choices cannot be compared.
//!
//! Binds that a replica of Bindery made are not compared at all.

mod compare;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bindery_core::{Claim, ClaimKey, Text, Uid, Version, named_cases};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;

pub(crate) use self::compare::{BinderObserver, Foreseen};

/// How long a claim may be awaited before a log line names it: under load upstream takes seconds.
const OVERDUE: Duration = Duration::from_secs(60);

named_cases! {
    /// Upstream's choice for a claim, compared with Bindery's.
    Compared {
        /// The same volume.
        Same = "same";
        /// Another volume that is as good by upstream's order: upstream's choice among such is arbitrary.
        Tie = "tie";
        /// Another volume, or a volume although Bindery would have bound none.
        Different = "different";
        /// The choices cannot be compared: the claim was gone or not seen before, or the world changed
        /// between.
        NotComparable = "not_comparable";
        /// A policy applies to the claim. Upstream knows none, so the choices are not compared.
        Policy = "policy";
    }
}

named_cases! {
    /// What mode steer would have chosen for a claim that upstream has bound, if its namespace and class were
    /// in scope.
    Steerable {
        /// The same volume.
        Same = "same";
        /// Another volume.
        Other = "other";
        /// None: the claim would wait.
        Nothing = "none";
        /// That is not known.
        Unknown = "unknown";
    }
}

/// How a watch delivered a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// By itself, in order.
    Watch,
    /// The bind came in a list, with everything else that has changed since the last one.
    List,
}

/// The results of observe mode so far. In own mode it stays empty.
#[derive(Debug, Default)]
pub struct Observation {
    outcomes: [Counter; Compared::ALL.len()],
    steerable: [Counter; Steerable::ALL.len()],
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Claims that were counted, until they are gone.
    counted: HashSet<Uid>,
    /// Claims as they were before they were bound, whose volumes the watch has not delivered yet.
    awaiting_volume: HashMap<Uid, Arc<Claim>>,
    /// Claims that Bindery would bind now, and upstream has not bound yet.
    awaited: HashMap<ClaimKey, Awaited>,
    /// Version that upstream's last choice left.
    last_choice: Option<Version>,
}

/// A claim that upstream has not bound yet.
#[derive(Debug)]
struct Awaited {
    uid: Uid,
    since: Instant,
    is_told: bool,
}

impl Observation {
    /// Number of claims with that outcome. A claim is identified by UID and has at most one outcome.
    pub fn count(&self, outcome: Compared) -> u64 {
        self.outcomes[outcome as usize].get()
    }

    /// Number of claims that could have been steered, by what they would have got.
    pub fn steerable(&self, steerable: Steerable) -> u64 {
        self.steerable[steerable as usize].get()
    }

    /// How many claims Bindery would bind now that upstream has not bound.
    pub fn awaited(&self) -> usize {
        self.state.lock().awaited.len()
    }

    /// Records the volume that a decision would bind a claim to. Returns the delay after which the claim is
    /// decided again, to log that upstream has not bound it.
    pub(crate) fn decided(&self, claim: &Claim, chosen: Option<&Text>) -> Option<Duration> {
        let mut state = self.state.lock();
        let Some(volume) = chosen.filter(|_| !claim.annotations.bind_completed) else {
            state.awaited.remove(&claim.key);
            return None;
        };
        let now = Instant::now();
        let begun = || Awaited { uid: claim.uid.clone(), since: now, is_told: false };
        let awaited = state.awaited.entry(claim.key.clone()).or_insert_with(begun);
        if awaited.uid != claim.uid {
            *awaited = begun();
        }
        if awaited.is_told {
            return None;
        }
        let left = (awaited.since + OVERDUE).saturating_duration_since(now);
        if !left.is_zero() {
            return Some(left);
        }
        awaited.is_told = true;
        tracing::info!(
            bindery = %volume,
            "upstream has not bound a claim for a minute that Bindery would bind"
        );
        None
    }

    /// Versions went back: upstream's next choice has a lower one.
    pub(crate) fn forget_versions(&self) {
        self.state.lock().last_choice = None;
    }
}
