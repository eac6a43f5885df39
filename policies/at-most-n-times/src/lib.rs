//! A claim gets no volume that is larger than a multiple of what it requests, so that a small claim does not
//! take the only large volume.
//!
//! The bound says everything, so the host never asks `judge`.

mod bindings;

use bindings::bindery::policy::facts::{Claim, Metadata, Quantity, Reason};
use bindings::exports::bindery::policy::match_::{Bound, Candidates, Guest, Narrowing, Verdicts};

/// Billionths of a byte in a byte.
const NANOS: u128 = 1_000_000_000;

/// Place of the reason in the metadata.
const TOO_LARGE: u32 = 0;

#[derive(serde::Deserialize)]
struct Settings {
    times: u32,
}

struct Policy;

impl Guest for Policy {
    fn describe() -> Metadata {
        Metadata {
            name: "at-most-n-times".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            description: env!("CARGO_PKG_DESCRIPTION").into(),
            claim_facts: Vec::new(),
            columns: Vec::new(),
            spread: None,
            reasons: vec![Reason {
                name: "too-large".into(),
                text: "the volume is larger than the multiple of the request that the settings allow".into(),
            }],
            scores: false,
            settings_schema: include_str!("../settings.json").into(),
        }
    }

    fn check(_: String) -> Result<(), String> {
        Ok(())
    }

    fn narrow(settings: String, claim: Claim) -> Narrowing {
        let settings: Settings = serde_json::from_str(&settings).expect("the settings must fit their schema");
        let quantity = multiply(claim.request, settings.times);
        let at_most = quantity.map(|quantity| Bound { quantity, reason: TOO_LARGE });
        Narrowing { requirements: Vec::new(), at_most, judge: false }
    }

    fn judge(_: String, _: Claim, candidates: Candidates) -> Verdicts {
        Verdicts { reasons: vec![0; candidates.whole.len()], scores: Vec::new() }
    }
}

/// A multiple; `None` where it is more than any volume can have.
fn multiply(request: Quantity, times: u32) -> Option<Quantity> {
    let nanos = (u128::from(request.whole) * NANOS + u128::from(request.nanos)) * u128::from(times);
    Some(Quantity { whole: (nanos / NANOS).try_into().ok()?, nanos: (nanos % NANOS).try_into().ok()? })
}
