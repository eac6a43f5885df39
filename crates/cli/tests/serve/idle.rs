//! The requests of an idle replica.

use std::collections::BTreeSet;
use std::pin::pin;

use bindery_cluster::{Cluster, Manager, Proxy, Replica, Request, in_time, is_event};
use futures::StreamExt as _;
use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::runtime::watcher::watch_object;
use serde_json::json;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/bindery";
/// Long enough that no pause of the machine ends the term: a new one would decide everything again.
const LEASE_DURATION: &str = "--lease-duration=15";
/// Renewals of the Lease that are waited for; the binder's retries come within the first.
const RENEWALS: usize = 3;
/// Volumes, claims, classes, pods and nodes.
const WATCHES: usize = 5;
/// Namespaces, and the three kinds of policies.
const POLICY_WATCHES: usize = 4;

fn is_of_lease(request: &Request) -> bool {
    request.path == LEASE && [Method::GET, Method::PUT, Method::PATCH].contains(&request.method)
}

/// Whether a request is a watch from a version on. With `sendInitialEvents` it is a list too.
fn is_only_watch(request: &Request) -> bool {
    request.is_watch() && !request.query.contains("sendInitialEvents")
}

/// Whether a request reads the version of a kind, as after a watch was cut: etcd may have been restored.
fn is_comparison(request: &Request) -> bool {
    request.method == Method::GET && request.query == "limit=1"
}

pub(crate) async fn until_renewed(leases: &Api<Lease>, times: usize) {
    let mut lease = pin!(watch_object(leases.clone(), "bindery"));
    let renewed = async {
        let mut seen = BTreeSet::new();
        while seen.len() <= times {
            let lease = lease.next().await.unwrap().unwrap().unwrap();
            seen.insert(lease.spec.unwrap().renew_time);
        }
    };
    in_time("the Lease is renewed", renewed).await;
}

/// Creates bound pairs, and a claim for each way to stay Pending; waits for all their events.
async fn settle(cluster: &Cluster) {
    for pair in ["a", "b", "c"] {
        cluster.bind_pair(pair).await;
    }
    cluster.check_pairs(3).await;
    let external = json!({"provisioner": "vendor.example/csi"});
    cluster.create_class_with("external", external).await;
    let delayed = json!({"provisioner": "vendor.example/csi", "volumeBindingMode": "WaitForFirstConsumer"});
    cluster.create_class_with("delayed", delayed).await;
    cluster.create_claim("too-large", "1Ti").await;
    cluster.until_event(is_event("too-large", "FailedBinding")).await;
    for (class, reason) in [
        ("external", "ExternalProvisioning"),
        ("delayed", "WaitForFirstConsumer"),
        ("missing", "ProvisioningFailed"),
    ] {
        cluster.create_claim_of(class, class, None).await;
        cluster.until_event(is_event(class, reason)).await;
    }
    // Its event comes after those of the others.
    cluster.create_claim("barrier", "1Ti").await;
    cluster.until_event(is_event("barrier", "FailedBinding")).await;
}

/// Checks the requests of an idle replica that watches this many kinds, also after its watches were cut.
async fn check_idle(cluster: &Cluster, proxy: &Proxy, replica: &Replica, watches: usize) {
    let leases = Api::namespaced(cluster.client.clone(), "kube-system");
    // Writes that follow an event in the same decision come within this time.
    until_renewed(&leases, 1).await;
    for is_cut in [false, true] {
        proxy.take_requests();
        if is_cut {
            proxy.cut();
        }
        until_renewed(&leases, RENEWALS).await;
        let (of_lease, others): (Vec<_>, Vec<_>) = proxy.take_requests().into_iter().partition(is_of_lease);
        assert!(of_lease.len() >= RENEWALS - 1, "{of_lease:#?}");
        let (only_watches, others): (Vec<_>, Vec<_>) = others.into_iter().partition(is_only_watch);
        let (comparisons, others): (Vec<_>, Vec<_>) = others.into_iter().partition(is_comparison);
        assert!(others.is_empty(), "{others:#?}\n{}", replica.log());
        let paths = |requests: &[Request]| -> BTreeSet<String> {
            requests.iter().map(|request| request.path.clone()).collect()
        };
        let (watched, compared) = (paths(&only_watches), paths(&comparisons));
        assert_eq!(watched.len(), if is_cut { watches } else { 0 }, "{watched:?}");
        assert!(compared.is_subset(&watched), "only a kind whose watch was cut is read: {compared:?}");
    }
}

#[tokio::test]
async fn an_idle_replica_only_renews_the_lease_and_watches() {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let proxy = cluster.proxy().await;
    let mut replica = Replica::behind(&proxy, "first", &[LEASE_DURATION]);
    replica.until_leading().await;
    settle(&cluster).await;
    check_idle(&cluster, &proxy, &replica, WATCHES).await;
}

#[tokio::test]
async fn an_idle_replica_with_policies_in_the_cluster_writes_no_status() {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let policies = cluster.policies();
    policies.install().await;
    let twice = json!({"module": "builtin:at-most-n-times", "settings": {"times": 2}});
    policies.apply("MatchPolicy", "size", twice).await;
    let proxy = cluster.proxy().await;
    let shipped = std::env::var("BINDERY_POLICIES").expect("`cargo xtask test` builds the policies");
    let arguments = [LEASE_DURATION, "--policy-objects=true", "--policies", &shipped];
    let mut replica = Replica::behind(&proxy, "first", &arguments);
    replica.until_leading().await;
    settle(&cluster).await;
    let count = "bindery_policy_duration_seconds_count{policy=\"size\"";
    let is_written = async |replica: &Replica| {
        let status = policies.of("MatchPolicy").get("size").await.unwrap().data["status"].clone();
        let metrics = replica.try_get("/metrics").await?;
        let calls = metrics.lines().find(|line| line.starts_with(count))?.rsplit_once(' ')?.1;
        (status["calls"].as_u64() == calls.parse().ok()).then_some(())
    };
    replica.until("the calls are in the status", is_written).await;
    check_idle(&cluster, &proxy, &replica, WATCHES + POLICY_WATCHES).await;
}
