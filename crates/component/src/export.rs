//! The exported functions: each makes a request of its arguments and has the engine decide it.
#![allow(unsafe_code, unreachable_pub, reason = "the generated exports; nothing written here is either")]

use bindery_core::{Request, Subject};

use crate::bindings::bindery::policy::types::{Claim, Timestamp, Volume};
use crate::bindings::export;
use crate::bindings::exports::bindery::policy::decide::{Decision, Guest, Progress};
use crate::carry::Carry;
use crate::carry::decisions::lift_progress;
use crate::cluster::Host;

struct Component;

export!(Component);

impl Guest for Component {
    fn sync_claim(now: Timestamp, claim: Claim) -> Decision {
        decide(now, Carry::lift(claim).map(Subject::SyncClaim))
    }

    fn sync_volume(now: Timestamp, volume: Volume) -> Decision {
        decide(now, Carry::lift(volume).map(Subject::SyncVolume))
    }

    fn sync_operation(now: Timestamp, progress: Progress) -> Decision {
        decide(now, lift_progress(progress))
    }

    fn review_claim(now: Timestamp, new: Claim, old: Option<Claim>) -> Decision {
        let subject =
            Carry::lift(new).and_then(|new| Carry::lift(old).map(|old| Subject::ReviewClaim { new, old }));
        decide(now, subject)
    }

    fn review_volume(now: Timestamp, new: Volume, old: Option<Volume>) -> Decision {
        let subject =
            Carry::lift(new).and_then(|new| Carry::lift(old).map(|old| Subject::ReviewVolume { new, old }));
        decide(now, subject)
    }
}

/// Decides. The host checks its answers, and ends the call itself if a question stops it, so neither fails;
/// if one did, its trap would tell the host that the engine has not decided.
fn decide(now: Timestamp, subject: Result<Subject, crate::carry::IllTyped>) -> Decision {
    let Ok(subject) = subject else { core::arch::wasm32::unreachable() };
    match bindery_engine::decide(&Request { now, subject }, &mut Host) {
        Ok(decision) => decision.lower(),
        Err(_) => core::arch::wasm32::unreachable(),
    }
}
