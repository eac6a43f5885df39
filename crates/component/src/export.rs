//! The exported functions: each makes a request of its arguments and has the engine decide it.

use bindery_core::{Cluster, Decision, Request, Stop, Subject};

pub use crate::bindings::bindery::policy::types::{Claim, Timestamp, Volume};
pub use crate::bindings::exports::bindery::policy::decide::{Decision as Lowered, Guest, Progress};
use crate::carry::Carry;
use crate::carry::decisions::lift_progress;
use crate::cluster::Host;

/// How an engine decides: as [`bindery_core::Engine::decide`].
pub type Decide = fn(&Request, &mut dyn Cluster) -> Result<Decision, Stop>;

/// Exports a function of type [`Decide`], named by its whole path, as the engine of the component.
#[macro_export]
macro_rules! export_engine {
    ($decide:path) => {
        #[allow(unsafe_code, unreachable_pub, reason = "the generated exports; nothing else is either")]
        mod exported {
            use $crate::export::{self, Claim, Guest, Lowered, Progress, Timestamp, Volume};

            struct Component;

            $crate::bindings::export!(Component with_types_in $crate::bindings);

            impl Guest for Component {
                fn sync_claim(now: Timestamp, claim: Claim) -> Lowered {
                    export::sync_claim($decide, now, claim)
                }

                fn sync_volume(now: Timestamp, volume: Volume) -> Lowered {
                    export::sync_volume($decide, now, volume)
                }

                fn sync_operation(now: Timestamp, progress: Progress) -> Lowered {
                    export::sync_operation($decide, now, progress)
                }

                fn review_claim(now: Timestamp, new: Claim, old: Option<Claim>) -> Lowered {
                    export::review_claim($decide, now, new, old)
                }

                fn review_volume(now: Timestamp, new: Volume, old: Option<Volume>) -> Lowered {
                    export::review_volume($decide, now, new, old)
                }
            }
        }
    };
}

/// `sync-claim` of the contract.
pub fn sync_claim(engine: Decide, now: Timestamp, claim: Claim) -> Lowered {
    decide(engine, now, Carry::lift(claim).map(Subject::SyncClaim))
}

/// `sync-volume` of the contract.
pub fn sync_volume(engine: Decide, now: Timestamp, volume: Volume) -> Lowered {
    decide(engine, now, Carry::lift(volume).map(Subject::SyncVolume))
}

/// `sync-operation` of the contract.
pub fn sync_operation(engine: Decide, now: Timestamp, progress: Progress) -> Lowered {
    decide(engine, now, lift_progress(progress))
}

/// `review-claim` of the contract.
pub fn review_claim(engine: Decide, now: Timestamp, new: Claim, old: Option<Claim>) -> Lowered {
    let subject =
        Carry::lift(new).and_then(|new| Carry::lift(old).map(|old| Subject::ReviewClaim { new, old }));
    decide(engine, now, subject)
}

/// `review-volume` of the contract.
pub fn review_volume(engine: Decide, now: Timestamp, new: Volume, old: Option<Volume>) -> Lowered {
    let subject =
        Carry::lift(new).and_then(|new| Carry::lift(old).map(|old| Subject::ReviewVolume { new, old }));
    decide(engine, now, subject)
}

/// Decides. The host checks its answers, and ends the call itself if a question stops it, so neither fails;
/// if one did, its trap would tell the host that the engine has not decided.
fn decide(engine: Decide, now: Timestamp, subject: Result<Subject, crate::carry::IllTyped>) -> Lowered {
    let Ok(subject) = subject else { core::arch::wasm32::unreachable() };
    match engine(&Request { now, subject }, &mut Host) {
        Ok(decision) => decision.lower(),
        Err(_) => core::arch::wasm32::unreachable(),
    }
}
