//! A release from its beginning to its end, by the real Helm.

use bindery_chart::{Operator, RELEASE, chart, rendered};
use http::Method;
use serde_json::{Value, json};

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

/// What Bindery has written outlives upgrades and rollbacks, and nothing outlives the release.
#[tokio::test]
async fn a_release_is_installed_upgraded_rolled_back_and_gone() {
    let site = Site::start().await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, site.kubeconfig().to_string()).unwrap();
    let operator = Operator::new(kubeconfig);
    let chart = chart();
    let chart = chart.to_str().unwrap();
    operator.helm(&["install", RELEASE, chart, "--set", "mode=own"]);
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
        (vec!["upgrade", RELEASE, chart, "--reuse-values", "--set", "webhook.timeoutSeconds=2"], 2),
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
