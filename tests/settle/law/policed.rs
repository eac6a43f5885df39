//! G10 and G11: what the policies of a world let the binder do, by the rules that they are made of.

use std::sync::Arc;

use bindery_core::{
    Claim, RECLAIM_POLICY_BEFORE, ReclaimPolicy, Text, Timestamp, Volume, VolumeFact, VolumePhase,
};
use bindery_kit::NOW;
use bindery_policy::{Allowed, OnFailure, Otherwise, Wish};

use super::{State, check_that, claim_ref_key, fate, may_meet, uid_in};
use crate::policies::{Document, MatchRule, Shown, WishRule, tier_of_claim, tier_of_volume};
use crate::world::TIER;

/// What the reclaimers make of a volume whose claim is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A reclaimer that is missing holds it as it is.
    Held,
    ByPolicy,
    AnswerCache,
    Deleted,
    Recycled,
    Offered,
}

/// Values of [`TIER`] around a claim.
#[derive(Clone, Copy)]
struct Around<'a> {
    /// Among the labels of its namespace.
    namespace: Option<&'a str>,
    /// Among the parameters of its class.
    class: Option<&'a str>,
}

/// Whether every policy that applies to a claim allows it a free volume, by some labels of the claim's
/// namespace and parameters of its class that the binder may have seen. In a rough world it may have seen any
/// volumes of siblings.
pub(super) fn may_get(state: &State, claim: &Claim, volume: &Volume) -> bool {
    let may_allow = |around: Around<'_>, rule: &MatchRule| {
        let is_uncertain = rule.document.may_be_skipped() || rule.spreads() && !state.extra.calm;
        is_uncertain || allows(state, rule, claim, around, volume)
    };
    let rules = &state.extra.policies.matchers;
    seen_around(state, claim).any(|around| rules.iter().all(|rule| may_allow(around, rule)))
}

/// Whether every policy that applies to a claim allows it a free volume, all as they are, if none fails.
pub(crate) fn is_allowed(state: &State, claim: &Claim, volume: &Volume) -> bool {
    let around = around(state, claim);
    state.extra.policies.matchers.iter().all(|rule| allows(state, rule, claim, around, volume))
}

/// Whether only volumes of siblings keep a claim from a free volume.
pub(crate) fn is_crowded_out(state: &State, claim: &Claim, volume: &Volume) -> bool {
    let around = around(state, claim);
    let mut others = state.extra.policies.matchers.iter().filter(|rule| !rule.spreads());
    !is_allowed(state, claim, volume) && others.all(|rule| allows(state, rule, claim, around, volume))
}

fn allows(state: &State, rule: &MatchRule, claim: &Claim, around: Around<'_>, volume: &Volume) -> bool {
    if !applies(&rule.document, claim, around.namespace) {
        return true;
    }
    if !rule.document.is_loaded {
        return !holds(rule, claim, around.namespace);
    }
    !rule.rejects(&Shown {
        tiers: [tier_of_claim(claim), around.namespace, around.class],
        request: claim.request,
        tier: tier_of_volume(volume),
        capacity: volume.capacity.unwrap_or_default(),
        siblings: siblings(state, claim, volume),
    })
}

/// How many volumes of a volume's tier siblings have: the other claims of the namespace with an equal label.
/// A volume is a claim's if its claimRef names the claim.
fn siblings(state: &State, claim: &Claim, volume: &Volume) -> u32 {
    let is_sibling = |other: &Claim| {
        let differs = other.key != claim.key && other.key.namespace == claim.key.namespace;
        differs && tier_of_claim(other) == tier_of_claim(claim)
    };
    let has_sibling = |taken: &Volume| {
        let owner = claim_ref_key(taken).and_then(|key| state.claims.get(&key));
        owner.is_some_and(|owner| is_sibling(owner) && uid_in(taken).is_none_or(|uid| *uid == owner.uid))
    };
    let of_tier = state.volumes.values().filter(|taken| tier_of_volume(taken) == tier_of_volume(volume));
    u32::try_from(of_tier.filter(|taken| has_sibling(taken)).count()).expect("there are few")
}

fn applies(document: &Document, claim: &Claim, namespace: Option<&str>) -> bool {
    let is = |wanted: &Option<Text>, found: Option<&str>| {
        wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
    };
    is(&document.class, Some(claim.class.as_deref().unwrap_or_default()))
        && is(&document.claim, tier_of_claim(claim))
        && is(&document.namespace, namespace)
}

/// What was around a claim of that namespace and class, in any order; the last one is that of now.
fn seen_around<'a>(state: &'a State, claim: &'a Claim) -> impl Iterator<Item = Around<'a>> {
    let class = claim.class.as_deref().unwrap_or_default();
    let past = state.extra.class_tiers.iter().filter(move |(name, _)| **name == *class);
    let mut classes: Vec<Option<&str>> = past.map(|(_, tier)| tier.as_deref()).collect();
    if classes.is_empty() {
        classes.push(None);
    }
    namespace_tiers(state, &claim.key.namespace).flat_map(move |namespace| {
        let around = move |class| Around { namespace, class };
        classes.clone().into_iter().map(around)
    })
}

/// What is around a claim now.
fn around<'a>(state: &'a State, claim: &'a Claim) -> Around<'a> {
    seen_around(state, claim).last().unwrap_or(Around { namespace: None, class: None })
}

/// The values of [`TIER`] that the labels of a namespace had; the last one is that of now.
fn namespace_tiers<'a>(state: &'a State, name: &'a str) -> impl Iterator<Item = Option<&'a str>> {
    let past = state.extra.namespaces.iter().filter(move |(namespace, _)| **namespace == *name);
    past.map(|(_, labels)| labels.get(TIER).map(|tier| &**tier))
}

/// Whether a policy that is missing holds a claim, all as they are.
pub(crate) fn is_held(state: &State, claim: &Claim) -> bool {
    let tier = namespace_tiers(state, &claim.key.namespace).last().flatten();
    state.extra.policies.matchers.iter().any(|rule| holds(rule, claim, tier))
}

fn holds(MatchRule { document, .. }: &MatchRule, claim: &Claim, namespace: Option<&str>) -> bool {
    !document.is_loaded && document.on_failure == OnFailure::Wait && applies(document, claim, namespace)
}

/// A policy that is missing gives a claim no class and no provisioner, by any labels of the claim's namespace
/// that the binder may have seen. Nor do policies that let the claim wait for the volumes that they reject.
pub(super) fn may_provision(state: &State, claim: &Claim) -> Result<(), String> {
    let is_held =
        |tier| state.extra.policies.matchers.iter().any(|rule: &MatchRule| holds(rule, claim, tier));
    let is_held = namespace_tiers(state, &claim.key.namespace).all(is_held);
    check_that(!is_held, "G10: gives a claim a class or a provisioner although its policy is missing")?;
    // A decision in flight may have seen any earlier state of the volume.
    let waits_for = |volume: &&Arc<Volume>| {
        let mut states = state.past_volumes.iter().filter(|past| past.uid == volume.uid);
        states.all(|past| past.claim_ref.is_none() && waits_for(state, claim, past))
    };
    let volume = state.volumes.values().find(waits_for).filter(|_| state.extra.calm);
    check_that(volume.is_none(), "G10: gives a claim a class or a provisioner although it is to wait")
}

/// Whether policies reject a volume that a claim could have had, and all that may do let the claim wait.
fn waits_for(state: &State, claim: &Claim, volume: &Volume) -> bool {
    let around = around(state, claim);
    let rules = &state.extra.policies.matchers;
    let rejects = |rule: &&MatchRule| !allows(state, rule, claim, around, volume);
    // Decisions in flight may have picked volumes for siblings.
    let mut may_reject = rules.iter().filter(|rule| rule.spreads() || rejects(rule));
    let waits = |rule: &MatchRule| rule.otherwise == Otherwise::Wait && !rule.document.may_be_skipped();
    may_meet(&state.extra.classes, claim, volume)
        && rules.iter().any(|rule| rejects(&rule))
        && may_reject.all(waits)
}

/// What the reclaimers may want for a volume, by each state of its claim that the binder may have seen.
fn wanted(state: &State, volume: &Volume) -> Vec<Wanted> {
    let own = policy_before(volume);
    if own.is_some() && volume.policy != ReclaimPolicy::Retain || own == Some(ReclaimPolicy::Retain) {
        // A person has decided.
        return vec![Wanted::ByPolicy];
    }
    let own = own.unwrap_or(volume.policy);
    let states = seen(state, volume);
    let rules = &state.extra.policies.reclaimers;
    states.iter().flat_map(|claim| answers(rules, volume, own, claim.as_deref())).collect()
}

/// The states of the claim that a volume's claimRef names, as the binder may have seen it last; `None` where
/// it may have seen none.
fn seen(state: &State, volume: &Volume) -> Vec<Option<Arc<Claim>>> {
    let uid = uid_in(volume);
    let mut states: Vec<Option<Arc<Claim>>> =
        state.past_claims.iter().filter(|claim| Some(&claim.uid) == uid).cloned().map(Some).collect();
    if state.extra.calm {
        states.drain(..states.len().saturating_sub(1));
    }
    let was_bound = |claim: &Option<Arc<Claim>>| {
        let claim = claim.as_ref();
        claim.is_some_and(|claim| {
            claim.annotations.bind_completed && claim.volume_name.as_ref() == Some(&volume.name)
        })
    };
    if states.is_empty() || !(state.extra.calm || states.iter().any(was_bound)) {
        states.push(None);
    }
    states
}

/// The first reclaimer that does not leave it to the reclaim policy decides. One that fails may be skipped.
fn answers(rules: &[WishRule], volume: &Volume, own: ReclaimPolicy, claim: Option<&Claim>) -> Vec<Wanted> {
    let Some((rule, rest)) = rules.split_first() else { return vec![Wanted::ByPolicy] };
    let others = || answers(rest, volume, own, claim);
    let document = &rule.document;
    let is_its_class = document.class.as_ref().is_none_or(|class| *class == volume.class);
    let is_its_claim = claim
        .is_none_or(|claim| document.claim.as_deref().is_none_or(|tier| tier_of_claim(claim) == Some(tier)));
    if !is_its_class || !is_its_claim {
        return others();
    }
    // A document that may be for other claims allows nothing, and takes no volume from one that keeps it.
    let is_unsure = claim.is_none() && document.claim.is_some();
    let allow = if is_unsure { &[] } else { &*rule.allow };
    if !document.is_loaded {
        return if document.on_failure == OnFailure::Skip { others() } else { vec![Wanted::Held] };
    }
    let wish = rule.wish(claim.map(tier_of_claim));
    let mut answers = match made_of(wish, allow, volume, own) {
        Wanted::ByPolicy => others(),
        wanted if is_unsure && wanted != Wanted::AnswerCache => {
            others().into_iter().map(|other| if other == Wanted::ByPolicy { wanted } else { other }).collect()
        }
        wanted => vec![wanted],
    };
    if document.may_be_skipped() {
        answers.extend(others());
    }
    answers
}

/// What becomes of a wish: what destroys or shows more than the volume's own reclaim policy needs `allow`.
fn made_of(wish: Wish, allow: &[Allowed], volume: &Volume, own: ReclaimPolicy) -> Wanted {
    let may = |allowed: Allowed, harmless: bool| harmless || allow.contains(&allowed);
    let may_delete = may(Allowed::Delete, own == ReclaimPolicy::Delete);
    match wish {
        Wish::Keep => Wanted::AnswerCache,
        Wish::Delete if may_delete => Wanted::Deleted,
        Wish::DeleteAfter(seconds) if may_delete => {
            if is_due(volume, own, seconds) {
                Wanted::Deleted
            } else {
                Wanted::AnswerCache
            }
        }
        Wish::Recycle if may(Allowed::Recycle, own == ReclaimPolicy::Recycle) => Wanted::Recycled,
        Wish::OfferAgain if may(Allowed::OfferAgain, false) => Wanted::Offered,
        _ => Wanted::ByPolicy,
    }
}

fn is_due(volume: &Volume, own: ReclaimPolicy, seconds: u64) -> bool {
    let since =
        volume.facts.get(&VolumeFact::PhaseTransition).and_then(|since| since.parse::<Timestamp>().ok());
    let passed = since.and_then(|since| u64::try_from(NOW - since).ok());
    match volume.phase {
        VolumePhase::Failed if own == ReclaimPolicy::Delete => true,
        VolumePhase::Released | VolumePhase::Failed => passed.is_some_and(|passed| passed >= seconds),
        _ => false,
    }
}

/// The reclaim policy before a reclaimer set another one, by the annotation, which names the claim that was
/// gone then.
fn policy_before(volume: &Volume) -> Option<ReclaimPolicy> {
    let noted = volume.facts.get(&VolumeFact::Annotation(RECLAIM_POLICY_BEFORE.into()))?;
    let (policy, _) =
        noted.split_once(' ').filter(|(_, uid)| uid_in(volume).is_some_and(|of| *of.0 == **uid))?;
    let policies = [ReclaimPolicy::Retain, ReclaimPolicy::Delete, ReclaimPolicy::Recycle];
    Some(policies.into_iter().find(|known| known.name() == policy).unwrap_or(ReclaimPolicy::Unknown))
}

/// A volume that loses its claimRef gets the reclaim policy back that it had.
pub(super) fn policy_restored(before: &Volume, after: &Volume) -> Result<(), String> {
    let own = policy_before(before).unwrap_or(before.policy);
    check_that(after.policy == own, "G11: an unbound volume has another reclaim policy than its own")
}

/// A volume whose claim is gone is not exposed to deletion or scrubbing while reclaimers keep or hold it: an
/// external provisioner deletes what is Released with policy Delete.
pub(super) fn may_be_exposed(state: &State, volume: &Volume, what: &str) -> Result<(), String> {
    let harmless = !matches!(volume.policy, ReclaimPolicy::Delete | ReclaimPolicy::Recycle);
    let keeps = |wanted: &Wanted| match wanted {
        Wanted::Held => true,
        Wanted::AnswerCache => !harmless,
        Wanted::Offered => !harmless && !volume.deleting,
        Wanted::ByPolicy | Wanted::Deleted | Wanted::Recycled => false,
    };
    // Its claim never used a volume that it did not get.
    if fate(state, volume)?.is_elsewhere {
        return Ok(());
    }
    check_that(!wanted(state, volume).iter().all(keeps), &format!("G11: {what} a volume that is kept"))
}

/// The reclaim policy becomes what a reclaimer wants, once the claim is gone.
pub(super) fn policy_set(state: &State, before: &Volume, after: &Volume) -> Result<(), String> {
    let needs = |wanted: Wanted| match wanted {
        Wanted::AnswerCache => after.policy == ReclaimPolicy::Retain,
        Wanted::Deleted => after.policy == ReclaimPolicy::Delete,
        Wanted::Recycled => after.policy == ReclaimPolicy::Recycle,
        Wanted::Held | Wanted::ByPolicy | Wanted::Offered => false,
    };
    check_that(wanted(state, before).into_iter().any(needs), "G11: sets a reclaim policy that none wants")?;
    check_that(fate(state, before)?.is_gone, "G11: sets the reclaim policy of a volume whose claim lives")?;
    let own = policy_before(before).unwrap_or(before.policy);
    check_that(
        policy_before(after) == Some(own).filter(|own| *own != after.policy),
        "G11: does not note the reclaim policy before",
    )
}

/// Whether a reclaimer may want the volume to be offered again with its data.
pub(super) fn may_be_offered(state: &State, volume: &Volume) -> bool {
    wanted(state, volume).contains(&Wanted::Offered)
}

/// Volumes of claims that are gone, released with a reclaim policy by which they go, although a reclaimer
/// keeps them.
pub(crate) fn left_exposed(state: &State) -> Vec<String> {
    let is_exposed = |volume: &&Arc<Volume>| {
        let goes = matches!(volume.policy, ReclaimPolicy::Delete | ReclaimPolicy::Recycle);
        let is_gone = || fate(state, volume).is_ok_and(|fate| fate.is_gone && !fate.is_elsewhere);
        let is_kept = || wanted(state, volume).iter().all(|wanted| *wanted == Wanted::AnswerCache);
        volume.phase == VolumePhase::Released && goes && is_gone() && is_kept()
    };
    let exposed = state.volumes.values().filter(is_exposed);
    exposed
        .map(|volume| format!("G11: {} is kept, and released as {:?}", volume.name, volume.policy))
        .collect()
}
