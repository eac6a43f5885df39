//! Policies: what matchers declare and answer.
//!
//! A matcher is asked about a claim twice. [`Matcher::narrow`] answers requirements on columns of the
//! volumes, which the host evaluates over its index. [`Matcher::judge`] is asked only where requirements do
//! not say everything, about rows that are left. A matcher sees the facts that it declares
//! ([`Metadata`]) and nothing else, so a verdict can be kept for as long as those facts stay the same.

mod matcher;
mod metadata;
mod settings;

pub use matcher::{
    Bound, Candidates, ClaimView, Matcher, Narrowing, PolicyFault, Requirement, SCORE_MAX, Verdicts,
};
pub use metadata::{Metadata, Reason, Spread};
pub use settings::SettingsSchema;
