//! The default decision engine: upstream's PersistentVolume controller (Kubernetes v1.36.2) as pure
//! functions over [`Cluster`].
//!
//! Comments number the cases of upstream's functions in `pv_controller.go`, and tests refer to these numbers:
//! V1 to V9 in `syncVolume`, U1 to U10 in `syncUnboundClaim`, B1 to B5 in `syncBoundClaim`. A function in
//! parentheses is upstream's.
//!
//! # Guarantees
//!
//! - The same request and the same answers give the same decision, to the byte.
//! - Reads are upstream's, in upstream's order; each answer is used as upstream uses it.
//! - A write that would change nothing is not in the decision.
//! - An unreadable object is never treated as absent: the sync fails and an event says why.
//!
//! # Where it differs from upstream on purpose
//!
//! - Ties between equal volumes break by name (upstream: by the order of a hash map).
//! - A claim whose only fitting volumes are picked by decisions in flight waits for their end; it is neither
//!   provisioned for nor given a class because of them. The same holds for volumes that a policy withholds.
//! - A claim that names a free volume which a policy rejects stays pending, with an event (`claim.rs`).
//! - Where a volume could not be created, its asset is deleted only after a live read shows that the volume
//!   does not exist, and counts as deleted when the plugin says so (`operations/provision.rs`).
//! - A claim and the volume that it names are compared by their full sizes, as upstream does from v1.38
//!   (`claim.rs`).
//! - Where upstream leaves the end of an operation to its resync every 15 s, the decision asks to be made
//!   again after the same time, because there is no resync here.
//!
//! `tests/conformance/src/deviations.rs` lists every difference that a recorded case can show, those of host
//! and guard included.

mod bind;
mod call;
mod claim;
mod find;
mod migrate;
mod operations;
mod provision;
mod reclaim;
mod review;
mod volume;

use bindery_core::{Cluster, Decision, Engine, EngineFault, OperationKind, Outcome, Request, Stop, Subject};

use crate::call::{Call, Halt};

/// The default engine, run natively.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefaultEngine;

impl Engine for DefaultEngine {
    fn decide(&self, request: &Request, cluster: &mut dyn Cluster) -> Result<Decision, EngineFault> {
        Ok(decide(request, cluster)?)
    }

    fn digest(&self) -> &str {
        concat!("bindery-engine/", env!("CARGO_PKG_VERSION"))
    }
}

/// Decides `request`, asking `cluster` for what it needs.
pub fn decide(request: &Request, cluster: &mut dyn Cluster) -> Result<Decision, Stop> {
    let mut call = Call::new(cluster, &request.subject);
    let outcome = route(&mut call, &request.subject);
    call.conclude(outcome)
}

fn route(call: &mut Call<'_>, subject: &Subject) -> Result<Outcome, Halt> {
    match subject {
        Subject::SyncClaim(claim) => claim::sync(call, claim)?,
        Subject::SyncVolume(volume) => volume::sync(call, volume)?,
        Subject::SyncClaimOperation(progress) => match progress.operation.kind {
            OperationKind::ProvisionExternal => return operations::external::step(call, progress),
            OperationKind::Provision => return operations::provision::step(call, progress),
            OperationKind::Delete | OperationKind::Recycle => return Err(operations::misplaced()),
        },
        Subject::SyncVolumeOperation(progress) => match progress.operation.kind {
            OperationKind::Delete => return operations::delete::step(call, progress),
            OperationKind::Recycle => return operations::recycle::step(call, progress),
            OperationKind::ProvisionExternal | OperationKind::Provision => {
                return Err(operations::misplaced());
            }
        },
        Subject::ReviewClaim { new, old } => review::claim::review(call, new, old.as_deref())?,
        Subject::ReviewVolume { new, old } => review::volume::review(call, new, old.as_deref())?,
    }
    Ok(Outcome::Done)
}
