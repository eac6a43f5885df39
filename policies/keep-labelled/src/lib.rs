//! The volume of a claim with the label `bindery.dev/keep: "true"` is kept when the claim is gone. So is a
//! volume of whose claim nothing is known. Other volumes are left to their reclaim policies.

mod bindings;

use bindings::bindery::policy::facts::{ClaimFact, Metadata, Reason};
use bindings::exports::bindery::policy::reclaim::{Fate, FormerClaim, Guest, Verdict, Volume};

/// Label of claims.
const KEEP: &str = "bindery.dev/keep";

/// Places of the reasons in the metadata.
const LABELLED: u32 = 0;
const UNKNOWN: u32 = 1;

#[derive(serde::Deserialize)]
struct Settings {
    #[serde(default)]
    unknown: Unknown,
}

/// What becomes of a volume of whose claim nothing is known.
#[derive(Default, serde::Deserialize)]
enum Unknown {
    /// It is kept.
    #[default]
    Keep,
    /// Its reclaim policy decides.
    ByPolicy,
}

struct Policy;

impl Guest for Policy {
    fn describe() -> Metadata {
        let reason = |name: &str, text: &str| Reason { name: name.into(), text: text.into() };
        Metadata {
            name: "keep-labelled".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            description: env!("CARGO_PKG_DESCRIPTION").into(),
            claim_facts: vec![ClaimFact::Label(KEEP.into())],
            columns: Vec::new(),
            spread: None,
            reasons: vec![
                reason("labelled", "its claim had the label bindery.dev/keep: {claim.0}"),
                reason("unknown", "nothing is known of its claim"),
            ],
            scores: false,
            settings_schema: include_str!("../settings.json").into(),
        }
    }

    fn check(_: String) -> Result<(), String> {
        Ok(())
    }

    fn judge(settings: String, _: Volume, claim: Option<FormerClaim>) -> Verdict {
        let settings: Settings = serde_json::from_str(&settings).expect("the settings must fit their schema");
        let (fate, reason) = match (claim, settings.unknown) {
            (Some(claim), _) if claim.facts[0].as_deref() == Some("true") => (Fate::Keep, LABELLED),
            (None, Unknown::Keep) => (Fate::Keep, UNKNOWN),
            _ => (Fate::ByPolicy, LABELLED),
        };
        Verdict { fate, reason }
    }
}

/// `cargo test` runs these natively, where a panic has a message.
#[cfg(test)]
mod tests {
    use super::bindings::bindery::policy::facts::Quantity;
    use super::*;

    #[test]
    fn the_volume_of_a_claim_is_kept_if_its_label_says_so() {
        let is_kept = |label: Option<&str>| {
            let volume = Volume { capacity: Quantity { whole: 1 << 30, nanos: 0 }, columns: Vec::new() };
            let claim = FormerClaim { facts: vec![label.map(str::to_owned)] };
            matches!(Policy::judge("{}".into(), volume, Some(claim)).fate, Fate::Keep)
        };
        assert_eq!([Some("true"), Some("false"), None].map(is_kept), [true, false, false]);
    }
}
