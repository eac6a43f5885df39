//! The chart's NetworkPolicy where the network enforces it: kube-router on a real node, beside its CNI plugin
//! and kube-proxy.
//!
//! What a policy says of the node's own requests no network may enforce, since kubelet probes pods: that the
//! API server, which is on the node, is let in shows that the policy does not shut it out, not that it must
//! be named.
//!
//! kube-router takes minutes to build, and nothing else needs it: `cargo xtask soak network`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use bindery_chart::{NAMESPACE, RELEASE, chart, offered};
use bindery_cluster::Server;
use bindery_node::site::{PODS, Site, TIMEOUT};
use bindery_node::{IMAGE, NAME};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

/// The node's address, and the API server's port: whom the pods may reach.
const API_SERVER: (&str, u16) = ("192.0.2.10", 6443);
/// Where every pod of this test listens.
const PORT: u16 = 8000;
/// How long it may take until a policy is enforced: it is told of within a second.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What enforces policies on the node.
fn enforce_policies(site: &Site) -> Server {
    let arguments = [
        OsString::from("--kubeconfig"),
        site.node.kubeconfig_inside().into(),
        "--hostname-override".into(),
        NAME.into(),
        "--run-firewall=true".into(),
        "--run-router=false".into(),
        "--run-service-proxy=false".into(),
        "--enable-cni=false".into(),
        "--service-cluster-ip-range=10.96.0.0/16".into(),
        "--health-port=0".into(),
    ];
    let log = site.folder.path().join("kube-router.log");
    site.node.start_server(&offered("BINDERY_KUBE_ROUTER"), arguments, &log).unwrap()
}

/// A pod that listens, and from which connections are tried.
struct Peer<'a> {
    site: &'a Site,
    namespace: &'static str,
    name: &'static str,
    address: String,
}

impl<'a> Peer<'a> {
    async fn create(site: &'a Site, namespace: &'static str, name: &'static str, labels: Value) -> Self {
        let pods: Api<Pod> = Api::namespaced(site.world.client.clone(), namespace);
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
        let pod = site.world.until(&pods, name, is_ready).await;
        Self { site, namespace, name, address: address(&pod) }
    }

    /// Connects; what is said where no connection is taken.
    fn connect(&self, (address, port): (&str, u16)) -> Result<String, String> {
        let Self { site, namespace, name, .. } = self;
        let connect = format!("nc -w 3 {address} {port} </dev/null");
        site.operator.shell(&format!("kubectl --namespace {namespace} exec {name} -- sh -c '{connect}'"))
    }

    /// Waits until every one of these is reached, or none.
    async fn until(&self, reached: bool, targets: &[(&str, u16)]) {
        let mut tried = Vec::new();
        let come_about = async {
            let mut looks = tokio::time::interval(LOOK_EVERY);
            while tried.is_empty() || !tried.iter().all(|tried: &Result<_, _>| tried.is_ok() == reached) {
                looks.tick().await;
                tried = targets.iter().map(|target| self.connect(*target)).collect();
            }
        };
        let come_about = tokio::time::timeout(PATIENCE, come_about).await;
        let Self { site, namespace, name, .. } = self;
        assert!(come_about.is_ok(), "{namespace}/{name}: {targets:?}: {tried:?}\n{}", site.world.told());
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn address(pod: &Pod) -> String {
    pod.status.as_ref().unwrap().pod_ip.clone().unwrap()
}

/// The port of this name of each of the release's pods that stay. One of this test has their labels, but no
/// owner.
async fn doors(site: &Site, name: &str) -> Vec<(String, u16)> {
    let pods: Api<Pod> = Api::namespaced(site.world.client.clone(), NAMESPACE);
    let pods = pods.list(&ListParams::default().labels(PODS)).await.unwrap().items;
    let stays = |pod: &Pod| pod.metadata.deletion_timestamp.is_none() && !pod.owner_references().is_empty();
    let door = |pod: Pod| {
        let ports =
            pod.spec.iter().flat_map(|spec| &spec.containers).flat_map(|one| one.ports.iter().flatten());
        let mut ports = ports.filter(|port| port.name.as_deref() == Some(name));
        let port = ports.next().unwrap_or_else(|| panic!("{} has no port {name}", pod.name_any()));
        (address(&pod), u16::try_from(port.container_port).unwrap())
    };
    pods.into_iter().filter(stays).map(door).collect()
}

fn borrowed(doors: &[(String, u16)]) -> Vec<(&str, u16)> {
    doors.iter().map(|(address, port)| (address.as_str(), *port)).collect()
}

/// Lets in the API server and who reads metrics, and out to the API server alone.
fn close(site: &Site) {
    let only = json!({"ipBlock": {"cidr": format!("{}/32", API_SERVER.0)}});
    let values = json!({"networkPolicy": {
        "webhookFrom": [only],
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "egress": [{"to": [only], "ports": [{"port": API_SERVER.1}]}],
    }});
    let file = site.folder.path().join("values.yaml");
    fs::write(&file, values.to_string()).unwrap();
    site.operator.upgrade(&["--values", file.to_str().unwrap(), "--wait", TIMEOUT]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_but_whom_the_values_name_reaches_the_pods() {
    let site = Site::start("network").await;
    let _enforcer = enforce_policies(&site);
    site.operator.kubectl(&["create", "namespace", "monitoring"], "").unwrap();
    let chart = chart();
    let install = ["install", RELEASE, chart.to_str().unwrap(), "--create-namespace"];
    let values =
        "mode=own,tests.image.registry=bindery.test,tests.image.repository=busybox,tests.image.tag=1";
    site.operator.helm(&[&install[..], &["--set-string", values, "--wait", TIMEOUT]].concat());

    let stranger = Peer::create(&site, "default", "stranger", json!({})).await;
    let prometheus = Peer::create(&site, "monitoring", "prometheus", json!({})).await;
    let own = json!({"app.kubernetes.io/name": "bindery", "app.kubernetes.io/instance": RELEASE});
    let own = Peer::create(&site, NAMESPACE, "own", own).await;
    // By default both ports are everybody's, and nothing is shut out that way.
    stranger.until(true, &borrowed(&doors(&site, "webhook").await)).await;
    stranger.until(true, &borrowed(&doors(&site, "metrics").await)).await;
    own.until(true, &[(&prometheus.address, PORT)]).await;

    close(&site);
    let (webhook, metrics) = (doors(&site, "webhook").await, doors(&site, "metrics").await);
    let (webhook, metrics) = (borrowed(&webhook), borrowed(&metrics));
    stranger.until(false, &webhook).await;
    stranger.until(false, &metrics).await;
    prometheus.until(true, &metrics).await;
    prometheus.until(false, &webhook).await;
    own.until(false, &[(&prometheus.address, PORT)]).await;
    own.until(true, &[API_SERVER]).await;
    prometheus.until(true, &[(&stranger.address, PORT)]).await;

    site.use_a_volume("first").await;
    site.create_volume("db-0").await;
    site.until_reviewed("db-0").await;
    site.operator.helm(&["test", RELEASE, TIMEOUT]);
}
