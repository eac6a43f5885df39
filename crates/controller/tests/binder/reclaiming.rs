//! Volumes to which reclaimers apply.

use std::sync::Arc;
use std::time::Duration;

use bindery_controller::{Binder, Configuration, Parts, SyncError, Synced};
use bindery_core::{
    Action, CLAIM_FACTS, Claim, ClaimFact, ClaimKey, Key, RECLAIM_POLICY_BEFORE, ReclaimPolicy, Requirement,
    SelectorOperator, Timestamp, Volume, VolumeFact, VolumePhase,
};
use bindery_engine::DefaultEngine;
use bindery_kit::{ByLabel, KEEP, NOW, keeps_labelled, reclaim_rule};
use bindery_policy::{Allowed, Chain, Matches, PolicyFault, ReclaimRule, Wish};
use bindery_store::{Delivery, ObjectKey};

use crate::double::{Double, binder_of, claim, holding, parts, volume};
use crate::syncing::taken;

pub(crate) const DAY: u32 = 24 * 60 * 60;

pub(crate) fn binder(double: &Double, rules: Vec<ReclaimRule>) -> Arc<Binder<Double>> {
    let policies = Arc::new(Chain::default().with_reclaimers(rules));
    let configuration = Configuration { policies, ..Configuration::default() };
    binder_of(Parts { configuration, ..parts(double, DefaultEngine) })
}

/// A volume of the claim, with policy Delete.
pub(crate) fn bound(name: &str, claim: &str) -> Volume {
    Volume { policy: ReclaimPolicy::Delete, ..taken(name, claim) }
}

/// A claim that is bound to a volume, with that value of the label.
pub(crate) fn pair(name: &str, volume: &str, keep: &str) -> Claim {
    let facts = [(ClaimFact::Label(KEEP.into()), keep.into())].into_iter().collect();
    let mut claim = Claim { facts, volume_name: Some(volume.into()), ..claim(name) };
    claim.annotations.bind_completed = true;
    claim.status.phase = bindery_core::ClaimPhase::Bound;
    claim
}

pub(crate) async fn sync(binder: &Binder<Double>, volume: &str) -> Synced {
    binder.sync(&Key::Volume(volume.into())).await
}

pub(crate) fn annotated(volume: &mut Volume, key: &str, value: &str) {
    volume.facts.set(VolumeFact::Annotation(key.into()), Some(value.into()));
}

fn before(volume: &Volume) -> Option<ReclaimPolicy> {
    volume.policy_before()
}

#[tokio::test]
async fn a_kept_volume_gets_policy_retain_before_it_is_released() {
    let double = holding([bound("v", "c")], []);
    let binder = binder(&double, vec![reclaim_rule("keep", ByLabel(|_| Ok(Wish::Keep)))]);
    assert_eq!(sync(&binder, "v").await.result, Ok(()));
    assert_eq!(double.write_names(), ["set reclaim policy", "set volume phase"]);
    assert_eq!(double.reasons(), ["ReclaimPolicySet"]);
    let volume = double.volume("v");
    assert_eq!((volume.policy, volume.phase), (ReclaimPolicy::Retain, VolumePhase::Released));
    assert_eq!(before(&volume), Some(ReclaimPolicy::Delete));
    assert_eq!(sync(&binder, "v").await.result, Ok(()));
    assert_eq!(double.writes().len(), 2);
}

/// A volume that was released so many seconds ago, and that a reclaimer kept.
pub(crate) fn kept_for(seconds: u32) -> Volume {
    let mut volume =
        Volume { policy: ReclaimPolicy::Retain, phase: VolumePhase::Released, ..bound("v", "c") };
    annotated(&mut volume, RECLAIM_POLICY_BEFORE, "Delete uid-c");
    let since = NOW - Timestamp::from(seconds);
    volume.facts.set(VolumeFact::PhaseTransition, Some(since.to_string().into()));
    volume
}

pub(crate) fn after_a_day() -> ReclaimRule {
    reclaim_rule("later", ByLabel(|_| Ok(Wish::DeleteAfter(DAY.into()))))
}

#[tokio::test]
async fn a_volume_is_deleted_when_it_is_due_and_not_earlier() {
    let double = holding([kept_for(DAY - 60)], []);
    let synced = sync(&binder(&double, vec![after_a_day()]), "v").await;
    assert_eq!((synced.result, synced.requeue_after), (Ok(()), Some(Duration::from_secs(60))));
    assert_eq!(double.writes(), []);

    let double = holding([kept_for(DAY)], []);
    let synced = sync(&binder(&double, vec![after_a_day()]), "v").await;
    assert_eq!(double.write_names(), ["set reclaim policy"]);
    let volume = double.volume("v");
    assert_eq!((volume.policy, before(&volume)), (ReclaimPolicy::Delete, None));
    assert_eq!(synced.operations.len(), 1);
}

#[tokio::test]
async fn a_person_overrides_a_reclaimer_by_the_annotation_or_the_policy() {
    // Without the annotation the volume's own policy is Retain, and no document allows more.
    let mut volume = kept_for(DAY);
    volume.facts.set(VolumeFact::Annotation(RECLAIM_POLICY_BEFORE.into()), None);
    let double = holding([volume], []);
    assert_eq!(sync(&binder(&double, vec![after_a_day()]), "v").await.result, Ok(()));
    assert_eq!(double.writes(), []);

    let double = holding([Volume { policy: ReclaimPolicy::Delete, ..kept_for(60) }], []);
    let synced = sync(&binder(&double, vec![after_a_day()]), "v").await;
    assert_eq!((double.write_names(), synced.operations.len()), (vec![], 1));
}

#[tokio::test]
async fn a_volume_whose_reclaimer_is_taken_away_stays_kept_and_is_counted() {
    let of_class = |class: &str| {
        let matches = Matches { classes: vec![class.into()], ..Matches::default() };
        vec![ReclaimRule { matches, ..after_a_day() }]
    };
    for (rules, counted) in [(vec![after_a_day()], 0), (of_class(""), 0), (of_class("other"), 1), (vec![], 1)]
    {
        let double = holding([kept_for(DAY - 60)], []);
        // Its own policy keeps this one.
        double.add_volume(&Volume { phase: VolumePhase::Released, ..taken("other", "c") });
        let binder = binder(&double, rules);
        assert_eq!(sync(&binder, "v").await.result, Ok(()));
        assert_eq!((double.writes(), binder.kept_without_policy()), (vec![], counted));
    }
}

#[tokio::test]
async fn a_document_has_to_allow_what_destroys_more() {
    for (wish, allow, writes) in [
        (Wish::Delete, None, &[][..]),
        (Wish::Delete, Some(Allowed::Recycle), &[]),
        (Wish::Delete, Some(Allowed::Delete), &["set reclaim policy"]),
        (Wish::Recycle, Some(Allowed::Recycle), &["set reclaim policy"]),
        (Wish::OfferAgain, None, &[]),
        (Wish::OfferAgain, Some(Allowed::OfferAgain), &["unbind volume", "set volume phase"]),
    ] {
        let double = holding([Volume { phase: VolumePhase::Released, ..taken("v", "c") }], []);
        let reclaimer = match wish {
            Wish::Delete => ByLabel(|_| Ok(Wish::Delete)),
            Wish::Recycle => ByLabel(|_| Ok(Wish::Recycle)),
            _ => ByLabel(|_| Ok(Wish::OfferAgain)),
        };
        let rule = ReclaimRule { allow: allow.into_iter().collect(), ..reclaim_rule("more", reclaimer) };
        let synced = sync(&binder(&double, vec![rule]), "v").await;
        assert_eq!((synced.result, double.write_names()), (Ok(()), writes.to_vec()), "{wish:?} {allow:?}");
    }
}

#[tokio::test]
async fn the_last_state_of_a_claim_decides_even_if_no_note_has_it() {
    let double = holding([bound("v", "c")], [pair("c", "v", "false")]);
    let binder = binder(&double, vec![reclaim_rule("keep", keeps_labelled())]);
    binder.intake().deliver(Delivery::applied(Claim { version: "8".into(), ..pair("c", "v", "true") }));
    let key = ClaimKey::new("ns", "c");
    double.change(|objects| objects.remove_claim(&key));
    binder.intake().deliver(Delivery::Gone(ObjectKey::Claim(key)));
    assert_eq!(sync(&binder, "v").await.result, Ok(()));
    assert_eq!(double.volume("v").policy, ReclaimPolicy::Retain);
}

#[tokio::test]
async fn the_last_state_of_a_claim_still_decides_after_a_restart() {
    let double = Double::new();
    let rules = || {
        let by_label =
            ByLabel(|label| Ok(if label == Some(Some("true")) { Wish::Keep } else { Wish::Delete }));
        vec![ReclaimRule { allow: vec![Allowed::Delete], ..reclaim_rule("deletes", by_label) }]
    };
    double.add_volume(&taken("v", "c"));
    double.add_claim(&pair("c", "v", "false"));
    let first = binder(&double, rules());
    assert_eq!(sync(&first, "v").await.result, Ok(()));
    first.intake().deliver(Delivery::applied(Claim { version: "8".into(), ..pair("c", "v", "true") }));
    let key = ClaimKey::new("ns", "c");
    double.change(|objects| objects.remove_claim(&key));
    first.intake().deliver(Delivery::Gone(ObjectKey::Claim(key)));
    assert_eq!(sync(&first, "v").await.result, Ok(()));
    // A volume with policy Retain needs no write to be kept, but its note was about the older state.
    assert_eq!(double.write_names(), ["annotate volume", "annotate volume", "set volume phase"]);
    let synced = sync(&binder(&double, rules()), "v").await;
    assert_eq!((synced.result, synced.operations.len()), (Ok(()), 0));
    assert_eq!(double.volume("v").policy, ReclaimPolicy::Retain);
}

#[tokio::test]
async fn facts_of_a_bound_claim_are_noted_and_outlive_a_restart() {
    let double = holding([Volume { policy: ReclaimPolicy::Delete, ..volume("v") }], []);
    let facts = [(ClaimFact::Label(KEEP.into()), "false".into())].into_iter().collect();
    double.add_claim(&Claim { facts, ..claim("c") });
    let rules = || vec![reclaim_rule("keep", keeps_labelled())];
    let first = binder(&double, rules());
    assert_eq!(first.sync(&Key::Claim(ClaimKey::new("ns", "c"))).await.result, Ok(()));
    // The note is part of the first write of the bind.
    assert_eq!(
        double.write_names(),
        ["reserve volume", "set volume phase", "bind claim", "set claim status"]
    );
    assert_eq!(sync(&first, "v").await.result, Ok(()));
    assert_eq!(double.writes().len(), 4);
    // A changed label is noted by a write of its own.
    let labelled = Claim { facts: pair("c", "v", "true").facts, ..double.claim("c") };
    double.add_claim(&labelled);
    let second = binder(&double, rules());
    assert_eq!(sync(&second, "v").await.result, Ok(()));
    assert!(matches!(double.writes()[4].action, Action::AnnotateVolume { .. }), "{:?}", double.writes());
    // The claim is gone, and this binder has never seen it.
    double.change(|objects| objects.remove_claim(&ClaimKey::new("ns", "c")));
    assert_eq!(sync(&binder(&double, rules()), "v").await.result, Ok(()));
    assert_eq!(double.volume("v").policy, ReclaimPolicy::Retain);
    // A namesake is another claim.
    let volume = double.volume("v");
    let mut other = Volume { policy: ReclaimPolicy::Delete, phase: VolumePhase::Bound, ..volume };
    other.claim_ref.as_mut().expect("it is bound").uid = Some("uid-of-another".into());
    other.facts.set(VolumeFact::Annotation(RECLAIM_POLICY_BEFORE.into()), None);
    double.add_volume(&other);
    assert_eq!(sync(&binder(&double, rules()), "v").await.result, Ok(()));
    assert_eq!(double.volume("v").policy, ReclaimPolicy::Delete);
}

#[tokio::test]
async fn a_failing_reclaimer_holds_the_volume_before_it_is_released() {
    let double = holding([bound("v", "c")], []);
    let fails = ByLabel(|_| Err(PolicyFault::Trapped("unreachable".to_owned())));
    let binder = binder(&double, vec![reclaim_rule("fails", fails)]);
    let waits = SyncError::Policy { policy: "fails".into(), why: "it trapped: unreachable".to_owned() };
    assert_eq!(sync(&binder, "v").await.result, Err(waits));
    assert_eq!((double.writes(), double.reasons()), (vec![], vec!["PolicyFailed"]));
}

/// A released volume with reclaim policy Retain, and what is noted of its claim.
fn released(noted: Option<&str>) -> Volume {
    let mut volume = Volume { phase: VolumePhase::Released, ..taken("v", "c") };
    if let Some(facts) = noted {
        annotated(&mut volume, CLAIM_FACTS, &format!(r#"{{"uid":"uid-c","facts":{{{facts}}}}}"#));
    }
    volume
}

/// The names of the writes of a sync of that volume under these rules, and the volume after them.
async fn writes(volume: &Volume, rules: Vec<ReclaimRule>) -> (Vec<&'static str>, Volume) {
    let double = Double::new();
    double.add_volume(volume);
    assert_eq!(sync(&binder(&double, rules), "v").await.result, Ok(()));
    (double.write_names(), double.volume("v"))
}

/// A rule that applies to claims with the label `keep: scratch`.
fn of_scratch(wish: fn(Option<Option<&str>>) -> Result<Wish, PolicyFault>) -> ReclaimRule {
    let scratch = Requirement {
        key: KEEP.into(),
        operator: SelectorOperator::In,
        values: ["scratch".into()].into_iter().collect(),
    };
    let matches = Matches { claim: vec![scratch], ..Matches::default() };
    ReclaimRule { matches, allow: vec![Allowed::Delete], ..reclaim_rule("scratch", ByLabel(wish)) }
}

#[tokio::test]
async fn a_rule_that_may_not_apply_only_makes_a_volume_safer() {
    for (noted, written) in [
        (None, &[][..]),
        (Some(r#""label:other":"scratch""#), &[]),
        (Some(r#""label:keep":null"#), &[]),
        (Some(r#""label:keep":"scratch""#), &["set reclaim policy"]),
    ] {
        let rules = vec![of_scratch(|_| Ok(Wish::Delete))];
        assert_eq!(writes(&released(noted), rules).await.0, written, "{noted:?}");
    }
    let (written, volume) = writes(&bound("v", "c"), vec![of_scratch(|_| Ok(Wish::Keep))]).await;
    assert_eq!((written[0], volume.policy), ("set reclaim policy", ReclaimPolicy::Retain));
}

#[tokio::test]
async fn a_fact_that_a_note_does_not_have_is_not_known() {
    for (noted, policy) in
        [(r#""label:tier":"db""#, ReclaimPolicy::Retain), (r#""label:keep":null"#, ReclaimPolicy::Delete)]
    {
        let rule = ByLabel(|label| Ok(if label.is_none() { Wish::Keep } else { Wish::ByPolicy }));
        let volume =
            Volume { policy: ReclaimPolicy::Delete, phase: VolumePhase::Bound, ..released(Some(noted)) };
        assert_eq!(writes(&volume, vec![reclaim_rule("keep", rule)]).await.1.policy, policy, "{noted}");
    }
}

#[tokio::test]
async fn what_was_noted_for_an_earlier_claim_counts_no_more() {
    let keeps = || vec![reclaim_rule("keep", ByLabel(|_| Ok(Wish::Keep)))];
    let mut reused = bound("v", "c");
    annotated(&mut reused, RECLAIM_POLICY_BEFORE, "Delete uid-earlier");
    assert_eq!(writes(&reused, keeps()).await.1.policy, ReclaimPolicy::Retain);

    let mut retained = kept_for(DAY);
    annotated(&mut retained, RECLAIM_POLICY_BEFORE, "Delete uid-earlier");
    assert_eq!(writes(&retained, vec![after_a_day()]).await.0, [""; 0]);
}

#[tokio::test]
async fn a_volume_that_is_offered_again_gets_its_own_reclaim_policy_back() {
    let rule = reclaim_rule("offer", ByLabel(|_| Ok(Wish::OfferAgain)));
    let rule = ReclaimRule { allow: vec![Allowed::OfferAgain], ..rule };
    let (written, volume) = writes(&kept_for(60), vec![rule]).await;
    assert_eq!(written, ["unbind volume", "set volume phase"]);
    assert_eq!((volume.policy, volume.noted_policy()), (ReclaimPolicy::Delete, None));
}

#[tokio::test]
async fn a_person_takes_a_volume_from_reclaimers_for_good() {
    let mut volume = kept_for(DAY);
    annotated(&mut volume, RECLAIM_POLICY_BEFORE, "kept");
    let rule = ReclaimRule { allow: vec![Allowed::Delete], ..after_a_day() };
    assert_eq!(writes(&volume, vec![rule]).await.0, [""; 0]);
}

#[tokio::test]
async fn after_an_answer_that_is_not_allowed_the_next_reclaimer_is_asked() {
    let offers = reclaim_rule("offer", ByLabel(|_| Ok(Wish::OfferAgain)));
    let keeps = ReclaimRule { order: 1, ..reclaim_rule("keep", ByLabel(|_| Ok(Wish::Keep))) };
    assert_eq!(writes(&bound("v", "c"), vec![offers, keeps]).await.1.policy, ReclaimPolicy::Retain);
}

#[tokio::test]
async fn a_failed_volume_with_policy_retain_stays_until_it_is_due() {
    let mut failed = Volume { phase: VolumePhase::Failed, ..kept_for(60) };
    failed.facts.set(VolumeFact::Annotation(RECLAIM_POLICY_BEFORE.into()), None);
    let rule = ReclaimRule { allow: vec![Allowed::Delete], ..after_a_day() };
    assert_eq!(writes(&failed, vec![rule]).await.0, [""; 0]);
}

#[tokio::test]
async fn a_rule_that_may_not_apply_takes_no_volume_from_one_that_keeps_it() {
    let keeps = ReclaimRule { order: 1, ..reclaim_rule("keep", ByLabel(|_| Ok(Wish::Keep))) };
    let rules = vec![of_scratch(|_| Ok(Wish::Delete)), keeps];
    assert_eq!(writes(&bound("v", "c"), rules).await.1.policy, ReclaimPolicy::Retain);
}

#[tokio::test]
async fn a_person_stops_a_deletion_that_a_document_allows() {
    let mut volume = released(None);
    annotated(&mut volume, RECLAIM_POLICY_BEFORE, "Retain uid-c");
    let rule = reclaim_rule("delete", ByLabel(|_| Ok(Wish::Delete)));
    let rule = ReclaimRule { allow: vec![Allowed::Delete], ..rule };
    assert_eq!(writes(&volume, vec![rule]).await.0, [""; 0]);
}

#[tokio::test]
async fn a_rule_that_may_not_delete_does_not_hold_back_one_that_may() {
    let delete = reclaim_rule("delete", ByLabel(|_| Ok(Wish::Delete)));
    let delete = ReclaimRule { order: 1, allow: vec![Allowed::Delete], ..delete };
    let (written, volume) = writes(&taken("v", "c"), vec![after_a_day(), delete]).await;
    assert_eq!(written, ["set reclaim policy", "set volume phase"]);
    assert_eq!((volume.policy, before(&volume)), (ReclaimPolicy::Delete, Some(ReclaimPolicy::Retain)));
}
