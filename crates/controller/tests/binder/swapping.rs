//! Policies that are replaced while the binder runs.

use std::collections::BTreeSet;
use std::sync::{Arc, Barrier};

use bindery_controller::{Binder, Configuration, Parts, Settings};
use bindery_core::{
    CLAIM_FACTS, Claim, ClaimKey, Cluster, Engine as _, Facts, ReclaimPolicy, Request, Subject, VolumePhase,
};
use bindery_engine::DefaultEngine;
use bindery_kit::{Blocking, SameZone, keeps_labelled, policy, reclaim_rule};
use bindery_policy::{Chain, ReclaimRule};
use bindery_store::{Delivery, Kind, ObjectKey};
use parking_lot::Mutex;

use crate::double::{Double, Scripted, begin, binder_of, claim, holding, meet, parts, volume};
use crate::operating::run_during;
use crate::policies::{binder, bound_to, in_zone, key, zoned};
use crate::reclaiming::{self, annotated, bound, pair, sync};

#[tokio::test]
async fn a_swap_waits_for_lists_with_the_facts_that_the_new_policies_read() {
    let double = holding([in_zone(volume("v"), "b")], []);
    let binder = binder(&double, DefaultEngine, Vec::new());
    let swap = {
        let (binder, chain) = (Arc::clone(&binder), Chain::new(vec![policy("zone", SameZone)]));
        tokio::spawn(async move { binder.swap_policies(Arc::new(chain)).await })
    };
    let freshness = binder.intake().freshness();
    for kind in [Kind::Claim, Kind::Class] {
        freshness.until_list_wanted(kind).await;
    }
    assert!(!freshness.is_list_wanted(Kind::Pod), "no policy reads pods");
    assert!(!binder.policies().activities().any(|policy| **policy.name == *"zone"), "the facts are missing");
    double.add_claim(&zoned("c"));
    for kind in [Kind::Volume, Kind::Claim, Kind::Class] {
        binder.intake().list_begins(kind);
        double.deliver_list(binder.intake(), kind, "9");
    }
    swap.await.unwrap();
    assert_eq!(binder.sync(&key("c")).await.result, Ok(()));
    assert_eq!(bound_to(&binder, "c"), None);
}

#[tokio::test]
async fn a_swap_wakes_every_claim_that_waits() {
    let double = holding([in_zone(volume("v"), "b")], [zoned("c")]);
    let binder = binder(&double, DefaultEngine, vec![policy("zone", SameZone)]);
    run_during(&binder, async {
        double.until("the claim waits", || double.reasons() == ["FailedBinding"]).await;
        binder.swap_policies(Arc::default()).await;
        double.until("the claim is bound", || double.claim("c").volume_name.is_some()).await;
    })
    .await;
}

#[tokio::test]
async fn a_swap_wakes_a_bound_pair_for_another_engine_alone() {
    let double = holding([bound("v", "bound")], [pair("bound", "v", "true"), zoned("c")]);
    let decided = Arc::new(Mutex::new(BTreeSet::new()));
    let deciding = Arc::clone(&decided);
    let engine = Scripted(move |request: &Request, cluster: &mut dyn Cluster| {
        deciding.lock().insert(match &request.subject {
            Subject::SyncClaim(claim) => claim.key.name.to_string(),
            Subject::SyncVolume(volume) => volume.name.to_string(),
            other => panic!("{other:?}"),
        });
        DefaultEngine.decide(request, cluster)
    });
    let binder = binder(&double, engine, vec![policy("zone", SameZone)]);
    let are_decided = |names: &[&str]| names.iter().all(|name| decided.lock().contains(*name));
    run_during(&binder, async {
        double.until("all are decided", || are_decided(&["bound", "c", "v"])).await;
        decided.lock().clear();
        binder.swap_policies(Arc::default()).await;
        // What a list has is decided after what was queued before.
        double.add_volume(&bound("later-v", "later"));
        double.add_claim(&pair("later", "later-v", "true"));
        for kind in [Kind::Volume, Kind::Claim] {
            binder.intake().list_begins(kind);
            double.deliver_list(binder.intake(), kind, "9");
        }
        double.until("the claim that waits is decided", || are_decided(&["c", "later"])).await;
        assert!(!are_decided(&["bound"]) && !are_decided(&["v"]));
        let engine = binder.swap_engine(Arc::new(DefaultEngine));
        binder.swap_engine(engine);
        double.until("all are decided again", || are_decided(&["bound", "c", "v"])).await;
    })
    .await;
}

/// Swaps the policies, and delivers new lists of the kinds whose objects may lack facts.
async fn swap(binder: &Arc<Binder<Double>>, double: &Double, chain: Chain) {
    let swap = {
        let binder = Arc::clone(binder);
        tokio::spawn(async move { binder.swap_policies(Arc::new(chain)).await })
    };
    binder.intake().freshness().until_list_wanted(Kind::Claim).await;
    for kind in [Kind::Volume, Kind::Claim, Kind::Class] {
        binder.intake().list_begins(kind);
        double.deliver_list(binder.intake(), kind, "9");
    }
    swap.await.expect("the swap does not panic");
}

#[tokio::test]
async fn a_label_that_was_not_decoded_of_a_deleted_claim_is_not_absent() {
    let mut volume = bound("v", "c");
    annotated(&mut volume, CLAIM_FACTS, r#"{"uid":"uid-c","facts":{"label:keep":"true"}}"#);
    // The reclaimer that reads the label is not loaded.
    let double = holding([volume], [Claim { facts: Facts::default(), ..pair("c", "v", "true") }]);
    let broken =
        ReclaimRule { reclaimer: Err("the file is gone".into()), ..reclaim_rule("keep", keeps_labelled()) };
    let binder = reclaiming::binder(&double, vec![broken]);
    let gone = ClaimKey::new("ns", "c");
    double.change(|objects| objects.claims.remove(&gone));
    binder.intake().deliver(Delivery::Gone(ObjectKey::Claim(gone)));
    assert!(sync(&binder, "v").await.result.is_err());

    let loaded = Chain::default().with_reclaimers(vec![reclaim_rule("keep", keeps_labelled())]);
    swap(&binder, &double, loaded).await;
    assert_eq!(sync(&binder, "v").await.result, Ok(()));
    let volume = double.volume("v");
    assert_eq!((volume.policy, volume.phase), (ReclaimPolicy::Retain, VolumePhase::Released));
}

#[tokio::test]
async fn a_choice_that_newer_policies_reject_is_made_anew_and_is_no_refusal() {
    let double = holding([in_zone(volume("v"), "b")], [zoned("c")]);
    let barrier = Arc::new(Barrier::new(2));
    let binder = binder(&double, DefaultEngine, vec![policy("blocks", Blocking(Arc::clone(&barrier)))]);
    let asking = begin(&binder, key("c"));
    meet(&barrier).await;
    binder.swap_policies(Arc::new(Chain::new(vec![policy("zone", SameZone)]))).await;
    meet(&barrier).await;
    assert_eq!(asking.await.unwrap(), Ok(()));
    assert_eq!(bound_to(&binder, "c"), None);
    assert_eq!(binder.metrics().refusals.get(), 0);
}

#[tokio::test]
async fn a_decision_goes_on_while_its_policies_are_taken_away() {
    let double = holding([volume("v")], [Claim { class: Some("".into()), ..claim("c") }]);
    let barrier = Arc::new(Barrier::new(2));
    let policies = Arc::new(Chain::new(vec![policy("blocks", Blocking(Arc::clone(&barrier)))]));
    let configuration = Configuration { policies, ..Configuration::default() };
    let settings = Settings { watches_namespaces: true, ..Settings::default() };
    let binder = binder_of(Parts { configuration, settings, ..parts(&double, DefaultEngine) });
    let asking = begin(&binder, key("c"));
    meet(&barrier).await;
    // The chain has no policy in the place of the one that is being asked.
    binder.swap_policies(Arc::default()).await;
    meet(&barrier).await;
    assert_eq!(asking.await.unwrap(), Ok(()));
    assert_eq!(bound_to(&binder, "c").as_deref(), Some("v"));
}
