//! VolumeAttributesClasses (KEP-3751): a claim gets a volume of the class that it names, as with upstream.
//! The binder compares the names and never reads the classes, so it needs no API server that serves them.

use std::collections::{BTreeMap, BTreeSet};

use bindery_cluster::{Cluster, Manager, Replica, Request, is_bound_to, is_event, is_in_phase, phase};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

const DRIVER: &str = "vendor.example";
/// Minor version of the first API server that serves the classes by default.
const SERVED_SINCE: u32 = 34;
/// Disables them; since 1.36 the feature gate is locked.
const NOT_SERVED: &str = "--runtime-config=storage.k8s.io/v1/volumeattributesclasses=false";
/// Name, capacity and class of the first volumes.
const VOLUMES: [(&str, &str, Option<&str>); 4] = [
    ("plain", "1Gi", None),
    ("silver", "2Gi", Some("silver")),
    ("gold", "5Gi", Some("gold")),
    ("golden", "10Gi", Some("gold")),
];

/// The claims, volumes and events in the end.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    claims: BTreeMap<String, ClaimOutcome>,
    /// Phase and claim of each volume.
    volumes: BTreeMap<String, (String, Option<String>)>,
    events: BTreeSet<[String; 4]>,
}

/// Volume, phase, `spec.volumeAttributesClassName` and `status.currentVolumeAttributesClassName` of a claim.
type ClaimOutcome = (Option<String>, String, Option<String>, Option<String>);

impl Outcome {
    async fn of(cluster: &Cluster) -> Self {
        let claims = cluster.claims.list(&ListParams::default()).await.unwrap().into_iter().map(|claim| {
            let (spec, status) = (claim.spec.unwrap(), claim.status.unwrap());
            let classes = (spec.volume_attributes_class_name, status.current_volume_attributes_class_name);
            (claim.metadata.name.unwrap(), (spec.volume_name, status.phase.unwrap(), classes.0, classes.1))
        });
        let volumes = cluster.volumes.list(&ListParams::default()).await.unwrap().into_iter().map(|volume| {
            let phase = phase(&volume).to_owned();
            let claim = volume.spec.unwrap().claim_ref.and_then(|claim| claim.name);
            (volume.metadata.name.unwrap(), (phase, claim))
        });
        Self { claims: claims.collect(), volumes: volumes.collect(), events: cluster.events().await }
    }
}

/// Creates a volume of a CSI driver; no other may have a class of attributes.
async fn create_volume(cluster: &Cluster, name: &str, capacity: &str, class: Option<&str>) {
    let differs = json!({
        "capacity": {"storage": capacity},
        "hostPath": null,
        "csi": {"driver": DRIVER, "volumeHandle": name},
        "volumeAttributesClassName": class,
    });
    cluster.create_volume_with(name, differs).await;
}

/// Creates the first volumes, and waits until they are available.
async fn create_volumes(cluster: &Cluster) {
    for (name, capacity, class) in VOLUMES {
        create_volume(cluster, name, capacity, class).await;
        cluster.until_volume(name, is_in_phase("Available")).await;
    }
}

async fn create_classes(cluster: &Cluster) {
    let classes = Api::<VolumeAttributesClass>::all(cluster.client.clone());
    for name in ["gold", "silver"] {
        let class = json!({"metadata": {"name": name}, "driverName": DRIVER, "parameters": {"iops": "1"}});
        classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
    }
}

/// A claim for each way in which attributes classes matter; each would otherwise get a smaller volume.
async fn story(cluster: &Cluster) -> Outcome {
    create_classes(cluster).await;
    create_volumes(cluster).await;
    cluster.create_claim_with("of-gold", json!({"volumeAttributesClassName": "gold"})).await;
    cluster.until_claim("of-gold", is_bound_to("gold")).await;
    // There is no such class and no such volume.
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
    let change = Patch::Merge(json!({"spec": {"volumeAttributesClassName": "silver"}}));
    cluster.claims.patch("of-gold", &PatchParams::default(), &change).await.unwrap();

    // There is still no such class, but a volume that names it.
    create_volume(cluster, "bronze", "3Gi", Some("bronze")).await;
    cluster.until_claim("of-bronze", is_bound_to("bronze")).await;
    cluster.until_volume("bronze", is_in_phase("Bound")).await;
    Outcome::of(cluster).await
}

/// The expected claims: name, volume, phase, class, and current class.
fn expected() -> BTreeMap<String, ClaimOutcome> {
    let claims = [
        ("of-gold", Some("gold"), "Bound", Some("silver"), Some("gold")),
        ("of-bronze", Some("bronze"), "Bound", Some("bronze"), Some("bronze")),
        ("names-silver", Some("silver"), "Pending", Some("gold"), None),
        ("of-none", None, "Pending", None, None),
        ("of-empty", Some("plain"), "Bound", Some(""), None),
    ];
    let owned = |text: Option<&str>| text.map(str::to_owned);
    let outcomes = claims.map(|(name, volume, phase, class, current_class)| {
        (name.to_owned(), (owned(volume), phase.to_owned(), owned(class), owned(current_class)))
    });
    BTreeMap::from(outcomes)
}

/// Checks that a replica made no request for the classes, nor for API discovery.
fn assert_not_requested(requests: &[Request], replica: &Replica) {
    let is_discovery = |path: &str| ["/api", "/apis", "/apis/storage.k8s.io/v1"].contains(&path);
    let about_classes = |path: &str| path.contains("volumeattributesclasses") || is_discovery(path);
    let found: Vec<_> = requests.iter().filter(|request| about_classes(&request.path)).collect();
    assert!(found.is_empty(), "{found:#?}\n{}", replica.log());
}

/// Whether the API server serves the classes by default.
async fn has_classes(cluster: &Cluster) -> bool {
    let version = cluster.client.apiserver_version().await.unwrap();
    let minor: String = version.minor.chars().take_while(char::is_ascii_digit).collect();
    minor.parse::<u32>().unwrap() >= SERVED_SINCE
}

#[tokio::test]
async fn a_claim_gets_a_volume_of_its_attributes_class_as_with_upstream() {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    if !has_classes(&cluster).await {
        // The API server drops the field, and upstream's binder of that version does not know it either.
        println!("left out: this API server has no VolumeAttributesClasses");
        return;
    }
    let proxy = cluster.proxy().await;
    let replica = Replica::behind(&proxy, "first", &[]);
    let outcome = story(&cluster).await;
    assert_eq!(outcome.claims, expected(), "{outcome:#?}\n{}", replica.log());
    assert_not_requested(&proxy.take_requests(), &replica);
    drop((replica, proxy, cluster));

    let cluster = Cluster::start(Manager::BinderAlone).await;
    let upstreams = story(&cluster).await;
    assert_eq!(outcome, upstreams);
}

#[tokio::test]
async fn a_replica_needs_no_api_server_with_attributes_classes() {
    let cluster = Cluster::start_with(Manager::Off, &[NOT_SERVED]).await;
    let classes = Api::<VolumeAttributesClass>::all(cluster.client.clone());
    match classes.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        served => panic!("the API server has them: {served:?}"),
    }
    let proxy = cluster.proxy().await;
    let mut replica = Replica::behind(&proxy, "first", &[]);
    replica.until_leading().await;
    create_volumes(&cluster).await;
    cluster.create_claim("of-none", "1Gi").await;
    cluster.until_claim("of-none", is_bound_to("plain")).await;
    // API servers from 1.34 on keep the name without the class; older ones drop it.
    cluster.create_claim_with("of-gold", json!({"volumeAttributesClassName": "gold"})).await;
    let class = cluster.until_claim("of-gold", |_| true).await.spec.unwrap().volume_attributes_class_name;
    let smallest = if class.is_some() { "gold" } else { "silver" };
    cluster.until_claim("of-gold", is_bound_to(smallest)).await;

    replica.until_ready().await;
    assert_eq!(replica.metric("bindery_watch_failures_total").await, 0, "{}", replica.log());
    assert_not_requested(&proxy.take_requests(), &replica);
}
