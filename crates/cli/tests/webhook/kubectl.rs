//! Reviews as users of kubectl see them, with the engine that ships.

use bindery_cluster::{LATE_BODY, is_bound_to, is_event, is_in_phase};
use bindery_kit::json;
use serde_json::{Value, json};

use super::webhooks::{ON_LOOPBACK, WebhookReplica, Webhooks, configuration};

/// Whether kubectl succeeded, and its standard error.
type Ended = (bool, String);

impl Webhooks {
    /// Runs kubectl with an object on its standard input. It tries again if [`LATE_BODY`].
    fn kubectl(&self, arguments: &[&str], object: &Value) -> Ended {
        loop {
            let output = self.cluster.kubectl(arguments, &object.to_string());
            let said = String::from_utf8(output.stderr).unwrap();
            if !said.contains(LATE_BODY) {
                return (output.status.success(), said.trim_end().to_owned());
            }
        }
    }

    pub(crate) fn create(&self, object: &Value, further: &[&str]) -> Ended {
        self.kubectl(&[&["create", "--filename=-"], further].concat(), object)
    }

    fn patch(&self, object: &str, patch: &Value) -> Ended {
        let patch = format!("--patch={patch}");
        self.kubectl(&["patch", object, "--type=merge", &patch], &Value::Null)
    }

    /// Configures the webhook for the creation and change of claims and volumes.
    async fn review_everything(&self, webhook: &WebhookReplica) {
        let mut all = configuration(&[("claims", webhook.port)], None);
        let rule = &mut all["webhooks"][0]["rules"][0];
        rule["operations"] = json!(["CREATE", "UPDATE"]);
        rule["resources"] = json!(["persistentvolumeclaims", "persistentvolumes"]);
        self.apply_as_helm(all).await.unwrap();
        self.until_trusted().await;
        self.until_called(&[webhook]).await;
    }
}

/// A cluster whose API server sends everything for review, including the binder's own writes.
async fn start() -> (Webhooks, WebhookReplica) {
    let webhooks = Webhooks::start().await;
    let mut webhook = webhooks.replica("first", &[ON_LOOPBACK]);
    webhook.replica.until_leading().await;
    webhooks.review_everything(&webhook).await;
    (webhooks, webhook)
}

fn claim(name: &str, storage: &str, volume: &str) -> Value {
    let resources = json!({"requests": {"storage": storage}});
    json::claim(name, json!({"spec": {"resources": resources, "volumeName": volume}}))
}

#[tokio::test]
async fn kubectl_shows_the_message_of_a_denial_and_of_a_warning() {
    let (webhooks, mut webhook) = start().await;
    webhooks.cluster.create_available_volume("small", "1Gi").await;

    let offer =
        "volume \"small\" offers 1Gi and the claim asks for 2Gi; ask for at most 1Gi or pick another volume";
    let denied =
        (false, format!("The PersistentVolumeClaim \"greedy\" is invalid: spec.volumeName: {offer}"));
    assert_eq!(webhooks.create(&claim("greedy", "2Gi", "small"), &[]), denied);
    assert_eq!(webhooks.create(&claim("greedy", "2Gi", "small"), &["--dry-run=server"]), denied);
    // The API server generates the name before the review.
    let mut unnamed = claim("", "2Gi", "small");
    unnamed["metadata"] = json!({"generateName": "greedy-", "namespace": "default"});
    let (succeeded, message) = webhooks.create(&unnamed, &[]);
    assert!(!succeeded && message.contains("\"greedy-") && message.ends_with(offer), "{message}");

    // A claim that fits is bound without a warning, and its volume is denied to others.
    assert_eq!(webhooks.create(&claim("fits", "1Gi", "small"), &[]), (true, String::new()));
    webhooks.cluster.until_claim("fits", is_bound_to("small")).await;
    let (succeeded, message) = webhooks.create(&claim("late", "1Gi", "small"), &[]);
    let sentence = "spec.volumeName: volume \"small\" is bound to claim \"fits\"; pick another volume";
    let beginning = "Error from server (Forbidden): error when creating \"STDIN\": admission webhook \
        \"claims.bindery.dev\"";
    assert!(!succeeded && message.starts_with(beginning) && message.ends_with(sentence), "{message}");
    // A claim that exists is answered with AlreadyExists, which tools expect.
    let (succeeded, message) = webhooks.create(&claim("fits", "1Gi", "small"), &[]);
    assert!(!succeeded && message.contains("(AlreadyExists)"), "{message}");

    let warning =
        "Warning: spec.volumeName: there is no volume \"none\" yet; the claim waits until it is created";
    assert_eq!(webhooks.create(&claim("early", "1Gi", "none"), &[]), (true, warning.to_owned()));
    let counted = "bindery_admission_reviews_total{kind=\"claim\",outcome=\"denied\"} 4\n";
    webhook.replica.until_metrics(counted).await;
    assert_eq!(webhook.replica.metric("bindery_admission_shed_total").await, 0);
}

/// A volume with further fields of its spec. Its finalizer keeps it until the test removes that.
fn volume(name: &str, storage: &str, further: Value) -> Value {
    let change = json!({
        "metadata": {"finalizers": ["bindery.test/kept"]},
        "spec": {"capacity": {"storage": storage}},
    });
    json::merged(json::volume(name, change), json!({"spec": further}))
}

#[tokio::test]
async fn a_change_or_volume_that_introduces_a_conflict_is_denied() {
    let (webhooks, webhook) = start().await;
    let quiet = (true, String::new());
    let invalid =
        |kind: &str, name: &str, why: &str| (false, format!("The {kind} \"{name}\" is invalid: {why}"));

    // A claim that waits gets the name of a volume that does not fit.
    assert_eq!(webhooks.create(&volume("small", "1Gi", json!({})), &[]), quiet);
    webhooks.cluster.create_claim("waits", "2Gi").await;
    // Both are in the cache.
    webhooks.cluster.until_volume("small", is_in_phase("Available")).await;
    webhooks.cluster.until_event(is_event("waits", "FailedBinding")).await;
    let offer =
        "volume \"small\" offers 1Gi and the claim asks for 2Gi; ask for at most 1Gi or pick another volume";
    let denied = invalid("PersistentVolumeClaim", "waits", &format!("spec.volumeName: {offer}"));
    assert_eq!(webhooks.patch("pvc/waits", &json!({"spec": {"volumeName": "small"}})), denied);

    // A volume is reserved for that claim, at its creation or later.
    let waits = json!({"claimRef": {"namespace": "default", "name": "waits"}});
    let why = "spec.capacity.storage: the volume offers 1Gi and claim \"default/waits\" asks for 2Gi; \
        offer at least 2Gi or leave out claimRef";
    let (succeeded, message) = webhooks.create(&volume("reserved", "1Gi", waits.clone()), &[]);
    assert_eq!((succeeded, message), invalid("PersistentVolume", "reserved", why));
    assert_eq!(
        webhooks.patch("pv/small", &json!({"spec": waits})),
        invalid("PersistentVolume", "small", why)
    );

    // A bound claim may grow, and its volume stays its own.
    let class = json::class("grows", "kubernetes.io/no-provisioner", json!({"allowVolumeExpansion": true}));
    assert_eq!(webhooks.create(&class, &[]), quiet);
    assert_eq!(webhooks.create(&volume("large", "4Gi", json!({"storageClassName": "grows"})), &[]), quiet);
    webhooks.cluster.create_claim_of("grows", "bound", None).await;
    webhooks.cluster.until_claim("bound", is_bound_to("large")).await;
    let grown = json!({"spec": {"resources": {"requests": {"storage": "8Gi"}}}});
    assert_eq!(webhooks.patch("pvc/bound", &grown), quiet);
    let stolen = json!({"spec": {"claimRef": {"name": "waits", "uid": null}}});
    let (succeeded, message) = webhooks.patch("pv/large", &stolen);
    assert!(!succeeded && message.contains("the volume is bound to claim \"default/bound\""), "{message}");
    // The usual recovery of a volume whose claim is gone.
    assert_eq!(webhooks.kubectl(&["delete", "pvc/bound", "--wait=false"], &Value::Null), quiet);
    // No controller removes the finalizer.
    assert_eq!(webhooks.patch("pvc/bound", &json!({"metadata": {"finalizers": null}})), quiet);
    webhooks.cluster.until_volume("large", is_in_phase("Released")).await;
    assert_eq!(webhooks.patch("pv/large", &json!({"spec": {"claimRef": null}})), quiet);

    // Deletions are allowed.
    assert_eq!(webhooks.kubectl(&["delete", "pv/small", "--wait=false"], &Value::Null), quiet);
    assert_eq!(webhooks.patch("pv/small", &json!({"spec": waits, "metadata": {"finalizers": null}})), quiet);
    assert_eq!(webhook.replica.metric("bindery_admission_shed_total").await, 0);
}
