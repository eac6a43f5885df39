//! A release from its beginning to its end, by the real Helm.

use std::path::Path;

use bindery_chart::{Operator, RELEASE, chart, read, rendered};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::serving::{CONFIGURATION, Replica, SECRET, bundles};
use crate::site::{ADMIN, Site};

/// Where objects of the kinds that the chart makes are listed.
const LISTS: [&str; 16] = [
    "/api/v1/configmaps",
    "/api/v1/pods",
    "/api/v1/resourcequotas",
    "/api/v1/secrets",
    "/api/v1/serviceaccounts",
    "/api/v1/services",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
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

/// Everything of the release that is there, by list and name.
async fn left(site: &Site) -> Vec<String> {
    let mut left = Vec::new();
    for list in LISTS {
        let selected = format!("{list}?labelSelector=app.kubernetes.io%2Finstance%3D{RELEASE}");
        let answer = site.ask(ADMIN, Method::GET, &selected, None).await.unwrap();
        let items = answer["items"].as_array().unwrap().iter();
        left.extend(items.map(|item| format!("{list} {}", item["metadata"]["name"])));
    }
    left
}

async fn configuration(site: &Site) -> Value {
    site.ask(ADMIN, Method::GET, CONFIGURATION, None).await.unwrap()
}

/// Somebody who has the cluster's kubeconfig in a folder.
pub(crate) fn operator(site: &Site, folder: &Path) -> Operator {
    let kubeconfig = folder.join("kubeconfig");
    std::fs::write(&kubeconfig, site.kubeconfig().to_string()).unwrap();
    Operator::new(kubeconfig)
}

/// A cluster, and somebody who has installed a release of mode own there. The folder is the operator's.
pub(crate) async fn installed() -> (Site, Operator, TempDir) {
    let site = Site::start().await;
    let folder = tempfile::tempdir().unwrap();
    let operator = operator(&site, folder.path());
    operator.helm(&["install", RELEASE, chart().to_str().unwrap(), "--set", "mode=own"]);
    (site, operator, folder)
}

/// What Bindery has written outlives upgrades and rollbacks, and nothing outlives the release.
#[tokio::test]
async fn a_release_is_installed_upgraded_rolled_back_and_gone() {
    let (site, operator, _folder) = installed().await;
    let chart = chart();
    let chart = chart.to_str().unwrap();
    let made = left(&site).await;
    assert_eq!(
        made.len(),
        rendered(&json!({"mode": "own"})).iter().count() - 1,
        "all but the test: {made:#?}"
    );

    let mut replica = Replica::start(&site, &rendered(&json!({"mode": "own"}))).await;
    replica.until(&site, CONFIGURATION, |configuration| bundles(configuration).len() == 2).await;
    replica.until(&site, SECRET, |secret| secret["data"].is_object()).await;
    let (trusted, kept) =
        (configuration(&site).await, site.ask(ADMIN, Method::GET, SECRET, None).await.unwrap());
    drop(replica);

    let timeout = |configuration: &Value| configuration["webhooks"][0]["timeoutSeconds"].clone();
    for (arguments, seconds) in [
        (
            vec!["upgrade", RELEASE, chart, "--reset-then-reuse-values", "--set", "webhook.timeoutSeconds=2"],
            2,
        ),
        (vec!["rollback", RELEASE, "1"], 3),
    ] {
        operator.helm(&arguments);
        let now = configuration(&site).await;
        assert_eq!(timeout(&now), seconds, "{arguments:?}");
        assert_eq!(bundles(&now), bundles(&trusted), "{arguments:?}");
        let secret = site.ask(ADMIN, Method::GET, SECRET, None).await.unwrap();
        assert_eq!(secret["data"], kept["data"], "{arguments:?}");
    }

    // A mode that is forgotten would have nobody bind any more.
    let forgotten = ["upgrade", RELEASE, chart, "--set", "webhook.timeoutSeconds=2"];
    let why = operator.try_helm(&forgotten).unwrap_err();
    assert!(why.contains("confirmObserve=true"), "{why}");
    assert_eq!(timeout(&configuration(&site).await), 3);
    operator.helm(&[&forgotten[..], &["--set", "confirmObserve=true"]].concat());
    assert_eq!(timeout(&configuration(&site).await), 2);
    // Who looks on already has nothing to confirm.
    operator.helm(&["upgrade", RELEASE, chart]);

    operator.helm(&["uninstall", RELEASE]);
    assert_eq!(left(&site).await, Vec::<String>::new());
    // By their names too, whatever their labels are.
    for path in [CONFIGURATION, SECRET] {
        assert!(site.ask(ADMIN, Method::GET, path, None).await.unwrap_err().contains("not found"), "{path}");
    }
}

/// The command of the chart's README that begins so, on one line.
fn told_command(begin: &str) -> String {
    let readme = read("charts/bindery/README.md").replace("\\\n", " ");
    let commands: Vec<_> = readme.lines().map(str::trim).filter(|line| line.starts_with(begin)).collect();
    let [command] = commands[..] else { panic!("not one command {begin}: {commands:?}") };
    command.to_owned()
}

/// An authority for the API server to trust.
const OURS: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==";
/// Certificates of the operator's own, and no authority for them.
const UNTOLD: &str = "certificates.source=secret,certificates.secretName=mine,certificates.caBundle=";

/// What one source of certificates has had the API server trust is not what it trusts of another.
#[tokio::test]
async fn a_source_of_certificates_that_is_left_leaves_no_authority_behind() {
    let site = Site::start().await;
    site.define().await;
    let folder = tempfile::tempdir().unwrap();
    let operator = operator(&site, folder.path());
    let change = |values| operator.upgrade(&["--set", values]);
    let to_secret = told_command(
        "helm upgrade bindery charts/bindery --namespace bindery-system --reset-then-reuse-values --force",
    );
    let to_secret = to_secret.replace("SECRET", "mine").replace("BASE64", OURS);

    operator.helm(&["install", RELEASE, chart().to_str().unwrap()]);
    let mut replica = Replica::start(&site, &rendered(&json!({}))).await;
    replica.until(&site, CONFIGURATION, |configuration| bundles(configuration).len() == 2).await;
    drop(replica);
    let why = change(UNTOLD).unwrap_err();
    assert!(why.contains("was self and is secret: give certificates.caBundle"), "{why}");
    let why = operator.shell(&to_secret.replace("--force-conflicts", "")).unwrap_err();
    assert!(why.contains("conflict") && why.contains("caBundle"), "{why}");
    operator.shell(&to_secret).unwrap();
    assert_eq!(bundles(&configuration(&site).await), [OURS, OURS]);
    // What the chart has set it takes away.
    change(UNTOLD).unwrap();
    assert_eq!(bundles(&configuration(&site).await), Vec::<&str>::new());

    change("certificates.source=cert-manager,certificates.secretName=").unwrap();
    let injected = json!([
        {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "QQ=="},
        {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": "QQ=="},
    ]);
    let inject =
        format!("kubectl patch validatingwebhookconfiguration bindery --type=json --patch='{injected}'");
    operator.shell(&inject).unwrap();
    let why = change(UNTOLD).unwrap_err();
    assert!(why.contains("was cert-manager and is secret: give certificates.caBundle"), "{why}");
    // Who has an injector of his own is not kept from it.
    let annotations = r#"webhook.annotations={"cert-manager.io/inject-ca-from-secret":"n/s"}"#;
    operator.upgrade(&["--set", UNTOLD, "--set-json", annotations, "--dry-run=server"]).unwrap();

    assert_eq!(bundles(&configuration(&site).await), ["QQ==", "QQ=="]);
    operator.shell(&told_command("kubectl patch validatingwebhookconfiguration")).unwrap();
    assert_eq!(bundles(&configuration(&site).await), Vec::<&str>::new());
}
