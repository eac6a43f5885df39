//! A volume with the label `bindery.dev/reserved-for` is kept for namespaces with the same label and value,
//! or for claims with it, as the settings say.
//!
//! Users choose the labels of their claims. Only administrators label namespaces, so only a reservation by
//! namespace holds against users.

mod bindings;

use bindings::bindery::policy::facts::{Claim, ClaimFact, Metadata, Reason, VolumeFact};
use bindings::exports::bindery::policy::match_::{
    Candidates, Guest, Narrowing, Operator, Requirement, Verdicts,
};

/// Label of volumes, and of the namespaces or claims that they are kept for.
const RESERVED_FOR: &str = "bindery.dev/reserved-for";

/// Place of the only column in the metadata.
const LABEL: u32 = 0;

/// Places of the reasons in the metadata.
const FOR_OTHERS: u32 = 0;
const NOT_RESERVED: u32 = 1;

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Settings {
    #[serde(default)]
    by: By,
    #[serde(default)]
    only_reserved: bool,
}

/// Whose label is compared.
#[derive(Default, serde::Deserialize)]
enum By {
    #[default]
    Namespace,
    Claim,
}

impl Settings {
    fn parse(settings: &str) -> Self {
        serde_json::from_str(settings).expect("the settings must fit their schema")
    }

    /// The tenant whose reserved volumes the claim may take.
    fn tenant(&self, claim: Claim) -> Option<String> {
        let [namespace, own] = claim.facts.try_into().expect("both declared facts must be shown");
        match self.by {
            By::Namespace => namespace,
            By::Claim => own,
        }
    }
}

struct Policy;

impl Guest for Policy {
    fn describe() -> Metadata {
        let reason = |name: &str, text: &str| Reason { name: name.into(), text: text.into() };
        Metadata {
            name: "reserved".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            description: env!("CARGO_PKG_DESCRIPTION").into(),
            claim_facts: vec![
                ClaimFact::NamespaceLabel(RESERVED_FOR.into()),
                ClaimFact::Label(RESERVED_FOR.into()),
            ],
            columns: vec![VolumeFact::Label(RESERVED_FOR.into())],
            spread: None,
            reasons: vec![
                reason("reserved-for-other", "the volume is reserved for {volume.0}"),
                reason(
                    "not-reserved",
                    "the volume is not reserved; this claim gets only volumes that are reserved for it",
                ),
            ],
            scores: false,
            settings_schema: include_str!("../settings.json").into(),
        }
    }

    fn check(_: String) -> Result<(), String> {
        Ok(())
    }

    /// A claim without the label gets volumes without it. A claim that gets only reserved volumes gets those
    /// of its value. A requirement cannot say "this value or none", so the third case is judged.
    fn narrow(settings: String, claim: Claim) -> Narrowing {
        let settings = Settings::parse(&settings);
        let is = |operator, values, reason| Requirement { column: LABEL, operator, values, reason };
        let requirements = match settings.tenant(claim) {
            None => vec![is(Operator::DoesNotExist, Vec::new(), FOR_OTHERS)],
            Some(tenant) if settings.only_reserved => vec![
                is(Operator::Exists, Vec::new(), NOT_RESERVED),
                is(Operator::In, vec![tenant], FOR_OTHERS),
            ],
            Some(_) => Vec::new(),
        };
        Narrowing { judge: requirements.is_empty(), requirements, at_most: None }
    }

    fn judge(settings: String, claim: Claim, candidates: Candidates) -> Verdicts {
        let tenant = Settings::parse(&settings).tenant(claim);
        // Each text is there once, so the number of the tenant's own is looked up once; 0 means no label.
        let own = candidates.texts.iter().position(|text| Some(text) == tenant.as_ref());
        let own = own.map(|place| place as u32 + 1);
        let reason = |label: &u32| if *label == 0 || Some(*label) == own { 0 } else { FOR_OTHERS + 1 };
        Verdicts {
            reasons: candidates.columns[LABEL as usize].iter().map(reason).collect(),
            scores: Vec::new(),
        }
    }
}
