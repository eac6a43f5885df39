//! Scripts: what is disturbed in a run, and where.

use serde::{Deserialize, Serialize};

use crate::timeline::Point;

/// The kinds that a replica watches, by resource.
pub(crate) const KINDS: [&str; 5] =
    ["persistentvolumes", "persistentvolumeclaims", "storageclasses", "pods", "nodes"];
/// The replicas of a run.
pub(crate) const REPLICAS: usize = 2;
/// The place of upstream's binder, after the replicas.
pub(crate) const UPSTREAM: usize = REPLICAS;

macro_rules! refusals {
    ($($(#[$doc:meta])* $refusal:ident = $status:literal $reason:literal;)*) => {
        /// How a request is refused: the answers that the binder tells apart, and those of overloaded or
        /// failing servers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub(crate) enum Refusal { $($(#[$doc])* $refusal,)* }

        impl Refusal {
            const ALL: &'static [Self] = &[$(Self::$refusal),*];

            /// The HTTP status, and the reason of the `metav1.Status`.
            pub(crate) fn status(self) -> (u16, &'static str) {
                match self { $(Self::$refusal => ($status, $reason),)* }
            }
        }
    };
}

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

/// A disturbance. The first six act on a request, and do nothing where the point is a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Effect {
    /// The request is refused.
    Refuse(Refusal),
    /// The request never arrives.
    Swallow,
    /// The request arrives three points later, even if the replica has given it up.
    Delay,
    /// The request is carried out, and its answer comes three points later.
    DelayAnswer,
    /// The request is carried out, and the connection breaks before the answer.
    LoseAnswer,
    /// The request arrives twice, as where a proxy tries again.
    Repeat,
    /// Frames of a kind to a replica wait until this many more points have come.
    Hold {
        /// The replica, or upstream's binder.
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
    /// The watches of a kind end, and the next one is opened and says nothing.
    Mute {
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

/// For how many points frames are held.
const HOLDS: [usize; 4] = [3, 10, 30, 100];
/// Frames are held for fewer points than this where the number is random.
const HELD_BELOW: usize = 150;

/// How many points a restore takes back.
const RESTORES: [usize; 4] = [1, 4, 12, 40];
/// A restore takes back fewer points than this where the number is random.
const RESTORED_BELOW: usize = 60;

refusals! {
    Unauthorized = 401 "Unauthorized";
    Forbidden = 403 "Forbidden";
    /// The answer does not name the object, as where a proxy does not know the path. An answer that names it
    /// comes from the API server, and is believed.
    NotFound = 404 "NotFound";
    Conflict = 409 "Conflict";
    AlreadyExists = 409 "AlreadyExists";
    Invalid = 422 "Invalid";
    TooManyRequests = 429 "TooManyRequests";
    InternalError = 500 "InternalError";
    Unavailable = 503 "ServiceUnavailable";
    /// With a time after which to try again.
    UnavailableForSeconds = 503 "ServiceUnavailable";
    Timeout = 504 "Timeout";
    /// The text of a proxy, with the status of success.
    Unreadable = 200 "";
}

/// Each single perturbation that changes a run with these points: those that begin before point `active`, and
/// restores that begin later, when the cluster is at rest, and take back its last write.
pub(crate) fn all(points: &[Point], active: usize) -> Vec<Perturbation> {
    let effects = effects();
    let at = |at| effects.iter().map(move |&effect| Perturbation { at, effect });
    let before_rest = (0..active).flat_map(at).filter(|perturbation| perturbation.changes(points));
    let restores = |taken| {
        let at_rest = active..points.len().min(active + taken);
        at_rest.map(move |at| Perturbation { at, effect: Effect::Restore { points: taken } })
    };
    before_rest.chain(RESTORES.into_iter().flat_map(restores)).collect()
}

impl Perturbation {
    /// Whether it is among those that all pairs of the smallest scenarios are made of.
    pub(crate) fn is_common(&self, points: &[Point]) -> bool {
        const VOLUME_AND_CLAIM: usize = 2;
        if points[self.at].is_review() {
            return false;
        }
        match self.effect {
            Effect::Refuse(refusal) => matches!(refusal, Refusal::Conflict | Refusal::Unavailable),
            Effect::Hold { kind, points, .. } => kind < VOLUME_AND_CLAIM && (points == 10 || points == 100),
            Effect::Restore { points } => points == 4,
            Effect::LoseAnswer | Effect::Delay | Effect::Crash { .. } | Effect::Isolate { .. } => true,
            Effect::Swallow
            | Effect::DelayAnswer
            | Effect::Repeat
            | Effect::Cut { .. }
            | Effect::Expire { .. }
            | Effect::Mute { .. } => false,
        }
    }

    /// The same disturbance, which lasts or takes back another number of points, chosen by a number.
    pub(crate) fn of_any_length(self, number: usize) -> Self {
        let effect = match self.effect {
            Effect::Hold { replica, kind, .. } => {
                Effect::Hold { replica, kind, points: 1 + number % (HELD_BELOW - 1) }
            }
            Effect::Restore { .. } => Effect::Restore { points: 1 + number % (RESTORED_BELOW - 1) },
            other => other,
        };
        Self { effect, ..self }
    }

    /// Whether it changes anything in a run with these points, and does not repeat what it does one point
    /// before.
    fn changes(&self, points: &[Point]) -> bool {
        match self.effect {
            // A replica asks for its rights one after the other, and does nothing else meanwhile.
            Effect::Hold { .. }
            | Effect::Cut { .. }
            | Effect::Expire { .. }
            | Effect::Mute { .. }
            | Effect::Crash { .. }
            | Effect::Isolate { .. }
                if self.at > 0 && points[self.at - 1..=self.at].iter().all(Point::is_review) =>
            {
                false
            }
            Effect::Hold { replica, kind, points: held } => {
                let mut held = points.iter().skip(self.at).take(held);
                held.any(|point| point.replica == replica && point.frame == Some(kind))
            }
            // The network refuses no creation with a name that is free.
            Effect::Refuse(Refusal::AlreadyExists) => {
                let Point { what, frame, .. } = &points[self.at];
                frame.is_none() && !what.starts_with("POST ")
            }
            effect => !effect.is_of_request() || points[self.at].frame.is_none(),
        }
    }
}

impl Script {
    /// Simpler scripts, the simplest first: without one of the disturbances, then with one of them shorter or
    /// earlier.
    fn simpler(&self) -> Vec<Self> {
        let with = |at: usize, changed: Option<Perturbation>| {
            let mut perturbations = self.perturbations.clone();
            perturbations.splice(at..=at, changed);
            Self { scenario: self.scenario.clone(), perturbations }
        };
        let known = || self.perturbations.iter().enumerate();
        let dropped = known().filter(|_| self.perturbations.len() > 1).map(|(at, _)| with(at, None));
        let changed = known().flat_map(|(at, known)| known.simpler().map(move |one| (at, one)));
        dropped.chain(changed.map(|(at, one)| with(at, Some(one)))).collect()
    }

    /// The simplest script that still fails.
    pub(crate) fn shrunk(self, fails: impl Fn(&Self) -> bool) -> Self {
        let simpler = self.simpler().into_iter().find(|simpler| fails(simpler));
        simpler.map_or(self, |simpler| simpler.shrunk(fails))
    }
}

impl Perturbation {
    fn simpler(self) -> impl Iterator<Item = Self> {
        let shorter = |of: [usize; 4], points| of.into_iter().filter(move |shorter| *shorter < points);
        let effects: Vec<Effect> = match self.effect {
            Effect::Hold { replica, kind, points } => {
                shorter(HOLDS, points).map(|points| Effect::Hold { replica, kind, points }).collect()
            }
            Effect::Restore { points } => {
                shorter(RESTORES, points).map(|points| Effect::Restore { points }).collect()
            }
            _ => Vec::new(),
        };
        let at = self.at;
        let earlier = [at / 2, at - at / 4, at.saturating_sub(1)].into_iter().filter(move |one| *one < at);
        let earlier = earlier.map(move |at| Self { at, ..self });
        effects.into_iter().map(move |effect| Self { effect, ..self }).chain(earlier)
    }
}

/// Whether etcd is restored, which undoes what the user did.
pub(crate) fn restores(perturbations: &[Perturbation]) -> bool {
    perturbations.iter().any(|perturbation| matches!(perturbation.effect, Effect::Restore { .. }))
}

/// Whether a replica dies, or loses its Lease.
pub(crate) fn replaces_a_leader(perturbations: &[Perturbation]) -> bool {
    let replaces = |effect| matches!(effect, Effect::Crash { .. } | Effect::Isolate { .. });
    perturbations.iter().any(|perturbation| replaces(perturbation.effect))
}

/// Whether a replica may learn late of objects of a resource.
pub(crate) fn delays(perturbations: &[Perturbation], resource: &str) -> bool {
    use Effect::{Cut, Expire, Hold, Isolate, Mute, Restore};
    let delays = |effect| match effect {
        Hold { kind, .. } | Cut { kind, .. } | Expire { kind, .. } | Mute { kind, .. } => {
            KINDS[kind] == resource
        }
        Isolate { .. } | Restore { .. } => true,
        _ => false,
    };
    perturbations.iter().any(|perturbation| delays(perturbation.effect))
}

/// Whether a pod with a scheduling gate may stay until the next term: the request for it came late or its
/// answer was lost, or the request to delete it failed.
pub(crate) fn may_leave_pods(perturbations: &[Perturbation], points: &[Point]) -> bool {
    use Effect::{Isolate, LoseAnswer, Refuse, Swallow};
    let is_about_pods = |at: usize| points.get(at).is_some_and(|point| point.what.contains("/pods"));
    let may_leave = |perturbation: &Perturbation| match perturbation.effect {
        Refuse(_) | Swallow | LoseAnswer => is_about_pods(perturbation.at),
        Isolate { .. } => true,
        _ => false,
    };
    perturbations.iter().any(may_leave)
}

fn effects() -> Vec<Effect> {
    let mut effects: Vec<Effect> = Refusal::ALL.iter().copied().map(Effect::Refuse).collect();
    effects.extend([Effect::Swallow, Effect::Delay, Effect::DelayAnswer, Effect::LoseAnswer, Effect::Repeat]);
    effects.extend(RESTORES.map(|points| Effect::Restore { points }));
    for replica in 0..REPLICAS {
        effects.extend([Effect::Crash { replica }, Effect::Isolate { replica }]);
        for kind in 0..KINDS.len() {
            effects.extend(HOLDS.map(|points| Effect::Hold { replica, kind, points }));
            effects.extend([Effect::Cut { replica, kind }, Effect::Expire { replica, kind }]);
            effects.push(Effect::Mute { replica, kind });
        }
    }
    for kind in 0..KINDS.len() {
        effects.extend(HOLDS.map(|points| Effect::Hold { replica: UPSTREAM, kind, points }));
    }
    effects
}

impl Effect {
    /// Whether it acts on the request at its point.
    pub(crate) fn is_of_request(self) -> bool {
        use Effect::{Delay, DelayAnswer, LoseAnswer, Refuse, Repeat, Swallow};
        matches!(self, Refuse(_) | Swallow | Delay | DelayAnswer | LoseAnswer | Repeat)
    }
}
