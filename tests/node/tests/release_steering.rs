//! A release in mode steer on a cluster whose control plane is untouched: all loops of upstream's controller
//! manager run, its binder too.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use bindery_chart::{RELEASE, built, commands, read, run};
use bindery_cluster::{is_bound, is_bound_to, is_in_phase};
use bindery_core::ClaimKey;
use bindery_core::steer::{CHOICE, steering_key};
use bindery_kit::json;
use bindery_node::NAME;
use bindery_node::installation::{Installation, PATIENT, TIMEOUT};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

/// The namespace of the guide whose claims are steered, and the class of the guide.
const NAMESPACE: &str = "shop";
const CLASS: &str = "local";
/// A class that waits for a pod.
const WAITING: &str = "late";

/// A release in mode steer, and the claims of the namespace that is steered.
struct Release {
    installation: Installation,
    claims: Api<PersistentVolumeClaim>,
}

/// Gold volumes come first, and no volume that is more than eight times as large as asked for is taken.
fn policies() -> Value {
    let policy = |name: &str, spec: Value| json::policy("MatchPolicy", name, &spec).to_string();
    let gold = json!({"module": "builtin:prefer", "settings": {"scores": {"gold": 100}}});
    let limit = json!({"module": "builtin:at-most-n-times", "settings": {"times": 8}});
    json!({"policies": {"documents": {"gold": policy("gold", gold), "limit": policy("limit", limit)}}})
}

impl Release {
    /// Installs by the commands of the guide, with policies.
    async fn install() -> Self {
        let installation = Installation::start_with("steer", "full").await;
        installation.objects.create_class(CLASS, "kubernetes.io/no-provisioner", "Immediate").await;
        installation.operator.kubectl(&["create", "namespace", NAMESPACE], "").unwrap();
        let values = installation.folder.path().join("values.json");
        std::fs::write(&values, policies().to_string()).unwrap();
        let commands = commands(&read("docs/managed-clusters.md"), "## Install");
        let [install, label] = &commands[..] else { panic!("{commands:#?}") };
        let further = format!("--set {PATIENT},replicas=1 --values {} --wait {TIMEOUT}", values.display());
        for command in [&format!("{install} {further}"), label] {
            let done = installation.operator.shell(command);
            done.unwrap_or_else(|why| panic!("{command}: {why}\n{}", installation.objects.logs()));
        }
        let claims = Api::namespaced(installation.objects.client.clone(), NAMESPACE);
        Self { installation, claims }
    }

    /// Creates a volume of this size and tier, with these further fields of its spec, and waits until
    /// upstream offers it.
    async fn create_volume(&self, name: &str, size: &str, tier: &str, spec: Value) {
        let labels = json!({"bindery.dev/tier": tier});
        let change = json!({"metadata": {"labels": labels}, "spec": {"capacity": {"storage": size}}});
        let volume = json::merged(json::volume(name, change), json!({"spec": spec}));
        let volume = serde_json::from_value(volume).unwrap();
        let objects = &self.installation.objects;
        objects.volumes.create(&PostParams::default(), &volume).await.unwrap();
        objects.until(&objects.volumes, name, is_in_phase("Available")).await;
    }

    /// Creates a claim for 1 GiB in the namespace that is steered.
    async fn create_claim(&self, name: &str, parameters: &PostParams) -> PersistentVolumeClaim {
        let change = json!({"metadata": {"namespace": NAMESPACE}, "spec": {"storageClassName": CLASS}});
        let claim = serde_json::from_value(json::claim(name, change)).unwrap();
        self.claims.create(parameters, &claim).await.unwrap()
    }

    /// Waits until the API server steers: it notices policies of admission after a moment.
    async fn until_steering(&self) {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let look = async || is_steered(&self.create_claim("probe", &dry).await).then_some(());
        self.installation.objects.until_found("claims that are steered", look).await;
    }

    /// Creates a volume of the class of the guide.
    async fn create_local(&self, name: &str, size: &str, tier: &str) {
        self.create_volume(name, size, tier, json!({"storageClassName": CLASS})).await;
    }

    async fn until_bound_to(&self, claim: &str, volume: &'static str) -> PersistentVolumeClaim {
        self.installation.objects.until(&self.claims, claim, is_bound_to(volume)).await
    }

    /// Runs `bindery steer` and returns its output.
    fn steer(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(built("bindery"));
        command.arg("steer").args(arguments).env("KUBECONFIG", self.installation.node.kubeconfig());
        run(&mut command, "").unwrap_or_else(|why| panic!("bindery steer {arguments:?}: {why}"))
    }

    fn scale(&self, replicas: usize) {
        self.installation.kubectl(&["scale", "deployment", RELEASE, &format!("--replicas={replicas}")]);
    }
}

fn key(namespace: &str, claim: &str) -> String {
    steering_key(&ClaimKey::new(namespace, claim)).unwrap()
}

/// Whether the selector of a claim requires the key of its name.
fn is_steered(claim: &PersistentVolumeClaim) -> bool {
    let key = key(NAMESPACE, &claim.name_any());
    let selector = claim.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let needed = selector.and_then(|selector| selector.match_expressions.as_ref());
    needed.is_some_and(|needed| needed.iter().any(|one| one.key == key && one.operator == "Exists"))
}

/// Upstream would take the smaller volume, and does so for a claim that is not steered.
async fn a_claim_gets_the_volume_that_its_policy_prefers(release: &Release) {
    // Bindery knows the second one no earlier than the first.
    release.create_local("large", "5Gi", "gold").await;
    release.create_local("small", "1Gi", "silver").await;
    release.create_claim("db", &PostParams::default()).await;
    let claim = release.until_bound_to("db", "large").await;
    assert!(claim.annotations()[CHOICE].starts_with("large "), "{claim:?}");
    release.create_local("vast", "50Gi", "gold").await;
    release.installation.objects.create_claim("plain", CLASS).await;
    assert_eq!(release.installation.objects.until_bound("plain").await, "small");
}

/// The scheduler would take the smallest volume that the pod's node can reach. Pods of these tests run in a
/// namespace that is not steered, so the claim has the requirement by hand.
async fn a_pod_gets_the_volume_that_its_policy_prefers(release: &Release) {
    let objects = &release.installation.objects;
    objects.create_class(WAITING, "kubernetes.io/no-provisioner", "WaitForFirstConsumer").await;
    for (name, size, tier) in [("late-large", "5Gi", "gold"), ("late-small", "1Gi", "silver")] {
        let path = release.installation.folder.path().join(name);
        std::fs::create_dir(&path).unwrap();
        let on_node = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [NAME]});
        let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}});
        let spec = json!({"storageClassName": WAITING, "hostPath": {"path": path}, "nodeAffinity": affinity});
        release.create_volume(name, size, tier, spec).await;
    }
    let needed = json!({"key": key("default", "late"), "operator": "Exists"});
    let spec = json!({"storageClassName": WAITING, "selector": {"matchExpressions": [needed]}});
    let claim = serde_json::from_value(json::claim("late", json!({"spec": spec}))).unwrap();
    objects.claims.create(&PostParams::default(), &claim).await.unwrap();
    objects.create_writer("late", "late", "late").await;
    assert_eq!(objects.until_bound("late").await, "late-large");
    objects.until_done("late").await;
    let written = release.installation.folder.path().join("late-large/file");
    assert_eq!(std::fs::read_to_string(written).unwrap(), "late\n");
}

/// A claim that is created while no pod runs is steered all the same, and bound when a pod is back.
async fn a_claim_waits_for_bindery_that_was_killed(release: &Release) {
    let objects = &release.installation.objects;
    release.scale(0);
    release.installation.kill_pods();
    release.create_local("fitting", "2Gi", "silver").await;
    let claim = release.create_claim("meanwhile", &PostParams::default()).await;
    assert!(is_steered(&claim), "{claim:?}");
    // Upstream has looked at the claim and at the free volume.
    objects.until_event("meanwhile", "ProvisioningFailed").await;
    let claim = release.claims.get("meanwhile").await.unwrap();
    assert_eq!(claim.spec.unwrap().volume_name, None);
    release.scale(1);
    release.until_bound_to("meanwhile", "fitting").await;
}

/// What the policies hold back, upstream binds once Bindery is told to leave.
async fn everything_is_left_without_a_waiting_claim(release: &Release) {
    release.create_claim("held", &PostParams::default()).await;
    let waits = "no volume is chosen";
    let look = async || release.steer(&["status"]).contains(waits).then_some(());
    release.installation.objects.until_found("the claim that waits", look).await;
    let released = format!(
        "namespace/{NAMESPACE} has no label bindery.dev/steer any more\n\
         persistentvolumeclaim {NAMESPACE}/held: it gets volume vast\n"
    );
    assert_eq!(release.steer(&["release", "--all"]), released);
    release.until_bound_to("held", "vast").await;
    assert_eq!(release.steer(&["status"]), "No steered claim waits.\n");
    let operator = &release.installation.operator;
    operator.try_helm(&["uninstall", RELEASE, "--wait", TIMEOUT]).unwrap();
    let kinds = "mutatingadmissionpolicies,validatingadmissionpolicies,validatingwebhookconfigurations";
    let labelled = ["get", kinds, "--selector", "app.kubernetes.io/name=bindery", "--output", "name"];
    assert_eq!(operator.kubectl(&labelled, "").unwrap(), "");
    release.create_local("last", "1Gi", "silver").await;
    release.create_claim("last", &PostParams::default()).await;
    release.until_bound_to("last", "last").await;
    let all: Api<PersistentVolumeClaim> = Api::all(release.installation.objects.client.clone());
    let waiting: Vec<_> = all.list(&ListParams::default()).await.unwrap().into_iter().collect();
    assert_eq!(waiting.len(), 6);
    assert!(waiting.iter().all(is_bound), "{waiting:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_steers_beside_upstreams_binder_until_it_is_left() {
    let release = Release::install().await;
    release.until_steering().await;
    a_claim_gets_the_volume_that_its_policy_prefers(&release).await;
    a_pod_gets_the_volume_that_its_policy_prefers(&release).await;
    a_claim_waits_for_bindery_that_was_killed(&release).await;
    everything_is_left_without_a_waiting_claim(&release).await;
}
