//! Claims that are released, on a simulated API server.

use bindery_core::steer::steering_key;
use bindery_kit::json;
use bindery_kube::ApiClient;
use bindery_sim::{FaultRule, Sim, SimOptions};
use serde_json::json;

use super::*;

const VOLUMES: &str = "persistentvolumes";

/// Volumes of a class that waits for a pod, and as many steered claims.
fn start(count: usize) -> (Sim, Cluster) {
    let sim = Sim::new(SimOptions::default());
    let waits = json!({"volumeBindingMode": "WaitForFirstConsumer"});
    sim.seed([json::class("local", "kubernetes.io/no-provisioner", waits)]).unwrap();
    for number in 0..count {
        let volume = json!({"spec": {"storageClassName": "local"}, "status": {"phase": "Available"}});
        sim.seed([json::volume(&format!("v{number}"), volume), steered(&format!("c{number}"))]).unwrap();
    }
    let client = kube::Client::new(sim.service(), "default");
    (sim, Cluster::of(ApiClient::from(client)))
}

fn steered(name: &str) -> Value {
    let key = steering_key(&ClaimKey::new("default", name)).expect("the name fits");
    let selector = json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
    let spec = json!({"storageClassName": "local", "selector": selector});
    json::claim(name, json!({"spec": spec, "status": {"phase": "Pending"}}))
}

/// How many labels each volume has.
fn labels(sim: &Sim) -> Vec<usize> {
    let labels = |volume: Value| volume["metadata"]["labels"].as_object().map_or(0, serde_json::Map::len);
    sim.objects(VOLUMES).into_iter().map(labels).collect()
}

#[tokio::test]
async fn a_claim_that_is_refused_is_told_once_and_the_next_one_released() {
    let (sim, cluster) = start(2);
    sim.faults().add(FaultRule::new("patch", VOLUMES).fail(403, "Forbidden", "a webhook denies it"));
    assert_eq!(release_all(&cluster, None).await.unwrap(), 1);
    assert_eq!(labels(&sim)[1], 1);
}

#[tokio::test]
async fn a_claim_whose_volume_has_changed_is_tried_again() {
    let (sim, cluster) = start(1);
    sim.faults().add(FaultRule::new("patch", VOLUMES).fail(409, "Conflict", "it has been modified"));
    assert_eq!(release_all(&cluster, None).await.unwrap(), 0);
    assert_eq!(labels(&sim), [1]);
}

#[tokio::test]
async fn equal_claims_that_are_released_have_a_volume_each() {
    let (sim, cluster) = start(40);
    assert_eq!(release_all(&cluster, None).await.unwrap(), 0);
    assert_eq!(labels(&sim), [1; 40]);
}

#[tokio::test]
async fn claims_that_are_released_share_volumes_if_there_are_too_few() {
    let (sim, cluster) = start(2);
    sim.seed([steered("next")]).unwrap();
    assert_eq!(release_all(&cluster, None).await.unwrap(), 0);
    assert_eq!(labels(&sim), [3, 3]);
}
