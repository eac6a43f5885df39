//! Policies and engines that decide beside those in effect.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use bindery_controller::{
    Binder, Configuration, DecidedRecord, DifferenceRecord, Journal, Parts, Shadow, ShadowPart,
};
use bindery_core::{
    BindingMode, Claim, Cluster, Decision, Engine, EngineFault, ReclaimPolicy, Request, Volume,
};
use bindery_engine::DefaultEngine;
use bindery_kit::{
    AllowsAll, AtMostTwice, Blocking, ByLabel, Fails, Larger, SameZone, gib, keeps_labelled, policy,
    reclaim_rule,
};
use bindery_policy::{
    Chain, Difference, DifferenceKind, Matches, OnFailure, Policy, ShadowMetrics, ShadowReleased, Wish,
};
use bindery_store::Delivery;
use tokio::task::{spawn_blocking, yield_now};

use crate::double::{Double, Scripted, binder_of, claim, holding, meet, parts, volume};
use crate::policies::{bound_to, in_zone, key, reserves_v, zoned};
use crate::reclaiming::{DAY, after_a_day, bound, kept_for, sync};
use crate::spreading::{fewest, sibling};

pub(crate) fn shadow(name: &str, part: ShadowPart) -> Shadow {
    let (name, replaces) = (name.into(), name.into());
    Shadow { name, replaces, part, sample_percent: 100, metrics: ShadowMetrics::default() }
}

pub(crate) fn matching(policy: Policy) -> Shadow {
    shadow(&policy.name.clone(), ShadowPart::Match(policy))
}

fn binder(double: &Double, policies: Vec<Policy>, shadows: &[Shadow]) -> Arc<Binder<Double>> {
    let (policies, shadows) = (Arc::new(Chain::new(policies)), shadows.to_vec());
    let configuration = Configuration { policies, shadows, ..Configuration::default() };
    binder_of(Parts { configuration, ..parts(double, DefaultEngine) })
}

/// Waits until the shadow has answered so many decisions, and returns how many it has compared and could not
/// compare.
pub(crate) async fn answered(shadow: &Shadow, count: u64) -> (u64, u64) {
    loop {
        let counts = (shadow.metrics.compared.get(), shadow.metrics.not_comparable.get());
        if counts.0 + counts.1 >= count {
            return counts;
        }
        yield_now().await;
    }
}

pub(crate) fn latest(shadow: &Shadow) -> Difference {
    shadow.metrics.latest().remove(0)
}

/// A cluster with a volume in each of two zones.
fn two_zones() -> Double {
    let larger = Volume { capacity: Some(gib(2)), ..volume("a2") };
    holding([in_zone(volume("b1"), "b"), in_zone(larger, "a")], [])
}

#[tokio::test]
async fn a_shadow_sees_the_volume_that_the_decision_has_taken() {
    let double = two_zones();
    double.add_claim(&zoned("c"));
    let zone = matching(policy("zone", SameZone));
    let binder = binder(&double, vec![], std::slice::from_ref(&zone));
    assert_eq!(binder.sync(&key("c")).await.result, Ok(()));
    assert_eq!(bound_to(&binder, "c").as_deref(), Some("b1"));
    assert_eq!(answered(&zone, 1).await, (1, 0));
    let Difference { object, kind, active, shadow, .. } = latest(&zone);
    assert_eq!((&*object, kind), ("pvc ns/c", DifferenceKind::OtherVolume));
    assert_eq!((&*active.answer, &*active.reason), ("binds volume b1", "volume b1 comes before a2"));
    let why = "policy zone rejects volume b1: its zone is b, not a";
    assert_eq!((&*shadow.answer, &*shadow.reason), ("binds volume a2", why));
}

/// What a binder with a policy writes and says about three claims.
async fn done(shadows: &[Shadow]) -> (Vec<&'static str>, Vec<String>) {
    let double = two_zones();
    double.add_claim(&zoned("c1"));
    let binder = binder(&double, vec![policy("size", AtMostTwice::judging())], shadows);
    for name in ["c2", "c3"] {
        binder.intake().deliver(Delivery::applied(claim(name)));
        double.add_claim(&claim(name));
    }
    for name in ["c1", "c2", "c3"] {
        assert_eq!(binder.sync(&key(name)).await.result, Ok(()));
    }
    for shadow in shadows {
        assert_eq!(answered(shadow, 3).await, (3, 0));
    }
    (double.write_names(), double.messages())
}

#[tokio::test]
async fn a_shadow_changes_no_write_and_no_event() {
    let without = done(&[]).await;
    let (zone, fails) = (matching(policy("zone", SameZone)), matching(policy("fails", Fails)));
    let engine = shadow("engine", ShadowPart::Engine(Arc::new(nothing())));
    assert_eq!(done(&[zone, fails, engine.clone()]).await, without);
    assert_eq!(engine.metrics.differences(DifferenceKind::BindsNone), 2);
}

#[tokio::test]
async fn each_kind_of_difference_about_a_claim_is_seen() {
    use DifferenceKind::{Binds, BindsNone, Fault, OtherReason, OtherVolume};
    let rejects = || policy("zone", SameZone);
    let larger = || policy("larger", Larger { zone: None });
    let replacing = |policy: Policy| Shadow { replaces: "zone".into(), ..matching(policy) };
    let skips = Policy { on_failure: OnFailure::Skip, ..policy("fails", Fails) };
    for (volumes, active, shadow, expected) in [
        (&["b1", "b2"][..], vec![], matching(larger()), Some(OtherVolume)),
        (&["b1"], vec![rejects()], replacing(policy("all", AllowsAll)), Some(Binds)),
        (&["b1"], vec![rejects()], matching(policy("all", AllowsAll)), None),
        (&["b1"], vec![], matching(rejects()), Some(BindsNone)),
        (&[], vec![], matching(rejects()), None),
        (&["b1"], vec![rejects()], replacing(policy("other", SameZone)), Some(OtherReason)),
        (&["b1"], vec![], matching(policy("fails", Fails)), Some(Fault)),
        (&["b1"], vec![], matching(skips), Some(Fault)),
        (&["b1"], vec![], matching(policy("all", AllowsAll)), None),
    ] {
        let double = Double::new();
        for (size, name) in (1..).zip(volumes) {
            double.add_volume(&in_zone(Volume { capacity: Some(gib(size)), ..volume(name) }, "b"));
        }
        double.add_claim(&zoned("c"));
        let binder = binder(&double, active, std::slice::from_ref(&shadow));
        _ = binder.sync(&key("c")).await;
        assert_eq!(answered(&shadow, 1).await, (1, 0), "{expected:?}");
        assert_eq!(shadow.metrics.latest().first().map(|latest| latest.kind), expected);
    }
}

#[tokio::test]
async fn that_a_shadow_has_a_volume_provisioned_is_seen() {
    let double = holding(
        [in_zone(Volume { class: "fast".into(), ..volume("b1") }, "b")],
        [Claim { class: Some("fast".into()), ..zoned("c") }],
    );
    let zone = matching(policy("zone", SameZone));
    let binder = binder(&double, vec![], std::slice::from_ref(&zone));
    let class = bindery_kit::class("fast", "disks.example.com", Some(BindingMode::Immediate));
    binder.intake().deliver(Delivery::applied(class));
    assert_eq!(binder.sync(&key("c")).await.result, Ok(()));
    assert_eq!(answered(&zone, 1).await, (1, 0));
    let Difference { kind, active, shadow, .. } = latest(&zone);
    assert_eq!(kind, DifferenceKind::Provisions);
    assert_eq!((&*active.answer, &*shadow.answer), ("binds volume b1", "provisions a volume"));
    assert_eq!(&*shadow.reason, "policy zone rejects volume b1: its zone is b, not a");
}

/// An engine that does nothing.
fn nothing() -> impl Engine {
    Scripted(|_: &Request, _: &mut dyn Cluster| Ok(Decision::done()))
}

#[tokio::test]
async fn an_engine_that_fails_or_decides_otherwise_is_seen() {
    let traps =
        Scripted(|_: &Request, _: &mut dyn Cluster| Err(EngineFault::Trapped("unreachable".to_owned())));
    let panics = Scripted(|_: &Request, _: &mut dyn Cluster| panic!("a bug"));
    let engines: [(Arc<dyn Engine>, Option<DifferenceKind>); 4] = [
        (Arc::new(traps), Some(DifferenceKind::Fault)),
        (Arc::new(nothing()), Some(DifferenceKind::BindsNone)),
        (Arc::new(reserves_v()), None),
        (Arc::new(panics), None),
    ];
    for (number, (engine, expected)) in engines.into_iter().enumerate() {
        let double = holding([volume("v")], [claim("c")]);
        let shadow = shadow("engine", ShadowPart::Engine(engine));
        let binder = binder(&double, vec![], std::slice::from_ref(&shadow));
        assert_eq!(binder.sync(&key("c")).await.result, Ok(()));
        let compared = u64::from(number < 3);
        assert_eq!(answered(&shadow, 1).await, (compared, 1 - compared));
        assert_eq!(shadow.metrics.latest().first().map(|latest| latest.kind), expected);
        assert_eq!(bound_to(&binder, "c").as_deref(), Some("v"));
    }
}

/// The differences that were recorded.
#[derive(Default)]
struct Differences(Mutex<Vec<[String; 5]>>);

impl Journal for Differences {
    fn decided(&self, _: DecidedRecord) {}

    fn differed(&self, DifferenceRecord { shadow, engine, chain, difference }: DifferenceRecord<'_>) {
        let object = format!("{} {}", difference.object, difference.kind.name());
        let record = [shadow.kind(), &shadow.name, engine, chain, &object].map(str::to_owned);
        self.0.lock().expect("no holder panics").push(record);
    }
}

#[tokio::test]
async fn each_difference_is_recorded_with_what_has_decided_it() {
    let double = two_zones();
    double.add_claim(&zoned("c"));
    let (zone, engine): (_, Arc<dyn Engine>) = (policy("zone", SameZone), Arc::new(nothing()));
    let with_zone = Chain::default().with_shadow_policy(&zone, "zone");
    let shadows = [
        matching(zone),
        matching(policy("size", AtMostTwice::judging())),
        shadow("engine", ShadowPart::Engine(Arc::clone(&engine))),
    ];
    let journal = Arc::<Differences>::default();
    let configuration = Configuration { shadows: shadows.to_vec(), ..Configuration::default() };
    let sink: Option<Arc<dyn Journal>> = Some(Arc::<Differences>::clone(&journal));
    let binder = binder_of(Parts { configuration, journal: sink, ..parts(&double, DefaultEngine) });
    assert_eq!(binder.sync(&key("c")).await.result, Ok(()));
    for shadow in &shadows {
        assert_eq!(answered(shadow, 1).await, (1, 0));
    }
    // The one that decides the same has none.
    let none = Chain::default();
    let expected = [
        ["MatchPolicy", "zone", DefaultEngine.digest(), with_zone.digest(), "pvc ns/c other-volume"],
        ["Engine", "engine", engine.digest(), none.digest(), "pvc ns/c binds-none"],
    ];
    assert_eq!(*journal.0.lock().unwrap(), expected.map(|record| record.map(str::to_owned)));
}

#[tokio::test]
async fn another_fate_of_a_volume_is_seen() {
    let double = holding([bound("v", "c")], []);
    let rule = reclaim_rule("keep", keeps_labelled());
    let keep = shadow("keep", ShadowPart::Reclaim(rule));
    let always = ByLabel(|_| Ok(Wish::Keep));
    let always = shadow("always", ShadowPart::Reclaim(reclaim_rule("always", always)));
    let binder = binder(&double, vec![], &[keep.clone(), always.clone()]);
    assert_eq!(sync(&binder, "v").await.result, Ok(()));
    assert_eq!(answered(&always, 1).await, (1, 0));
    assert_eq!(answered(&keep, 1).await, (1, 0));
    let Difference { object, kind, active, shadow, .. } = latest(&always);
    assert_eq!((&*object, kind), ("pv v", DifferenceKind::OtherFate));
    assert_eq!((&*active.answer, &*shadow.answer), ("phase Released; deletes it", "keep it"));
    // Nothing is set, noted or kept for a shadow.
    assert_eq!(double.volume("v").policy, ReclaimPolicy::Delete);
    assert!(!double.write_names().contains(&"set reclaim policy"), "{:?}", double.write_names());
}

#[tokio::test]
async fn claims_that_a_shadow_does_not_match_are_not_compared() {
    let double = two_zones();
    double.add_claim(&zoned("c"));
    double.add_claim(&Claim { class: Some("".into()), ..claim("d") });
    let matches = Matches { classes: vec!["slow".into()], ..Matches::default() };
    let slow = matching(Policy { matches, ..policy("slow", SameZone) });
    let all = matching(policy("all", AllowsAll));
    let binder = binder(&double, vec![], &[slow.clone(), all.clone()]);
    for name in ["c", "d"] {
        assert_eq!(binder.sync(&key(name)).await.result, Ok(()));
    }
    assert_eq!(answered(&all, 2).await, (2, 0));
    assert_eq!((slow.metrics.compared.get(), slow.metrics.not_comparable.get()), (0, 0));
}

#[tokio::test]
async fn an_engine_in_shadow_that_takes_long_delays_no_decision() {
    let double = holding(["v", "w"].map(volume), ["c", "d"].map(claim));
    let (enter, entered) = channel();
    let (go_on, may_go_on) = channel();
    let may_go_on = Mutex::new(may_go_on);
    let slow = Scripted(move |_: &Request, cluster: &mut dyn Cluster| {
        let _ = cluster.default_classes()?;
        // Only the first decision is awaited.
        _ = enter.send(());
        match may_go_on.lock().unwrap().recv_timeout(Duration::from_secs(60)) {
            Err(RecvTimeoutError::Timeout) => Err(EngineFault::Trapped("the binder waits for it".to_owned())),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Ok(Decision::done()),
        }
    });
    let slow = shadow("slow", ShadowPart::Engine(Arc::new(slow)));
    let binder = binder(&double, vec![], std::slice::from_ref(&slow));
    assert_eq!(binder.sync(&key("c")).await.result, Ok(()));
    spawn_blocking(move || entered.recv()).await.unwrap().unwrap();
    assert_eq!(binder.sync(&key("d")).await.result, Ok(()));
    assert!(bound_to(&binder, "d").is_some());
    go_on.send(()).unwrap();
    drop(go_on);
    assert_eq!(answered(&slow, 2).await, (2, 0));
    assert_eq!(slow.metrics.differences(DifferenceKind::BindsNone), 2);
}

#[tokio::test]
async fn what_comes_while_a_shadow_is_busy_is_dropped_or_not_comparable() {
    let double = holding([volume("v")], [claim("first")]);
    for number in 0..300 {
        double.add_claim(&claim(&format!("c{number}")));
    }
    let barrier = Arc::new(Barrier::new(2));
    let blocks = matching(policy("blocks", Blocking(Arc::clone(&barrier))));
    let binder = binder(&double, vec![], std::slice::from_ref(&blocks));
    assert_eq!(binder.sync(&key("first")).await.result, Ok(()));
    meet(&barrier).await;
    // The shadow's thread waits in the matcher.
    for number in 0..300 {
        assert_eq!(binder.sync(&key(&format!("c{number}"))).await.result, Ok(()));
    }
    assert_eq!(blocks.metrics.dropped.get(), 300 - 256);
    // What the decisions rest on is forgotten meanwhile.
    binder.store().keep_history(false);
    binder.intake().deliver(Delivery::applied(volume("w")));
    binder.store().keep_history(true);
    meet(&barrier).await;
    assert_eq!(answered(&blocks, 257).await, (0, 257));
}

#[tokio::test]
async fn given_a_share_objects_outside_are_counted_and_not_decided() {
    let names = ["c0", "c2", "c3"];
    let double = holding([], names.map(claim));
    // By their UIDs c2 and c3 are in the share, and c0 is not.
    let half = Shadow { sample_percent: 50, ..matching(policy("half", AllowsAll)) };
    let all = matching(policy("all", AllowsAll));
    let binder = binder(&double, vec![], &[half.clone(), all.clone()]);
    for name in names {
        assert_eq!(binder.sync(&key(name)).await.result, Ok(()));
    }
    assert_eq!(answered(&all, 3).await, (3, 0));
    let counts = |shadow: &Shadow| {
        let metrics = &shadow.metrics;
        [&metrics.compared, &metrics.not_sampled, &metrics.dropped].map(|counter| counter.get())
    };
    assert_eq!([counts(&half), counts(&all)], [[2, 1, 0], [3, 0, 0]]);
}

#[tokio::test]
async fn a_shadow_that_spreads_counts_as_it_was() {
    let volumes = [("a1", "a"), ("a2", "a"), ("b3", "b")].map(|(name, zone)| in_zone(volume(name), zone));
    let double = holding(volumes, ["c1", "c2"].map(sibling));
    let spread = matching(fewest(u32::MAX));
    let binder = binder(&double, vec![], std::slice::from_ref(&spread));
    for (number, name) in [(1, "c1"), (2, "c2")] {
        assert_eq!(binder.sync(&key(name)).await.result, Ok(()));
        // The volumes of the next one would count.
        assert_eq!(answered(&spread, number).await, (number, 0));
    }
    assert_eq!(spread.metrics.differences(DifferenceKind::OtherVolume), 1);
    assert_eq!(&*latest(&spread).shadow.answer, "binds volume b3");
}

#[tokio::test]
async fn released_volumes_are_counted_by_what_would_have_become_of_them() {
    let double = holding(
        [
            kept_for(DAY - 60),
            Volume { name: "w".into(), uid: "uid-w".into(), ..kept_for(DAY) },
            bound("used", "c"),
        ],
        [],
    );
    let later = shadow("later", ShadowPart::Reclaim(after_a_day()));
    let binder = binder(&double, vec![], std::slice::from_ref(&later));
    binder.count_released_for_shadows(Duration::MAX);
    let fates = ShadowReleased { later: 1, due: 1, ..ShadowReleased::default() };
    assert_eq!(later.metrics.released(), Some(fates));
    assert_eq!(double.writes(), []);
}

/// A released volume that is due, and whose UID is its name.
fn named(name: &str) -> Volume {
    Volume { name: name.into(), uid: name.into(), ..kept_for(DAY) }
}

#[tokio::test]
async fn given_a_share_released_volumes_outside_are_not_counted() {
    // By their UIDs a and c are in the share, and b is not.
    let double = holding(["a", "b", "c"].map(named), []);
    let half = Shadow { sample_percent: 50, ..shadow("later", ShadowPart::Reclaim(after_a_day())) };
    let binder = binder(&double, vec![], std::slice::from_ref(&half));
    binder.count_released_for_shadows(Duration::MAX);
    let fates = ShadowReleased { due: 2, ..ShadowReleased::default() };
    assert_eq!(half.metrics.released(), Some(fates));
}

#[tokio::test]
async fn a_count_that_takes_several_calls_is_set_when_it_is_whole() {
    let double = holding(["a", "b", "c"].map(named), []);
    let later = shadow("later", ShadowPart::Reclaim(after_a_day()));
    let binder = binder(&double, vec![], std::slice::from_ref(&later));
    let due = |due: u64| Some(ShadowReleased { due, ..ShadowReleased::default() });
    // Each call has time for one volume.
    let count = || {
        binder.count_released_for_shadows(Duration::ZERO);
        later.metrics.released()
    };
    assert_eq!([count(), count(), count()], [None, None, due(3)]);
    binder.intake().deliver(Delivery::applied(named("d")));
    assert_eq!([count(), count(), count(), count()], [due(3), due(3), due(3), due(4)]);
}
