//! Scripts: what is disturbed in a run, and where.

use serde::{Deserialize, Serialize};

/// The kinds that a replica watches, by resource.
pub(crate) const KINDS: [&str; 5] =
    ["persistentvolumes", "persistentvolumeclaims", "storageclasses", "pods", "nodes"];
/// The replicas of a run.
pub(crate) const REPLICAS: usize = 2;

/// A scenario, and what is disturbed in it. Printed as JSON, so that a failed run can be repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Script {
    /// The name of the scenario.
    pub(crate) scenario: String,
    /// In any order.
    pub(crate) perturbations: Vec<Perturbation>,
}

/// One disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Perturbation {
    /// The number of the point at which it begins: the requests and the frames of watches are numbered in the
    /// order in which they come, over all replicas.
    pub(crate) at: usize,
    /// The disturbance.
    pub(crate) effect: Effect,
}

/// A disturbance. The first five act on a request, and do nothing where the point is a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Effect {
    /// The request is refused with this HTTP status.
    Refuse(u16),
    /// The request never arrives.
    Swallow,
    /// The request arrives three points later, even if the replica has given it up.
    Delay,
    /// The request is carried out, and the connection breaks before the answer.
    LoseAnswer,
    /// The request arrives twice, as where a proxy tries again.
    Repeat,
    /// Frames of a kind to a replica wait until this many more points have come.
    Hold {
        /// The replica.
        replica: usize,
        /// Index of [`KINDS`].
        kind: usize,
        /// The number of points.
        points: usize,
    },
    /// The watches of a kind end.
    Cut {
        /// The replica.
        replica: usize,
        /// Index of [`KINDS`].
        kind: usize,
    },
    /// The watches of a kind end, and the API server has forgotten every version (410).
    Expire {
        /// The replica.
        replica: usize,
        /// Index of [`KINDS`].
        kind: usize,
    },
    /// A replica is killed, and starts anew some seconds later.
    Crash {
        /// The replica.
        replica: usize,
    },
    /// etcd is restored to what it was this many points before, and the API server starts anew.
    Restore {
        /// The number of points.
        points: usize,
    },
    /// The requests of a replica, and frames to it, wait for longer than its Lease lasts. Then they arrive.
    Isolate {
        /// The replica.
        replica: usize,
    },
}

/// The HTTP statuses that requests are refused with: those that the binder tells apart, and those of
/// overloaded or failing servers.
const STATUSES: [u16; 8] = [403, 404, 409, 422, 429, 500, 503, 504];
/// For how many points frames are held.
const HOLDS: [usize; 4] = [3, 10, 30, 100];

/// How many points a restore takes back.
const RESTORES: [usize; 4] = [1, 4, 12, 40];

/// Every single perturbation of a run of that many points.
pub(crate) fn all(points: usize) -> Vec<Perturbation> {
    let effects = effects();
    let at = |at| effects.iter().map(move |&effect| Perturbation { at, effect });
    (0..points).flat_map(at).collect()
}

/// Whether etcd is restored, which undoes what the user did.
pub(crate) fn restores(perturbations: &[Perturbation]) -> bool {
    perturbations.iter().any(|perturbation| matches!(perturbation.effect, Effect::Restore { .. }))
}

fn effects() -> Vec<Effect> {
    let mut effects: Vec<Effect> = STATUSES.into_iter().map(Effect::Refuse).collect();
    effects.extend([Effect::Swallow, Effect::Delay, Effect::LoseAnswer, Effect::Repeat]);
    effects.extend(RESTORES.map(|points| Effect::Restore { points }));
    for replica in 0..REPLICAS {
        effects.extend([Effect::Crash { replica }, Effect::Isolate { replica }]);
        for kind in 0..KINDS.len() {
            effects.extend(HOLDS.map(|points| Effect::Hold { replica, kind, points }));
            effects.extend([Effect::Cut { replica, kind }, Effect::Expire { replica, kind }]);
        }
    }
    effects
}

impl Effect {
    /// Whether it acts on the request at its point.
    pub(crate) fn is_of_request(self) -> bool {
        matches!(self, Self::Refuse(_) | Self::Swallow | Self::Delay | Self::LoseAnswer | Self::Repeat)
    }
}
