//! A cluster goes from upstream's binder to Bindery and back, as the guide for operators tells.

use std::collections::BTreeMap;

use bindery_cluster::{ControlPlane, Manager, Programs};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::ListParams;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::world::{Replica, World, is_bound, phase};

/// Pairs that a binder binds before the next one takes over.
const PAIRS: usize = 20;

/// Every volume and claim, by UID.
async fn objects(plane: &ControlPlane) -> BTreeMap<String, Value> {
    let client = plane.client().await.unwrap();
    let (volumes, claims): (Api<PersistentVolume>, Api<PersistentVolumeClaim>) =
        (Api::all(client.clone()), Api::all(client));
    let everything = ListParams::default();
    let volumes = volumes.list(&everything).await.unwrap().items.into_iter().map(|volume| json!(volume));
    let claims = claims.list(&everything).await.unwrap().items.into_iter().map(|claim| json!(claim));
    volumes
        .chain(claims)
        .map(|object| (object["metadata"]["uid"].as_str().unwrap().to_owned(), object))
        .collect()
}

/// The object without its conditions, and what tells that these were written. From 1.37 on the controller of
/// protection finalizers writes one for a claim that no pod uses.
fn without_conditions(mut object: Value) -> Value {
    for (part, field) in
        [("metadata", "resourceVersion"), ("metadata", "managedFields"), ("status", "conditions")]
    {
        object[part].as_object_mut().unwrap().remove(field);
    }
    object
}

async fn create_pairs(world: &World, prefix: &str) {
    for pair in 0..PAIRS {
        world.create_volume(&format!("{prefix}{pair}"), "1Gi").await;
    }
    for pair in 0..PAIRS {
        world.create_claim(&format!("{prefix}{pair}"), "1Gi").await;
    }
    for pair in 0..PAIRS {
        world.until_claim(&format!("{prefix}{pair}"), is_bound).await;
        world.until_volume(&format!("{prefix}{pair}"), |volume| phase(volume) == "Bound").await;
    }
}

/// Checks that all of these are as they were.
async fn check_untouched(plane: &ControlPlane, before: &BTreeMap<String, Value>) {
    let now = objects(plane).await;
    for (uid, before) in before {
        let (mut before, mut now) = (before.clone(), now[uid].clone());
        if before["status"]["conditions"] != now["status"]["conditions"] {
            (before, now) = (without_conditions(before), without_conditions(now));
        }
        assert_eq!(now, before, "{uid} was written");
    }
}

#[tokio::test]
async fn a_cluster_goes_from_upstream_to_bindery_and_back() {
    let mut plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::BinderAlone).await.unwrap();
    let world = World::new(&plane).await;
    create_pairs(&world, "upstream").await;

    plane.set_manager(Manager::WithoutBinder).unwrap();
    let before = objects(&plane).await;
    // So long that no pause of the machine outlasts it: it is to be given back in the end.
    let lease = ["--lease-duration=15".to_owned()];
    let mut replica = Replica::start_with(&plane.kubeconfig(), "first", &lease, &[]);
    replica.until_leading().await;
    // What was there before waits for its turn before what comes now.
    create_pairs(&world, "bindery").await;
    check_untouched(&plane, &before).await;
    assert_eq!(replica.metric("bindery_foreign_writes_total").await, 0, "{}", replica.log());

    let before = objects(&plane).await;
    replica.signal(Signal::TERM);
    assert!(replica.wait().await.success());
    let leases: Api<Lease> = Api::namespaced(plane.client().await.unwrap(), "kube-system");
    let lease = leases.get("bindery").await.unwrap();
    assert_eq!(lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default(), "");
    plane.set_manager(Manager::BinderAlone).unwrap();
    create_pairs(&world, "back").await;
    check_untouched(&plane, &before).await;
    world.check_pairs(3 * PAIRS).await;
}
