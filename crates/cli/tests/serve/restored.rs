//! etcd is set back to a snapshot while Bindery runs.

use bindery_cluster::{ControlPlane, Manager, Programs};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use tempfile::TempDir;

use super::idle::until_renewed;
use super::world::{self, Replica, World, is_bound_to, provisioning_in};

/// How many revisions etcd is set back at least: more than are written until Bindery is back.
const REVISIONS: usize = 2_000;
/// Holds volumes of a class until the test takes it off.
const HELD: &str = "example.com/held";

/// Restores a snapshot under two replicas that compete for the Lease, one of which leads, and one that
/// observes. Answers the cluster and the one that observes when all that follows is settled.
async fn restore(further: &[&str]) -> (ControlPlane, Replica) {
    let folder = TempDir::new().unwrap();
    let mut plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::WithoutBinder).await.unwrap();
    let world = World::new(&plane).await;
    let start =
        |identity: &str, further: &[String]| Replica::start_with(&plane.kubeconfig(), identity, further, &[]);
    let lease = ["--lease-duration=30".to_owned()];
    let mut first = start("first", &[&lease[..], &provisioning_in(folder.path())].concat());
    first.until_leading().await;
    let mut second = start("second", &lease);
    let mut observer = start("observer", &["--mode=observe".to_owned()]);
    for replica in [&mut first, &mut second, &mut observer] {
        replica.until_metrics("bindery_lists_complete 1\n").await;
    }
    world.create_class("host").await;
    for (volume, claim) in [("v1", "stays"), ("v2", "goes")] {
        world.create_volume(volume, "1Gi").await;
        world.create_claim(claim, "1Gi").await;
        world.until_claim(claim, is_bound_to(volume)).await;
    }
    world.create_claim_of("host", "made", None).await;
    let made = world.until_claim("made", world::is_bound).await.spec.unwrap().volume_name.unwrap();
    world.hold_volume(&made, HELD).await;
    world.create_volume("v3", "1Gi").await;
    world.until_volume("v3", |volume| world::phase(volume) == "Available").await;

    let snapshot = plane.save_snapshot().await.unwrap();
    plane.advance_revision(REVISIONS).await.unwrap();
    // Between two renewals by the leader the other replica has read the Lease.
    until_renewed(&Api::namespaced(plane.client().await.unwrap(), "kube-system"), 2).await;
    world.delete_claim("goes").await;
    world.until_volume("v2", |volume| world::phase(volume) == "Released").await;
    world.delete_claim("made").await;
    world.until_volume(&made, |volume| volume.metadata.deletion_timestamp.is_some()).await;
    world.create_claim("comes", "1Gi").await;
    world.until_claim("comes", is_bound_to("v3")).await;

    plane.restore_snapshot(&snapshot, further).await.unwrap();
    // Nothing else happens until these are bound.
    world.create_volume("v4", "5Gi").await;
    world.create_claim("new", "5Gi").await;
    world.until_claim("new", is_bound_to("v4")).await;
    world.until_claim("goes", is_bound_to("v2")).await;
    world.create_claim("comes", "1Gi").await;
    world.until_claim("comes", is_bound_to("v3")).await;
    world.check_pairs(5).await;
    // What was being deleted is again, though its deletion had been accepted before.
    world.delete_claim("made").await;
    world.until_volume(&made, |volume| volume.metadata.deletion_timestamp.is_some()).await;
    world.release_volume(&made, HELD).await;
    world.until_no_volume(&made).await;
    world.check_pairs(4).await;
    world.until_event(is_of_lease).await;
    for mut replica in [first, second] {
        replica.until_metrics("bindery_version_regressions_total 1\n").await;
        replica.until_logged("resource versions went back").await;
        replica.until_metrics("bindery_lists_complete 1\n").await;
    }
    (plane, observer)
}

fn is_of_lease(event: &Event) -> bool {
    let (kind, reason) = (event.involved_object.kind.as_deref(), event.reason.as_deref());
    (kind, reason) == (Some("Lease"), Some("VersionsWentBack"))
}

#[tokio::test]
async fn after_etcd_was_set_back_to_a_snapshot_everything_settles() {
    let (_plane, mut observer) = restore(&[]).await;
    observer.until_metrics("bindery_version_regressions_total 1\n").await;
}

/// As etcd's and Kubernetes' guides ask for: versions go on where they were, and every watch expires.
#[tokio::test]
async fn after_etcd_was_set_back_with_higher_revisions_everything_settles() {
    let (_plane, mut observer) = restore(&["--bump-revision=1000000", "--mark-compacted"]).await;
    observer.until_metrics("bindery_lists_complete 1\n").await;
    assert!(observer.metric("bindery_watches_expired_total").await > 0, "{}", observer.log());
}
