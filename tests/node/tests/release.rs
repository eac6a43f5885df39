//! A release on a real node, from `helm install` to `helm uninstall`: the image runs in pods, and the API
//! server sends reviews through the Service.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use bindery_chart::{RELEASE, commands, offered, read};
use bindery_node::installation::{Installation, PATIENT, PODS, TIMEOUT};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::json;
use tokio_util::sync::CancellationToken;

const LOAD_EVERY: Duration = Duration::from_millis(100);

/// The arguments of the README's last command with this beginning.
fn documented(begin: &str) -> Vec<String> {
    let readme = read("README.md").replace("\\\n", " ");
    let command = readme.lines().rfind(|line| line.starts_with(begin));
    let command = command.unwrap_or_else(|| panic!("the README has no command {begin}"));
    command.split_whitespace().skip(1).map(str::to_owned).collect()
}

/// Runs a command of the README with further arguments and a timeout.
fn helm_as_documented(installation: &Installation, begin: &str, further: &[&str]) {
    let words = documented(begin);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = installation.operator.try_helm(&[&words[..], further, &[TIMEOUT]].concat());
    done.unwrap_or_else(|why| panic!("{begin}: {why}\n{}", installation.objects.logs()));
}

fn pods(installation: &Installation) -> usize {
    installation.kubectl(&["get", "pods", "--selector", PODS, "--output", "name"]).lines().count()
}

/// kubectl prints the refusal that the README shows.
async fn a_hopeless_claim_is_refused_as_documented(installation: &Installation) {
    installation.create_volume("probe").await;
    installation.until_reviewed("probe").await;
    installation.objects.delete(&installation.objects.volumes, "probe").await;
    let readme = read("README.md");
    let (_, rest) = readme.split_once("kubectl apply --filename - <<'END'\n").unwrap();
    let (manifests, rest) = rest.split_once("END\n```\n").unwrap();
    let (_, rest) = rest.split_once("```\n").unwrap();
    let (reply, _) = rest.split_once("```").unwrap();
    assert_eq!(installation.operator.kubectl(&["apply", "--filename", "-"], manifests).unwrap_err(), reply);
    assert_eq!(installation.objects.claims.get_opt("db").await.unwrap(), None);
}

/// Creates claims and volumes, and tries hopeless claims. Returns the number of claims, and each hopeless
/// claim that was not refused.
async fn load(installation: &Installation, over: &CancellationToken) -> (usize, Vec<String>) {
    let (mut count, mut wrong) = (0, Vec::new());
    let mut ticks = tokio::time::interval(LOAD_EVERY);
    while !over.is_cancelled() {
        ticks.tick().await;
        let name = format!("load-{count}");
        installation.objects.create_volume(&name, json!({"storageClassName": "load"})).await;
        installation.objects.create_claim(&name, "load").await;
        count += 1;
        if let Err(why) = installation.try_hopeless_claim("db-0").await {
            wrong.push(format!("after {count} claims: {why}"));
        }
    }
    (count, wrong)
}

/// While pods are replaced no review is lost, and every claim is bound.
async fn an_upgrade_and_a_rollback_lose_no_review(installation: &Installation) {
    let over = CancellationToken::new();
    let operator = Arc::clone(&installation.operator);
    let change = async {
        let change = move || {
            operator.upgrade(&["--set", "podAnnotations.upgraded=yes", "--wait", TIMEOUT])?;
            operator.try_helm(&["rollback", RELEASE, "1", "--wait", TIMEOUT])
        };
        let changed = tokio::task::spawn_blocking(change).await.unwrap();
        changed.unwrap_or_else(|why| panic!("{why}\n{}", installation.objects.logs()));
        over.cancel();
    };
    let ((count, wrong), ()) = tokio::join!(load(installation, &over), change);
    let passed = installation.node.api_server_log("failing open").unwrap();
    assert!(wrong.is_empty(), "{}\n{passed}\n{}", wrong.join("\n"), installation.objects.logs());
    for number in 0..count {
        installation.objects.until_bound(&format!("load-{number}")).await;
    }
}

/// Waits until an existing pod leads. A killed leader holds the Lease until it expires.
async fn until_a_pod_leads(installation: &Installation) {
    let leases: Api<Lease> = Api::namespaced(installation.objects.client.clone(), "kube-system");
    let look = async || {
        // Listed each time, since new pods may still be missing.
        let pods = installation.kubectl(&["get", "pods", "--selector", PODS, "--output", "name"]);
        let holder = leases.get("bindery").await.unwrap().spec?.holder_identity?;
        let mut names = pods.lines().filter_map(|name| name.strip_prefix("pod/"));
        names.any(|name| holder.starts_with(name)).then_some(())
    };
    installation.objects.until_found("a pod that leads", look).await;
}

/// Stopping by the guide releases the Lease.
async fn stop_as_documented(installation: &Installation) {
    until_a_pod_leads(installation).await;
    let commands = commands(&read("docs/operate.md"), "## Going back to upstream");
    let [stop, wait, look, ..] = &commands[..] else { panic!("{commands:#?}") };
    for command in [stop, wait] {
        installation.operator.shell(command).unwrap();
    }
    assert_eq!(installation.operator.shell(look).unwrap(), "");
}

/// While Bindery is down claims can be created. They are bound when it is back.
async fn claims_are_created_without_pods(installation: &Installation) {
    installation.kill_pods();
    installation.create_volume("killed").await;
    installation.objects.create_claim("killed", "").await;
    assert_eq!(installation.objects.until_bound("killed").await, "killed");

    stop_as_documented(installation).await;
    assert_eq!(pods(installation), 0);
    installation.create_volume("unattended").await;
    installation.objects.create_claim("unattended", "").await;
    installation.operator.upgrade(&["--set", "replicas=2"]).unwrap();
    assert_eq!(installation.objects.until_bound("unattended").await, "unattended");
}

/// Claims that Bindery has bound stay bound, and upstream binds new ones.
async fn upstream_takes_over(installation: &Installation) {
    let left = ["get", "validatingwebhookconfigurations", "--output", "name"];
    assert_eq!(installation.operator.kubectl(&left, "").unwrap(), "");
    let manager = offered("BINDERY_KUBE_CONTROLLER_MANAGER");
    let arguments = [
        "--kubeconfig".into(),
        installation.node.kubeconfig_inside().into_os_string(),
        "--controllers=persistentvolume-binder-controller".into(),
        "--leader-elect=false".into(),
        "--secure-port=0".into(),
    ];
    let log = installation.folder.path().join("upstream.log");
    let _upstream = installation.node.start_server(&manager, arguments.map(OsString::from), &log).unwrap();
    installation.use_a_volume("upstream").await;
    for name in ["first", "killed", "unattended"] {
        assert_eq!(installation.objects.until_bound(name).await, name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_serves_a_cluster_from_install_to_uninstall() {
    let installation = Installation::start("release").await;
    // The last command is for nodes that cannot pull images.
    helm_as_documented(&installation, "helm install ", &["--set", PATIENT]);
    helm_as_documented(&installation, "helm test ", &[]);
    installation.use_a_volume("first").await;
    a_hopeless_claim_is_refused_as_documented(&installation).await;
    an_upgrade_and_a_rollback_lose_no_review(&installation).await;
    // The claims below must not get this volume.
    let words = documented("kubectl delete ");
    installation.kubectl(&words.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(installation.objects.volumes.get_opt("db-0").await.unwrap(), None);
    claims_are_created_without_pods(&installation).await;
    helm_as_documented(&installation, "helm uninstall ", &[]);
    upstream_takes_over(&installation).await;
}
