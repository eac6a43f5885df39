//! A default class that comes after claims without a class (KEP-3333), compared with upstream's binder.

use std::collections::{BTreeMap, BTreeSet};

use bindery_cluster::{Cluster, Manager, is_bound_to, is_event, is_in_phase};
use kube::api::ListParams;
use serde_json::json;

const PROVISIONER: &str = "vendor.example/csi";

/// The claims and events in the end.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    /// Class and annotations of each claim.
    claims: BTreeMap<String, (Option<String>, BTreeMap<String, String>)>,
    events: BTreeSet<[String; 4]>,
}

impl Outcome {
    async fn of(cluster: &Cluster) -> Self {
        let claims = cluster.claims.list(&ListParams::default()).await.unwrap().into_iter().map(|claim| {
            let annotations = claim.metadata.annotations.unwrap_or_default();
            (claim.metadata.name.unwrap(), (claim.spec.unwrap().storage_class_name, annotations))
        });
        Self { claims: claims.collect(), events: cluster.events().await }
    }
}

/// Two claims without class; one of them fits a volume of the later default class.
async fn story(cluster: &Cluster) -> Outcome {
    cluster.create_volume_of("gold", "v", json!(null)).await;
    cluster.until_volume("v", is_in_phase("Available")).await;
    for (name, request) in [("found", "1Gi"), ("made", "5Gi")] {
        let differs = json!({"storageClassName": null, "resources": {"requests": {"storage": request}}});
        cluster.create_claim_with(name, differs).await;
        cluster.until_event(is_event(name, "FailedBinding")).await;
        let claim = cluster.until_claim(name, |_| true).await;
        assert_eq!(claim.spec.unwrap().storage_class_name, None);
        assert_eq!(claim.status.unwrap().phase.as_deref(), Some("Pending"));
    }
    let class = json!({
        "metadata": {"name": "gold", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": PROVISIONER,
    });
    cluster.create_class_with("gold", class).await;
    cluster.until_claim("found", is_bound_to("v")).await;
    cluster.until_event(is_event("made", "ExternalProvisioning")).await;
    Outcome::of(cluster).await
}

#[tokio::test]
async fn claims_that_wait_get_a_later_default_class_as_upstream_gives_it() {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let replica = cluster.replica("first");
    let outcome = story(&cluster).await;
    for (class, annotations) in outcome.claims.values() {
        assert_eq!(class.as_deref(), Some("gold"), "{outcome:#?}\n{}", replica.log());
        let is_bound = annotations.contains_key("pv.kubernetes.io/bind-completed");
        let provisioner = annotations.get("volume.kubernetes.io/storage-provisioner");
        assert_eq!(provisioner.map(String::as_str), (!is_bound).then_some(PROVISIONER), "{outcome:#?}");
    }
    drop((replica, cluster));

    let cluster = Cluster::start(Manager::BinderAlone).await;
    let upstreams = story(&cluster).await;
    assert_eq!(outcome, upstreams);
}
