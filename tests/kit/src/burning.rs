//! Native policies that use fuel.

use bindery_policy::{
    Candidates, ClaimView, Fueled, Judged, Matcher, Metadata, Narrowing, PolicyFault, Reclaimer, Released,
    Verdicts,
};

/// A policy whose calls use so many units of fuel more than they are shown: rows, and bytes of texts.
pub struct Burning<P> {
    /// The policy.
    pub policy: P,
    /// Units of each call.
    pub units: u64,
}

fn bytes<'a>(texts: impl IntoIterator<Item = &'a bindery_core::Text>) -> u64 {
    texts.into_iter().map(|text| text.len() as u64).sum()
}

impl<M: Matcher> Matcher for Burning<M> {
    fn metadata(&self) -> &Metadata {
        self.policy.metadata()
    }

    fn digest(&self) -> &str {
        self.policy.digest()
    }

    fn check(&self, settings: &str) -> Result<Result<(), String>, PolicyFault> {
        self.policy.check(settings)
    }

    fn narrow(&self, settings: &str, claim: &ClaimView) -> Result<Narrowing, PolicyFault> {
        self.policy.narrow(settings, claim)
    }

    fn narrow_with_fuel(&self, settings: &str, claim: &ClaimView) -> Fueled<Narrowing> {
        (self.narrow(settings, claim), Some(self.units + bytes(claim.facts.iter().flatten())))
    }

    fn judge(&self, settings: &str, claim: &ClaimView, rows: &Candidates) -> Result<Verdicts, PolicyFault> {
        self.policy.judge(settings, claim, rows)
    }

    fn judge_with_fuel(&self, settings: &str, claim: &ClaimView, rows: &Candidates) -> Fueled<Verdicts> {
        let shown = rows.whole.len() as u64 + bytes(&rows.texts);
        (self.judge(settings, claim, rows), Some(self.units + shown))
    }
}

impl<R: Reclaimer> Reclaimer for Burning<R> {
    fn metadata(&self) -> &Metadata {
        self.policy.metadata()
    }

    fn digest(&self) -> &str {
        self.policy.digest()
    }

    fn check(&self, settings: &str) -> Result<Result<(), String>, PolicyFault> {
        self.policy.check(settings)
    }

    fn judge(&self, settings: &str, shown: &Released) -> Result<Judged, PolicyFault> {
        self.policy.judge(settings, shown)
    }

    fn judge_with_fuel(&self, settings: &str, shown: &Released) -> Fueled<Judged> {
        let facts = shown.claim.iter().flatten().flatten();
        (self.judge(settings, shown), Some(self.units + bytes(facts)))
    }
}
