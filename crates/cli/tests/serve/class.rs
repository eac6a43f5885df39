//! A class that becomes the default when there are claims without one already (KEP-3333), and what upstream's
//! binder makes of the same.

use std::collections::{BTreeMap, BTreeSet};

use bindery_cluster::{ControlPlane, Manager, Programs};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use super::world::{Replica, World, is_bound_to, is_told, phase};

const PROVISIONER: &str = "vendor.example/csi";

/// What a binder has made of the claims.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    /// Class and annotations of each claim.
    claims: BTreeMap<String, (Option<String>, BTreeMap<String, String>)>,
    events: BTreeSet<[String; 4]>,
}

impl Outcome {
    async fn of(plane: &ControlPlane, world: &World) -> Self {
        let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(plane.client().await.unwrap());
        let claims = claims.list(&ListParams::default()).await.unwrap().items.into_iter().map(|claim| {
            let annotations = claim.metadata.annotations.unwrap_or_default();
            (claim.metadata.name.unwrap(), (claim.spec.unwrap().storage_class_name, annotations))
        });
        Self { claims: claims.collect(), events: world.told().await }
    }
}

/// Two claims without class, one of which fits a volume of the class that is the default once they wait.
async fn story(plane: &ControlPlane) -> Outcome {
    let world = World::new(plane).await;
    world.create_volume_of("gold", "v", json!(null)).await;
    world.until_volume("v", |volume| phase(volume) == "Available").await;
    for (name, request) in [("found", "1Gi"), ("made", "5Gi")] {
        let differs = json!({"storageClassName": null, "resources": {"requests": {"storage": request}}});
        world.create_claim_with(name, differs).await;
        world.until_event(is_told(name, "FailedBinding")).await;
        let claim = world.until_claim(name, |_| true).await;
        assert_eq!(claim.spec.unwrap().storage_class_name, None);
        assert_eq!(claim.status.unwrap().phase.as_deref(), Some("Pending"));
    }
    let class = json!({
        "metadata": {"name": "gold", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": PROVISIONER,
    });
    world.create_class_with("gold", class).await;
    world.until_claim("found", is_bound_to("v")).await;
    world.until_event(is_told("made", "ExternalProvisioning")).await;
    Outcome::of(plane, &world).await
}

#[tokio::test]
async fn a_later_default_class_is_given_to_claims_that_wait_as_upstream_gives_it() {
    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::WithoutBinder).await.unwrap();
    let replica = Replica::start(&plane, "first");
    let outcome = story(&plane).await;
    for (class, annotations) in outcome.claims.values() {
        assert_eq!(class.as_deref(), Some("gold"), "{outcome:#?}\n{}", replica.log());
        let is_bound = annotations.contains_key("pv.kubernetes.io/bind-completed");
        let provisioner = annotations.get("volume.kubernetes.io/storage-provisioner");
        assert_eq!(provisioner.map(String::as_str), (!is_bound).then_some(PROVISIONER), "{outcome:#?}");
    }
    drop((replica, plane));

    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::BinderAlone).await.unwrap();
    let upstreams = story(&plane).await;
    assert_eq!(outcome, upstreams);
}
