//! Policies that ship, on a real API server.

use bindery_cluster::{Clock, Cluster, Manager, Replica, is_bound_to, is_event, is_in_phase};
use bindery_kit::json;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tempfile::TempDir;

/// Three policies: at most twice the request, the zone of the claim, and one whose module is missing.
pub(crate) fn documents() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, spec: serde_json::Value| {
        let document = json::policy("MatchPolicy", name, &spec).to_string();
        std::fs::write(folder.path().join(format!("{name}.yaml")), document).unwrap();
    };
    write("twice", json!({"module": "builtin:at-most-n-times", "settings": {"times": 2}}));
    write("zone", json!({"module": "builtin:same-zone", "settings": {"zone": "Label"}}));
    write("missing", json!({"module": "missing.wasm", "match": {"classNames": ["held"]}}));
    folder
}

#[tokio::test]
async fn claims_get_what_their_policies_allow_and_wait_for_the_rest() {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let documents = documents();
    let shipped = std::env::var("BINDERY_POLICIES").expect("`cargo xtask test` builds the policies");
    let folder = documents.path().to_str().unwrap();
    let mut replica = cluster.replica_with("first", &["--policy", folder, "--policies", &shipped]);
    replica.until_logged("missing.wasm cannot be read").await;
    replica.until_logged("policies=\"sha256:").await;

    // Rejected, until a volume comes that is small enough.
    cluster.create_available_volume("large", "100Gi").await;
    cluster.create_claim("c", "1Gi").await;
    let event = cluster.until_event(is_event("c", "FailedBinding")).await;
    let message = event.message.unwrap_or_default();
    assert!(message.ends_with("; 1 of 1 volumes rejected: twice 1"), "{message}");
    cluster.create_volume("right", "2Gi").await;
    cluster.until_claim("c", is_bound_to("right")).await;

    // Rejected, until the label of a free volume changes.
    cluster.create_available_volume("unlabelled", "1Gi").await;
    let zone = "topology.kubernetes.io/zone";
    let labelled = json!({"name": "zoned", "labels": {zone: "a"}});
    cluster.try_claim(labelled, json!({}), &PostParams::default()).await.unwrap();
    cluster.until_event(is_event("zoned", "FailedBinding")).await;
    let label = Patch::Merge(json!({"metadata": {"labels": {zone: "a"}}}));
    cluster.volumes.patch("unlabelled", &PatchParams::default(), &label).await.unwrap();
    cluster.until_claim("zoned", is_bound_to("unlabelled")).await;

    // Held, because its policy is not there; others go on.
    cluster.create_class("held").await;
    cluster.create_volume_of("held", "free", json!(null)).await;
    cluster.create_claim_of("held", "held", None).await;
    let event = cluster.until_event(is_event("held", "PolicyFailed")).await;
    let message = event.message.unwrap_or_default();
    assert!(message.contains("it waits for policy missing: the component "), "{message}");
    cluster.create_available_volume("next", "1Gi").await;
    cluster.create_claim("next", "1Gi").await;
    cluster.until_claim("next", is_bound_to("next")).await;
    replica.terminate().await;
}

/// A volume in phase Released with that reclaim policy.
pub(crate) fn is_released_with(policy: &'static str) -> impl Fn(&PersistentVolume) -> bool {
    move |volume| {
        let spec = volume.spec.as_ref().unwrap();
        is_in_phase("Released")(volume) && spec.persistent_volume_reclaim_policy.as_deref() == Some(policy)
    }
}

/// Writes a document of kind ReclaimPolicy. Returns the arguments of a replica that has it.
fn with_reclaim_policy(folder: &TempDir, name: &str, spec: &serde_json::Value) -> [String; 2] {
    let document = json::policy("ReclaimPolicy", name, spec).to_string();
    std::fs::write(folder.path().join("policy.yaml"), document).unwrap();
    let shipped = std::env::var("BINDERY_POLICIES").expect("`cargo xtask test` builds the policies");
    [format!("--policy={}", folder.path().display()), format!("--policies={shipped}")]
}

/// A claim that is bound to a volume of a driver, whose reclaim policy is Delete.
pub(crate) async fn create_bound(cluster: &Cluster, name: &str) {
    let csi = json!({"driver": "disks.example.com", "volumeHandle": name});
    let spec = json!({"hostPath": null, "csi": csi, "persistentVolumeReclaimPolicy": "Delete"});
    cluster.create_volume_with(name, spec).await;
    cluster.create_claim_with(name, json!({"volumeName": name})).await;
    cluster.until_claim(name, is_bound_to(name)).await;
}

#[tokio::test]
async fn a_claim_that_is_labelled_in_its_last_moment_leaves_its_volume() {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let folder = tempfile::tempdir().unwrap();
    let arguments = with_reclaim_policy(&folder, "keep", &json!({"module": "builtin:keep-labelled"}));
    let mut replica = cluster.replica_with("first", &arguments.each_ref().map(String::as_str));
    for name in ["kept", "left"] {
        create_bound(&cluster, name).await;
    }
    let label = Patch::Merge(json!({"metadata": {"labels": {"bindery.dev/keep": "true"}}}));
    cluster.claims.patch("kept", &PatchParams::default(), &label).await.unwrap();
    cluster.delete_claim("kept").await;
    cluster.delete_claim("left").await;
    let kept = cluster.until_volume("kept", is_released_with("Retain")).await;
    let noted = &kept.metadata.annotations.unwrap()["bindery.dev/reclaim-policy-before"];
    let uid = kept.spec.unwrap().claim_ref.unwrap().uid.unwrap();
    assert_eq!(*noted, format!("Delete {uid}"));
    let event = cluster.until_event(is_event("kept", "ReclaimPolicySet")).await;
    let message = event.message.unwrap_or_default();
    let expected = "policy keep sets the reclaim policy to \"Retain\": its claim had the label \
                    bindery.dev/keep: true";
    assert_eq!(message, expected);
    // An external provisioner would delete this one.
    cluster.until_volume("left", is_released_with("Delete")).await;
    replica.terminate().await;
}

#[tokio::test]
async fn a_clock_that_is_days_ahead_makes_no_deletion_due() {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let folder = tempfile::tempdir().unwrap();
    let spec = json!({"module": "builtin:delete-after", "settings": {"days": 1}});
    let arguments = with_reclaim_policy(&folder, "later", &spec);
    let arguments = arguments.each_ref().map(String::as_str);
    let mut replica = cluster.replica_with("first", &arguments);
    create_bound(&cluster, "held").await;
    cluster.delete_claim("held").await;
    cluster.until_volume("held", is_released_with("Retain")).await;
    replica.terminate().await;

    let clock = Clock::new().unwrap();
    // Certificates of the API server are valid for longer.
    clock.set(2 * 24 * 60 * 60).unwrap();
    let mut ahead = Replica::start(&cluster.kubeconfig(), "second", &arguments, &clock.environment());
    // It decides the volumes that are there first.
    create_bound(&cluster, "next").await;
    assert!(is_released_with("Retain")(&cluster.volumes.get("held").await.unwrap()));
    ahead.terminate().await;
}
