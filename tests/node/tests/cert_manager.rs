//! `certificates.source: cert-manager` of the chart, with a real cert-manager on a real node: a certificate
//! is issued, made known to the API server, and renewed without a failed review.
//!
//! cert-manager's controller and its CA injector run beside the control plane as the cluster's administrator.
//! They are those of 1.11.5: later ones are Go modules of their own that no proxy serves, so they cannot be
//! built from packages. Of the API the chart uses `Issuer` (`selfSigned` and `ca`) and `Certificate` of
//! `cert-manager.io/v1`, which later versions have too (`tests/chart` holds the chart against their
//! definitions), and the annotation `cert-manager.io/inject-ca-from`. cert-manager's webhook, which checks
//! what users write, does not run.
//!
//! It takes minutes, because kubelet takes its time to bring a changed Secret to a pod: `cargo xtask soak
//! cert-manager`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "cert_manager/doors.rs"]
mod doors;
#[path = "cert_manager/issuer.rs"]
mod issuer;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bindery_chart::{NAMESPACE, RELEASE, chart, read};
use bindery_node::site::{PATIENT, Site, TIMEOUT};
use tokio_util::sync::CancellationToken;

use self::doors::Doors;
use self::issuer::Issuer;

/// The Secrets in which cert-manager keeps the authority and the certificate, and the Certificate that makes
/// the authority.
const AUTHORITY: &str = "bindery-ca";
const CERTIFICATE: &str = "bindery-cert-manager";
/// How often a review is asked for.
const REVIEW_EVERY: Duration = Duration::from_millis(100);

/// Has the API server ask for reviews of a claim that can never bind. Answers how many there were, and which
/// did not refuse it.
async fn ask_for_reviews(site: &Site, over: &CancellationToken) -> (usize, Vec<String>) {
    let (mut count, mut wrong) = (0, Vec::new());
    let mut ticks = tokio::time::interval(REVIEW_EVERY);
    while !over.is_cancelled() {
        ticks.tick().await;
        count += 1;
        if let Err(why) = site.try_hopeless_claim("db-0").await {
            wrong.push(format!("review {count}: {why}"));
        }
    }
    (count, wrong)
}

/// First the authority, whose key stays: what pods still show is good for who trusts its new certificate.
async fn renew_authority_and_certificate(site: &Site, issuer: &Issuer, doors: &Doors) {
    let key = issuer.secret(AUTHORITY, "tls.key").await;
    let authority = issuer.secret(AUTHORITY, "tls.crt").await.unwrap();
    issuer.renew(site, AUTHORITY).await;
    let authority = issuer.until_changed(site, AUTHORITY, "tls.crt", &authority).await;
    let certificate = issuer.secret(CERTIFICATE, "tls.crt").await.unwrap();
    issuer.renew(site, RELEASE).await;
    let certificate = issuer.until_changed(site, CERTIFICATE, "tls.crt", &certificate).await;
    issuer.until_trusted(site, &authority).await;
    doors.until_shown(site, issuer, &certificate).await;
    assert_eq!(issuer.secret(AUTHORITY, "tls.key").await, key);
}

/// It is made anew, with another key.
async fn lose_the_secret(site: &Site, issuer: &Issuer, doors: &Doors) {
    let certificate = issuer.secret(CERTIFICATE, "tls.crt").await.unwrap();
    issuer.delete_secret(CERTIFICATE).await;
    let certificate = issuer.until_changed(site, CERTIFICATE, "tls.crt", &certificate).await;
    doors.until_shown(site, issuer, &certificate).await;
}

/// Every pod is replaced, so that the API server makes new connections; what was injected stays as it is.
async fn upgrade(site: &Site, issuer: &Issuer) {
    let trusted = issuer.trusted().await;
    let operator = Arc::clone(&site.operator);
    let upgrade = move || {
        operator.upgrade(&["--set", "podAnnotations.upgraded=yes", "--wait", TIMEOUT]).unwrap();
    };
    tokio::task::spawn_blocking(upgrade).await.unwrap();
    assert_eq!(issuer.trusted().await, trusted);
}

/// Nobody but cert-manager has written whom the API server trusts, and Bindery could not.
async fn only_the_injector_writes_the_bundle(site: &Site, issuer: &Issuer) {
    let fields = issuer.configuration().await.metadata.managed_fields.unwrap();
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
        let answer = site.operator.kubectl(&asked, "").unwrap_err();
        assert!(answer.starts_with("no\n"), "{verb} {object}: {answer}");
    }
}

/// What is in the release's namespace, but for what every namespace has; and whatever has the release's label
/// anywhere.
fn left(site: &Site) -> BTreeSet<String> {
    let kinds = |further: &[&str]| {
        let arguments = [&["api-resources", "--verbs=list", "--output=name"], further].concat();
        site.kubectl(&arguments).lines().collect::<Vec<_>>().join(",")
    };
    let here = site.kubectl(&["get", &kinds(&["--namespaced"]), "--output=name", "--ignore-not-found"]);
    let label = format!("--selector=app.kubernetes.io/instance={RELEASE}");
    let labelled = site.kubectl(&["get", &kinds(&[]), "--all-namespaces", "--output=name", &label]);
    let others = ["configmap/kube-root-ca.crt", "serviceaccount/default"];
    let is_event = |name: &str| name.starts_with("event/") || name.starts_with("event.events.k8s.io/");
    let names = here.lines().chain(labelled.lines());
    names.filter(|name| !others.contains(name) && !is_event(name)).map(str::to_owned).collect()
}

/// What stays is what the chart's README tells of, and goes as it tells.
async fn uninstall(site: &Site) {
    site.operator.helm(&["uninstall", RELEASE, "--wait", TIMEOUT]);
    let kept = BTreeSet::from([AUTHORITY, CERTIFICATE].map(|name| format!("secret/{name}")));
    site.world.until_seen("what the release leaves", async || (left(site) == kept).then_some(())).await;
    let readme = read("charts/bindery/README.md");
    let told = readme.lines().find(|line| line.contains("delete secret bindery-cert-manager")).unwrap();
    let words: Vec<&str> = told.split_whitespace().skip(1).collect();
    site.operator.kubectl(&words, "").unwrap();
    assert_eq!(left(site), BTreeSet::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_has_its_certificate_from_cert_manager() {
    let site = Site::start("cert-manager").await;
    let issuer = Issuer::start(&site);
    let chart = chart();
    let values = format!("mode=own,certificates.source=cert-manager,{PATIENT}");
    let install = ["install", RELEASE, chart.to_str().unwrap(), "--create-namespace", "--set", &values];
    site.operator.helm(&[&install[..], &["--wait", TIMEOUT]].concat());
    let look = async || issuer.secret(AUTHORITY, "tls.crt").await;
    let authority = site.world.until_seen("an authority", look).await;
    issuer.until_trusted(&site, &authority).await;
    site.use_a_volume("first").await;
    site.create_volume("db-0").await;
    site.until_reviewed("db-0").await;

    let doors = Doors::find(&site).await;
    let certificate = issuer.secret(CERTIFICATE, "tls.crt").await.unwrap();
    doors.until_shown(&site, &issuer, &certificate).await;
    let over = CancellationToken::new();
    let changes = async {
        renew_authority_and_certificate(&site, &issuer, &doors).await;
        lose_the_secret(&site, &issuer, &doors).await;
        upgrade(&site, &issuer).await;
        over.cancel();
    };
    let ((count, wrong), ()) = tokio::join!(ask_for_reviews(&site, &over), changes);
    assert!(wrong.is_empty(), "of {count} reviews:\n{}", wrong.join("\n"));
    eprintln!("{count} reviews, none failed");
    only_the_injector_writes_the_bundle(&site, &issuer).await;
    uninstall(&site).await;
}
