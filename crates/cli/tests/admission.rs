//! Admission as users see it: kubectl on a real API server that asks a replica with the engine that ships.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "what was done is printed")]

#[allow(dead_code, reason = "another test file uses the rest")]
#[path = "door/site.rs"]
mod site;
#[allow(dead_code, reason = "another test file uses the rest")]
#[path = "serve/world.rs"]
mod world;

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use self::site::Site;
use self::world::{World, is_bound_to, phase};

/// What kubectl did: whether it succeeded, and what it told the user beside what it did.
type Ended = (bool, String);

impl Site {
    /// Has kubectl create an object.
    fn create(&self, object: &Value, further: &[&str]) -> Ended {
        let mut kubectl = Command::new(std::env::var_os("BINDERY_KUBECTL").unwrap());
        kubectl
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig())
            .args(["create", "--filename=-"])
            .args(further);
        kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = kubectl.spawn().unwrap();
        running.stdin.take().unwrap().write_all(object.to_string().as_bytes()).unwrap();
        let output = running.wait_with_output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap().trim_end().to_owned())
    }
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
    let site = Site::start().await;
    let world = World::new(&site.plane).await;
    let mut doorkeeper = site.open("first", &["--certificate-name=127.0.0.1"]);
    site.apply(&[("claims", doorkeeper.port)]).await.unwrap();
    site.until_trusted().await;
    doorkeeper.replica.until_leading().await;
    site.until_asked().await;
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

    let warning = "Warning: spec.volumeName: there is no volume \"none\" yet; the claim waits until somebody creates it";
    assert_eq!(site.create(&claim("early", "1Gi", "none"), &[]), (true, warning.to_owned()));
    let counted = "bindery_admission_reviews_total{kind=\"claim\",outcome=\"denied\"} 4\n";
    doorkeeper.replica.until_metrics(counted).await;
    assert_eq!(doorkeeper.replica.metric("bindery_admission_shed_total").await, 0);
}
