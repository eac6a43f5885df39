//! Work queues and loops: syncs claims and volumes, guards decisions, carries out actions, runs long
//! operations.
//!
//! Read in this order:
//!
//! 1. [`Intake::deliver`]: the way in, for everything that watches deliver.
//! 2. `decider.rs`: engine, guard and live reads. `executor.rs`: the writes of a decision.
//! 3. [`Binder::sync`]: one decision and its writes. [`Binder::perform`]: one long operation.
//! 4. [`Binder::run`]: the loop that calls both, with queue, key locks and retries.
//! 5. [`Port`]: the only way out, for each [`Write`], live read and event.
//! 6. [`Binder::observe`]: decisions without a write, compared with upstream's.
//! 7. [`Shadow`]: decisions made again beside the active ones, to show what would change.
//! 8. [`Binder::review`]: findings about an object that is about to be written.
//! 9. [`Plugin`]: provisions, deletes and recycles without an external provisioner.
//!
//! # Guarantees
//!
//! - Every write has passed [`bindery_core::guard`].
//! - One decision about an object is in flight at a time, of a sync or of a step of an operation.
//! - No clock but [`Port::now`] and [`tokio::time`], no randomness, no network, no Kubernetes JSON: tests run
//!   the same code on a simulator with a paused clock.
//! - The process may be killed at any point: everything that a decision needs is read from the cluster again.

mod binder;
mod configuration;
mod decider;
mod deletions;
mod error;
mod executor;
mod foreign_writers;
mod freshness;
mod intake;
mod journal;
mod labels;
mod metrics;
mod note;
mod observe;
mod operations;
mod plugin;
mod port;
mod queue;
mod shadow;
mod steer;
mod upstream;
mod write;
mod write_health;

pub use binder::{
    Binder, EVENT_REFRESH, Mode, Parts, PendingOperation, Policies, Reviewed, Settings, Synced,
};
pub use configuration::{Configuration, Migrations};
pub use decider::Reads;
pub use error::{OperationError, ReviewError, SyncError};
pub use foreign_writers::{ForeignWrite, ForeignWriters};
pub use freshness::{Freshness, Regression, Regressions, Sent};
pub use intake::Intake;
pub use journal::{DecidedRecord, DifferenceRecord, Journal, SwapRecord, WriteRecord};
pub use metrics::Metrics;
pub use note::{Note, REASON_UNWRITABLE};
pub use observe::{Compared, Observation, Steerable};
pub use operations::OPERATION_BACKOFF;
pub use plugin::{Order, Plugin, PluginError, Plugins};
pub use port::{Port, Purpose, WriteError, Written};
pub use queue::RETRY_BACKOFF_MAX;
pub use shadow::{Shadow, ShadowPart};
pub use upstream::UpstreamMetrics;
pub use write::{Target, Write};
pub use write_health::WriteHealth;
