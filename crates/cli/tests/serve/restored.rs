//! etcd is restored from a snapshot while Bindery runs.

use bindery_cluster::{Cluster, Manager, Replica, is_bound, is_bound_to, is_in_phase, provisioning_in};
use k8s_openapi::api::core::v1::{ConfigMap, Event, PersistentVolume};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use tempfile::TempDir;

use super::idle::until_renewed;
use super::policy_objects::{cluster_with_kinds, modules, shipped, until_rejected};

/// Least number of revisions that the restore takes back: more than are written until Bindery is back.
const REVISIONS: usize = 2_000;
const HELD: &str = "example.com/held";

/// Restores a snapshot while two replicas compete for the Lease and one observes. Returns the cluster and the
/// observer when everything has settled.
async fn restore(further: &[&str]) -> (Cluster, Replica) {
    let folder = TempDir::new().unwrap();
    let mut cluster = Cluster::start(Manager::WithoutBinder).await;
    let lease = "--lease-duration=30";
    let mut first = cluster.replica_with("first", &[lease, &provisioning_in(folder.path())]);
    first.until_leading().await;
    let mut second = cluster.replica_with("second", &[lease]);
    let mut observer = cluster.replica_with("observer", &["--mode=observe"]);
    for replica in [&mut first, &mut second, &mut observer] {
        replica.until_listed().await;
    }
    cluster.create_class("host").await;
    for (volume, claim) in [("v1", "stays"), ("v2", "goes")] {
        cluster.create_volume(volume, "1Gi").await;
        cluster.create_claim(claim, "1Gi").await;
        cluster.until_claim(claim, is_bound_to(volume)).await;
    }
    cluster.create_claim_of("host", "made", None).await;
    let made = cluster.until_claim("made", is_bound).await.spec.unwrap().volume_name.unwrap();
    let mut finalizers = cluster.volumes.get(&made).await.unwrap().metadata.finalizers.unwrap_or_default();
    finalizers.push(HELD.to_owned());
    cluster.set_finalizers(&made, &finalizers).await;
    cluster.create_available_volume("v3", "1Gi").await;

    let snapshot = cluster.plane.save_snapshot().await.unwrap();
    cluster.plane.advance_revision(REVISIONS).await.unwrap();
    // The other replica reads the Lease between two renewals.
    until_renewed(&Api::namespaced(cluster.client.clone(), "kube-system"), 2).await;
    cluster.delete_claim("goes").await;
    cluster.until_volume("v2", is_in_phase("Released")).await;
    cluster.delete_claim("made").await;
    cluster.until_volume(&made, |volume| volume.metadata.deletion_timestamp.is_some()).await;
    cluster.create_claim("comes", "1Gi").await;
    cluster.until_claim("comes", is_bound_to("v3")).await;

    cluster.plane.restore_snapshot(&snapshot, further).await.unwrap();
    // No other change helps to bind these.
    cluster.create_volume("v4", "5Gi").await;
    cluster.create_claim("new", "5Gi").await;
    cluster.until_claim("new", is_bound_to("v4")).await;
    cluster.until_claim("goes", is_bound_to("v2")).await;
    cluster.create_claim("comes", "1Gi").await;
    cluster.until_claim("comes", is_bound_to("v3")).await;
    cluster.check_pairs(5).await;
    // The volume is deleted again, though its deletion was accepted before the restore.
    cluster.delete_claim("made").await;
    cluster.until_volume(&made, |volume| volume.metadata.deletion_timestamp.is_some()).await;
    let is_held = |volume: &PersistentVolume| volume.metadata.finalizers == Some(vec![HELD.to_owned()]);
    cluster.until_volume(&made, is_held).await;
    cluster.set_finalizers(&made, &[]).await;
    cluster.until_no_volume(&made).await;
    cluster.check_pairs(4).await;
    cluster.until_event(is_of_lease).await;
    for mut replica in [first, second] {
        replica.until_metrics("bindery_version_regressions_total 1\n").await;
        replica.until_logged("resource versions went back").await;
        replica.until_listed().await;
    }
    (cluster, observer)
}

fn is_of_lease(event: &Event) -> bool {
    let (kind, reason) = (event.involved_object.kind.as_deref(), event.reason.as_deref());
    (kind, reason) == (Some("Lease"), Some("VersionsWentBack"))
}

/// Either revisions go back to the snapshot's, or, as etcd's and Kubernetes' guides demand, they continue and
/// every watch expires.
#[tokio::test]
async fn after_a_restore_of_etcd_everything_settles() {
    let ((_old, mut of_old), (_new, mut of_new)) =
        tokio::join!(restore(&[]), restore(&["--bump-revision=1000000", "--mark-compacted"]));
    of_old.until_metrics("bindery_version_regressions_total 1\n").await;
    of_new.until_metric("bindery_watches_expired_total", |watches| watches > 0).await;
}

/// Another policy has the name, and another version of the ConfigMap has the module, when the snapshot is
/// restored.
#[tokio::test]
async fn after_a_restore_of_etcd_the_restored_policy_decides() {
    let (mut cluster, policies, mut replica) = cluster_with_kinds().await;
    let config_maps = Api::<ConfigMap>::namespaced(cluster.client.clone(), "default");
    let module = modules("m.wasm", shipped("at-most-n-times"));
    config_maps.create(&PostParams::default(), &module).await.unwrap();
    let times =
        |times: u32| json!({"module": "configmap:default/modules/m.wasm", "settings": {"times": times}});
    policies.apply("MatchPolicy", "size", times(2)).await;
    policies.until_ready("MatchPolicy", "size", "Loaded").await;

    let snapshot = cluster.plane.save_snapshot().await.unwrap();
    cluster.plane.advance_revision(REVISIONS).await.unwrap();
    until_renewed(&Api::namespaced(cluster.client.clone(), "kube-system"), 2).await;
    policies.of("MatchPolicy").delete("size", &DeleteParams::default()).await.unwrap();
    policies.apply("MatchPolicy", "size", times(100)).await;
    policies.until_ready("MatchPolicy", "size", "Loaded").await;
    let broken = modules("m.wasm", b"no component".to_vec());
    config_maps.replace("modules", &PostParams::default(), &broken).await.unwrap();
    policies.until_ready("MatchPolicy", "size", "ModuleInvalid").await;

    cluster.plane.restore_snapshot(&snapshot, &[]).await.unwrap();
    // Until the Lease is renewed, the leader does not know of the restore.
    replica.until_metrics("bindery_version_regressions_total 1\n").await;
    cluster.create_available_volume("v", "10Gi").await;
    cluster.create_claim("c", "1Gi").await;
    until_rejected(&cluster, "c", "; 1 of 1 volumes rejected: size 1").await;
    policies.apply("MatchPolicy", "size", times(100)).await;
    cluster.until_claim("c", is_bound_to("v")).await;
    config_maps.replace("modules", &PostParams::default(), &broken).await.unwrap();
    policies.until_ready("MatchPolicy", "size", "ModuleInvalid").await;
    let metrics = replica.get("/metrics").await;
    assert!(metrics.contains("bindery_watch_silence_seconds{kind=\"MatchPolicy\"} "), "{metrics}");
    replica.terminate().await;
}
