//! Modules of cluster objects that come from a registry, or are kept as if, on a real API server.

use std::process::{Command, Output};

use bindery_cluster::{Cluster, Manager, PolicyApi, Replica, condition, poll};
use bindery_kit::{Authority, OciRegistry, RegistrySettings, Reply, json};
use bindery_registry::{
    Access, Artifact, Credentials, Extra, Format, Reference, Registry, Remote, SigningKey, Timeouts, push,
    sign,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use rcgen::KeyPair;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::policy_objects::{modules, shipped, until_rejected};

const CREDENTIALS: (&str, &str) = ("ann", "secret");

/// A registry with a cluster beside it.
pub(crate) struct World {
    pub(crate) registry: OciRegistry,
    pub(crate) cluster: Cluster,
    pub(crate) policies: PolicyApi,
    folder: TempDir,
    key: SigningKey,
}

impl World {
    pub(crate) async fn new() -> Self {
        let cluster = Cluster::start(Manager::WithoutBinder).await;
        let policies = cluster.policies();
        policies.install().await;
        let folder = tempfile::tempdir().unwrap();
        let pair = KeyPair::generate().unwrap();
        std::fs::write(folder.path().join("ours.pub"), pair.public_key_pem()).unwrap();
        let other = KeyPair::generate().unwrap();
        std::fs::write(folder.path().join("other.pub"), other.public_key_pem()).unwrap();
        let key = SigningKey::read(pair.serialize_pem().as_bytes(), None).unwrap();
        let settings = RegistrySettings { token_for: Some(CREDENTIALS), ..Default::default() };
        let registry = OciRegistry::start(settings);
        let auths = json!({"auths": {registry.host(): {"auth": "YW5uOnNlY3JldA=="}}});
        std::fs::write(folder.path().join("config.json"), auths.to_string()).unwrap();
        Self { registry, cluster, policies, folder, key }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    pub(crate) fn start(&self, identity: &str, key: &str) -> Replica {
        self.start_with(identity, key, &[])
    }

    fn start_with(&self, identity: &str, key: &str, further: &[&str]) -> Replica {
        let shipped = std::env::var("BINDERY_POLICIES").expect("`cargo xtask test` builds the policies");
        let (credentials, cache) = (self.path("config.json"), self.path("cache"));
        let flags = [
            "--policy-objects=true",
            "--policies",
            &shipped,
            "--registry-key",
            key,
            "--registry-auth",
            &credentials,
            "--engine-cache",
            &cache,
        ];
        self.cluster.replica_with(identity, &[&flags[..], further].concat())
    }

    /// Moves the module of a shipped policy to a storage with TLS, to which the registry redirects; returns
    /// that and its authority.
    fn redirect(&self, name: &str) -> (OciRegistry, Authority) {
        let authority = Authority::new();
        let certificate = Some(authority.server("localhost"));
        let storage = OciRegistry::start(RegistrySettings { certificate, ..Default::default() });
        storage.put_blob(&shipped(name));
        self.registry.redirect_blobs(&storage);
        (storage, authority)
    }

    /// Pushes a shipped policy with files of golden cases; returns its reference.
    async fn push(&self, name: &str, cases: &[Extra]) -> (Reference, Remote) {
        self.push_to(&self.registry, name, cases).await
    }

    /// As [`World::push`], and signed.
    pub(crate) async fn push_signed(&self, name: &str, cases: &[Extra]) -> Reference {
        let (reference, remote) = self.push(name, cases).await;
        sign(&remote, &reference, &self.key, Format::Bundle).await.unwrap();
        reference
    }

    /// As [`World::push`], to another registry.
    async fn push_to(&self, registry: &OciRegistry, name: &str, cases: &[Extra]) -> (Reference, Remote) {
        let reference: Reference = format!("oci://{}/team/{name}:1", registry.host()).parse().unwrap();
        let credentials = Credentials::File(self.path("config.json").into());
        let client = Registry::new(None, Some(credentials), Timeouts::default()).unwrap();
        let remote = client.repository(&reference, Access::Push).unwrap();
        let artifact = Artifact { module: shipped(name), cases: cases.to_vec(), ..Artifact::default() };
        let digest = push(&remote, &artifact, Some("1")).await.unwrap();
        (reference.with_digest(digest), remote)
    }

    async fn apply(&self, module: &Reference, times: u32) {
        self.apply_with(module, times, json!({})).await;
    }

    async fn apply_with(&self, module: &Reference, times: u32, pull: Value) {
        let spec = json!({"module": module.to_string(), "settings": {"times": times}, "pull": pull});
        self.policies.apply("MatchPolicy", "size", spec).await;
    }

    /// Applies the policy, and waits until it cannot be fetched for this reason.
    async fn until_not_fetched(&self, module: &Reference, pull: Value, why: &str) {
        self.apply_with(module, 2, pull).await;
        let mut last = Value::Null;
        let told = poll(async || {
            last = self.policies.until_ready("MatchPolicy", "size", "ModuleUnavailable").await;
            message(&last, "Ready").contains(why).then_some(())
        });
        told.await.unwrap_or_else(|| panic!("no {why:?} in {last}"));
    }

    /// Writes a Secret with the docker configuration of a host.
    async fn write_secret(&self, name: &str, host: &str, auth: &str) {
        let config = json!({"auths": {host: {"auth": auth}}}).to_string();
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": config},
        });
        let secrets = Api::<Secret>::namespaced(self.cluster.client.clone(), "default");
        secrets.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&secret)).await.unwrap();
    }

    /// Runs `bindery policy preview` as a user with these credentials and keys.
    fn preview(&self, module: &Reference, times: u32, keys: &str) -> Output {
        let spec = json!({"module": module.to_string(), "settings": {"times": times}});
        let document = json::policy("MatchPolicy", "size", &spec);
        std::fs::write(self.path("size.json"), document.to_string()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_bindery"));
        command.args(["policy", "preview", &self.path("size.json"), "--registry-key", keys]);
        command.env("KUBECONFIG", self.cluster.kubeconfig()).env_remove("REGISTRY_AUTH_FILE");
        command.env("DOCKER_CONFIG", self.folder.path()).env("HOME", self.folder.path());
        command.env_remove("XDG_RUNTIME_DIR").output().unwrap()
    }

    /// Waits until the golden cases of the newest generation do not hold and the message ends like this.
    async fn until_trial_failed(&self, end: &str) -> Value {
        let mut last = Value::Null;
        let told = poll(async || {
            last = self.policies.until_ready("MatchPolicy", "size", "TrialFailed").await;
            message(&last, "Ready").ends_with(end).then(|| last.clone())
        });
        told.await.unwrap_or_else(|| panic!("no {end:?} in {last}"))
    }

    async fn until_rejected(&self, claim: &str) {
        self.cluster.create_claim(claim, "1Gi").await;
        until_rejected(&self.cluster, claim, "; 1 of 1 volumes rejected: size 1").await;
    }
}

/// A golden case that does not hold.
fn wrong_cases() -> [Extra; 1] {
    let claim = "claim: {spec: {resources: {requests: {storage: 1Gi}}}}";
    let wrong = format!("case: a claim is refused\n{claim}\nexpect: {{refused: x}}");
    [Extra { name: "wrong.yaml".to_owned(), bytes: wrong.into_bytes() }]
}

fn message<'a>(status: &'a Value, kind: &str) -> &'a str {
    condition(status, kind)["message"].as_str().unwrap()
}

#[tokio::test]
async fn a_signed_module_is_fetched_and_stays_with_the_registry_away() {
    let world = World::new().await;
    let ours = world.path("ours.pub");
    let mut replica = world.start("first", &ours);
    replica.until_leading().await;
    world.cluster.create_available_volume("v", "10Gi").await;

    let (unsigned, _) = world.push("prefer", &[]).await;
    let (module, remote) = world.push("at-most-n-times", &[]).await;
    let by_other = SigningKey::read(KeyPair::generate().unwrap().serialize_pem().as_bytes(), None).unwrap();
    sign(&remote, &module, &by_other, Format::Bundle).await.unwrap();
    for (module, why) in [(&unsigned, "it has no signature"), (&module, "its signatures are 1 by other keys")]
    {
        world.apply(module, 2).await;
        let status = world.policies.until_ready("MatchPolicy", "size", "SignatureInvalid").await;
        assert_eq!(condition(&status, "Verified")["status"], "False");
        assert!(message(&status, "Verified").ends_with(why), "{status}");
    }
    sign(&remote, &module, &world.key, Format::Bundle).await.unwrap();
    let status = world.policies.until_ready("MatchPolicy", "size", "Loaded").await;
    assert_eq!(condition(&status, "Verified")["reason"], "Signed");
    world.until_rejected("c").await;
    // What another number would change, from the registry.
    let preview = world.preview(&module, 100, &ours);
    let text = String::from_utf8_lossy(&preview.stdout);
    let now = "pvc default/c: without the change: pending (policy size rejects v: ";
    assert!(text.starts_with(now), "{preview:?}");
    assert!(text.ends_with("; with it: bound to v\n"), "{preview:?}");
    let unsigned = world.preview(&module, 100, &world.path("other.pub"));
    let text = String::from_utf8_lossy(&unsigned.stderr);
    assert!(unsigned.status.code() == Some(2) && text.contains("spec.module: "), "{unsigned:?}");
    assert!(text.contains(" is not signed by the trusted key"), "{unsigned:?}");

    // Golden cases that came with a module and do not hold keep the last good one.
    let wrong = world.push_signed("at-most-n-times", &wrong_cases()).await;
    world.apply(&wrong, 100).await;
    let status = world.policies.until_ready("MatchPolicy", "size", "TrialFailed").await;
    let told = "golden case wrong.yaml:1: a claim is refused: expected ";
    assert!(message(&status, "Ready").contains(told), "{status}");
    assert!(message(&status, "Ready").ends_with("; generation 2 stays in effect"), "{status}");

    // So does a registry that hangs, and it delays no decision.
    let (next, _) = world.push("same-zone", &[]).await;
    world.registry.hang();
    world.apply(&next, 2).await;
    let status = world.policies.until_ready("MatchPolicy", "size", "ModuleUnavailable").await;
    assert!(message(&status, "Ready").ends_with("; generation 2 stays in effect"), "{status}");
    assert_eq!(condition(&status, "Verified")["reason"], "NotFetched");
    world.until_rejected("d").await;

    replica.terminate().await;
    let mut replica = world.start("second", &ours);
    world.until_rejected("e").await;
    world.apply(&module, 3).await;
    world.policies.until_ready("MatchPolicy", "size", "Loaded").await;

    // A key that is not trusted any more for modules of this prefix does not count, although the module is
    // there.
    replica.terminate().await;
    let keys = format!("{ours},oci://{}/team={}", world.registry.host(), world.path("other.pub"));
    let mut replica = world.start("third", &keys);
    world.policies.until_ready("MatchPolicy", "size", "ModuleUnavailable").await;
    world.registry.recover();
    replica.terminate().await;
}

#[tokio::test]
async fn a_module_is_fetched_with_what_its_object_names() {
    let world = World::new().await;
    let (host, ours) = (world.registry.host(), world.path("ours.pub"));
    // ann:wrong; zoe:hidden; ann:secret
    world.write_secret("wrong", &host, "YW5uOndyb25n").await;
    world.write_secret("elsewhere", "registry.example", "em9lOmhpZGRlbg==").await;
    world.write_secret("team", &host, "YW5uOnNlY3JldA==").await;
    let opaque = json!({"metadata": {"name": "opaque"}, "stringData": {".dockerconfigjson": "{}"}});
    let secrets = Api::<Secret>::namespaced(world.cluster.client.clone(), "default");
    secrets.create(&PostParams::default(), &serde_json::from_value(opaque).unwrap()).await.unwrap();
    let listed = "default/wrong,default/elsewhere,default/team,default/opaque,default/missing";
    let mut replica = world.start_with("first", &ours, &["--registry-pull-secret", listed]);
    replica.until_leading().await;
    world.cluster.create_available_volume("v", "10Gi").await;

    let module = world.push_signed("at-most-n-times", &[]).await;
    let (_storage, authority) = world.redirect("at-most-n-times");
    let (authority, other) = (authority.pem(), Authority::new().pem());
    for (pull, why) in [
        (json!({"secret": "unlisted"}), "spec.pull.secret: the Secret \"unlisted\" is not among those that"),
        (
            json!({"secret": "missing"}),
            "spec.pull.secret: the Secret default/missing cannot be read: secrets",
        ),
        (json!({"secret": "opaque"}), "the Secret default/opaque cannot be read: its type is \"Opaque\""),
        (json!({"secret": "wrong"}), "refuses the credentials for team/at-most-n-times"),
        (json!({"secret": "elsewhere"}), "asks for credentials, and there are none"),
        (json!({"ca": "-----BEGIN CERTIFICATE-----"}), "spec.pull.ca: the certificate authorities"),
        (json!({"secret": "team"}), " cannot be trusted by TLS: "),
        (json!({"secret": "team", "ca": other}), " cannot be trusted by TLS: "),
        // The credentials of the settings are not sent to what an object trusts.
        (json!({"ca": authority}), "asks for credentials, and there are none"),
    ] {
        world.until_not_fetched(&module, pull, why).await;
    }
    let sent = world.registry.requests();
    let is_of_zoe = |sent: &str| sent.contains("em9lOmhpZGRlbg");
    assert!(!sent.iter().any(|(_, _, authorization)| authorization.as_deref().is_some_and(is_of_zoe)));
    world.apply_with(&module, 2, json!({"secret": "team", "ca": authority})).await;
    world.policies.until_ready("MatchPolicy", "size", "Loaded").await;
    world.until_rejected("c").await;

    // A Secret is read again at each fetch.
    world.write_secret("team", &host, "YW5uOndyb25n").await;
    let next = world.push_signed("same-zone", &[]).await;
    world.until_not_fetched(&next, json!({"secret": "team"}), "refuses the credentials").await;
    replica.terminate().await;
}

/// The newest generation has its verdict before the module of the last good one is there.
#[tokio::test]
async fn a_last_good_module_that_comes_late_decides_after_a_restart() {
    let world = World::new().await;
    let ours = world.path("ours.pub");
    let mut replica = world.start("first", &ours);
    replica.until_leading().await;
    let elsewhere = OciRegistry::start(RegistrySettings::default());
    let (good, remote) = world.push_to(&elsewhere, "at-most-n-times", &[]).await;
    sign(&remote, &good, &world.key, Format::Bundle).await.unwrap();
    world.apply(&good, 2).await;
    world.policies.until_ready("MatchPolicy", "size", "Loaded").await;
    let newest = world.push_signed("at-most-n-times", &wrong_cases()).await;
    world.apply(&newest, 2).await;
    world.until_trial_failed("; generation 1 stays in effect").await;
    replica.terminate().await;

    // The pods are replaced, and nothing is in their caches.
    std::fs::remove_dir_all(world.path("cache")).unwrap();
    elsewhere.intercept(|_, _, _| Some(Reply::Garbage));
    let mut replica = world.start("second", &ours);
    let status = world.until_trial_failed("; what it matches waits").await;
    assert_eq!(status["lastGood"]["generation"], 1);
    elsewhere.recover();
    let status = world.until_trial_failed("; generation 1 stays in effect").await;
    // The newest generation, whatever is in effect.
    assert_eq!(condition(&status, "Verified")["reason"], "Signed");
    world.cluster.create_available_volume("v", "10Gi").await;
    world.until_rejected("c").await;
    replica.terminate().await;
}

#[tokio::test]
async fn without_the_network_a_kept_module_works_and_no_request_is_sent() {
    let world = World::new().await;
    let ours = world.path("ours.pub");
    let mut replica = world.start("first", &ours);
    replica.until_leading().await;
    let module = world.push_signed("at-most-n-times", &[]).await;
    world.apply(&module, 2).await;
    world.policies.until_ready("MatchPolicy", "size", "Loaded").await;
    let (next, _) = world.push("same-zone", &[]).await;
    replica.terminate().await;

    let before = world.registry.requests().len();
    let mut replica = world.start_with("second", &ours, &["--registry-network=false"]);
    world.cluster.create_available_volume("v", "10Gi").await;
    world.until_rejected("c").await;
    world.apply(&next, 2).await;
    let status = world.policies.until_ready("MatchPolicy", "size", "ModuleUnavailable").await;
    assert!(message(&status, "Ready").ends_with("; generation 1 stays in effect"), "{status}");
    assert_eq!(world.registry.requests().len(), before, "{:?}", world.registry.requests());
    replica.terminate().await;
}

#[tokio::test]
async fn a_module_of_a_config_map_outlives_a_restart_of_all_replicas() {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let policies = cluster.policies();
    policies.install().await;
    let caches = tempfile::tempdir().unwrap();
    let start_all = || {
        ["first", "second"].map(|identity| {
            let cache = caches.path().join(identity).display().to_string();
            cluster.replica_with(identity, &["--policy-objects=true", "--engine-cache", &cache])
        })
    };
    let mut replicas = start_all();
    let module = shipped("at-most-n-times");
    let config_maps = Api::<ConfigMap>::namespaced(cluster.client.clone(), "default");
    config_maps.create(&PostParams::default(), &modules("m.wasm", module)).await.unwrap();
    let spec = json!({"module": "configmap:default/modules/m.wasm", "settings": {"times": 2}});
    policies.apply("MatchPolicy", "size", spec).await;
    let good = policies.until_ready("MatchPolicy", "size", "Loaded").await;
    for replica in &mut replicas {
        replica.until_metrics("bindery_policy_object_ready{kind=\"MatchPolicy\",name=\"size\"} 1\n").await;
    }

    let garbage = modules("m.wasm", b"no component".to_vec());
    config_maps.replace("modules", &PostParams::default(), &garbage).await.unwrap();
    policies.until_ready("MatchPolicy", "size", "ModuleInvalid").await;
    for mut replica in replicas {
        replica.terminate().await;
    }
    let replicas = start_all();
    cluster.create_available_volume("large", "9Gi").await;
    cluster.create_claim("c", "1Gi").await;
    until_rejected(&cluster, "c", "; 1 of 1 volumes rejected: size 1").await;
    let status = policies.until_ready("MatchPolicy", "size", "ModuleInvalid").await;
    assert_eq!(status["lastGood"], good["lastGood"]);
    let message = condition(&status, "Ready")["message"].as_str().unwrap();
    assert!(message.ends_with("; generation 1 stays in effect"), "{message}");
    for mut replica in replicas {
        replica.terminate().await;
    }
}
