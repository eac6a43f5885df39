//! Long operations, one step at a time.
//!
//! Each step gets the last point of the operation and its outcome, and decides what comes next. The variables
//! of upstream's goroutines are in [`bindery_core::Progress`]; nothing else is kept.

pub(crate) mod delete;
pub(crate) mod external;
pub(crate) mod provision;
pub(crate) mod recycle;

use bindery_core::{Claim, EventKind, Failure, Returned, Stop, Text};

use crate::call::{Call, Halt};

/// Pause before something is tried again within an operation, in milliseconds (upstream's
/// `createProvisionedPVInterval`).
const RETRY_MS: u64 = 10_000;

/// The operation or its point does not belong to the object: a fault of the host.
pub(crate) fn misplaced() -> Halt {
    Stop::Nonsense("the point of the operation does not belong to it").into()
}

/// The error that a step ended with; `None` where it succeeded.
fn error(returned: &Returned) -> Option<Text> {
    match returned {
        Returned::Success => None,
        Returned::AlreadyExists => Some("already exists".into()),
        Returned::InUse(error) | Returned::Failed(error) => Some(error.clone()),
    }
}

/// Emits an event with the failure of provisioning on the claim; the operation fails and backs off.
fn provisioning_failed(call: &mut Call<'_>, claim: &Claim, failure: Failure) -> Halt {
    call.tell_claim_regardless(claim, EventKind::ProvisioningFailed(failure.clone()));
    failure.into()
}
