//! A claim gets the volume whose label `bindery.dev/tier` has the highest score in the settings.

mod bindings;

use std::collections::BTreeMap;

use bindings::bindery::policy::facts::{Claim, Metadata, VolumeFact};
use bindings::exports::bindery::policy::match_::{Candidates, Guest, Narrowing, Verdicts};

/// Label of the volumes.
const TIER: &str = "bindery.dev/tier";

#[derive(serde::Deserialize)]
struct Settings {
    scores: BTreeMap<String, u32>,
    #[serde(default)]
    otherwise: u32,
}

struct Policy;

impl Guest for Policy {
    fn describe() -> Metadata {
        Metadata {
            name: "prefer".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            description: env!("CARGO_PKG_DESCRIPTION").into(),
            claim_facts: Vec::new(),
            columns: vec![VolumeFact::Label(TIER.into())],
            spread: None,
            reasons: Vec::new(),
            scores: true,
            settings_schema: include_str!("../settings.json").into(),
        }
    }

    fn check(_: String) -> Result<(), String> {
        Ok(())
    }

    fn narrow(_: String, _: Claim) -> Narrowing {
        Narrowing { requirements: Vec::new(), at_most: None, judge: true }
    }

    fn judge(settings: String, _: Claim, candidates: Candidates) -> Verdicts {
        let settings: Settings = serde_json::from_str(&settings).expect("the settings must fit their schema");
        // Each text is there once, so it is looked up once. Rows name texts from 1 on; 0 means no label.
        let of_text = |text: &String| settings.scores.get(text).copied().unwrap_or(settings.otherwise);
        let of_texts: Vec<u32> = candidates.texts.iter().map(of_text).collect();
        let score = |tier: &u32| match tier.checked_sub(1) {
            Some(text) => of_texts[text as usize],
            None => settings.otherwise,
        };
        let scores: Vec<u32> = candidates.columns[0].iter().map(score).collect();
        Verdicts { reasons: vec![0; scores.len()], scores }
    }
}
