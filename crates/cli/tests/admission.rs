//! Admission as users see it: kubectl on a real API server that asks a replica with the engine that ships.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "what was done is printed")]

#[allow(dead_code, reason = "another test file uses the rest")]
#[path = "webhook/site.rs"]
mod site;
#[allow(dead_code, reason = "another test file uses the rest")]
#[path = "serve/world.rs"]
mod world;

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::slice;

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use self::site::{Doorkeeper, Site, configuration};
use self::world::{World, is_bound_to, is_told, phase};

/// What kubectl did: whether it succeeded, and what it told the user beside what it did.
type Ended = (bool, String);

impl Site {
    /// What kubectl makes of a command, with an object on its standard input.
    fn kubectl(&self, arguments: &[&str], object: &Value) -> Ended {
        let mut kubectl = Command::new(std::env::var_os("BINDERY_KUBECTL").unwrap());
        kubectl.arg("--kubeconfig").arg(self.plane.kubeconfig()).args(arguments);
        kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = kubectl.spawn().unwrap();
        running.stdin.take().unwrap().write_all(object.to_string().as_bytes()).unwrap();
        let output = running.wait_with_output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap().trim_end().to_owned())
    }

    /// Has kubectl create an object.
    fn create(&self, object: &Value, further: &[&str]) -> Ended {
        self.kubectl(&[&["create", "--filename=-"], further].concat(), object)
    }

    /// Has kubectl merge a patch into an object.
    fn patch(&self, object: &str, patch: &Value) -> Ended {
        let patch = format!("--patch={patch}");
        self.kubectl(&["patch", object, "--type=merge", &patch], &Value::Null)
    }

    /// Has the API server ask about claims and volumes, new ones and changes, whoever makes them.
    async fn ask_about_everything(&self, doorkeeper: &Doorkeeper) {
        let mut all = configuration(&[("claims", doorkeeper.port)], None);
        let rule = &mut all["webhooks"][0]["rules"][0];
        rule["operations"] = json!(["CREATE", "UPDATE"]);
        rule["resources"] = json!(["persistentvolumeclaims", "persistentvolumes"]);
        let helm = PatchParams::apply("helm");
        self.configurations.patch("bindery", &helm, &Patch::Apply(all)).await.unwrap();
        self.until_trusted().await;
        self.until_asked(slice::from_ref(doorkeeper)).await;
    }
}

/// A cluster whose API server asks a replica about everything. The binder's own writes too: it could not bind
/// if they were refused.
async fn open() -> (Site, World, Doorkeeper) {
    let site = Site::start().await;
    let world = World::new(&site.plane).await;
    let mut doorkeeper = site.open("first", &["--certificate-name=127.0.0.1"]);
    doorkeeper.replica.until_leading().await;
    site.ask_about_everything(&doorkeeper).await;
    (site, world, doorkeeper)
}

/// A claim for so much that names a volume.
fn claim(name: &str, storage: &str, volume: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": storage}},
            "storageClassName": "",
            "volumeName": volume,
        },
    })
}

#[tokio::test]
async fn kubectl_shows_the_sentence_of_a_denial_and_of_a_warning() {
    let (site, world, mut doorkeeper) = open().await;
    world.create_volume("small", "1Gi").await;
    world.until_volume("small", |volume| phase(volume) == "Available").await;

    let offer =
        "volume \"small\" offers 1Gi and the claim asks for 2Gi; ask for at most 1Gi or pick another volume";
    let denied =
        (false, format!("The PersistentVolumeClaim \"greedy\" is invalid: spec.volumeName: {offer}"));
    assert_eq!(site.create(&claim("greedy", "2Gi", "small"), &[]), denied);
    assert_eq!(site.create(&claim("greedy", "2Gi", "small"), &["--dry-run=server"]), denied);
    // The API server makes the name before it asks.
    let mut unnamed = claim("", "2Gi", "small");
    unnamed["metadata"] = json!({"generateName": "greedy-", "namespace": "default"});
    let (succeeded, told) = site.create(&unnamed, &[]);
    assert!(!succeeded && told.contains("\"greedy-") && told.ends_with(offer), "{told}");

    // What fits is bound in silence, and then it is nobody else's.
    assert_eq!(site.create(&claim("fits", "1Gi", "small"), &[]), (true, String::new()));
    world.until_claim("fits", is_bound_to("small")).await;
    let (succeeded, told) = site.create(&claim("late", "1Gi", "small"), &[]);
    let sentence = "spec.volumeName: volume \"small\" is bound to claim \"fits\"; pick another volume";
    let beginning = "Error from server (Forbidden): error when creating \"STDIN\": admission webhook \"claims.bindery.dev\"";
    assert!(!succeeded && told.starts_with(beginning) && told.ends_with(sentence), "{told}");
    // Made once more, a claim is told what tools wait for.
    let (succeeded, told) = site.create(&claim("fits", "1Gi", "small"), &[]);
    assert!(!succeeded && told.contains("(AlreadyExists)"), "{told}");

    let warning =
        "Warning: spec.volumeName: there is no volume \"none\" yet; the claim waits until it is created";
    assert_eq!(site.create(&claim("early", "1Gi", "none"), &[]), (true, warning.to_owned()));
    let counted = "bindery_admission_reviews_total{kind=\"claim\",outcome=\"denied\"} 4\n";
    doorkeeper.replica.until_metrics(counted).await;
    assert_eq!(doorkeeper.replica.metric("bindery_admission_shed_total").await, 0);
}

/// A volume of a size, with what else its spec has.
fn volume(name: &str, storage: &str, further: &Value) -> Value {
    let mut volume = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        // Of nobody, so that it is only gone when the test says so.
        "metadata": {"name": name, "finalizers": ["bindery.test/kept"]},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": storage},
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": "/nonexistent"},
        },
    });
    volume["spec"].as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
    volume
}

#[tokio::test]
async fn a_change_and_a_volume_are_refused_where_they_introduce_what_cannot_be() {
    let (site, world, doorkeeper) = open().await;
    let quiet = (true, String::new());
    let invalid =
        |kind: &str, name: &str, why: &str| (false, format!("The {kind} \"{name}\" is invalid: {why}"));

    // A claim that waits is pointed at a volume that it cannot have.
    assert_eq!(site.create(&volume("small", "1Gi", &json!({})), &[]), quiet);
    world.create_claim("waits", "2Gi").await;
    // Both have been seen.
    world.until_volume("small", |volume| phase(volume) == "Available").await;
    world.until_event(is_told("waits", "FailedBinding")).await;
    let offer =
        "volume \"small\" offers 1Gi and the claim asks for 2Gi; ask for at most 1Gi or pick another volume";
    let denied = invalid("PersistentVolumeClaim", "waits", &format!("spec.volumeName: {offer}"));
    assert_eq!(site.patch("pvc/waits", &json!({"spec": {"volumeName": "small"}})), denied);

    // A volume is reserved for it, from the beginning or later.
    let waits = json!({"claimRef": {"namespace": "default", "name": "waits"}});
    let why = "spec.capacity.storage: the volume offers 1Gi and claim \"default/waits\" asks for 2Gi; offer at least 2Gi or leave out claimRef";
    let (succeeded, told) = site.create(&volume("reserved", "1Gi", &waits), &[]);
    assert_eq!((succeeded, told), invalid("PersistentVolume", "reserved", why));
    assert_eq!(site.patch("pv/small", &json!({"spec": waits})), invalid("PersistentVolume", "small", why));

    // A pair stays one, and its claim may grow.
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "grows"},
        "provisioner": "kubernetes.io/no-provisioner", "allowVolumeExpansion": true,
    });
    assert_eq!(site.create(&class, &[]), quiet);
    assert_eq!(site.create(&volume("large", "4Gi", &json!({"storageClassName": "grows"})), &[]), quiet);
    world.create_claim_of("grows", "bound", None).await;
    world.until_claim("bound", is_bound_to("large")).await;
    let grown = json!({"spec": {"resources": {"requests": {"storage": "8Gi"}}}});
    assert_eq!(site.patch("pvc/bound", &grown), quiet);
    let stolen = json!({"spec": {"claimRef": {"name": "waits", "uid": null}}});
    let (succeeded, told) = site.patch("pv/large", &stolen);
    assert!(!succeeded && told.contains("the volume is bound to claim \"default/bound\""), "{told}");
    // The usual recovery of a volume whose claim is gone.
    assert_eq!(site.kubectl(&["delete", "pvc/bound", "--wait=false"], &Value::Null), quiet);
    // Nobody is there who would see that no pod uses it.
    assert_eq!(site.patch("pvc/bound", &json!({"metadata": {"finalizers": null}})), quiet);
    world.until_volume("large", |volume| phase(volume) == "Released").await;
    assert_eq!(site.patch("pv/large", &json!({"spec": {"claimRef": null}})), quiet);

    // Nothing is kept from going.
    assert_eq!(site.kubectl(&["delete", "pv/small", "--wait=false"], &Value::Null), quiet);
    assert_eq!(site.patch("pv/small", &json!({"spec": waits, "metadata": {"finalizers": null}})), quiet);
    assert_eq!(doorkeeper.replica.metric("bindery_admission_shed_total").await, 0);
}
