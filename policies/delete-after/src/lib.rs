//! A volume is deleted some days after its claim is gone. Until then a person can save its data.

mod bindings;

use bindings::bindery::policy::facts::{Metadata, Reason};
use bindings::exports::bindery::policy::reclaim::{Fate, FormerClaim, Guest, Verdict, Volume};

const SECONDS_OF_A_DAY: u64 = 24 * 60 * 60;

#[derive(serde::Deserialize)]
struct Settings {
    days: u64,
}

struct Policy;

impl Guest for Policy {
    fn describe() -> Metadata {
        Metadata {
            name: "delete-after".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            description: env!("CARGO_PKG_DESCRIPTION").into(),
            claim_facts: Vec::new(),
            columns: Vec::new(),
            spread: None,
            reasons: vec![Reason {
                name: "some-days".into(),
                text: "volumes are deleted some days after their claims".into(),
            }],
            scores: false,
            settings_schema: include_str!("../settings.json").into(),
        }
    }

    fn check(_: String) -> Result<(), String> {
        Ok(())
    }

    fn judge(settings: String, _: Volume, _: Option<FormerClaim>) -> Verdict {
        let Settings { days } = serde_json::from_str(&settings).expect("the settings must fit their schema");
        Verdict { fate: Fate::DeleteAfter(days * SECONDS_OF_A_DAY), reason: 0 }
    }
}
