//! Claims to which policies apply.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use bindery_controller::{Configuration, Parts, Settings, SyncError};
use bindery_core::{
    AccessMode, Action, BindingMode, Claim, ClaimFact, ClaimKey, Class, Decision, Engine, Facts, Follows,
    Key, Outcome, Request, Source, Step, Subject, Volume, VolumePhase,
};
use bindery_engine::DefaultEngine;
use bindery_kit::{AtMostTwice, Blocking, Fails, Larger, SameZone, ZONE, gib, policy};
use bindery_policy::{Chain, OnFailure, Otherwise, Policy};
use bindery_store::Delivery;

use crate::double::{Double, Scripted, begin, binder_of, claim, holding, meet, parts, volume};
use crate::operating::run_during;
use crate::syncing::taken;

pub(crate) fn in_zone(volume: Volume, zone: &str) -> Volume {
    Volume { labels: [(ZONE.into(), zone.into())].into(), ..volume }
}

/// A claim in zone `a`.
pub(crate) fn zoned(name: &str) -> Claim {
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
    binder_of(Parts { configuration, ..parts(double, engine) })
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
    let volumes = [("b1", 1, "b"), ("a9", 9, "a"), ("a2", 2, "a")]
        .map(|(name, size, zone)| in_zone(Volume { capacity: Some(gib(size)), ..volume(name) }, zone));
    let double = holding(volumes, ["c1", "c2"].map(zoned));
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
    let double = holding([in_zone(volume("b1"), "b")], [zoned("c")]);
    let policies = vec![Policy { otherwise: Otherwise::Wait, ..policy("zone", SameZone) }];
    let binder = binder(&double, DefaultEngine, policies);
    let synced = binder.sync(&key("c")).await;
    assert_eq!((synced.result, double.writes()), (Ok(()), vec![]));
    assert_eq!(double.reasons(), ["VolumesRejected"]);
    assert_eq!(double.messages(), ["1 of 1 volumes rejected: zone 1"]);
    // The event is written again before it expires.
    assert_eq!(synced.refresh_after, Some(bindery_controller::EVENT_REFRESH));
}

#[tokio::test]
async fn that_a_claim_got_a_volume_before_all_were_scored_is_told_and_counted() {
    let sized = |(name, size)| Volume { capacity: Some(gib(size)), ..volume(name) };
    let double = holding([("v1", 1), ("v2", 2), ("v3", 3)].map(sized), ["c1", "c2"].map(claim));
    let larger = Policy { max_candidates: 2, ..policy("larger", Larger { zone: None }) };
    let binder = binder(&double, DefaultEngine, vec![larger]);
    for (name, volume) in [("c1", "v2"), ("c2", "v3")] {
        assert_eq!(binder.sync(&key(name)).await.result, Ok(()));
        assert_eq!(bound_to(&binder, name).as_deref(), Some(volume));
    }
    assert_eq!(double.reasons(), ["VolumesNotScored"], "two volumes were left for the second claim");
    let told = "there are more volumes than policy larger scores (spec.maxCandidates: 2); only the smallest \
                were scored";
    assert_eq!(double.messages(), [told]);
    assert_eq!(
        binder.policies().activities().map(|policy| policy.metrics.unscored.get()).collect::<Vec<_>>(),
        [1]
    );
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
        let double = holding([in_zone(volume("v"), zone)], [zoned("c")]);
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
    let double = holding([volume("v1"), volume("v2")], [Claim { class: Some("".into()), ..claim("other") }]);
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
    assert_eq!(
        binder.policies().activities().map(|policy| policy.metrics.waits.get()).collect::<Vec<_>>(),
        [1, 0]
    );
}

#[tokio::test(start_paused = true)]
async fn given_a_claim_that_waits_when_tried_again_then_it_is_told_in_a_while() {
    let double = holding([], [claim("c")]);
    let [(first, _), (second, _)] = mute();
    let binder = binder(&double, DefaultEngine, vec![first]);
    let told = async || {
        binder.sync(&key("c")).await.result.unwrap_err();
        double.reasons().len()
    };
    assert_eq!([told().await, told().await], [1, 1]);
    tokio::time::advance(bindery_controller::EVENT_REFRESH).await;
    assert_eq!([told().await, told().await], [2, 2]);
    // Another failure, and another claim of that name, are told at once.
    binder.swap_policies(Arc::new(Chain::new(vec![second]))).await;
    assert_eq!([told().await, told().await], [3, 3]);
    binder.intake().deliver(Delivery::applied(Claim { uid: "another".into(), ..claim("c") }));
    assert_eq!([told().await, told().await], [4, 4]);
}

#[tokio::test]
async fn a_claim_that_is_bound_does_not_wait_for_a_failing_policy() {
    let mut bound = Claim { volume_name: Some("v".into()), ..claim("bound") };
    bound.annotations.bind_completed = true;
    let double = holding([taken("v", "bound")], [bound]);
    let binder = binder(&double, DefaultEngine, vec![policy("fails", Fails)]);
    assert_eq!(binder.sync(&key("bound")).await.result, Ok(()));
    assert_eq!((double.write_names(), double.reasons()), (vec!["set claim status"], vec![]));
}

/// Policies that give no answer, each with why the claim waits.
fn mute() -> [(Policy, &'static str); 2] {
    let unloaded = Policy { matcher: Err("it is 200 MiB".to_owned()), ..policy("fails", Fails) };
    [(policy("fails", Fails), "it trapped: unreachable"), (unloaded, "it is 200 MiB")]
}

#[tokio::test]
async fn a_volume_that_names_its_claim_does_not_wait_for_a_failing_policy() {
    // By the scheduler or a provisioner, and by a bind of the binder that was interrupted.
    for by_controller in [false, true] {
        for (failing, _) in mute() {
            let double = Double::new();
            // One with fewer access modes would be taken first.
            double.add_volume(&volume("free"));
            let mut reserved = taken("v", "c");
            reserved.access_modes = vec![AccessMode::ReadWriteOnce, AccessMode::ReadOnlyMany];
            reserved.annotations.bound_by_controller = by_controller;
            double.add_volume(&reserved);
            double.add_claim(&claim("c"));
            let binder = binder(&double, DefaultEngine, vec![failing]);
            assert_eq!(binder.sync(&key("c")).await.result, Ok(()));
            assert_eq!((bound_to(&binder, "c").as_deref(), double.reasons()), (Some("v"), vec![]));
        }
    }
}

/// Delivers the default class, whose volumes are provisioned.
fn deliver_class(binder: &bindery_controller::Binder<Double>) {
    let class = bindery_kit::class("gold", "vendor.example/csi", Some(BindingMode::Immediate));
    binder.intake().deliver(Delivery::applied(Class { default: true, ..class }));
}

#[tokio::test]
async fn a_failing_policy_lets_no_class_be_set_and_nothing_be_provisioned() {
    for class in [None, Some("gold".into())] {
        for (failing, why) in mute() {
            let double = holding([], [Claim { class: class.clone(), ..claim("c") }]);
            let binder = binder(&double, DefaultEngine, vec![failing]);
            deliver_class(&binder);
            let synced = binder.sync(&key("c")).await;
            let waits = SyncError::Policy { policy: "fails".into(), why: why.to_owned() };
            assert_eq!((synced.result, synced.operations.len()), (Err(waits), 0));
            assert_eq!((double.writes(), double.reasons()), (vec![], vec!["PolicyFailed"]));
        }
    }
}

#[tokio::test]
async fn the_guard_lets_no_class_be_set_where_a_policy_gives_no_answer() {
    let sets_class = || {
        Scripted(|request: &Request, _: &mut dyn bindery_core::Cluster| {
            let Subject::SyncClaim(claim) = &request.subject else { panic!("{request:?}") };
            let action = Action::SetClaimClass { claim: claim.target(), class: "gold".into() };
            Ok(Decision::new(vec![Step::from(action)], Outcome::Done))
        })
    };
    let policies = mute().into_iter().map(|(failing, why)| (failing, Some(why)));
    for (policy, why) in policies.chain([(policy("zone", SameZone), None)]) {
        let double = holding([], [Claim { class: None, ..claim("c") }]);
        let binder = binder(&double, sets_class(), vec![policy]);
        deliver_class(&binder);
        match (binder.sync(&key("c")).await.result, why) {
            (Ok(()), None) => assert_eq!(double.write_names(), ["set claim class"]),
            (Err(SyncError::Unproven(found)), Some(why)) => {
                assert!(found.contains(why), "{found}");
                assert_eq!(double.writes(), []);
            }
            (result, _) => panic!("{why:?}: {result:?}"),
        }
    }
}

#[tokio::test]
async fn a_claim_marked_as_bound_gets_no_volume_that_its_policies_reject() {
    let mut marked = Claim { volume_name: Some("v".into()), ..zoned("c") };
    marked.annotations.bind_completed = true;
    let double = holding([in_zone(volume("v"), "b")], [marked]);
    let binder = binder(&double, DefaultEngine, vec![policy("zone", SameZone)]);
    assert_eq!(binder.sync(&key("c")).await.result, Ok(()));
    assert_eq!((double.writes(), double.reasons()), (vec![], vec!["VolumeRejected"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_waits_for_a_matcher_but_its_own_claim() {
    let double = holding([volume("v1")], [zoned("asks"), Claim { class: Some("".into()), ..claim("other") }]);
    let barrier = Arc::new(Barrier::new(2));
    let mut blocking = policy("blocks", Blocking(Arc::clone(&barrier)));
    blocking.matches.claim = vec![bindery_core::Requirement {
        key: ZONE.into(),
        operator: bindery_core::SelectorOperator::Exists,
        values: Vec::new(),
    }];
    let binder = binder(&double, DefaultEngine, vec![blocking]);
    let asking = begin(&binder, key("asks"));
    // The matcher is being asked, until the barrier is reached once more.
    meet(&barrier).await;
    double.add_volume(&volume("v2"));
    binder.intake().deliver(Delivery::applied(volume("v2")));
    assert_eq!(binder.sync(&key("other")).await.result, Ok(()));
    assert_eq!(bound_to(&binder, "other").as_deref(), Some("v1"));
    meet(&barrier).await;
    assert_eq!(asking.await.unwrap(), Ok(()));
    assert_eq!(bound_to(&binder, "asks").as_deref(), Some("v2"));
}

#[tokio::test]
async fn a_claim_without_policies_has_its_turn_while_many_wait_for_a_matcher() {
    let double = Double::new();
    // Two matchers are asked at a time.
    let barrier = Arc::new(Barrier::new(3));
    let mut blocking = policy("blocks", Blocking(Arc::clone(&barrier)));
    blocking.matches.classes = vec!["slow".into()];
    let names: Vec<String> = (0..6).map(|number| format!("slow-{number}")).collect();
    for name in &names {
        // Each is seen as another claim, so each has the matcher asked.
        let facts = [(ClaimFact::Label(ZONE.into()), name.as_str().into())].into_iter().collect();
        double.add_claim(&Claim { class: Some("slow".into()), facts, ..claim(name) });
        double.add_volume(&Volume { class: "slow".into(), ..volume(&format!("v-{name}")) });
    }
    let configuration =
        Configuration { policies: Arc::new(Chain::new(vec![blocking])), ..Configuration::default() };
    let settings = Settings { in_flight_max: 4, ..Settings::default() };
    let binder = binder_of(Parts { configuration, settings, ..parts(&double, DefaultEngine) });
    double.watch(binder.intake(), Duration::ZERO);
    let is_bound = |name: &str| double.claim(name).annotations.bind_completed;
    run_during(&binder, async {
        // Two matchers are being asked until the barrier is reached once more. The other claims wait.
        meet(&barrier).await;
        double.add_volume(&volume("v"));
        double.add_claim(&claim("other"));
        binder.intake().deliver(Delivery::applied(volume("v")));
        binder.intake().deliver(Delivery::applied(claim("other")));
        for _ in 0..10_000 {
            tokio::task::yield_now().await;
        }
        let is_bound_meanwhile = is_bound("other");
        // Before anything fails: the runtime waits for the matchers.
        for _ in 1..names.len() {
            meet(&barrier).await;
        }
        double.until("all are bound", || names.iter().all(|name| is_bound(name))).await;
        assert!(is_bound_meanwhile);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_policies_do_not_let_a_claim_have_wakes_no_claim() {
    let double = Double::new();
    let large =
        |number: u32| Volume { capacity: Some(gib(9)), ..in_zone(volume(&format!("l{number}")), "a") };
    let elsewhere = |number: u32| in_zone(volume(&format!("e{number}")), "b");
    (0..20).for_each(|number| double.add_claim(&zoned(&format!("c{number:02}"))));
    let decided = Arc::new(AtomicUsize::new(0));
    let engine = {
        let decided = Arc::clone(&decided);
        Scripted(move |request: &Request, cluster: &mut dyn bindery_core::Cluster| {
            let decision = bindery_engine::decide(request, cluster)?;
            if matches!(request.subject, Subject::SyncClaim(_)) {
                decided.fetch_add(1, Ordering::Relaxed);
            }
            Ok(decision)
        })
    };
    // Events are not refreshed, because that would be a decision too.
    let settings = Settings { event_refresh: Duration::from_secs(1 << 30), ..Settings::default() };
    let policies = Chain::new(vec![policy("zone", SameZone), policy("size", AtMostTwice::narrowing())]);
    let configuration = Configuration { policies: Arc::new(policies), ..Configuration::default() };
    let binder = binder_of(Parts { settings, configuration, ..parts(&double, engine) });
    double.watch(binder.intake(), Duration::ZERO);
    run_during(&binder, async {
        double.rest().await;
        let waiting = decided.load(Ordering::Relaxed);
        for number in 0..10 {
            double.change(|objects| {
                objects.put_volume(large(number));
                objects.put_volume(elsewhere(number));
            });
        }
        double.rest().await;
        assert_eq!(decided.load(Ordering::Relaxed), waiting);
        // A volume that they let a claim have wakes one: to bind it, and once more after that.
        double.change(|objects| objects.put_volume(in_zone(elsewhere(3), "a")));
        double.rest().await;
        assert_eq!(double.volume("e3").phase, VolumePhase::Bound);
        assert_eq!(decided.load(Ordering::Relaxed), waiting + 2);
    })
    .await;
}
