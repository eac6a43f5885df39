//! Claims that get a class late (KEP-3333) or name an attributes class (KEP-3751), compared with upstream's
//! binder.

use std::collections::{BTreeMap, BTreeSet};

use bindery_cluster::{Cluster, Manager, Replica, is_bound_to, is_event, is_in_phase};
use serde_json::{Value, json};

const DRIVER: &str = "vendor.example";
const ATTRIBUTES_CLASSES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
/// Name, capacity and attributes class of the first volumes.
const VOLUMES: [(&str, &str, Option<&str>); 4] = [
    ("plain", "1Gi", None),
    ("silver", "2Gi", Some("silver")),
    ("gold", "5Gi", Some("gold")),
    ("golden", "10Gi", Some("gold")),
];

#[derive(Debug, PartialEq)]
struct Outcome {
    claims: BTreeMap<String, Value>,
    volumes: BTreeMap<String, Value>,
    events: BTreeSet<[String; 4]>,
}

impl Outcome {
    async fn of(cluster: &Cluster) -> Self {
        let claim = |claim: &Value| {
            let (spec, status) = (&claim["spec"], &claim["status"]);
            json!({
                "annotations": claim["metadata"]["annotations"],
                "volume": spec["volumeName"],
                "class": spec["storageClassName"],
                "attributes class": spec["volumeAttributesClassName"],
                "current attributes class": status["currentVolumeAttributesClassName"],
                "phase": status["phase"],
            })
        };
        let volume = |volume: &Value| {
            let claim = &volume["spec"]["claimRef"]["name"];
            json!({"phase": volume["status"]["phase"], "claim": claim})
        };
        Self {
            claims: named(cluster, "persistentvolumeclaims", claim).await,
            volumes: named(cluster, "persistentvolumes", volume).await,
            events: cluster.events().await,
        }
    }
}

/// What matters of each object of a kind, by its name.
async fn named(cluster: &Cluster, plural: &str, what: impl Fn(&Value) -> Value) -> BTreeMap<String, Value> {
    let list = cluster.get(&format!("/api/v1/{plural}")).await.unwrap();
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    list["items"].as_array().unwrap().iter().map(|object| (name(object), what(object))).collect()
}

/// Checks that a story on this cluster ends as on another one with upstream's binder; returns the end. The
/// binder compares the names of attributes classes. It requests neither the classes nor the groups that the
/// API server has, so it needs no API server that has them.
async fn ends_as_with_upstream(cluster: Cluster, story: impl AsyncFn(&Cluster)) -> Outcome {
    let proxy = cluster.proxy().await;
    let replica = Replica::behind(&proxy, "first", &[]);
    story(&cluster).await;
    let outcome = Outcome::of(&cluster).await;
    let is_discovery = |path: &str| ["/api", "/apis", "/apis/storage.k8s.io/v1"].contains(&path);
    let mut requests = proxy.take_requests();
    requests.retain(|request| request.path.starts_with(ATTRIBUTES_CLASSES) || is_discovery(&request.path));
    assert!(requests.is_empty(), "{requests:#?}\n{}", replica.log());
    drop((replica, proxy, cluster));

    let cluster = Cluster::start(Manager::BinderAlone).await;
    story(&cluster).await;
    assert_eq!(outcome, Outcome::of(&cluster).await);
    outcome
}

/// Two claims without a class. One fits a volume of the class that becomes the default later.
async fn a_default_class_comes_late(cluster: &Cluster) {
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
        "provisioner": DRIVER,
    });
    cluster.create_class_with("gold", class).await;
    cluster.until_claim("found", is_bound_to("v")).await;
    cluster.until_event(is_event("made", "ExternalProvisioning")).await;
}

#[tokio::test]
async fn claims_that_wait_get_a_later_default_class_as_upstream_gives_it() {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let outcome = ends_as_with_upstream(cluster, a_default_class_comes_late).await;
    for claim in outcome.claims.values() {
        assert_eq!(claim["class"], "gold", "{outcome:#?}");
        let annotations = &claim["annotations"];
        let is_bound = annotations["pv.kubernetes.io/bind-completed"].is_string();
        let provisioner = annotations["volume.kubernetes.io/storage-provisioner"].as_str();
        assert_eq!(provisioner, (!is_bound).then_some(DRIVER), "{outcome:#?}");
    }
}

/// Creates a volume of a CSI driver; no other may have an attributes class.
async fn create_volume(cluster: &Cluster, name: &str, capacity: &str, class: Option<&str>) {
    let differs = json!({
        "capacity": {"storage": capacity},
        "hostPath": null,
        "csi": {"driver": DRIVER, "volumeHandle": name},
        "volumeAttributesClassName": class,
    });
    cluster.create_volume_with(name, differs).await;
}

/// A claim for each way in which attributes classes matter; each would otherwise get a smaller volume.
async fn claims_name_attributes_classes(cluster: &Cluster) {
    for name in ["gold", "silver"] {
        let class = json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "VolumeAttributesClass",
            "metadata": {"name": name},
            "driverName": DRIVER,
            "parameters": {"iops": "1"},
        });
        cluster.create(&class, "").await.unwrap();
    }
    for (name, capacity, class) in VOLUMES {
        create_volume(cluster, name, capacity, class).await;
        cluster.until_volume(name, is_in_phase("Available")).await;
    }
    cluster.create_claim_with("of-gold", json!({"volumeAttributesClassName": "gold"})).await;
    cluster.until_claim("of-gold", is_bound_to("gold")).await;
    // Neither this class nor this volume exists.
    cluster.create_claim_with("of-bronze", json!({"volumeAttributesClassName": "bronze"})).await;
    cluster.until_event(is_event("of-bronze", "FailedBinding")).await;
    let other = json!({"volumeName": "silver", "volumeAttributesClassName": "gold"});
    cluster.create_claim_with("names-silver", other).await;
    cluster.until_event(is_event("names-silver", "VolumeMismatch")).await;
    // Too large for the one volume without class.
    cluster.create_claim("of-none", "2Gi").await;
    cluster.until_event(is_event("of-none", "FailedBinding")).await;
    cluster.create_claim_with("of-empty", json!({"volumeAttributesClassName": ""})).await;
    cluster.until_claim("of-empty", is_bound_to("plain")).await;

    // The CSI driver acts on this change; the claim stays bound.
    let claim = "/api/v1/namespaces/default/persistentvolumeclaims/of-gold";
    cluster.patch(claim, &json!({"spec": {"volumeAttributesClassName": "silver"}})).await.unwrap();

    // There is still no such class, but a volume that names it.
    create_volume(cluster, "bronze", "3Gi", Some("bronze")).await;
    cluster.until_claim("of-bronze", is_bound_to("bronze")).await;
    cluster.until_volume("bronze", is_in_phase("Bound")).await;
}

#[tokio::test]
async fn a_claim_gets_a_volume_of_its_attributes_class_as_with_upstream() {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    if cluster.get(ATTRIBUTES_CLASSES).await.is_err() {
        // The API server drops the field, and upstream's binder of that version does not know it either.
        println!("left out: this API server has no VolumeAttributesClasses");
        return;
    }
    let outcome = ends_as_with_upstream(cluster, claims_name_attributes_classes).await;
    for (name, volume, phase, class, current_class) in [
        ("of-gold", Some("gold"), "Bound", Some("silver"), Some("gold")),
        ("of-bronze", Some("bronze"), "Bound", Some("bronze"), Some("bronze")),
        ("names-silver", Some("silver"), "Pending", Some("gold"), None),
        ("of-none", None, "Pending", None, None),
        ("of-empty", Some("plain"), "Bound", Some(""), None),
    ] {
        let fields = ["volume", "phase", "attributes class", "current attributes class"];
        let found = fields.map(|field| outcome.claims[name][field].as_str());
        assert_eq!(found, [volume, Some(phase), class, current_class], "{name}: {outcome:#?}");
    }
}
