//! Native matchers, and the policies that load them.

use std::sync::{Arc, Barrier, LazyLock};

use bindery_core::{ClaimFact, Quantity, SelectorOperator, Spread, VolumeFact};
use bindery_policy::{
    Bound, Candidates, ClaimView, Matcher, Matches, Metadata, Narrowing, OnFailure, Otherwise, Policy,
    PolicyFault, PolicyMetrics, Reason, Requirement, SCORE_MAX, Verdicts,
};

/// The label of claims and volumes that names a zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// A policy that applies to all claims.
pub fn policy(name: &str, matcher: impl Matcher + 'static) -> Policy {
    Policy {
        name: name.into(),
        order: 0,
        weight: 1,
        matches: Matches::default(),
        matcher: Ok(Arc::new(matcher)),
        settings: "{}".to_owned(),
        max_candidates: 4_096,
        on_failure: OnFailure::Wait,
        otherwise: Otherwise::Provision,
        metrics: PolicyMetrics::default(),
    }
}

/// Without and with scores.
static METADATA: LazyLock<[Metadata; 2]> = LazyLock::new(|| [false, true].map(metadata));

fn metadata(scores: bool) -> Metadata {
    Metadata {
        name: "native".into(),
        version: "1.0.0".into(),
        description: "A matcher of these tests.".into(),
        claim_facts: vec![ClaimFact::Label(ZONE.into())],
        columns: vec![VolumeFact::Label(ZONE.into())],
        spread: None,
        reasons: vec![
            Reason { name: "other-zone".into(), text: "its zone is {volume.0}, not {claim.0}".into() },
            Reason { name: "too-large".into(), text: "it is more than twice as large".into() },
        ],
        scores,
        settings_schema: "{}".to_owned(),
    }
}

/// Implements a matcher by its two functions.
macro_rules! matcher {
    ($type:ty, $scores:expr, narrow: $narrow:expr, judge: $judge:expr) => {
        impl Matcher for $type {
            fn metadata(&self) -> &Metadata {
                &METADATA[usize::from($scores)]
            }
            fn digest(&self) -> &str {
                stringify!($type)
            }
            fn check(&self, _: &str) -> Result<Result<(), String>, PolicyFault> {
                Ok(Ok(()))
            }
            fn narrow(&self, _: &str, claim: &ClaimView) -> Result<Narrowing, PolicyFault> {
                let narrow: fn(&Self, &ClaimView) -> Result<Narrowing, PolicyFault> = $narrow;
                narrow(self, claim)
            }
            fn judge(&self, _: &str, claim: &ClaimView, rows: &Candidates) -> Result<Verdicts, PolicyFault> {
                let judge: fn(&Self, &ClaimView, &Candidates) -> Verdicts = $judge;
                Ok(judge(self, claim, rows))
            }
        }
    };
}

/// Requires the zone of the claim.
pub struct SameZone;

matcher!(
    SameZone,
    false,
    narrow: |_, claim| Ok(Narrowing {
        requirements: vec![Requirement {
            column: 0,
            operator: SelectorOperator::In,
            values: claim.facts[0].iter().cloned().collect(),
            reason: 0,
        }],
        ..Narrowing::default()
    }),
    judge: |_, _, _| panic!("it only narrows")
);

/// Allows at most twice the capacity that is asked for: by a bound, or row by row.
pub struct AtMostTwice {
    judges: bool,
}

impl AtMostTwice {
    /// By a bound.
    pub fn narrowing() -> Self {
        Self { judges: false }
    }

    /// Row by row.
    pub fn judging() -> Self {
        Self { judges: true }
    }
}

matcher!(
    AtMostTwice,
    false,
    narrow: |matcher, claim| {
        let bound = Bound { quantity: Quantity::bytes(2 * claim.request.whole), reason: 1 };
        let at_most = (!matcher.judges).then_some(bound);
        Ok(Narrowing { at_most, judge: matcher.judges, ..Narrowing::default() })
    },
    judge: |_, claim, rows| {
        let reason = |whole: &u64| if *whole > 2 * claim.request.whole { 2 } else { 0 };
        Verdicts { reasons: rows.whole.iter().map(reason).collect(), scores: Vec::new() }
    }
);

/// Judges every volume and allows it.
pub struct AllowsAll;

matcher!(
    AllowsAll,
    false,
    narrow: |_, _| Ok(Narrowing { judge: true, ..Narrowing::default() }),
    judge: |_, _, rows| Verdicts { reasons: vec![0; rows.whole.len()], scores: Vec::new() }
);

/// Scores a volume by its gibibytes; with a zone, by whether it is in the zone.
pub struct Larger {
    /// The zone.
    pub zone: Option<&'static str>,
}

matcher!(
    Larger,
    true,
    narrow: |_, _| Ok(Narrowing { judge: true, ..Narrowing::default() }),
    judge: |matcher, _, rows| {
        let is_in_zone = |text: u32| text > 0 && Some(&*rows.texts[text as usize - 1]) == matcher.zone;
        let scores = rows.whole.iter().zip(&rows.columns[0]).map(|(whole, zone)| match matcher.zone {
            None => u32::try_from(whole >> 30).unwrap_or_default(),
            Some(_) => u32::from(is_in_zone(*zone)),
        });
        Verdicts { reasons: vec![0; rows.whole.len()], scores: scores.collect() }
    }
);

/// Fails.
pub struct Fails;

matcher!(
    Fails,
    false,
    narrow: |_, _| Err(PolicyFault::Trapped("unreachable".to_owned())),
    judge: |_, _, _| Verdicts::default()
);

/// Waits at a barrier twice before it narrows: while it is being asked, and before it answers.
pub struct Blocking(pub Arc<Barrier>);

matcher!(
    Blocking,
    false,
    narrow: |Blocking(barrier), _| {
        barrier.wait();
        barrier.wait();
        Ok(Narrowing::default())
    },
    judge: |_, _, _| Verdicts::default()
);

/// The label of claims that makes them siblings for [`Fewest`].
pub const APP: &str = "app";

/// Prefers the zone where siblings have the fewest volumes, and rejects zones where they have `most`.
pub struct Fewest {
    /// The most volumes of a zone.
    pub most: u32,
    /// Where it waits twice before it judges: while it is being asked, and before it answers.
    pub barrier: Option<Arc<Barrier>>,
}

static FEWEST: LazyLock<Metadata> = LazyLock::new(|| Metadata {
    claim_facts: Vec::new(),
    columns: Vec::new(),
    spread: Some(Spread { by: VolumeFact::Label(ZONE.into()), among: vec![ClaimFact::Label(APP.into())] }),
    reasons: vec![Reason { name: "too-many".into(), text: "its zone has enough".into() }],
    ..metadata(true)
});

impl Matcher for Fewest {
    fn metadata(&self) -> &Metadata {
        &FEWEST
    }

    fn digest(&self) -> &str {
        "fewest"
    }

    fn check(&self, _: &str) -> Result<Result<(), String>, PolicyFault> {
        Ok(Ok(()))
    }

    fn narrow(&self, _: &str, _: &ClaimView) -> Result<Narrowing, PolicyFault> {
        Ok(Narrowing { judge: true, ..Narrowing::default() })
    }

    fn judge(&self, _: &str, _: &ClaimView, rows: &Candidates) -> Result<Verdicts, PolicyFault> {
        for barrier in self.barrier.iter().chain(&self.barrier) {
            barrier.wait();
        }
        Ok(Verdicts {
            reasons: rows.spread.iter().map(|count| u32::from(*count >= self.most)).collect(),
            scores: rows.spread.iter().map(|count| SCORE_MAX.saturating_sub(*count)).collect(),
        })
    }
}
