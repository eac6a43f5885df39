//! Delayed binding: the scheduler chooses node and volume together, and Bindery completes what it chose.

use bindery_node::NAME;
use bindery_node::world::claim_phase;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::stage::world;

/// A volume that is a folder, and can be used on this node only.
fn local(capacity: &str, path: &TempDir, node: &str) -> Value {
    let is_there = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
    json!({
        "storageClassName": "delayed",
        "capacity": {"storage": capacity},
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": path.path()},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [is_there]}]}},
    })
}

#[tokio::test]
async fn a_claim_waits_for_its_pod_and_gets_a_volume_where_the_pod_can_run() {
    let world = world().await;
    let (here, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    world.create_class("delayed", "kubernetes.io/no-provisioner", "WaitForFirstConsumer").await;
    // It fits best, but is where no pod of this cluster can run.
    world.create_volume("delayed-elsewhere", local("1Gi", &elsewhere, "elsewhere")).await;
    world.create_volume("delayed-here", local("2Gi", &here, NAME)).await;
    world.create_claim("delayed", "delayed").await;
    world.until_event("delayed", "WaitForFirstConsumer").await;
    let claim = world.claims.get("delayed").await.unwrap();
    assert_eq!(claim_phase(&claim), Some("Pending"));
    assert_eq!(claim.spec.unwrap().volume_name, None);

    world.create_writer("delayed", "delayed", "delayed").await;
    assert_eq!(world.until_bound("delayed").await, "delayed-here");
    world.until_done("delayed").await;
    assert_eq!(std::fs::read_to_string(here.path().join("file")).unwrap(), "delayed\n");
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}
