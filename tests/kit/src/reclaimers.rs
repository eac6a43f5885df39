//! Native reclaimers, and the rules that load them.

use std::sync::{Arc, LazyLock};

use bindery_core::ClaimFact;
use bindery_policy::{
    Judged, Matches, Metadata, OnFailure, PolicyFault, PolicyMetrics, Reason, ReclaimRule, Reclaimer,
    Released, Wish,
};

/// The label of claims whose volumes are kept.
pub const KEEP: &str = "keep";

/// A rule that applies to all volumes.
pub fn reclaim_rule(name: &str, reclaimer: impl Reclaimer + 'static) -> ReclaimRule {
    ReclaimRule {
        name: name.into(),
        order: 0,
        matches: Matches::default(),
        reclaimer: Ok(Arc::new(reclaimer)),
        settings: "{}".to_owned(),
        allow: Vec::new(),
        on_failure: OnFailure::Wait,
        metrics: PolicyMetrics::default(),
    }
}

/// A reclaimer by what it answers for the label [`KEEP`] of a claim; `None` where nothing is known of the
/// claim.
pub struct ByLabel(pub fn(Option<Option<&str>>) -> Result<Wish, PolicyFault>);

/// Keeps the volumes of labelled claims.
pub fn keeps_labelled() -> ByLabel {
    ByLabel(|label| Ok(if label == Some(Some("true")) { Wish::Keep } else { Wish::ByPolicy }))
}

static METADATA: LazyLock<Metadata> = LazyLock::new(|| Metadata {
    name: "native".into(),
    version: "1.0.0".into(),
    description: "A reclaimer of these tests.".into(),
    claim_facts: vec![ClaimFact::Label(KEEP.into())],
    columns: Vec::new(),
    spread: None,
    reasons: vec![Reason { name: "said".into(), text: "the label of its claim is {claim.0}".into() }],
    scores: false,
    settings_schema: "{}".to_owned(),
});

impl Reclaimer for ByLabel {
    fn metadata(&self) -> &Metadata {
        &METADATA
    }

    fn digest(&self) -> &str {
        "by label"
    }

    fn check(&self, _: &str) -> Result<Result<(), String>, PolicyFault> {
        Ok(Ok(()))
    }

    fn judge(&self, _: &str, shown: &Released) -> Result<Judged, PolicyFault> {
        let label = shown.claim.as_ref().map(|facts| facts[0].as_deref());
        Ok(Judged { wish: (self.0)(label)?, reason: 0 })
    }
}
