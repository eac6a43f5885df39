//! Policy Recycle: a pod on the node empties the volume, which is then anybody's.

use std::fs;

use bindery_node::world::volume_phase;
use serde_json::json;
use tempfile::TempDir;

use super::stage::world;

#[tokio::test]
async fn a_released_volume_is_emptied_by_a_pod_and_offered_again() {
    let world = world().await;
    let folder = TempDir::new().unwrap();
    let spec = json!({
        "storageClassName": "recycle",
        "capacity": {"storage": "1Gi"},
        "persistentVolumeReclaimPolicy": "Recycle",
        "hostPath": {"path": folder.path()},
    });
    world.create_volume("recycle", spec).await;
    world.create_claim("recycle-first", "recycle").await;
    world.until_bound("recycle-first").await;
    world.create_writer("recycle-first", "recycle-first", "secret").await;
    world.until_done("recycle-first").await;
    assert!(folder.path().join("file").is_file());
    fs::write(folder.path().join(".hidden"), "secret").unwrap();
    fs::create_dir_all(folder.path().join("a/b")).unwrap();
    fs::write(folder.path().join("a/b/file"), "secret").unwrap();

    world.delete(&world.pods, "recycle-first").await;
    world.delete(&world.claims, "recycle-first").await;
    let is_free = |volume: &_| volume_phase(volume) == Some("Available");
    let volume = world.until(&world.volumes, "recycle", is_free).await;
    assert_eq!(volume.spec.unwrap().claim_ref, None);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    world.until_event("recycle", "VolumeRecycled").await;
    // What kubelet said of the pod is passed on to who looks at the volume.
    world.until_event("recycle", "RecyclerPod").await;
    assert_eq!(world.pods.get_opt("recycler-for-recycle").await.unwrap(), None);

    world.create_claim("recycle-second", "recycle").await;
    assert_eq!(world.until_bound("recycle-second").await, "recycle");
}
