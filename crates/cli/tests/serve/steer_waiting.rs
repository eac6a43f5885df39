//! Steered claims of classes that wait for a pod, beside upstream's controller manager and scheduler.

use std::collections::BTreeMap;

use bindery_cluster::{Cluster, Manager, Server, is_bound, is_in_phase, poll, until};
use bindery_core::steer::steered_by;
use bindery_kit::json;
use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::steer::{at_most, create_steered, prefers_gold, replica_in, steer, steering_replica};

/// The label that policies read, and its value for volumes that are preferred.
const TIER: &str = "bindery.dev/tier";

/// A cluster with upstream's scheduler, a class that waits, and two nodes that no kubelet serves.
async fn start(manager: Manager) -> (Cluster, Server) {
    let cluster = Cluster::start(manager).await;
    let scheduler = cluster.plane.start_scheduler().unwrap();
    let waits = json!({
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    cluster.create_class_with("local", waits).await;
    for node in ["n1", "n2"] {
        cluster.create(&json::node(node), "").await.unwrap();
    }
    (cluster, scheduler)
}

/// Creates a volume that only that node reaches, and waits until upstream offers it.
async fn create_local(cluster: &Cluster, name: &str, capacity: &str, node: &str, tier: &str) {
    let expressions = [json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]})];
    let spec = json!({
        "capacity": {"storage": capacity},
        "storageClassName": "local",
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}},
    });
    cluster.create_volume_with(name, spec).await;
    let label = Patch::Merge(json!({"metadata": {"labels": {TIER: tier}}}));
    cluster.volumes.patch(name, &PatchParams::default(), &label).await.unwrap();
    cluster.until_volume(name, is_in_phase("Available")).await;
}

/// Has the chart's MutatingAdmissionPolicy steer new claims of namespace `default`, and waits until it does.
async fn steer_by_chart(mode: &str, cluster: &Cluster) {
    let label = json!({"metadata": {"labels": {"bindery.dev/steer": "true"}}});
    cluster.patch("/api/v1/namespaces/default", &label).await.unwrap();
    let steer = json!({"admission": "policy", "classes": ["local"]});
    let objects = bindery_chart::rendered(&json!({"mode": mode, "steer": steer}));
    for kind in ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"] {
        for object in objects.of(kind) {
            cluster.create(object, "").await.unwrap();
        }
    }
    let probe = json::claim("probe", json!({"spec": {"storageClassName": "local"}}));
    let steered = poll(async || {
        let created = cluster.create(&probe, "dryRun=All").await.unwrap();
        created["spec"]["selector"].is_object().then_some(())
    });
    steered.await.expect("the chart's policy must steer claims");
}

/// Creates a StatefulSet of three pods with two claims each.
async fn create_stateful_set(cluster: &Cluster, name: &str) {
    let labels = json!({"app": name});
    let claim = |name| json::claim(name, json!({"spec": {"storageClassName": "local"}}));
    let claims = ["data", "log"].map(claim);
    let set = json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 3,
            "serviceName": name,
            // No kubelet runs, so no pod becomes ready, and none may wait for another one.
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": json::pod("", json!({}))["spec"]},
            "volumeClaimTemplates": claims,
        },
    });
    cluster.create(&set, "").await.unwrap();
}

/// Waits until a pod has a node, and returns the node.
async fn until_scheduled(cluster: &Cluster, name: &str) -> String {
    let pods = Api::<Pod>::default_namespaced(cluster.client.clone());
    let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    node(&until(&pods, name, |pod: &Pod| node(pod).is_some()).await).unwrap()
}

/// Waits until no volume has a label that steers.
async fn until_unlabelled(cluster: &Cluster) {
    let is_labelled = |volume: &PersistentVolume| volume.labels().keys().any(|key| steered_by(key).is_some());
    let further = async |_: &bindery_invariants::Snapshot| {
        let volumes = cluster.volumes.list(&ListParams::default()).await.unwrap();
        let labelled = volumes.into_iter().filter(is_labelled);
        labelled.map(|volume| format!("{} still has a label", volume.name_any())).collect()
    };
    cluster.until_settled(further).await.unwrap();
}

#[tokio::test]
async fn the_pods_of_a_stateful_set_get_what_policies_prefer_and_allow() {
    check_stateful_set("steer", Manager::Whole).await;
}

#[tokio::test]
async fn in_mode_own_a_stateful_set_gets_what_policies_prefer_and_allow() {
    check_stateful_set("own", Manager::WithoutBinder).await;
}

async fn check_stateful_set(mode: &str, manager: Manager) {
    let (cluster, _scheduler) = start(manager).await;
    let (mut replica, _documents) = replica_in(mode, &cluster, &[prefers_gold(), at_most(3)]);
    replica.until_leading().await;
    let mut expected = BTreeMap::new();
    for node in ["n1", "n2"] {
        // Enough for all pods: scores do not choose the node.
        for number in 0..6 {
            // The scheduler would take the small ones, and the large ones are gold too.
            create_local(&cluster, &format!("small-{node}-{number}"), "1Gi", node, "bronze").await;
            create_local(&cluster, &format!("large-{node}-{number}"), "5Gi", node, "gold").await;
            let name = format!("gold-{node}-{number}");
            create_local(&cluster, &name, "2Gi", node, "gold").await;
            expected.insert(name, node.to_owned());
        }
    }
    let pods = ["db-0", "db-1", "db-2"];
    if cluster.has_mutating_policies().await {
        steer_by_chart(mode, &cluster).await;
    } else {
        // The StatefulSet takes claims that exist.
        for name in pods.iter().flat_map(|pod| ["data", "log"].map(|claim| format!("{claim}-{pod}"))) {
            create_steered(&cluster, &name, json!({"storageClassName": "local"})).await;
        }
    }
    create_stateful_set(&cluster, "db").await;
    for pod in pods {
        let node = until_scheduled(&cluster, pod).await;
        for claim in ["data", "log"] {
            let claim = cluster.until_claim(&format!("{claim}-{pod}"), is_bound).await;
            let volume = claim.spec.unwrap().volume_name.unwrap();
            assert_eq!(expected.remove(&volume).as_ref(), Some(&node), "{volume} for pod {pod}");
        }
    }
    until_unlabelled(&cluster).await;
    assert_eq!(replica.metric("bindery_refusals_total").await, 0);
    replica.terminate().await;
}

#[tokio::test]
async fn a_claim_that_waits_for_a_pod_is_released_to_the_scheduler() {
    let (cluster, _scheduler) = start(Manager::Whole).await;
    let (mut replica, _documents) = steering_replica(&cluster, &[at_most(2)]);
    replica.until_leading().await;
    create_local(&cluster, "large", "5Gi", "n1", "gold").await;
    create_steered(&cluster, "c", json!({"storageClassName": "local"})).await;
    let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}});
    cluster.create(&json::pod("p", json!({"spec": {"volumes": [volume]}})), "").await.unwrap();
    let released = "no namespace has the label bindery.dev/steer; if you use another key, give it by \
                    --namespace-label\n\
                    persistentvolumeclaim default/c: volumes with its label: 1; \
                    create it again if other claims take them first\n";
    assert_eq!(steer(&cluster, &["release", "--all"]), (Some(0), released.to_owned()));
    assert_eq!(until_scheduled(&cluster, "p").await, "n1");
    cluster.until_claim("c", is_bound).await;
    until_unlabelled(&cluster).await;
    let pods = Api::<Pod>::default_namespaced(cluster.client.clone());
    pods.delete("p", &DeleteParams { grace_period_seconds: Some(0), ..Default::default() }).await.unwrap();
    replica.terminate().await;
}
