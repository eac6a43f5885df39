//! A replica at rest: what it asks the API server for while nothing happens.

use std::collections::BTreeSet;
use std::pin::pin;

use bindery_cluster::{Asked, ControlPlane, Manager, Programs, Proxy};
use futures::StreamExt as _;
use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::runtime::watcher::watch_object;
use serde_json::json;

use super::world::{PATIENCE, Replica, World, is_bound_to, is_told};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/bindery";
/// So long that no pause of the machine ends the term: a new one decides everything once more.
const LEASE_DURATION: &str = "--lease-duration=30";
/// How many renewals are looked at; the binder retries within the first.
const RENEWALS: usize = 3;
/// Volumes, claims, classes, pods and nodes.
const WATCHES: usize = 5;

fn is_of_lease(asked: &Asked) -> bool {
    asked.path == LEASE && [Method::GET, Method::PUT, Method::PATCH].contains(&asked.method)
}

/// Whether a request is to be told of changes from some version on. With `sendInitialEvents` it is a list.
fn is_only_watch(asked: &Asked) -> bool {
    asked.is_watch() && !asked.query.contains("sendInitialEvents")
}

/// Waits until the Lease was renewed so many times.
pub(crate) async fn until_renewed(leases: &Api<Lease>, times: usize) {
    let mut lease = pin!(watch_object(leases.clone(), "bindery"));
    let renewed = async {
        let mut seen = BTreeSet::new();
        while seen.len() <= times {
            let lease = lease.next().await.unwrap().unwrap().unwrap();
            seen.insert(lease.spec.unwrap().renew_time);
        }
    };
    tokio::time::timeout(PATIENCE, renewed).await.expect("the Lease is renewed");
}

/// Creates bound pairs, and a claim for each way to stay Pending; ends when all has been told of them.
async fn settle(world: &World) {
    for pair in ["a", "b", "c"] {
        world.create_volume(pair, "1Gi").await;
        world.create_claim(pair, "1Gi").await;
        world.until_claim(pair, is_bound_to(pair)).await;
    }
    world.check_pairs(3).await;
    let external = json!({"provisioner": "vendor.example/csi"});
    world.create_class_with("external", external).await;
    let delayed = json!({"provisioner": "vendor.example/csi", "volumeBindingMode": "WaitForFirstConsumer"});
    world.create_class_with("delayed", delayed).await;
    world.create_claim("too-large", "1Ti").await;
    world.until_event(is_told("too-large", "FailedBinding")).await;
    for (class, reason) in [
        ("external", "ExternalProvisioning"),
        ("delayed", "WaitForFirstConsumer"),
        ("missing", "ProvisioningFailed"),
    ] {
        world.create_claim_of(class, class, None).await;
        world.until_event(is_told(class, reason)).await;
    }
    // Told of after whatever there was to tell of the others.
    world.create_claim("barrier", "1Ti").await;
    world.until_event(is_told("barrier", "FailedBinding")).await;
}

#[tokio::test]
async fn a_replica_at_rest_renews_the_lease_and_watches_and_asks_for_nothing_else() {
    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::WithoutBinder).await.unwrap();
    let world = World::new(&plane).await;
    let proxy = Proxy::start(&plane).await.unwrap();
    let leases = Api::namespaced(plane.client().await.unwrap(), "kube-system");
    let lease = [LEASE_DURATION.to_owned()];
    let mut replica = Replica::start_with(&proxy.kubeconfig(), "first", &lease, &[]);
    replica.until_leading().await;
    settle(&world).await;
    // What follows an event in the same decision.
    until_renewed(&leases, 1).await;
    for is_cut in [false, true] {
        proxy.take_asked();
        if is_cut {
            proxy.cut();
        }
        until_renewed(&leases, RENEWALS).await;
        let (of_lease, others): (Vec<_>, Vec<_>) = proxy.take_asked().into_iter().partition(is_of_lease);
        assert!(of_lease.len() >= RENEWALS - 1, "{of_lease:#?}");
        let (watches, others): (Vec<_>, Vec<_>) = others.into_iter().partition(is_only_watch);
        assert!(others.is_empty(), "{others:#?}\n{}", replica.log());
        let watched: BTreeSet<_> = watches.iter().map(|asked| &asked.path).collect();
        assert_eq!(watched.len(), if is_cut { WATCHES } else { 0 }, "{watched:?}");
    }
}
