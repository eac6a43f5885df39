//! One rule in two forms, so that a benchmark can compare them: a volume is rejected unless its label
//! `bindery.dev/tier` is among the tiers of the settings.
//!
//! `judge` has it by columns. `check` has it as policies for admission have it: the settings are a request in
//! JSON with the whole object, and the answer is a verdict in JSON, handed over as the error.

mod bindings;

use bindings::bindery::policy::facts::{Claim, Metadata, Reason, VolumeFact};
use bindings::exports::bindery::policy::match_::{Candidates, Guest, Narrowing, Verdicts};

/// Label of the volumes.
const TIER: &str = "bindery.dev/tier";

#[derive(serde::Deserialize)]
struct Settings {
    tiers: Vec<String>,
}

#[derive(serde::Deserialize)]
struct Review {
    request: Request,
    settings: Settings,
}

#[derive(serde::Deserialize)]
struct Request {
    object: serde_json::Value,
}

struct Policy;

impl Guest for Policy {
    fn describe() -> Metadata {
        Metadata {
            name: "bench-policy".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            description: env!("CARGO_PKG_DESCRIPTION").into(),
            claim_facts: Vec::new(),
            columns: vec![VolumeFact::Label(TIER.into())],
            spread: None,
            reasons: vec![Reason { name: "other-tier".into(), text: "its tier is {volume.0}".into() }],
            scores: false,
            settings_schema: "{}".into(),
        }
    }

    fn check(review: String) -> Result<(), String> {
        let review: Review = serde_json::from_str(&review).map_err(|error| error.to_string())?;
        let tier = review.request.object["metadata"]["labels"][TIER].as_str();
        let allowed = tier.is_some_and(|tier| review.settings.tiers.iter().any(|other| other == tier));
        Err(serde_json::json!({ "allowed": allowed, "message": tier }).to_string())
    }

    fn narrow(_: String, _: Claim) -> Narrowing {
        Narrowing { requirements: Vec::new(), at_most: None, judge: true }
    }

    fn judge(settings: String, _: Claim, candidates: Candidates) -> Verdicts {
        let settings: Settings = serde_json::from_str(&settings).expect("the settings must fit their schema");
        // Each text is there once, so it is looked up once. Rows name texts from 1 on; 0 means no label.
        let of_texts: Vec<u32> =
            candidates.texts.iter().map(|text| u32::from(!settings.tiers.contains(text))).collect();
        let reason = |tier: &u32| tier.checked_sub(1).map_or(1, |text| of_texts[text as usize]);
        Verdicts { reasons: candidates.columns[0].iter().map(reason).collect(), scores: Vec::new() }
    }
}
