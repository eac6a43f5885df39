//! The faults of a long run.

use std::time::Duration;

use bindery_cluster::{Faults, Request, RequestFault, Response, ResponseFault};
use rand::RngExt as _;
use rand::rngs::StdRng;

/// Longer than any run.
const FOREVER: Duration = Duration::from_secs(1_000_000);
/// Paths of the watches of each kind.
const PATHS: [&str; 5] = [
    "/api/v1/persistentvolumes",
    "/api/v1/persistentvolumeclaims",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/api/v1/pods",
    "/api/v1/nodes",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    LeaderKilled,
    /// For longer than its Lease, and continued.
    LeaderStopped,
    ApiServerKilled,
    EtcdKilled,
    /// With raised revisions.
    EtcdRestored,
    /// One replica's requests do not arrive, but the events of its watches do.
    RequestsLost,
    /// One replica's requests arrive, but no answers and no events.
    AnswersLost,
    /// The leader's watches of one kind stay open and silent.
    WatchesSilent,
    /// One replica's clock, by an hour and back.
    ClockJumps,
    /// The disk with the folders of volumes.
    DiskFull,
}

impl Fault {
    pub(crate) const ALL: [Self; 10] = [
        Self::LeaderKilled,
        Self::LeaderStopped,
        Self::ApiServerKilled,
        Self::EtcdKilled,
        Self::EtcdRestored,
        Self::RequestsLost,
        Self::AnswersLost,
        Self::WatchesSilent,
        Self::ClockJumps,
        Self::DiskFull,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LeaderKilled => "leader killed",
            Self::LeaderStopped => "leader stopped for longer than its Lease",
            Self::ApiServerKilled => "API server killed",
            Self::EtcdKilled => "etcd killed",
            Self::EtcdRestored => "etcd restored from a snapshot",
            Self::RequestsLost => "requests of one replica lost",
            Self::AnswersLost => "answers to one replica lost",
            Self::WatchesSilent => "the leader's watches of one kind silent",
            Self::ClockJumps => "clock of one replica an hour ahead, and back",
            Self::DiskFull => "disk full",
        }
    }
}

/// Leaves every request but watches without an answer, and does not forward it.
pub(crate) fn answers_no_request(request: &Request) -> RequestFault {
    if request.is_watch() { RequestFault::None } else { RequestFault::Delay(FOREVER) }
}

/// Loses the answer to every request that is not a watch.
pub(crate) struct LoseAnswers;

impl Faults for LoseAnswers {
    fn on_response(&self, _: &Request, _: &Response) -> ResponseFault {
        ResponseFault::Lose
    }
}

/// The path of any kind's watches.
pub(crate) fn path_of(chance: &mut StdRng) -> &'static str {
    PATHS[chance.random_range(0..PATHS.len())]
}
