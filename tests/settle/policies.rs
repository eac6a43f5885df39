//! Random native policies: rules that the law evaluates by itself, and what the chain makes of them.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use bindery_core::{
    Claim, ClaimFact, Quantity, Requirement, SelectorOperator, Spread, Text, Volume, VolumeFact,
};
use bindery_kit::{Choices, gib, policy, reclaim_rule};
use bindery_policy::{
    Allowed, Bound, Candidates, Chain, ClaimView, Judged, Matcher, Matches, Metadata, Narrowing, OnFailure,
    Otherwise, Policy, PolicyFault, Reason, ReclaimRule, Reclaimer, Released, Verdicts, Wish,
};

use crate::world::TIER;

/// The policies of a world, in the order in which they are asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policies {
    pub(crate) matchers: Vec<MatchRule>,
    pub(crate) reclaimers: Vec<WishRule>,
}

/// A matcher.
#[derive(Clone, Debug)]
pub(crate) struct MatchRule {
    pub(crate) document: Document,
    pub(crate) rejects: Rejects,
    pub(crate) otherwise: Otherwise,
    /// Whether it judges rows; else it narrows.
    judges: bool,
    /// Whether it prefers larger volumes, which also takes judging.
    scores: bool,
    weight: u32,
    max_candidates: usize,
}

/// A reclaimer.
#[derive(Clone, Debug)]
pub(crate) struct WishRule {
    pub(crate) document: Document,
    /// For a claim that is unknown, and for one that is known: without the label, with `fast`, with `slow`.
    wishes: [Wish; 4],
    pub(crate) allow: Vec<Allowed>,
}

/// What documents of both kinds have.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    name: String,
    /// The only class that it applies to.
    pub(crate) class: Option<Text>,
    /// The value of [`TIER`] that the labels of the claim's namespace must have.
    pub(crate) namespace: Option<Text>,
    /// The value of [`TIER`] that the labels of the claim must have.
    pub(crate) claim: Option<Text>,
    pub(crate) is_loaded: bool,
    pub(crate) on_failure: OnFailure,
    /// Which of its first calls fail, by their bits.
    failures: u8,
}

/// What a matcher rejects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejects {
    /// Volumes of another tier than the claim's, if that has one.
    OtherTier,
    /// Volumes of another tier than the namespace's, if that has one.
    OtherTierThanNamespace,
    /// Volumes of another tier than the class's parameter, if that has one.
    OtherTierThanClass,
    /// Volumes that are larger than the request.
    Larger,
    /// Volumes of a tier in which siblings have this many volumes.
    Crowded(u32),
    Nothing,
}

/// What a matcher is shown of a claim and a volume.
pub(crate) struct Shown<'a> {
    /// The values of [`TIER`] of the claim, its namespace and its class.
    pub(crate) tiers: [Option<&'a str>; 3],
    pub(crate) request: Quantity,
    /// The value of [`TIER`] of the volume.
    pub(crate) tier: Option<&'a str>,
    pub(crate) capacity: Quantity,
    /// How many volumes of siblings have that tier.
    pub(crate) siblings: u32,
}

/// The policies that these bytes make, a few for each.
pub(crate) fn policies(bytes: &[[u8; 24]]) -> Policies {
    let mut policies = Policies::default();
    for (number, bytes) in bytes.iter().enumerate() {
        let c = &mut Choices::new(bytes);
        let reclaims = c.percent(40);
        let document = document(format!("p{number}"), c);
        if reclaims {
            policies.reclaimers.push(wish_rule(document, c));
        } else {
            policies.matchers.push(match_rule(document, c));
        }
    }
    policies
}

fn document(name: String, c: &mut Choices<'_>) -> Document {
    let tier = |c: &mut Choices<'_>| c.percent(20).then(|| c.pick(&["fast", "slow"]).into());
    Document {
        name,
        class: c.percent(20).then(|| c.pick(&["", "gold", "external"]).into()),
        namespace: tier(c),
        claim: tier(c),
        is_loaded: !c.percent(8),
        on_failure: c.usually(&[OnFailure::Wait, OnFailure::Skip]),
        failures: if c.percent(30) { c.pick(&[1, 2, 5, 255]) } else { 0 },
    }
}

fn match_rule(document: Document, c: &mut Choices<'_>) -> MatchRule {
    let rejects = c.pick(&[
        Rejects::OtherTier,
        Rejects::Larger,
        Rejects::OtherTierThanNamespace,
        Rejects::OtherTierThanClass,
        Rejects::Crowded(1),
        Rejects::Crowded(2),
        Rejects::Nothing,
    ]);
    MatchRule {
        document,
        rejects,
        judges: c.percent(50) || matches!(rejects, Rejects::Crowded(_)),
        scores: c.percent(30),
        otherwise: c.usually(&[Otherwise::Provision, Otherwise::Wait]),
        weight: c.pick(&[1, 2, 100]),
        max_candidates: c.pick(&[4_096, 1, 2]),
    }
}

fn wish_rule(document: Document, c: &mut Choices<'_>) -> WishRule {
    let wishes = [
        Wish::Keep,
        Wish::ByPolicy,
        Wish::Delete,
        Wish::DeleteAfter(60),
        Wish::DeleteAfter(24 * 60 * 60),
        Wish::Recycle,
        Wish::OfferAgain,
    ];
    let allowed = [Allowed::Delete, Allowed::Recycle, Allowed::OfferAgain];
    WishRule {
        // The rules of a namespace would have to be evaluated for each of its past labels.
        document: Document { namespace: None, ..document },
        wishes: [(); 4].map(|()| c.pick(&wishes)),
        allow: allowed.into_iter().filter(|_| c.percent(40)).collect(),
    }
}

impl Policies {
    /// Whether decisions are made without a policy that later ones are made with.
    pub(crate) fn skips_at_times(&self) -> bool {
        let documents = self.matchers.iter().map(|rule| &rule.document);
        let mut documents = documents.chain(self.reclaimers.iter().map(|rule| &rule.document));
        documents.any(|document| document.is_loaded && document.may_be_skipped())
    }

    /// Whether all policies say the same of equal claims and volumes, as long as the world exists.
    pub(crate) fn are_steady(&self) -> bool {
        !self.skips_at_times() && !self.matchers.iter().any(MatchRule::spreads)
    }

    /// The chain of these policies. They fail at times, unless they are mended.
    pub(crate) fn chain(&self, is_mended: bool) -> Chain {
        let mended = |document: &Document| {
            let failures = if is_mended { 0 } else { document.failures };
            Document { failures, ..document.clone() }
        };
        let matchers = self
            .matchers
            .iter()
            .map(|rule| MatchRule { document: mended(&rule.document), ..rule.clone() }.policy());
        let reclaimers = self
            .reclaimers
            .iter()
            .map(|rule| WishRule { document: mended(&rule.document), ..rule.clone() }.reclaim_rule());
        Chain::new(matchers.collect()).with_reclaimers(reclaimers.collect())
    }
}

impl Document {
    /// Whether a decision may be made without the policy although it applies.
    pub(crate) fn may_be_skipped(&self) -> bool {
        self.on_failure == OnFailure::Skip && (self.failures > 0 || !self.is_loaded)
    }

    fn matches(&self) -> Matches {
        let tier = |value: &Option<Text>| {
            let (key, operator) = (TIER.into(), SelectorOperator::In);
            value
                .iter()
                .map(|value| Requirement { key: Text::clone(&key), operator, values: vec![value.clone()] })
                .collect()
        };
        Matches {
            classes: self.class.iter().cloned().collect(),
            namespace: tier(&self.namespace),
            claim: tier(&self.claim),
        }
    }

    fn loaded<T>(&self, module: T) -> Result<T, String> {
        if self.is_loaded { Ok(module) } else { Err("its module is missing".to_owned()) }
    }
}

impl MatchRule {
    /// Whether it rejects the volume that it is shown.
    pub(crate) fn rejects(&self, shown: &Shown<'_>) -> bool {
        match self.rejects {
            Rejects::Larger => shown.capacity > shown.request,
            Rejects::Crowded(most) => shown.siblings >= most,
            _ => self.tier(shown.tiers).is_some_and(|tier| shown.tier != Some(tier)),
        }
    }

    /// The tier that a volume must have, by those of the claim, its namespace and its class.
    fn tier<T>(&self, [claim, namespace, class]: [Option<T>; 3]) -> Option<T> {
        match self.rejects {
            Rejects::OtherTier => claim,
            Rejects::OtherTierThanNamespace => namespace,
            Rejects::OtherTierThanClass => class,
            Rejects::Larger | Rejects::Crowded(_) | Rejects::Nothing => None,
        }
    }

    /// Whether it counts the volumes of siblings.
    pub(crate) fn spreads(&self) -> bool {
        matches!(self.rejects, Rejects::Crowded(_))
    }

    fn policy(self) -> Policy {
        let (weight, max_candidates, otherwise) = (self.weight, self.max_candidates, self.otherwise);
        let (name, matches, on_failure) =
            (self.document.name.clone(), self.document.matches(), self.document.on_failure);
        let document = self.document.clone();
        let mut policy = policy(&name, Native { rule: self, calls: AtomicU32::new(0) });
        policy.matcher = policy.matcher.and_then(|matcher| document.loaded(matcher));
        Policy { weight, max_candidates, otherwise, matches, on_failure, ..policy }
    }
}

impl WishRule {
    /// What it wants for a volume of a claim with that label, or of one that is unknown.
    pub(crate) fn wish(&self, claim: Option<Option<&str>>) -> Wish {
        self.wishes[match claim {
            None => 0,
            Some(None) => 1,
            Some(Some("fast")) => 2,
            Some(Some(_)) => 3,
        }]
    }

    fn reclaim_rule(self) -> ReclaimRule {
        let (document, allow) = (self.document.clone(), self.allow.clone());
        let mut rule = reclaim_rule(&document.name, Native { rule: self, calls: AtomicU32::new(0) });
        rule.reclaimer = rule.reclaimer.and_then(|reclaimer| document.loaded(reclaimer));
        ReclaimRule { allow, matches: document.matches(), on_failure: document.on_failure, ..rule }
    }
}

/// A rule as a module.
struct Native<R> {
    rule: R,
    calls: AtomicU32,
}

impl<R> Native<R> {
    fn call(&self, failures: u8) -> Result<(), PolicyFault> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if u32::from(failures).checked_shr(call).unwrap_or(0) & 1 == 1 {
            return Err(PolicyFault::Trapped("unreachable".to_owned()));
        }
        Ok(())
    }
}

/// What native matchers declare: without and with scores, and then with a spread too.
static MATCHERS: LazyLock<[Metadata; 4]> = LazyLock::new(|| {
    let spread = || Spread { by: VolumeFact::Label(TIER.into()), among: vec![ClaimFact::Label(TIER.into())] };
    [(false, false), (true, false), (false, true), (true, true)].map(|(scores, spreads)| Metadata {
        claim_facts: [&RECLAIMER.claim_facts[..], &[ClaimFact::ClassParameter(TIER.into())]].concat(),
        spread: spreads.then(spread),
        scores,
        ..RECLAIMER.clone()
    })
});

/// What native reclaimers declare.
static RECLAIMER: LazyLock<Metadata> = LazyLock::new(|| Metadata {
    name: "native".into(),
    version: "1.0.0".into(),
    description: "A rule of these tests.".into(),
    claim_facts: vec![ClaimFact::Label(TIER.into()), ClaimFact::NamespaceLabel(TIER.into())],
    columns: vec![VolumeFact::Label(TIER.into())],
    spread: None,
    reasons: vec![Reason { name: "rule".into(), text: "the rule says so".into() }],
    scores: false,
    settings_schema: "{}".to_owned(),
});

impl Matcher for Native<MatchRule> {
    fn metadata(&self) -> &Metadata {
        &MATCHERS[usize::from(self.rule.scores) + 2 * usize::from(self.rule.spreads())]
    }

    fn digest(&self) -> &str {
        &self.rule.document.name
    }

    fn check(&self, _: &str) -> Result<Result<(), String>, PolicyFault> {
        Ok(Ok(()))
    }

    fn narrow(&self, _: &str, claim: &ClaimView) -> Result<Narrowing, PolicyFault> {
        self.call(self.rule.document.failures)?;
        let mut narrowing = Narrowing { judge: self.rule.judges || self.rule.scores, ..Narrowing::default() };
        if self.rule.judges {
            return Ok(narrowing);
        }
        narrowing.at_most =
            (self.rule.rejects == Rejects::Larger).then_some(Bound { quantity: claim.request, reason: 0 });
        let tier = self.rule.tier([0, 1, 2].map(|fact: usize| claim.facts[fact].clone()));
        let operator = SelectorOperator::In;
        let required =
            |tier| bindery_policy::Requirement { column: 0, operator, values: vec![tier], reason: 0 };
        narrowing.requirements.extend(tier.map(required));
        Ok(narrowing)
    }

    fn judge(&self, _: &str, claim: &ClaimView, rows: &Candidates) -> Result<Verdicts, PolicyFault> {
        self.call(self.rule.document.failures)?;
        let shown = |row: usize| Shown {
            tiers: [0, 1, 2].map(|fact: usize| claim.facts[fact].as_deref()),
            request: claim.request,
            tier: rows.columns[0][row].checked_sub(1).map(|text| &*rows.texts[text as usize]),
            capacity: Quantity { nanos: rows.nanos[row], ..Quantity::bytes(rows.whole[row]) },
            siblings: rows.spread.get(row).copied().unwrap_or_default(),
        };
        let rejects = |row: usize| self.rule.judges && self.rule.rejects(&shown(row));
        let score = |whole: &u64| u32::from(*whole > gib(1).whole) * 50;
        Ok(Verdicts {
            reasons: (0..rows.whole.len()).map(rejects).map(u32::from).collect(),
            scores: rows.whole.iter().filter(|_| self.rule.scores).map(score).collect(),
        })
    }
}

impl Reclaimer for Native<WishRule> {
    fn metadata(&self) -> &Metadata {
        &RECLAIMER
    }

    fn digest(&self) -> &str {
        &self.rule.document.name
    }

    fn check(&self, _: &str) -> Result<Result<(), String>, PolicyFault> {
        Ok(Ok(()))
    }

    fn judge(&self, _: &str, shown: &Released) -> Result<Judged, PolicyFault> {
        self.call(self.rule.document.failures)?;
        let label = shown.claim.as_ref().map(|facts| facts[0].as_deref());
        Ok(Judged { wish: self.rule.wish(label), reason: 0 })
    }
}

/// The value of [`TIER`] among the labels of a claim.
pub(crate) fn tier_of_claim(claim: &Claim) -> Option<&str> {
    claim.facts.get(&ClaimFact::Label(TIER.into())).map(|tier| &**tier)
}

/// The value of [`TIER`] among the labels of a volume.
pub(crate) fn tier_of_volume(volume: &Volume) -> Option<&str> {
    volume.labels.get(TIER).map(|tier| &**tier)
}
