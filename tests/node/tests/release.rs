//! A release on a real node, from `helm install` to `helm uninstall`: the image in pods, the API server's
//! reviews through the Service.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use bindery_chart::{RELEASE, commands, offered, read};
use bindery_node::site::{PATIENT, PODS, Site, TIMEOUT};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// How often objects are created under load.
const LOAD_EVERY: Duration = Duration::from_millis(100);

/// The words of the last command of the README that begins so, but for the program's name.
fn told(begin: &str) -> Vec<String> {
    let readme = read("README.md").replace("\\\n", " ");
    let told = readme.lines().rfind(|line| line.starts_with(begin));
    let told = told.unwrap_or_else(|| panic!("the README has no command {begin}"));
    told.split_whitespace().skip(1).map(str::to_owned).collect()
}

/// Runs what the README tells, with further arguments; Helm does not wait for ever.
fn helm_as_told(site: &Site, begin: &str, further: &[&str]) {
    let words = told(begin);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    site.operator.helm(&[&words[..], further, &[TIMEOUT]].concat());
}

/// How many of the release's pods there are.
fn pods(site: &Site) -> usize {
    site.kubectl(&["get", "pods", "--selector", PODS, "--output", "name"]).lines().count()
}

/// The real API server asks through the Service's address, and kubectl shows what Bindery answers: as the
/// README has it.
async fn a_claim_that_can_never_bind_is_refused(site: &Site) {
    site.create_volume("probe").await;
    site.until_reviewed("probe").await;
    site.world.delete(&site.world.volumes, "probe").await;
    let readme = read("README.md");
    let (_, rest) = readme.split_once("kubectl apply --filename - <<'END'\n").unwrap();
    let (manifests, rest) = rest.split_once("END\n```\n").unwrap();
    let (_, rest) = rest.split_once("```\n").unwrap();
    let (reply, _) = rest.split_once("```").unwrap();
    assert_eq!(site.operator.kubectl(&["apply", "--filename", "-"], manifests).unwrap_err(), reply);
    assert_eq!(site.world.claims.get_opt("db").await.unwrap(), None);
}

/// Claims and volumes are created, and a hopeless claim is refused, again and again. Answers how many claims
/// there are, and what went wrong.
async fn load(site: &Site, over: &CancellationToken) -> (usize, Vec<String>) {
    let (mut count, mut wrong) = (0, Vec::new());
    let mut ticks = tokio::time::interval(LOAD_EVERY);
    while !over.is_cancelled() {
        ticks.tick().await;
        let name = format!("load-{count}");
        let spec = json!({
            "storageClassName": "load", "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/nowhere"},
        });
        site.world.create_volume(&name, spec).await;
        site.world.create_claim(&name, "load").await;
        count += 1;
        if let Err(why) = site.try_hopeless_claim("db-0").await {
            wrong.push(format!("after {count} claims: {why}"));
        }
    }
    (count, wrong)
}

/// No review is lost while pods come and go, and every claim is bound.
async fn upgrade_and_rollback_lose_nothing(site: &Site) {
    let over = CancellationToken::new();
    let operator = Arc::clone(&site.operator);
    let change = async {
        let change = move || {
            operator.upgrade(&["--set", "podAnnotations.upgraded=yes", "--wait", TIMEOUT]).unwrap();
            operator.helm(&["rollback", RELEASE, "1", "--wait", TIMEOUT]);
        };
        tokio::task::spawn_blocking(change).await.unwrap();
        over.cancel();
    };
    let ((count, wrong), ()) = tokio::join!(load(site, &over), change);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for number in 0..count {
        site.world.until_bound(&format!("load-{number}")).await;
    }
}

/// Waits until one of the pods that are there leads. One that was killed holds the Lease until it expires.
async fn until_a_pod_leads(site: &Site) {
    let leases: Api<Lease> = Api::namespaced(site.world.client.clone(), "kube-system");
    let look = async || {
        // Each time anew: those that come in the place of others may not be there yet.
        let pods = site.kubectl(&["get", "pods", "--selector", PODS, "--output", "name"]);
        let holder = leases.get("bindery").await.unwrap().spec?.holder_identity?;
        let mut names = pods.lines().filter_map(|name| name.strip_prefix("pod/"));
        names.any(|name| holder.starts_with(name)).then_some(())
    };
    site.world.until_seen("a pod that leads", look).await;
}

/// The leader ends what it has begun and gives the Lease back.
async fn stop_as_told(site: &Site) {
    until_a_pod_leads(site).await;
    let commands = commands(&read("docs/operate.md"), "## Going back to upstream");
    let [stop, wait, look, ..] = &commands[..] else { panic!("{commands:#?}") };
    for command in [stop, wait] {
        site.operator.shell(command).unwrap();
    }
    assert_eq!(site.operator.shell(look).unwrap(), "");
}

/// Nobody is kept from creating claims while Bindery is down, and they are bound when it is back.
async fn without_pods_claims_are_created(site: &Site) {
    site.kubectl(&["delete", "pods", "--selector", PODS, "--force", "--grace-period=0"]);
    site.create_volume("killed").await;
    site.world.create_claim("killed", "").await;
    assert_eq!(site.world.until_bound("killed").await, "killed");

    stop_as_told(site).await;
    assert_eq!(pods(site), 0);
    site.create_volume("unattended").await;
    site.world.create_claim("unattended", "").await;
    site.operator.upgrade(&["--set", "replicas=2"]).unwrap();
    assert_eq!(site.world.until_bound("unattended").await, "unattended");
}

/// What Bindery has bound stays bound, and upstream binds what comes then.
async fn upstream_takes_over(site: &Site) {
    let left = ["get", "validatingwebhookconfigurations", "--output", "name"];
    assert_eq!(site.operator.kubectl(&left, "").unwrap(), "");
    let manager = offered("BINDERY_KUBE_CONTROLLER_MANAGER");
    let arguments = [
        "--kubeconfig".into(),
        site.node.kubeconfig_inside().into_os_string(),
        "--controllers=persistentvolume-binder-controller".into(),
        "--leader-elect=false".into(),
        "--secure-port=0".into(),
    ];
    let log = site.folder.path().join("upstream.log");
    let _upstream = site.node.start_server(&manager, arguments.map(OsString::from), &log).unwrap();
    site.use_a_volume("upstream").await;
    for name in ["first", "killed", "unattended"] {
        assert_eq!(site.world.until_bound(name).await, name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_serves_a_cluster_from_its_beginning_to_its_end() {
    let site = Site::start("release").await;
    // The command for nodes that pull nothing comes last.
    helm_as_told(&site, "helm install ", &["--set", PATIENT]);
    helm_as_told(&site, "helm test ", &[]);
    site.use_a_volume("first").await;
    a_claim_that_can_never_bind_is_refused(&site).await;
    upgrade_and_rollback_lose_nothing(&site).await;
    // It would do for the claims that come.
    let words = told("kubectl delete ");
    site.kubectl(&words.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(site.world.volumes.get_opt("db-0").await.unwrap(), None);
    without_pods_claims_are_created(&site).await;
    helm_as_told(&site, "helm uninstall ", &[]);
    upstream_takes_over(&site).await;
}
