//! Claims whose volumes a policy spreads among siblings.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use bindery_controller::{Binder, Reads, Reviewed, SyncError};
use bindery_core::{Claim, ClaimFact, Facts, Lookup, Request, Rule, Source, Subject, Volume};
use bindery_engine::DefaultEngine;
use bindery_kit::{APP, Fewest, ZONE, policy};
use bindery_policy::Policy;
use bindery_store::Delivery;
use tokio::time::Instant;

use crate::double::{Double, Scripted, begin, claim, holding, meet, volume};
use crate::operating::run_during;
use crate::policies::{binder, bound_to, in_zone, key, reserves_v};
use crate::syncing::taken;

pub(crate) fn sibling(name: &str) -> Claim {
    let facts: Facts<ClaimFact> = [(ClaimFact::Label(APP.into()), "db".into())].into_iter().collect();
    Claim { facts, ..claim(name) }
}

pub(crate) fn fewest(most: u32) -> Policy {
    policy("spread", Fewest { most, barrier: None })
}

/// Adds siblings, and as many volumes in each of three zones. The policy scores the 300 smallest volumes.
fn add(double: &Double, siblings: usize) -> Policy {
    for number in 0..siblings {
        double.add_claim(&sibling(&format!("c{number}")));
        for zone in ["a", "b", "c"] {
            double.add_volume(&in_zone(volume(&format!("v{number:04}-{zone}")), zone));
        }
    }
    Policy { max_candidates: 300, ..fewest(u32::MAX) }
}

/// Lets a binder run until all siblings are bound, and returns how many volumes each zone gave, sorted.
async fn zones_of(double: &Double, binder: &Arc<Binder<Double>>, siblings: usize) -> Vec<usize> {
    double.watch(binder.intake(), Duration::ZERO);
    let claims = || (0..siblings).map(|number| double.claim(&format!("c{number}")));
    let bound = || claims().filter(|claim| claim.annotations.bind_completed).count();
    run_during(binder, double.until("all are bound", || bound() == siblings)).await;
    let mut zones = BTreeMap::<_, usize>::new();
    for claim in claims() {
        let volume = double.volume(&claim.volume_name.expect("it is bound"));
        *zones.entry(volume.labels[ZONE].clone()).or_default() += 1;
    }
    let mut numbers: Vec<usize> = zones.into_values().collect();
    numbers.sort_unstable();
    numbers
}

#[tokio::test(start_paused = true)]
async fn ten_siblings_at_once_are_spread_evenly_over_three_zones() {
    let double = Double::new();
    double.set_latency(Duration::from_secs(1));
    let policy = add(&double, 10);
    let binder = binder(&double, DefaultEngine, vec![policy]);
    assert_eq!(zones_of(&double, &binder, 10).await, [3, 3, 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_siblings_at_once_cost_at_most_two_decisions_each() {
    let double = Double::new();
    double.set_yields(2);
    let policy = add(&double, 1_000);
    let decisions = Arc::new(Mutex::new(BTreeMap::<_, u32>::new()));
    let engine = {
        let decisions = Arc::clone(&decisions);
        Scripted(move |request: &Request, cluster: &mut dyn bindery_core::Cluster| {
            let decision = bindery_engine::decide(request, cluster)?;
            if let Subject::SyncClaim(claim) = &request.subject
                && !claim.annotations.bind_completed
            {
                *decisions.lock().unwrap().entry(claim.key.clone()).or_default() += 1;
            }
            Ok(decision)
        })
    };
    let binder = binder(&double, engine, vec![policy]);
    assert_eq!(zones_of(&double, &binder, 1_000).await.iter().sum::<usize>(), 1_000);
    let most = decisions.lock().unwrap().values().copied().max();
    assert!(most <= Some(2), "{most:?} decisions about one claim");
}

/// While the guard has the policy asked, a sibling gets a volume of the zone.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_decided_again_if_its_siblings_have_changed() {
    for (most, is_refused) in [(9, false), (1, true)] {
        let double = holding([in_zone(volume("v"), "a")], [sibling("c"), sibling("other")]);
        let barrier = Arc::new(Barrier::new(2));
        let blocking = Fewest { most, barrier: Some(Arc::clone(&barrier)) };
        let binder = binder(&double, reserves_v(), vec![policy("spread", blocking)]);
        let syncing = begin(&binder, key("c"));
        meet(&barrier).await;
        binder.intake().deliver(Delivery::applied(in_zone(taken("w", "other"), "a")));
        meet(&barrier).await;
        // The number has changed, so the volume is judged again.
        meet(&barrier).await;
        meet(&barrier).await;
        match (is_refused, syncing.await.unwrap()) {
            (false, Ok(())) => assert_eq!(double.write_names(), ["reserve volume"]),
            (true, Err(SyncError::Refused(why))) => assert!(why.contains("its zone has enough"), "{why}"),
            (_, result) => panic!("{result:?}"),
        }
        assert_eq!(binder.metrics().stale.get(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_waits_for_its_siblings_is_woken_by_them() {
    let mut has_w = Claim { volume_name: Some("w".into()), ..sibling("other") };
    has_w.annotations.bind_completed = true;
    let volumes = [in_zone(taken("w", "other"), "a"), in_zone(volume("v"), "a")];
    let double = holding(volumes, [has_w, sibling("c")]);
    let binder = binder(&double, DefaultEngine, vec![fewest(1)]);
    run_during(&binder, async {
        double.rest().await;
        assert_eq!(bound_to(&binder, "c"), None);
        // Another actor moves the sibling's volume to another zone.
        let Lookup::Found(w) = binder.store().volume(Source::Overlay, "w") else { panic!("w is there") };
        let moved = in_zone(Volume { version: "1000".into(), ..Volume::clone(&w) }, "b");
        binder.intake().deliver(Delivery::applied(moved));
        let begin = Instant::now();
        double.until("c is bound", || bound_to(&binder, "c").as_deref() == Some("v")).await;
        // By the virtual clock: the claim waited for no timer.
        assert!(begin.elapsed() <= Duration::from_millis(5), "{:?}", begin.elapsed());
    })
    .await;
}

#[tokio::test]
async fn a_review_counts_the_volumes_of_siblings() {
    let double = holding([in_zone(taken("w", "other"), "a"), in_zone(volume("v"), "a")], [sibling("other")]);
    let binder = binder(&double, DefaultEngine, vec![fewest(1)]);
    for (claim, rules) in [(sibling("c"), vec![Rule::VolumeRejected]), (claim("c"), vec![])] {
        let new = Arc::new(Claim { volume_name: Some("v".into()), ..claim });
        for reads in [Reads::Cached, Reads::Live] {
            let reviewed = Reviewed::Claim { new: Arc::clone(&new), old: None };
            let findings = binder.review(reviewed, reads).await.unwrap();
            assert_eq!(findings.iter().map(|finding| finding.rule).collect::<Vec<_>>(), rules, "{reads:?}");
        }
    }
}
