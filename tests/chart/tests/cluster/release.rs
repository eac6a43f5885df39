//! A release that the real Helm installs, upgrades and uninstalls.

use bindery_chart::{Operator, RELEASE, chart, read, rendered};
use bindery_cluster::Cluster;
use bindery_kit::json::class;
use serde_json::{Value, json};

use crate::api_server::{install_definitions, start};
use crate::replica::{CONFIGURATION, ReleaseReplica, SECRET, bundles};

/// The collections of the chart's kinds.
const COLLECTIONS: [&str; 20] = [
    "/api/v1/configmaps",
    "/api/v1/pods",
    "/api/v1/resourcequotas",
    "/api/v1/secrets",
    "/api/v1/serviceaccounts",
    "/api/v1/services",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/apps/v1/deployments",
    "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
    "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
    "/apis/networking.k8s.io/v1/networkpolicies",
    "/apis/policy/v1/poddisruptionbudgets",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "/apis/rbac.authorization.k8s.io/v1/roles",
];

/// Every existing object of the release, by collection and name.
async fn objects_of_release(api: &Cluster) -> Vec<String> {
    let mut found = Vec::new();
    for collection in COLLECTIONS {
        let selected = format!("{collection}?labelSelector=app.kubernetes.io%2Finstance%3D{RELEASE}");
        let list = api.get(&selected).await.unwrap();
        let items = list["items"].as_array().unwrap().iter();
        found.extend(items.map(|item| format!("{collection} {}", item["metadata"]["name"])));
    }
    found
}

/// A release leaves the kinds of policies, and nothing else.
async fn assert_uninstalled(api: &Cluster) {
    let left = objects_of_release(api).await;
    let are_kinds = left.iter().all(|object| object.contains("/customresourcedefinitions "));
    assert!(left.len() == 3 && are_kinds, "{left:#?}");
}

async fn configuration(api: &Cluster) -> Value {
    api.get(CONFIGURATION).await.unwrap()
}

/// An API server on which a release in mode own is installed.
pub(crate) async fn installed() -> (Cluster, Operator) {
    let api = start().await;
    let operator = Operator::new(api.kubeconfig());
    operator.helm(&["install", RELEASE, chart().to_str().unwrap(), "--set", "mode=own"]);
    (api, operator)
}

#[tokio::test]
async fn a_replicas_writes_survive_upgrades_and_no_object_survives_uninstalling() {
    let (api, operator) = installed().await;
    let chart = chart();
    let chart = chart.to_str().unwrap();
    let objects = rendered(&json!({"mode": "own"}));
    let made = objects_of_release(&api).await;
    assert_eq!(made.len(), objects.iter().count() - 1, "all but the test: {made:#?}");

    let mut replica = ReleaseReplica::start(&api, &objects).await;
    replica.until_trusted(&api).await;
    replica.until(&api, SECRET, |secret| secret["data"].is_object()).await;
    let (trusted, kept) = (configuration(&api).await, api.get(SECRET).await.unwrap());
    drop(replica);

    let timeout = |configuration: &Value| configuration["webhooks"][0]["timeoutSeconds"].clone();
    let upgrade =
        ["upgrade", RELEASE, chart, "--reset-then-reuse-values", "--set", "webhook.timeoutSeconds=2"];
    for (arguments, seconds) in [(&upgrade[..], 2), (&["rollback", RELEASE, "1"], 3)] {
        operator.helm(arguments);
        let now = configuration(&api).await;
        assert_eq!(timeout(&now), seconds, "{arguments:?}");
        assert_eq!(bundles(&now), bundles(&trusted), "{arguments:?}");
        assert_eq!(api.get(SECRET).await.unwrap()["data"], kept["data"], "{arguments:?}");
    }

    // Without its mode the release would stop binding.
    let forgotten = ["upgrade", RELEASE, chart, "--set", "webhook.timeoutSeconds=2"];
    let why = operator.try_helm(&forgotten).unwrap_err();
    assert!(why.contains("confirmObserve=true"), "{why}");
    assert_eq!(timeout(&configuration(&api).await), 3);
    operator.helm(&[&forgotten[..], &["--set", "confirmObserve=true"]].concat());
    assert_eq!(timeout(&configuration(&api).await), 2);
    // In mode observe there is nothing to confirm.
    operator.helm(&["upgrade", RELEASE, chart]);

    operator.helm(&["uninstall", RELEASE]);
    assert_uninstalled(&api).await;
    // These are found even without labels.
    for path in [CONFIGURATION, SECRET] {
        assert!(api.get(path).await.unwrap_err().contains("not found"), "{path}");
    }
}

#[tokio::test]
async fn a_release_in_mode_steer_takes_the_api_servers_policy_if_it_can() {
    const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
    let api = start().await;
    let operator = Operator::new(api.kubeconfig());
    let chart = chart();
    let chart = chart.to_str().unwrap();
    operator.helm(&["install", RELEASE, chart, "--set", "mode=steer,steer.classes={local}"]);
    let policy = format!("{REGISTRATION}/mutatingadmissionpolicies/bindery-steer-add");
    let webhook = format!("{REGISTRATION}/mutatingwebhookconfigurations/bindery-steer");
    let has_policies = api.has_mutating_policies().await;
    assert_eq!(api.get(&policy).await.is_ok(), has_policies);
    assert_eq!(api.get(&webhook).await.is_ok(), !has_policies);
    operator.upgrade(&["--set", "steer.admission=webhook"]).unwrap();
    assert!(api.get(&policy).await.is_err());
    api.get(&webhook).await.unwrap();

    // The scheduler would choose their volumes, and the claims would wait for ever.
    let waits = json!({"volumeBindingMode": "WaitForFirstConsumer"});
    api.create(&class("waits", "csi.example.com", waits), "").await.unwrap();
    let why = operator.upgrade(&["--set", "steer.staticClasses={waits}"]).unwrap_err();
    assert!(why.contains("waits, which waits for its first consumer"), "{why}");
    let why = operator.upgrade(&["--set", "steer.classes={waits}"]).unwrap_err();
    assert!(why.contains("steer.classes has waits, whose volumes are made by csi.example.com"), "{why}");
    let why = operator.try_helm(&["upgrade", RELEASE, chart, "--set", "replicas=3"]).unwrap_err();
    assert!(why.contains("mode steer and would stop binding"), "{why}");

    operator.helm(&["uninstall", RELEASE]);
    assert_uninstalled(&api).await;
    assert!(api.get(&webhook).await.unwrap_err().contains("not found"));
}

/// The only command of the chart's README with this beginning, on one line.
fn documented_command(begin: &str) -> String {
    let readme = read("charts/bindery/README.md").replace("\\\n", " ");
    let commands: Vec<_> = readme.lines().map(str::trim).filter(|line| line.starts_with(begin)).collect();
    let [command] = commands[..] else { panic!("not one command {begin}: {commands:?}") };
    command.to_owned()
}

/// The API server must not trust the authority of a source that is no longer used.
#[tokio::test]
async fn when_the_source_of_certificates_changes_its_authority_is_removed() {
    /// An authority of the operator's.
    const OURS: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==";
    /// Certificates of the operator's, without an authority.
    const NO_AUTHORITY: &str =
        "certificates.source=secret,certificates.secretName=mine,certificates.caBundle=";
    let api = start().await;
    install_definitions(&api).await;
    let operator = Operator::new(api.kubeconfig());
    let change = |values| operator.upgrade(&["--set", values]);
    let to_secret = documented_command(
        "helm upgrade bindery charts/bindery --namespace bindery-system --reset-then-reuse-values --force",
    );
    let to_secret = to_secret.replace("SECRET", "mine").replace("BASE64", OURS);

    operator.helm(&["install", RELEASE, chart().to_str().unwrap()]);
    let mut replica = ReleaseReplica::start(&api, &rendered(&json!({}))).await;
    replica.until_trusted(&api).await;
    drop(replica);
    let why = change(NO_AUTHORITY).unwrap_err();
    assert!(why.contains("was self and is secret: give certificates.caBundle"), "{why}");
    let why = operator.shell(&to_secret.replace("--force-conflicts", "")).unwrap_err();
    assert!(why.contains("conflict") && why.contains("caBundle"), "{why}");
    operator.shell(&to_secret).unwrap();
    assert_eq!(bundles(&configuration(&api).await), [OURS, OURS]);
    // The chart removes what it has set.
    change(NO_AUTHORITY).unwrap();
    assert_eq!(bundles(&configuration(&api).await), Vec::<&str>::new());

    change("certificates.source=cert-manager,certificates.secretName=").unwrap();
    let injected = json!([
        {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "QQ=="},
        {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": "QQ=="},
    ]);
    let inject =
        format!("kubectl patch validatingwebhookconfiguration bindery --type=json --patch='{injected}'");
    operator.shell(&inject).unwrap();
    let why = change(NO_AUTHORITY).unwrap_err();
    assert!(why.contains("was cert-manager and is secret: give certificates.caBundle"), "{why}");
    // An injector of the operator's makes the change possible.
    let annotations = r#"webhook.annotations={"cert-manager.io/inject-ca-from-secret":"n/s"}"#;
    operator.upgrade(&["--set", NO_AUTHORITY, "--set-json", annotations, "--dry-run=server"]).unwrap();

    assert_eq!(bundles(&configuration(&api).await), ["QQ==", "QQ=="]);
    operator.shell(&documented_command("kubectl patch validatingwebhookconfiguration")).unwrap();
    assert_eq!(bundles(&configuration(&api).await), Vec::<&str>::new());
}
