//! Claims to which policies apply.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use bindery_controller::{Configuration, Key, SyncError};
use bindery_core::{
    Action, Claim, ClaimFact, ClaimKey, Decision, Engine, Facts, Follows, Outcome, Request, Requirement,
    SelectorOperator, Source, Step, Subject, Volume,
};
use bindery_engine::DefaultEngine;
use bindery_kit::{AtMostTwice, Blocking, Fails, SameZone, ZONE, gib, policy};
use bindery_policy::{Chain, Matches, OnFailure, Otherwise, Policy};
use bindery_store::{Delivery, Object};
use tokio::time::Instant;

use crate::double::{Double, Scripted, binder_of, claim, parts, volume};
use crate::operating::run_during;
use crate::syncing::taken;

pub(crate) fn in_zone(volume: Volume, zone: &str) -> Volume {
    Volume { labels: [(ZONE.into(), zone.into())].into(), ..volume }
}

/// A claim in zone `a`.
fn zoned(name: &str) -> Claim {
    let facts: Facts<ClaimFact> = [(ClaimFact::Label(ZONE.into()), "a".into())].into_iter().collect();
    Claim { facts, ..claim(name) }
}

pub(crate) fn key(name: &str) -> Key {
    Key::Claim(ClaimKey::new("ns", name))
}

pub(crate) fn binder(
    double: &Double,
    engine: impl Engine + 'static,
    policies: Vec<Policy>,
) -> Arc<bindery_controller::Binder<Double>> {
    let policies = Arc::new(Chain::new(policies));
    let configuration = Configuration { policies, ..Configuration::default() };
    binder_of(bindery_controller::Parts { configuration, ..parts(double, engine) })
}

/// The volume that the store has for a claim.
pub(crate) fn bound_to(binder: &bindery_controller::Binder<Double>, name: &str) -> Option<String> {
    match binder.store().claim(Source::Overlay, &ClaimKey::new("ns", name)) {
        bindery_core::Lookup::Found(claim) => claim.volume_name.as_ref().map(ToString::to_string),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_claim_gets_the_smallest_volume_that_its_policies_allow() {
    let double = Double::new();
    for (name, size, zone) in [("b1", 1, "b"), ("a9", 9, "a"), ("a2", 2, "a")] {
        double.add_volume(&in_zone(Volume { capacity: Some(gib(size)), ..volume(name) }, zone));
    }
    double.add_claim(&zoned("c1"));
    double.add_claim(&zoned("c2"));
    let policies = vec![policy("zone", SameZone), policy("size", AtMostTwice::judging())];
    let binder = binder(&double, DefaultEngine, policies);
    assert_eq!(binder.sync(&key("c1")).await.result, Ok(()));
    assert_eq!(bound_to(&binder, "c1").as_deref(), Some("a2"));
    assert_eq!(binder.sync(&key("c2")).await.result, Ok(()));
    assert_eq!(bound_to(&binder, "c2"), None);
    assert_eq!(double.reasons(), ["FailedBinding"]);
    let message = &double.messages()[0];
    assert!(message.ends_with("; 2 of 2 volumes rejected: size 1, zone 1"), "{message}");
}

#[tokio::test]
async fn a_claim_that_its_policies_hold_back_is_told_so() {
    let double = Double::new();
    double.add_volume(&in_zone(volume("b1"), "b"));
    double.add_claim(&zoned("c"));
    let policies = vec![Policy { otherwise: Otherwise::Wait, ..policy("zone", SameZone) }];
    let binder = binder(&double, DefaultEngine, policies);
    let synced = binder.sync(&key("c")).await;
    assert_eq!((synced.result, double.writes()), (Ok(()), vec![]));
    assert_eq!(double.reasons(), ["VolumesRejected"]);
    assert_eq!(double.messages(), ["1 of 1 volumes rejected: zone 1"]);
    // The event is written again before it expires.
    assert_eq!(synced.refresh_after, Some(bindery_controller::EVENT_REFRESH));
}

/// An engine that knows no policies, and reserves volume `v` for the claim.
pub(crate) fn reserves_v() -> impl Engine {
    Scripted(|request: &Request, cluster: &mut dyn bindery_core::Cluster| {
        let Subject::SyncClaim(claim) = &request.subject else { panic!("{request:?}") };
        let bindery_core::Lookup::Found(volume) = cluster.volume(Source::Overlay, "v".into())? else {
            panic!("the volume is there")
        };
        let (volume, claim, mark) = (volume.target(), claim.target(), true);
        let step = Step { action: Action::ReserveVolume { volume, claim, mark }, follows: Follows::Success };
        Ok(Decision::new(vec![step], Outcome::Done))
    })
}

#[tokio::test]
async fn the_guard_asks_the_policies_about_a_volume_from_elsewhere() {
    for (zone, refused) in [("a", false), ("b", true)] {
        let double = Double::new();
        double.add_volume(&in_zone(volume("v"), zone));
        double.add_claim(&zoned("c"));
        let binder = binder(&double, reserves_v(), vec![policy("zone", SameZone)]);
        let result = binder.sync(&key("c")).await.result;
        match (refused, result) {
            (false, Ok(())) => assert_eq!(double.write_names(), ["reserve volume"]),
            (true, Err(SyncError::Refused(why))) => {
                assert!(why.contains("policy zone rejects it for claim ns/c: its zone is b, not a"), "{why}");
                assert_eq!(double.writes(), []);
            }
            (_, result) => panic!("{zone}: {result:?}"),
        }
    }
}

#[tokio::test]
async fn a_failing_policy_holds_only_the_claims_that_it_matches() {
    let double = Double::new();
    double.add_volume(&volume("v1"));
    double.add_volume(&volume("v2"));
    double.add_claim(&Claim { class: Some("".into()), ..claim("other") });
    let mut failing = policy("fails", Fails);
    failing.matches.classes = vec!["slow".into()];
    double.add_claim(&Claim { class: Some("slow".into()), ..claim("held") });
    let skipped = Policy { on_failure: OnFailure::Skip, ..policy("skipped", Fails) };
    let binder = binder(&double, DefaultEngine, vec![failing, skipped]);
    let waits = SyncError::Policy { policy: "fails".into(), why: "it trapped: unreachable".to_owned() };
    assert_eq!(binder.sync(&key("held")).await.result, Err(waits));
    assert_eq!((double.writes(), double.reasons()), (vec![], vec!["PolicyFailed"]));
    assert_eq!(binder.sync(&key("other")).await.result, Ok(()));
    assert_eq!(bound_to(&binder, "other").as_deref(), Some("v1"));
    assert_eq!(binder.metrics().engine_faults.get(), 0);
    assert_eq!(binder.policies().map(|policy| policy.counts.waits.get()).collect::<Vec<_>>(), [1, 0]);
}

#[tokio::test]
async fn a_claim_that_is_bound_does_not_wait_for_a_failing_policy() {
    let double = Double::new();
    double.add_volume(&taken("v", "bound"));
    let mut bound = Claim { volume_name: Some("v".into()), ..claim("bound") };
    bound.annotations.bind_completed = true;
    double.add_claim(&bound);
    let binder = binder(&double, DefaultEngine, vec![policy("fails", Fails)]);
    assert_eq!(binder.sync(&key("bound")).await.result, Ok(()));
    assert_eq!((double.write_names(), double.reasons()), (vec!["set claim status"], vec![]));
}

#[tokio::test]
async fn a_claim_that_is_only_marked_as_bound_gets_no_volume_that_its_policies_reject() {
    let double = Double::new();
    double.add_volume(&in_zone(volume("v"), "b"));
    let mut marked = Claim { volume_name: Some("v".into()), ..zoned("c") };
    marked.annotations.bind_completed = true;
    double.add_claim(&marked);
    let binder = binder(&double, DefaultEngine, vec![policy("zone", SameZone)]);
    assert_eq!(binder.sync(&key("c")).await.result, Ok(()));
    assert_eq!((double.writes(), double.reasons()), (vec![], vec!["VolumeRejected"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_waits_for_a_matcher_but_its_own_claim() {
    let double = Double::new();
    double.add_volume(&volume("v1"));
    double.add_claim(&zoned("asks"));
    double.add_claim(&Claim { class: Some("".into()), ..claim("other") });
    let barrier = Arc::new(Barrier::new(2));
    let mut blocking = policy("blocks", Blocking(Arc::clone(&barrier)));
    blocking.matches.claim = vec![bindery_core::Requirement {
        key: ZONE.into(),
        operator: bindery_core::SelectorOperator::Exists,
        values: Vec::new(),
    }];
    let binder = binder(&double, DefaultEngine, vec![blocking]);
    let asking = {
        let binder = Arc::clone(&binder);
        tokio::spawn(async move { binder.sync(&key("asks")).await.result })
    };
    // The matcher is being asked, until the barrier is reached once more.
    tokio::task::spawn_blocking({
        let barrier = Arc::clone(&barrier);
        move || barrier.wait()
    })
    .await
    .unwrap();
    double.add_volume(&volume("v2"));
    binder.intake().deliver(Delivery::applied(volume("v2")));
    assert_eq!(binder.sync(&key("other")).await.result, Ok(()));
    assert_eq!(bound_to(&binder, "other").as_deref(), Some("v1"));
    tokio::task::spawn_blocking(move || barrier.wait()).await.unwrap();
    assert_eq!(asking.await.unwrap(), Ok(()));
    assert_eq!(bound_to(&binder, "asks").as_deref(), Some("v2"));
}

#[tokio::test(start_paused = true)]
async fn a_changed_label_of_its_namespace_wakes_a_claim() {
    let (operator, values) = (SelectorOperator::In, vec!["database".into()]);
    let namespace = vec![Requirement { key: "team".into(), operator, values }];
    let matches = Matches { namespace, ..Matches::default() };
    let double = Double::new();
    double.add_claim(&claim("c"));
    let policies = vec![Policy { matches, ..policy("fails", Fails) }];
    let binder = binder(&double, DefaultEngine, policies);
    let label = |team: &str| {
        let labels = Arc::new([("team".into(), team.into())].into());
        binder.intake().deliver(Delivery::applied(Object::Namespace("ns".into(), labels)));
    };
    label("web");
    run_during(&binder, async {
        double.rest().await;
        assert_eq!(double.reasons(), ["FailedBinding"]);
        let begin = Instant::now();
        label("database");
        double.until("the policy fails", || double.reasons() == ["FailedBinding", "PolicyFailed"]).await;
        // By the virtual clock: the claim waited for no timer.
        assert!(begin.elapsed() <= Duration::from_millis(5), "{:?}", begin.elapsed());
    })
    .await;
}
