//! The chart's NetworkPolicy, enforced by kube-router on a real node, beside its CNI plugin and kube-proxy.
//!
//! Networks do not enforce policies for the node's own requests, since kubelet probes pods. The API server is
//! on the node. So the test shows that the policy does not exclude it, but not that the policy must name it.
//!
//! kube-router takes minutes to build, and no other test needs it: `cargo xtask soak network`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use bindery_chart::{NAMESPACE, RELEASE, chart, offered};
use bindery_cluster::Server;
use bindery_kit::poll;
use bindery_node::installation::{Installation, PODS, TIMEOUT};
use bindery_node::objects::is_ready;
use bindery_node::{IMAGE, NAME};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

/// The address of the API server, the only one that the pods may reach.
const API_SERVER: (&str, u16) = ("192.0.2.10", 6443);
const PORT: u16 = 8000;
/// The time until a policy is enforced, which kube-router hears of within a second.
const TIME_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);

fn enforce_policies(installation: &Installation) -> Server {
    let arguments = [
        OsString::from("--kubeconfig"),
        installation.node.kubeconfig_inside().into(),
        "--hostname-override".into(),
        NAME.into(),
        "--run-firewall=true".into(),
        "--run-router=false".into(),
        "--run-service-proxy=false".into(),
        "--enable-cni=false".into(),
        "--service-cluster-ip-range=10.96.0.0/16".into(),
        "--health-port=0".into(),
    ];
    let log = installation.folder.path().join("kube-router.log");
    installation.node.start_server(&offered("BINDERY_KUBE_ROUTER"), arguments, &log).unwrap()
}

/// A pod that listens, and that can connect to others.
struct Peer<'a> {
    installation: &'a Installation,
    namespace: &'static str,
    name: &'static str,
    address: String,
}

impl<'a> Peer<'a> {
    async fn create(
        installation: &'a Installation,
        namespace: &'static str,
        name: &'static str,
        labels: Value,
    ) -> Self {
        let pods: Api<Pod> = Api::namespaced(installation.objects.client.clone(), namespace);
        let pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "peer", "image": IMAGE,
                    "command": ["/bin/busybox", "httpd", "-f", "-p", PORT.to_string()],
                }],
            },
        }));
        pods.create(&PostParams::default(), &pod.unwrap()).await.unwrap();
        let pod = installation.objects.until(&pods, name, is_ready).await;
        Self { installation, namespace, name, address: address(&pod) }
    }

    fn connect(&self, (address, port): (&str, u16)) -> Result<String, String> {
        let Self { installation, namespace, name, .. } = self;
        let connect = format!("nc -w 3 {address} {port} </dev/null");
        installation
            .operator
            .shell(&format!("kubectl --namespace {namespace} exec {name} -- sh -c '{connect}'"))
    }

    /// Waits until all targets are reached, or none.
    async fn until(&self, reached: bool, targets: &[(&str, u16)]) {
        let mut tried = Vec::new();
        let look = async || {
            tried = targets.iter().map(|target| self.connect(*target)).collect();
            tried.iter().all(|tried| tried.is_ok() == reached).then_some(())
        };
        let fulfilled = poll(LOOK_EVERY, TIME_MAX, look).await;
        let Self { installation, namespace, name, .. } = self;
        assert!(
            fulfilled.is_some(),
            "{namespace}/{name}: {targets:?}: {tried:?}\n{}",
            installation.objects.logs()
        );
    }
}

fn address(pod: &Pod) -> String {
    pod.status.as_ref().unwrap().pod_ip.clone().unwrap()
}

/// The addresses of the release's pods, with the port of this name. Left out are pods that are being deleted,
/// and this test's own pod with the same labels, which has no owner.
async fn endpoints(installation: &Installation, name: &str) -> Vec<(String, u16)> {
    let pods: Api<Pod> = Api::namespaced(installation.objects.client.clone(), NAMESPACE);
    let pods = pods.list(&ListParams::default().labels(PODS)).await.unwrap().items;
    let stays = |pod: &Pod| pod.metadata.deletion_timestamp.is_none() && !pod.owner_references().is_empty();
    let endpoint = |pod: Pod| {
        let ports =
            pod.spec.iter().flat_map(|spec| &spec.containers).flat_map(|one| one.ports.iter().flatten());
        let mut ports = ports.filter(|port| port.name.as_deref() == Some(name));
        let port = ports.next().unwrap_or_else(|| panic!("{} has no port {name}", pod.name_any()));
        (address(&pod), u16::try_from(port.container_port).unwrap())
    };
    pods.into_iter().filter(stays).map(endpoint).collect()
}

fn borrowed(endpoints: &[(String, u16)]) -> Vec<(&str, u16)> {
    endpoints.iter().map(|(address, port)| (address.as_str(), *port)).collect()
}

/// Admits only the API server and the namespace `monitoring`, and lets pods reach the API server only.
fn restrict(installation: &Installation) {
    let only = json!({"ipBlock": {"cidr": format!("{}/32", API_SERVER.0)}});
    let monitoring = json!({"kubernetes.io/metadata.name": "monitoring"});
    let values = json!({"networkPolicy": {
        "webhookFrom": [only],
        "metricsFrom": [{"namespaceSelector": {"matchLabels": monitoring}}],
        "egress": [{"to": [only], "ports": [{"port": API_SERVER.1}]}],
    }});
    let file = installation.folder.path().join("values.yaml");
    fs::write(&file, values.to_string()).unwrap();
    installation.operator.upgrade(&["--values", file.to_str().unwrap(), "--wait", TIMEOUT]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_peers_in_the_values_reach_the_pods() {
    let installation = Installation::start("network").await;
    let _enforcer = enforce_policies(&installation);
    installation.operator.kubectl(&["create", "namespace", "monitoring"], "").unwrap();
    let chart = chart();
    let install = ["install", RELEASE, chart.to_str().unwrap(), "--create-namespace"];
    let values =
        "mode=own,tests.image.registry=bindery.test,tests.image.repository=busybox,tests.image.tag=1";
    installation.operator.helm(&[&install[..], &["--set-string", values, "--wait", TIMEOUT]].concat());

    let stranger = Peer::create(&installation, "default", "stranger", json!({})).await;
    let prometheus = Peer::create(&installation, "monitoring", "prometheus", json!({})).await;
    let own = json!({"app.kubernetes.io/name": "bindery", "app.kubernetes.io/instance": RELEASE});
    let own = Peer::create(&installation, NAMESPACE, "own", own).await;
    // By default all peers reach both ports, and pods reach all peers.
    stranger.until(true, &borrowed(&endpoints(&installation, "webhook").await)).await;
    stranger.until(true, &borrowed(&endpoints(&installation, "metrics").await)).await;
    own.until(true, &[(&prometheus.address, PORT)]).await;

    restrict(&installation);
    let (webhook, metrics) =
        (endpoints(&installation, "webhook").await, endpoints(&installation, "metrics").await);
    let (webhook, metrics) = (borrowed(&webhook), borrowed(&metrics));
    stranger.until(false, &webhook).await;
    stranger.until(false, &metrics).await;
    prometheus.until(true, &metrics).await;
    prometheus.until(false, &webhook).await;
    own.until(false, &[(&prometheus.address, PORT)]).await;
    own.until(true, &[API_SERVER]).await;
    prometheus.until(true, &[(&stranger.address, PORT)]).await;

    installation.use_a_volume("first").await;
    installation.create_volume("db-0").await;
    installation.until_reviewed("db-0").await;
    installation.operator.helm(&["test", RELEASE, TIMEOUT]);
}
