//! Why a review failed.

use bindery_controller::ReviewError;
use bindery_core::{EngineFault, Stop};

use super::metrics::FaultCause;

/// Why a review failed; the request passes.
pub(super) enum Fault {
    Review(ReviewError),
    Overdue,
    Bug,
}

impl Fault {
    /// The cause to count, and the warning for the author of the request. Texts of engines and servers are
    /// for the log only.
    pub(super) fn cause(&self) -> (FaultCause, &'static str) {
        match self {
            Self::Review(ReviewError::NotSynced) => {
                (FaultCause::NotReady, "Bindery has not checked this request: it is starting")
            }
            Self::Review(ReviewError::Failed(_)) => (
                FaultCause::Read,
                "Bindery has not checked this request: it could not read an object that the request names",
            ),
            Self::Review(ReviewError::Engine(EngineFault::Stopped(Stop::Waits { .. }))) => {
                (FaultCause::Policy, "Bindery has not checked this request: a policy gave no answer")
            }
            Self::Review(ReviewError::Engine(_) | ReviewError::Nonsense | ReviewError::Refused(_)) => {
                (FaultCause::Engine, "Bindery has not checked this request: its engine failed")
            }
            Self::Overdue => (FaultCause::Overdue, "Bindery has not checked this request: it took too long"),
            Self::Bug => (FaultCause::Bug, "Bindery has not checked this request: it failed"),
        }
    }

    /// What is logged.
    pub(super) fn detail(&self) -> String {
        match self {
            Self::Review(error) => error.to_string(),
            Self::Overdue => "the review did not end in time".to_owned(),
            Self::Bug => "the review panicked; please report it".to_owned(),
        }
    }
}
