//! A claim gets a volume of the zone in which its application has the fewest volumes.

mod bindings;

use bindings::bindery::policy::facts::{Claim, ClaimFact, Metadata, Reason, Spread, VolumeFact};
use bindings::exports::bindery::policy::match_::{Candidates, Guest, Narrowing, Verdicts};

/// Node label in the affinity of volumes.
const ZONE: &str = "topology.kubernetes.io/zone";

/// Labels that name the application of a claim. A StatefulSet gives its claims the labels of its selector.
const APPLICATION: [&str; 3] = ["app", "app.kubernetes.io/name", "app.kubernetes.io/instance"];

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Settings {
    at_most: Option<u32>,
}

struct Policy;

impl Guest for Policy {
    fn describe() -> Metadata {
        let application: Vec<ClaimFact> = APPLICATION.map(|key| ClaimFact::Label(key.into())).into();
        Metadata {
            name: "spread".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            description: env!("CARGO_PKG_DESCRIPTION").into(),
            claim_facts: application.clone(),
            columns: vec![VolumeFact::Topology(ZONE.into())],
            spread: Some(Spread { by: VolumeFact::Topology(ZONE.into()), among: application }),
            reasons: vec![Reason {
                name: "too-many".into(),
                text: "the application has as many volumes in zone {volume.0} as it may have".into(),
            }],
            scores: true,
            settings_schema: include_str!("../settings.json").into(),
        }
    }

    fn check(_: String) -> Result<(), String> {
        Ok(())
    }

    fn narrow(_: String, claim: Claim) -> Narrowing {
        // Claims that name no application are not siblings.
        let judge = claim.facts.iter().any(Option::is_some);
        Narrowing { requirements: Vec::new(), at_most: None, judge }
    }

    fn judge(settings: String, _: Claim, candidates: Candidates) -> Verdicts {
        let settings: Settings = serde_json::from_str(&settings).expect("the settings must fit their schema");
        let is_full = |count: &u32| settings.at_most.is_some_and(|most| *count >= most);
        Verdicts {
            reasons: candidates.spread.iter().map(|count| is_full(count).into()).collect(),
            scores: candidates.spread.iter().map(|count| 100_u32.saturating_sub(*count)).collect(),
        }
    }
}
