//! Delayed binding: the scheduler chooses node and volume together, and Bindery completes the bind.

use bindery_node::NAME;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::servers::objects;

/// The spec of a volume in a folder, which can be used on one node only.
fn local(capacity: &str, path: &TempDir, node: &str) -> Value {
    let on_node = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
    json!({
        "storageClassName": "delayed",
        "capacity": {"storage": capacity},
        "hostPath": {"path": path.path()},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
    })
}

#[tokio::test]
async fn a_claim_waits_for_its_pod_and_gets_a_volume_on_the_pods_node() {
    let objects = objects().await;
    let (here, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    objects.create_class("delayed", "kubernetes.io/no-provisioner", "WaitForFirstConsumer").await;
    // It fits best, but on its node no pod of this cluster can run.
    objects.create_volume("delayed-elsewhere", local("1Gi", &elsewhere, "elsewhere")).await;
    objects.create_volume("delayed-here", local("2Gi", &here, NAME)).await;
    objects.create_claim("delayed", "delayed").await;
    objects.until_event("delayed", "WaitForFirstConsumer").await;
    let claim = objects.claims.get("delayed").await.unwrap();
    assert_eq!(claim.status.unwrap().phase.as_deref(), Some("Pending"));
    assert_eq!(claim.spec.unwrap().volume_name, None);

    objects.create_writer("delayed", "delayed", "delayed").await;
    assert_eq!(objects.until_bound("delayed").await, "delayed-here");
    objects.until_done("delayed").await;
    assert_eq!(std::fs::read_to_string(here.path().join("file")).unwrap(), "delayed\n");
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}
