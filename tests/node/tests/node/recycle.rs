//! Policy Recycle: a pod on the node empties the volume, which is then available again.

use std::fs;

use bindery_cluster::is_in_phase;
use futures::TryStreamExt as _;
use kube::api::{WatchEvent, WatchParams};
use serde_json::json;
use tempfile::TempDir;

use super::servers::objects;

#[tokio::test]
async fn a_released_volume_is_emptied_by_a_pod_and_offered_again() {
    let objects = objects().await;
    let folder = TempDir::new().unwrap();
    let spec = json!({
        "storageClassName": "recycle",
        "persistentVolumeReclaimPolicy": "Recycle",
        "hostPath": {"path": folder.path()},
    });
    objects.create_volume("recycle", spec).await;
    objects.create_claim("recycle-first", "recycle").await;
    objects.until_bound("recycle-first").await;
    objects.create_writer("recycle-first", "recycle-first", "secret").await;
    objects.until_done("recycle-first").await;
    assert!(folder.path().join("file").is_file());
    fs::write(folder.path().join(".hidden"), "secret").unwrap();
    fs::create_dir_all(folder.path().join("a/b")).unwrap();
    fs::write(folder.path().join("a/b/file"), "secret").unwrap();

    // This watch sees each version of the pod that scrubs.
    let named = WatchParams::default().fields("metadata.name=recycler-for-recycle").disable_bookmarks();
    let mut versions = std::pin::pin!(objects.pods.watch(&named, "0").await.unwrap());
    objects.delete(&objects.pods, "recycle-first").await;
    objects.delete(&objects.claims, "recycle-first").await;
    let volume = objects.until(&objects.volumes, "recycle", is_in_phase("Available")).await;
    assert_eq!(volume.spec.unwrap().claim_ref, None);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    objects.until_event("recycle", "VolumeRecycled").await;
    // The events of the pod are copied to the volume.
    objects.until_event("recycle", "RecyclerPod").await;
    assert_eq!(objects.pods.get_opt("recycler-for-recycle").await.unwrap(), None);
    // It could not run before the volume was read once more.
    let first = versions.try_next().await.unwrap();
    let Some(WatchEvent::Added(created)) = first else { panic!("{first:?}") };
    let gates = created.spec.unwrap().scheduling_gates.unwrap_or_default();
    assert_eq!(gates.len(), 1, "{gates:?}");

    objects.create_claim("recycle-second", "recycle").await;
    assert_eq!(objects.until_bound("recycle-second").await, "recycle");
}
