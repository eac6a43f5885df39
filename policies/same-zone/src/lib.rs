//! A claim with the label `topology.kubernetes.io/zone` gets only volumes of that zone. Other claims get any.
//!
//! Requirements say everything, so the host never asks `judge`.

mod bindings;

use bindings::bindery::policy::facts::{Claim, ClaimFact, Metadata, Reason, VolumeFact};
use bindings::exports::bindery::policy::match_::{
    Candidates, Guest, Narrowing, Operator, Requirement, Verdicts,
};

/// Label of claims and volumes, and node label in the affinity of volumes.
const ZONE: &str = "topology.kubernetes.io/zone";

/// Places of the columns in the metadata.
const AFFINITY: u32 = 0;
const LABEL: u32 = 1;

/// Place of the reason in the metadata.
const OTHER_ZONE: u32 = 0;

#[derive(serde::Deserialize)]
struct Settings {
    #[serde(default)]
    zone: ZoneOfVolume,
}

/// What says in which zone a volume is.
#[derive(Default, serde::Deserialize)]
enum ZoneOfVolume {
    /// Its required node affinity, by which the scheduler places pods.
    #[default]
    NodeAffinity,
    /// Its label.
    Label,
}

struct Policy;

impl Guest for Policy {
    fn describe() -> Metadata {
        Metadata {
            name: "same-zone".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            description: env!("CARGO_PKG_DESCRIPTION").into(),
            claim_facts: vec![ClaimFact::Label(ZONE.into())],
            columns: vec![VolumeFact::Topology(ZONE.into()), VolumeFact::Label(ZONE.into())],
            spread: None,
            reasons: vec![Reason {
                name: "other-zone".into(),
                text: "the claim is for zone {claim.0}; the volume requires zone {volume.0}, its label says \
                       {volume.1}"
                    .into(),
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
        let column = match settings.zone {
            ZoneOfVolume::NodeAffinity => AFFINITY,
            ZoneOfVolume::Label => LABEL,
        };
        let zone = claim.facts.into_iter().flatten();
        let requirements = zone.map(|zone| Requirement {
            column,
            operator: Operator::In,
            values: vec![zone],
            reason: OTHER_ZONE,
        });
        Narrowing { requirements: requirements.collect(), at_most: None, judge: false }
    }

    fn judge(_: String, _: Claim, candidates: Candidates) -> Verdicts {
        Verdicts { reasons: vec![0; candidates.whole.len()], scores: Vec::new() }
    }
}

/// `cargo test` runs these natively, where a panic has a message.
#[cfg(test)]
mod tests {
    use super::bindings::bindery::policy::facts::Quantity;
    use super::*;

    #[test]
    fn a_claim_requires_its_zone_and_one_without_a_zone_nothing() {
        let required = |zone: Option<&str>| -> Vec<Vec<String>> {
            let request = Quantity { whole: 1 << 30, nanos: 0 };
            let claim = Claim { request, facts: vec![zone.map(str::to_owned)] };
            let requirements = Policy::narrow("{}".into(), claim).requirements;
            requirements.into_iter().map(|required| required.values).collect()
        };
        assert_eq!(required(Some("a")), [["a"]]);
        assert!(required(None).is_empty());
    }
}
