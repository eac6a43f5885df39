//! VolumeAttributesClasses (KEP-3751): a claim gets a volume of the class that it names. The binder compares
//! the names and never asks for the classes, so it works alike where the API server does not serve them, and
//! as upstream's does.

use std::collections::{BTreeMap, BTreeSet};

use bindery_cluster::{Asked, ControlPlane, Manager, Programs, Proxy};
use http::StatusCode;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::world::{Replica, World, is_bound_to, is_told, phase};

const DRIVER: &str = "vendor.example";
/// Minor version of the first API server that serves the classes without being asked to (1.34).
const SERVED_SINCE: u32 = 34;
/// Takes them away from it: `--feature-gates` cannot since 1.36, where the gate is locked.
const NOT_SERVED: &str = "--runtime-config=storage.k8s.io/v1/volumeattributesclasses=false";
/// Name, capacity and class of the volumes that there are at first.
const VOLUMES: [(&str, &str, Option<&str>); 4] = [
    ("plain", "1Gi", None),
    ("silver", "2Gi", Some("silver")),
    ("gold", "5Gi", Some("gold")),
    ("golden", "10Gi", Some("gold")),
];

/// What a binder has made of the claims and volumes.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    claims: BTreeMap<String, ClaimOutcome>,
    /// Phase and claim of each volume.
    volumes: BTreeMap<String, (String, Option<String>)>,
    events: BTreeSet<[String; 4]>,
}

#[derive(Debug, PartialEq, Eq)]
struct ClaimOutcome {
    volume: Option<String>,
    phase: String,
    /// `spec.volumeAttributesClassName`.
    class: Option<String>,
    /// `status.currentVolumeAttributesClassName`.
    current_class: Option<String>,
}

impl From<PersistentVolumeClaim> for ClaimOutcome {
    fn from(claim: PersistentVolumeClaim) -> Self {
        let (spec, status) = (claim.spec.unwrap(), claim.status.unwrap());
        Self {
            volume: spec.volume_name,
            phase: status.phase.unwrap(),
            class: spec.volume_attributes_class_name,
            current_class: status.current_volume_attributes_class_name,
        }
    }
}

impl Outcome {
    async fn of(plane: &ControlPlane, world: &World) -> Self {
        let (client, all) = (plane.client().await.unwrap(), ListParams::default());
        let claims =
            Api::<PersistentVolumeClaim>::default_namespaced(client.clone()).list(&all).await.unwrap();
        let claims = claims.into_iter().map(|claim| (claim.metadata.name.clone().unwrap(), claim.into()));
        let volumes = Api::<PersistentVolume>::all(client).list(&all).await.unwrap();
        let volumes = volumes.into_iter().map(|volume| {
            let phase = phase(&volume).to_owned();
            let claim = volume.spec.unwrap().claim_ref.and_then(|claim| claim.name);
            (volume.metadata.name.unwrap(), (phase, claim))
        });
        Self { claims: claims.collect(), volumes: volumes.collect(), events: world.told().await }
    }
}

/// Creates a volume of a CSI driver, since no other may have a class of attributes.
async fn create_volume(world: &World, name: &str, capacity: &str, class: Option<&str>) {
    let differs = json!({
        "capacity": {"storage": capacity},
        "hostPath": null,
        "csi": {"driver": DRIVER, "volumeHandle": name},
        "volumeAttributesClassName": class,
    });
    world.create_volume_with(name, differs).await;
}

/// Creates the first volumes, and ends when a claim would find them.
async fn create_volumes(world: &World) {
    for (name, capacity, class) in VOLUMES {
        create_volume(world, name, capacity, class).await;
        world.until_volume(name, |volume| phase(volume) == "Available").await;
    }
}

async fn create_classes(plane: &ControlPlane) {
    let classes = Api::<VolumeAttributesClass>::all(plane.client().await.unwrap());
    for name in ["gold", "silver"] {
        let class = json!({"metadata": {"name": name}, "driverName": DRIVER, "parameters": {"iops": "1"}});
        classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
    }
}

/// A claim for each way in which classes of attributes matter. Each would get a smaller volume if they did
/// not.
async fn story(plane: &ControlPlane) -> Outcome {
    let world = World::new(plane).await;
    create_classes(plane).await;
    create_volumes(&world).await;
    world.create_claim_with("of-gold", json!({"volumeAttributesClassName": "gold"})).await;
    world.until_claim("of-gold", is_bound_to("gold")).await;
    // There is no such class and no such volume.
    world.create_claim_with("of-bronze", json!({"volumeAttributesClassName": "bronze"})).await;
    world.until_event(is_told("of-bronze", "FailedBinding")).await;
    let other = json!({"volumeName": "silver", "volumeAttributesClassName": "gold"});
    world.create_claim_with("names-silver", other).await;
    world.until_event(is_told("names-silver", "VolumeMismatch")).await;
    // Too large for the one volume without class.
    world.create_claim("of-none", "2Gi").await;
    world.until_event(is_told("of-none", "FailedBinding")).await;
    world.create_claim_with("of-empty", json!({"volumeAttributesClassName": ""})).await;
    world.until_claim("of-empty", is_bound_to("plain")).await;

    // What follows is the CSI driver's to do: a claim that is bound stays so.
    let change = Patch::Merge(json!({"spec": {"volumeAttributesClassName": "silver"}}));
    let claims = Api::<PersistentVolumeClaim>::default_namespaced(plane.client().await.unwrap());
    claims.patch("of-gold", &PatchParams::default(), &change).await.unwrap();

    // Still there is no such class, but a volume that names it.
    create_volume(&world, "bronze", "3Gi", Some("bronze")).await;
    world.until_claim("of-bronze", is_bound_to("bronze")).await;
    world.until_volume("bronze", |volume| phase(volume) == "Bound").await;
    Outcome::of(plane, &world).await
}

/// What has to become of the claims: name, volume, phase, class, and the class of the volume when it was
/// bound.
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
        let (volume, class, current_class) = (owned(volume), owned(class), owned(current_class));
        (name.to_owned(), ClaimOutcome { volume, phase: phase.to_owned(), class, current_class })
    });
    BTreeMap::from(outcomes)
}

/// Fails where a replica has asked for the classes, or which kinds there are: it needs neither.
fn assert_not_asked_for(asked: &[Asked], replica: &Replica) {
    let is_discovery = |path: &str| ["/api", "/apis", "/apis/storage.k8s.io/v1"].contains(&path);
    let about_classes = |path: &str| path.contains("volumeattributesclasses") || is_discovery(path);
    let asked: Vec<_> = asked.iter().filter(|asked| about_classes(&asked.path)).collect();
    assert!(asked.is_empty(), "{asked:#?}\n{}", replica.log());
}

/// Whether the API server has the classes unless they are taken away from it.
async fn has_classes(plane: &ControlPlane) -> bool {
    let version = plane.client().await.unwrap().apiserver_version().await.unwrap();
    let minor: String = version.minor.chars().take_while(char::is_ascii_digit).collect();
    minor.parse::<u32>().unwrap() >= SERVED_SINCE
}

#[tokio::test]
async fn a_claim_gets_a_volume_of_its_attributes_class_as_upstream_gives_it() {
    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::WithoutBinder).await.unwrap();
    if !has_classes(&plane).await {
        // The API server drops the field, and upstream's binder of that version does not know it either.
        println!("left out: this API server has no VolumeAttributesClasses");
        return;
    }
    let proxy = Proxy::start(&plane).await.unwrap();
    let replica = Replica::start_with(&proxy.kubeconfig(), "first", &[], &[]);
    let outcome = story(&plane).await;
    assert_eq!(outcome.claims, expected(), "{outcome:#?}\n{}", replica.log());
    assert_not_asked_for(&proxy.take_asked(), &replica);
    drop((replica, proxy, plane));

    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::BinderAlone).await.unwrap();
    let upstreams = story(&plane).await;
    assert_eq!(outcome, upstreams);
}

#[tokio::test]
async fn a_replica_does_without_attributes_classes_where_the_api_server_has_none() {
    let programs = Programs::from_env().unwrap();
    let plane = ControlPlane::start_with(programs, Manager::Off, &[NOT_SERVED]).await.unwrap();
    let classes = Api::<VolumeAttributesClass>::all(plane.client().await.unwrap());
    match classes.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        served => panic!("the API server has them: {served:?}"),
    }
    let (world, proxy) = (World::new(&plane).await, Proxy::start(&plane).await.unwrap());
    let mut replica = Replica::start_with(&proxy.kubeconfig(), "first", &[], &[]);
    replica.until_leading().await;
    create_volumes(&world).await;
    world.create_claim("of-none", "1Gi").await;
    world.until_claim("of-none", is_bound_to("plain")).await;
    // API servers from 1.34 on keep the name though they do not serve the class; older ones drop it.
    world.create_claim_with("of-gold", json!({"volumeAttributesClassName": "gold"})).await;
    let class = world.until_claim("of-gold", |_| true).await.spec.unwrap().volume_attributes_class_name;
    let smallest = if class.is_some() { "gold" } else { "silver" };
    world.until_claim("of-gold", is_bound_to(smallest)).await;

    assert_eq!(replica.probe("/readyz").await, (StatusCode::OK, "ok".to_owned()));
    assert_eq!(replica.metric("bindery_watch_failures_total").await, 0, "{}", replica.log());
    assert_not_asked_for(&proxy.take_asked(), &replica);
}
