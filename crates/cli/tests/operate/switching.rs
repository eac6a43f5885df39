//! A switch from upstream's binder to Bindery and back, as in the guide for operators.

use std::collections::BTreeMap;

use bindery_cluster::{Cluster, Manager};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

const PAIRS: usize = 20;

/// Every volume and claim, by UID.
async fn objects(cluster: &Cluster) -> BTreeMap<String, Value> {
    let all = ListParams::default();
    let volumes = cluster.volumes.list(&all).await.unwrap().into_iter().map(|volume| json!(volume));
    let claims = cluster.claims.list(&all).await.unwrap().into_iter().map(|claim| json!(claim));
    let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
    volumes.chain(claims).map(|object| (uid(&object), object)).collect()
}

/// The object without its conditions and the traces of their write. From 1.37 on the controller of protection
/// finalizers writes one for a claim that no pod uses.
fn without_conditions(mut object: Value) -> Value {
    for (part, field) in
        [("metadata", "resourceVersion"), ("metadata", "managedFields"), ("status", "conditions")]
    {
        object[part].as_object_mut().unwrap().remove(field);
    }
    object
}

async fn check_untouched(cluster: &Cluster, before: &BTreeMap<String, Value>) {
    let now = objects(cluster).await;
    for (uid, before) in before {
        let (mut before, mut now) = (before.clone(), now[uid].clone());
        if before["status"]["conditions"] != now["status"]["conditions"] {
            (before, now) = (without_conditions(before), without_conditions(now));
        }
        assert_eq!(now, before, "{uid} was written");
    }
}

#[tokio::test]
async fn a_cluster_goes_from_upstream_to_bindery_and_back() {
    let mut cluster = Cluster::start(Manager::BinderAlone).await;
    cluster.bind_pairs("upstream", PAIRS).await;

    cluster.plane.set_manager(Manager::WithoutBinder).unwrap();
    let before = objects(&cluster).await;
    // Long enough that no pause of the machine outlasts it: the replica must release it in the end.
    let lease = ["--lease-duration=15"];
    let mut replica = cluster.replica_with("first", &lease);
    replica.until_leading().await;
    // Earlier objects are decided before these.
    cluster.bind_pairs("bindery", PAIRS).await;
    check_untouched(&cluster, &before).await;
    assert_eq!(replica.metric("bindery_foreign_writes_total").await, 0, "{}", replica.log());

    let before = objects(&cluster).await;
    replica.terminate().await;
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "kube-system");
    let lease = leases.get("bindery").await.unwrap();
    assert_eq!(lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default(), "");
    cluster.plane.set_manager(Manager::BinderAlone).unwrap();
    cluster.bind_pairs("back", PAIRS).await;
    check_untouched(&cluster, &before).await;
    cluster.check_pairs(3 * PAIRS).await;
}
