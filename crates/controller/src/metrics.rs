//! Counters of what the binder does.

use prometheus_client::metrics::counter::Counter;

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident),* $(,)?) => {
        /// Counters since the start of the process.
        #[derive(Debug, Default)]
        pub struct Metrics { $($(#[doc = $doc])+ pub $name: Counter,)* }

        impl Metrics {
            /// Every counter with its name and what it counts, in a fixed order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), concat!($($doc),+).trim(), self.$name.get())),*].into_iter()
            }
        }
    };
}

counters! {
    /// Decisions made by the engine, those that were not carried out included.
    decisions,
    /// Decisions that the engine failed to make.
    engine_faults,
    /// Decisions that the guard refused.
    refusals,
    /// Decisions made again because the cluster had changed meanwhile.
    stale,
    /// Reservations lost to another decision in flight, or to a change of siblings' volumes.
    reservations_lost,
    /// Live reads for engines.
    live_reads,
    /// Live reads for the guard, each read that it repeats included.
    guard_reads,
    /// Writes that succeeded.
    writes,
    /// Writes that ended in a conflict.
    conflicts,
    /// Writes that failed otherwise.
    write_errors,
    /// Syncs that failed and are retried, conflicts included.
    sync_errors,
    /// Operations that succeeded.
    operations,
    /// Operations that failed.
    operation_errors,
    /// Lists and watches that failed and were tried again.
    watch_failures,
    /// Watches whose version the API server had forgotten, so that everything was listed again.
    watches_expired,
    /// Times that resource versions went back, as after a restore of etcd, so that all kinds were listed
    /// again.
    version_regressions,
    /// Volumes that were reserved by name, in mode steer.
    steer_reservations,
    /// Touches of claims whose volume is reserved, in mode steer.
    steer_touches,
    /// Reservations that were removed, in mode steer.
    steer_releases,
    /// Labels that were put on volumes for claims whose class waits for a pod, in mode steer.
    steer_labels,
    /// Reservations that were not removed because a person may have made them, in mode steer.
    steer_kept,
}
