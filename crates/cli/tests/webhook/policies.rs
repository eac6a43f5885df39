//! Policies and engines that cannot work are refused as they are applied.

use bindery_cluster::poll;
use bindery_kit::{OciRegistry, RegistrySettings, json};
use bindery_registry::{Access, Artifact, Reference, Registry, Timeouts, push};
use futures::future::join_all;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::webhooks::{ON_LOOPBACK, WebhookReplica, Webhooks, configuration};

/// A cluster whose API server has policies and engines reviewed.
async fn start() -> (Webhooks, WebhookReplica) {
    let webhooks = Webhooks::start().await;
    webhooks.cluster.policies().install().await;
    let shipped = std::env::var("BINDERY_POLICIES").expect("`cargo xtask test` builds the policies");
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("filed.yaml");
    std::fs::write(&file, json::policy("MatchPolicy", "filed", &at_most(json!(9))).to_string()).unwrap();
    let file = format!("--policy={}", file.display());
    let further = [ON_LOOPBACK, "--policy-objects=true", "--policies", &shipped, &file];
    let mut webhook = webhooks.replica("first", &further);
    webhook.replica.until_leading().await;
    let mut both = configuration(&[("claims", webhook.port), ("policies", webhook.port)], None);
    let policies = &mut both["webhooks"][1];
    policies["clientConfig"]["url"] = json!(format!("https://127.0.0.1:{}/validate-policy", webhook.port));
    policies["rules"][0] = json!({
        "apiGroups": ["policy.bindery.dev"],
        "apiVersions": ["v1alpha1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["engines", "matchpolicies", "reclaimpolicies"],
    });
    webhooks.apply_as_helm(both).await.unwrap();
    webhooks.until_trusted().await;
    webhooks.until_called(&[&webhook]).await;
    (webhooks, webhook)
}

/// The spec of a policy that rejects volumes of more than so many times the request.
fn at_most(times: Value) -> Value {
    json!({"module": "builtin:at-most-n-times", "settings": {"times": times}})
}

#[tokio::test]
async fn an_apply_that_cannot_work_says_so_and_stores_nothing() {
    let (webhooks, mut webhook) = start().await;
    let apply = |object: &Value| webhooks.create(object, &[]);
    let valid = json::policy("MatchPolicy", "size", &at_most(json!(2)));
    // Until the module is compiled, a review can only warn.
    let is_taken =
        async || (webhooks.create(&valid, &["--dry-run=server"]) == (true, String::new())).then_some(());
    poll(is_taken).await.expect("the policy is taken without a warning");
    let (succeeded, message) = apply(&json::policy("MatchPolicy", "size", &at_most(json!("many"))));
    let told = "The MatchPolicy \"size\" is invalid: spec.settings: ";
    assert!(!succeeded && message.contains(told) && message.contains("times"), "{message}");
    let sampled = json::merged(valid.clone(), json!({"spec": {"samplePercent": 50}}));
    let (succeeded, message) = webhooks.create(&sampled, &["--dry-run=server"]);
    let told = "Warning: spec.samplePercent has no effect in mode enforce";
    assert!(succeeded && message.starts_with(told), "{message}");
    assert_eq!(apply(&valid), (true, String::new()));
    let policies = webhooks.cluster.policies();
    policies.until_ready("MatchPolicy", "size", "Loaded").await;

    // The stored object has a status.
    policies.apply("MatchPolicy", "size", at_most(json!(3))).await;
    let many = Patch::Merge(json!({"spec": at_most(json!("many"))}));
    let refused = policies.of("MatchPolicy").patch("size", &PatchParams::default(), &many).await.unwrap_err();
    assert!(refused.to_string().contains("spec.settings: "), "{refused}");

    let (succeeded, message) =
        apply(&json::policy("ReclaimPolicy", "size", &json!({"module": "builtin:keep-labelled"})));
    assert!(
        !succeeded && message.ends_with("MatchPolicy has the name \"size\": give this one another name"),
        "{message}"
    );
    let (succeeded, message) = apply(&json::policy("MatchPolicy", "filed", &at_most(json!(2))));
    let told = "a policy in a file of Bindery has the name \"filed\": give this one another name";
    assert!(!succeeded && message.ends_with(told), "{message}");
    let (succeeded, message) = apply(&json::policy("ReclaimPolicy", "keep", &at_most(json!(2))));
    assert!(!succeeded && message.contains("spec.module is a matcher"), "{message}");
    let missing = json!({"module": "configmap:default/modules/size.wasm"});
    let (succeeded, message) = apply(&json::policy("MatchPolicy", "later", &missing));
    assert!(
        succeeded && message.starts_with("Warning: ConfigMap default/modules cannot be read"),
        "{message}"
    );

    let engine = json!({"module": std::env::var("BINDERY_EXAMPLE_ENGINE").unwrap()});
    // A review reads no file that an object names.
    let (succeeded, message) = apply(&json::policy("Engine", "first", &engine));
    assert!(succeeded && message.starts_with("Warning: its module is a file, "), "{message}");
    webhooks.cluster.policies().until_ready("Engine", "first", "Loaded").await;
    let (succeeded, message) = apply(&json::policy("Engine", "second", &engine));
    let told = "spec.mode: Engine \"first\" is in effect: set that one to off first";
    assert!(!succeeded && message.ends_with(told), "{message}");
    webhook.replica.terminate().await;
}

#[tokio::test]
async fn an_object_over_the_limit_is_refused_until_another_is_off() {
    const MAX: usize = 256;
    let (webhooks, mut webhook) = start().await;
    let policies = webhooks.cluster.policies();
    // An object whose module is missing counts too.
    let missing = json!({"module": "configmap:default/modules/size.wasm"});
    let names: Vec<_> = (0..MAX).map(|number| format!("p{number}")).collect();
    for names in names.chunks(16) {
        join_all(names.iter().map(|name| policies.apply("MatchPolicy", name, missing.clone()))).await;
    }
    let more = json::policy("MatchPolicy", "more", &missing);
    let create = || webhooks.create(&more, &["--dry-run=server"]);
    let told =
        format!("more than {MAX} objects of the kinds MatchPolicy, ReclaimPolicy and Engine are not off");
    let is_refused = async || matches!(create(), (false, message) if message.contains(&told)).then_some(());
    poll(is_refused).await.expect("the object is refused");
    let off = Patch::Merge(json!({"spec": {"mode": "off"}}));
    policies.of("MatchPolicy").patch("p0", &PatchParams::default(), &off).await.unwrap();
    poll(async || create().0.then_some(())).await.expect("the object is taken");
    webhook.replica.terminate().await;
}

#[tokio::test]
async fn settings_of_a_registrys_module_are_reviewed_once_it_is_fetched() {
    let (webhooks, mut webhook) = start().await;
    let registry = OciRegistry::start(RegistrySettings::default());
    let reference: Reference = format!("oci://{}/size:1", registry.host()).parse().unwrap();
    let client = Registry::new(None, None, Timeouts::default()).unwrap();
    let remote = client.repository(&reference, Access::Push).unwrap();
    let shipped = std::env::var("BINDERY_POLICIES").expect("`cargo xtask test` builds the policies");
    let module = std::fs::read(format!("{shipped}/at-most-n-times.wasm")).unwrap();
    let artifact = Artifact { module, ..Artifact::default() };
    let module = reference.with_digest(push(&remote, &artifact, Some("1")).await.unwrap()).to_string();
    let of_registry = |times: Value| json::merged(at_most(times), json!({"module": module}));
    let review = |times: Value| {
        let object = json::policy("MatchPolicy", "later", &of_registry(times));
        webhooks.create(&object, &["--dry-run=server"])
    };
    let (succeeded, message) = review(json!("many"));
    let told = format!("Warning: {module} is not fetched yet");
    assert!(succeeded && message.starts_with(&told), "{message}");

    let policies = webhooks.cluster.policies();
    policies.apply("MatchPolicy", "size", of_registry(json!(2))).await;
    policies.until_ready("MatchPolicy", "size", "Loaded").await;
    let (succeeded, message) = review(json!("many"));
    let told = "The MatchPolicy \"later\" is invalid: spec.settings: ";
    assert!(!succeeded && message.contains(told) && message.contains("times"), "{message}");
    webhook.replica.terminate().await;
}
