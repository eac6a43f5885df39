//! A native policy.

use bindery_core::{SelectorOperator, VolumeFact};
use bindery_kit::policy;
use bindery_policy::{
    Candidates, Chain, ClaimView, Matcher, Metadata, Narrowing, PolicyFault, Reason, Requirement, Verdicts,
};

/// The policy `reserved`: volumes with the label `bindery.dev/reserved-for` are not for the claims of tests.
pub(crate) fn reserved() -> Chain {
    let reason =
        Reason { name: "reserved-for-other".into(), text: "the volume is reserved for {volume.0}".into() };
    let metadata = Metadata {
        name: "reserved".into(),
        version: "1.0.0".into(),
        description: "Keeps labelled volumes for others.".into(),
        claim_facts: Vec::new(),
        columns: vec![VolumeFact::Label("bindery.dev/reserved-for".into())],
        spread: None,
        reasons: vec![reason],
        scores: false,
        settings_schema: "{}".to_owned(),
    };
    Chain::new(vec![policy("reserved", Reserved(metadata))])
}

struct Reserved(Metadata);

impl Matcher for Reserved {
    fn metadata(&self) -> &Metadata {
        &self.0
    }

    fn digest(&self) -> &str {
        "reserved"
    }

    fn check(&self, _: &str) -> Result<Result<(), String>, PolicyFault> {
        Ok(Ok(()))
    }

    fn narrow(&self, _: &str, _: &ClaimView) -> Result<Narrowing, PolicyFault> {
        let operator = SelectorOperator::DoesNotExist;
        let requirement = Requirement { column: 0, operator, values: Vec::new(), reason: 0 };
        Ok(Narrowing { requirements: vec![requirement], at_most: None, judge: false })
    }

    fn judge(&self, _: &str, _: &ClaimView, _: &Candidates) -> Result<Verdicts, PolicyFault> {
        Err(PolicyFault::BadAnswer("it says not to judge".to_owned()))
    }
}
