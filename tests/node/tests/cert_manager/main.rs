//! The chart with `certificates.source: cert-manager` and a real cert-manager on a real node: a certificate
//! is issued, trusted by the API server, and renewed without a failed review.
//!
//! cert-manager's controller and its CA injector run beside the control plane as the cluster's administrator.
//! Both are of version 1.11.5: the Go proxy does not serve the modules of later ones. The chart uses
//! `CertManager` (`selfSigned` and `ca`) and `Certificate` of `cert-manager.io/v1`, which later versions have
//! too (`tests/chart` validates the chart by their definitions), and the annotation
//! `cert-manager.io/inject-ca-from`. cert-manager's webhook, which checks what users write, does not run.
//!
//! It takes minutes, because kubelet updates a pod's Secret late: `cargo xtask soak cert-manager`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod endpoints;
mod issuing;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bindery_chart::{NAMESPACE, RELEASE, chart, read};
use bindery_node::installation::{Installation, PATIENT, TIMEOUT};
use tokio_util::sync::CancellationToken;

use self::endpoints::Endpoints;
use self::issuing::CertManager;

/// cert-manager's Secrets with the authority and the certificate. The authority's Certificate has the same
/// name.
const AUTHORITY: &str = "bindery-ca";
const CERTIFICATE: &str = "bindery-cert-manager";
const REVIEW_EVERY: Duration = Duration::from_millis(100);

/// Makes the API server send reviews of a hopeless claim. Returns their number, and those that did not refuse
/// it.
async fn ask_for_reviews(installation: &Installation, over: &CancellationToken) -> (usize, Vec<String>) {
    let (mut count, mut wrong) = (0, Vec::new());
    let mut ticks = tokio::time::interval(REVIEW_EVERY);
    while !over.is_cancelled() {
        ticks.tick().await;
        count += 1;
        if let Err(why) = installation.try_hopeless_claim("db-0").await {
            wrong.push(format!("review {count}: {why}"));
        }
    }
    (count, wrong)
}

/// The authority is renewed first and keeps its key, so its new certificate also verifies what pods still
/// show.
async fn renew_authority_and_certificate(
    installation: &Installation,
    cert_manager: &CertManager,
    endpoints: &Endpoints,
) {
    let key = cert_manager.secret(AUTHORITY, "tls.key").await;
    let authority = cert_manager.secret(AUTHORITY, "tls.crt").await.unwrap();
    cert_manager.renew(installation, AUTHORITY).await;
    let authority = cert_manager.until_changed(installation, AUTHORITY, "tls.crt", &authority).await;
    let certificate = cert_manager.secret(CERTIFICATE, "tls.crt").await.unwrap();
    cert_manager.renew(installation, RELEASE).await;
    let certificate = cert_manager.until_changed(installation, CERTIFICATE, "tls.crt", &certificate).await;
    cert_manager.until_trusted(installation, &authority).await;
    endpoints.until_shown(installation, cert_manager, &certificate).await;
    assert_eq!(cert_manager.secret(AUTHORITY, "tls.key").await, key);
}

/// cert-manager makes a new Secret with another key.
async fn delete_the_secret(installation: &Installation, cert_manager: &CertManager, endpoints: &Endpoints) {
    let certificate = cert_manager.secret(CERTIFICATE, "tls.crt").await.unwrap();
    cert_manager.delete_secret(CERTIFICATE).await;
    let certificate = cert_manager.until_changed(installation, CERTIFICATE, "tls.crt", &certificate).await;
    endpoints.until_shown(installation, cert_manager, &certificate).await;
}

/// Replaces every pod, so that the API server makes new connections. The injected authority stays.
async fn upgrade(installation: &Installation, cert_manager: &CertManager) {
    let trusted = cert_manager.trusted().await;
    let operator = Arc::clone(&installation.operator);
    let upgrade = move || {
        operator.upgrade(&["--set", "podAnnotations.upgraded=yes", "--wait", TIMEOUT]).unwrap();
    };
    tokio::task::spawn_blocking(upgrade).await.unwrap();
    assert_eq!(cert_manager.trusted().await, trusted);
}

/// Only cert-manager has written the authority, and Bindery has no right to.
async fn only_the_injector_writes_the_bundle(installation: &Installation, cert_manager: &CertManager) {
    let fields = cert_manager.configuration().await.metadata.managed_fields.unwrap();
    let owns = |part: &str| -> BTreeSet<String> {
        let owners =
            fields.iter().filter(|entry| serde_json::to_string(&entry.fields_v1).unwrap().contains(part));
        owners.filter_map(|entry| entry.manager.clone()).collect()
    };
    assert_eq!(owns("f:caBundle"), BTreeSet::from(["cert-manager-cainjector".to_owned()]));
    assert_eq!(owns(""), BTreeSet::from(["cert-manager-cainjector", "helm"].map(str::to_owned)));
    let account = format!("--as=system:serviceaccount:{NAMESPACE}:{RELEASE}");
    for (verb, object) in [
        ("patch", format!("validatingwebhookconfigurations/{RELEASE}")),
        ("update", format!("validatingwebhookconfigurations/{RELEASE}")),
        ("get", format!("secrets/{CERTIFICATE}")),
    ] {
        let asked = ["auth", "can-i", verb, &object, &account, "--namespace", NAMESPACE];
        let answer = installation.operator.kubectl(&asked, "").unwrap_err();
        assert!(answer.starts_with("no\n"), "{verb} {object}: {answer}");
    }
}

/// The objects in the release's namespace, without those that every namespace has, and all objects with the
/// release's label.
fn remaining(installation: &Installation) -> BTreeSet<String> {
    let kinds = |further: &[&str]| {
        let arguments = [&["api-resources", "--verbs=list", "--output=name"], further].concat();
        installation.kubectl(&arguments).lines().collect::<Vec<_>>().join(",")
    };
    let here =
        installation.kubectl(&["get", &kinds(&["--namespaced"]), "--output=name", "--ignore-not-found"]);
    let label = format!("--selector=app.kubernetes.io/instance={RELEASE}");
    let labelled = installation.kubectl(&["get", &kinds(&[]), "--all-namespaces", "--output=name", &label]);
    let others = ["configmap/kube-root-ca.crt", "serviceaccount/default"];
    let is_event = |name: &str| name.starts_with("event/") || name.starts_with("event.events.k8s.io/");
    let names = here.lines().chain(labelled.lines());
    names.filter(|name| !others.contains(name) && !is_event(name)).map(str::to_owned).collect()
}

/// Only the documented Secrets remain, and the documented command deletes them.
async fn uninstall(installation: &Installation) {
    installation.operator.helm(&["uninstall", RELEASE, "--wait", TIMEOUT]);
    let kept = BTreeSet::from([AUTHORITY, CERTIFICATE].map(|name| format!("secret/{name}")));
    installation
        .objects
        .until_found("the removal of the release", async || (remaining(installation) == kept).then_some(()))
        .await;
    let readme = read("charts/bindery/README.md");
    let command = readme.lines().find(|line| line.contains("delete secret bindery-cert-manager")).unwrap();
    let words: Vec<&str> = command.split_whitespace().skip(1).collect();
    installation.operator.kubectl(&words, "").unwrap();
    assert_eq!(remaining(installation), BTreeSet::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_by_cert_manager_fail_no_review() {
    let installation = Installation::start("cert-manager").await;
    let cert_manager = CertManager::start(&installation);
    let chart = chart();
    let values = format!("mode=own,certificates.source=cert-manager,crds.keep=false,{PATIENT}");
    let install = ["install", RELEASE, chart.to_str().unwrap(), "--create-namespace", "--set", &values];
    installation.operator.helm(&[&install[..], &["--wait", TIMEOUT]].concat());
    let look = async || cert_manager.secret(AUTHORITY, "tls.crt").await;
    let authority = installation.objects.until_found("an authority", look).await;
    cert_manager.until_trusted(&installation, &authority).await;
    installation.use_a_volume("first").await;
    installation.create_volume("db-0").await;
    installation.until_reviewed("db-0").await;

    let endpoints = Endpoints::find(&installation).await;
    let certificate = cert_manager.secret(CERTIFICATE, "tls.crt").await.unwrap();
    endpoints.until_shown(&installation, &cert_manager, &certificate).await;
    let over = CancellationToken::new();
    let changes = async {
        renew_authority_and_certificate(&installation, &cert_manager, &endpoints).await;
        delete_the_secret(&installation, &cert_manager, &endpoints).await;
        upgrade(&installation, &cert_manager).await;
        over.cancel();
    };
    let ((count, wrong), ()) = tokio::join!(ask_for_reviews(&installation, &over), changes);
    assert!(wrong.is_empty(), "of {count} reviews:\n{}", wrong.join("\n"));
    eprintln!("{count} reviews, none failed");
    only_the_injector_writes_the_bundle(&installation, &cert_manager).await;
    uninstall(&installation).await;
}
