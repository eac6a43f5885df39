//! Helm and kubectl on the simulator.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::process::{Command, Output};

use bindery_sim::{Clock, Sim, SimOptions};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

const CHART: &str = concat!(env!("BINDERY_CHECKOUT"), "crates/sim/tests/tools/chart");
const STATEFUL_SET: &str = concat!(env!("BINDERY_CHECKOUT"), "crates/sim/tests/tools/stateful_set.yaml");

/// A simulator on a socket of its own, until the test ends.
struct Server {
    sim: Sim,
    url: String,
}

impl Server {
    async fn start() -> Self {
        let sim = Sim::new(SimOptions { clock: Clock::Real, ..SimOptions::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(sim.clone().serve(listener, std::future::pending()));
        Self { sim, url }
    }

    async fn helm(&self, arguments: &str) -> String {
        let output = self.run("BINDERY_HELM", "--kube-apiserver", arguments).await;
        assert!(output.status.success(), "helm {arguments}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The output and the errors of kubectl.
    async fn kubectl(&self, arguments: &str) -> String {
        let output = self.run("BINDERY_KUBECTL", "--server", arguments).await;
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    async fn run(&self, program: &str, server: &str, arguments: &str) -> Output {
        let path = std::env::var_os(program);
        let path = path.unwrap_or_else(|| panic!("{program} is not set: run `cargo xtask test`"));
        let mut command = Command::new(path);
        command.env_clear().env("HOME", "/nonexistent").args([server, &self.url]);
        command.args(arguments.split_whitespace());
        spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    fn settings(&self) -> Value {
        self.sim.object("configmaps", Some("default"), "settings").unwrap()["data"].clone()
    }
}

#[tokio::test]
async fn helm_installs_changes_and_removes_a_chart_of_volumes() {
    let server = Server::start().await;
    let installed = server.helm(&format!("install small {CHART}")).await;
    assert!(installed.contains("STATUS: deployed"), "{installed}");
    server.helm(&format!("upgrade small {CHART} --set colour=blue")).await;
    assert_eq!(server.settings(), json!({"colour": "blue"}));
    server.helm("rollback small 1").await;
    assert_eq!(server.settings(), json!({"colour": "red"}));
    let shown = server.kubectl("get deployments,services,endpoints --no-headers").await;
    for row in ["deployment.apps/web   0/1", "service/web   ClusterIP", "endpoints/files   192.0.2.1:2049"] {
        assert!(shown.contains(row), "{shown}");
    }
    server.helm("uninstall small").await;
    for resource in
        ["persistentvolumes", "persistentvolumeclaims", "configmaps", "services", "endpoints", "deployments"]
    {
        assert_eq!(server.sim.objects(resource), [] as [Value; 0]);
    }
}

#[tokio::test]
async fn a_deleted_pod_on_a_node_goes_when_its_grace_period_is_over() {
    let server = Server::start().await;
    let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}]});
    let metadata = json!({"name": "p", "namespace": "default"});
    server.sim.put(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}));
    let deleted = server.kubectl("delete pod p --grace-period=1 --timeout=60s").await;
    assert!(deleted.contains("deleted"), "{deleted}");
    assert_eq!(server.sim.object("pods", Some("default"), "p"), None);
}

#[tokio::test]
async fn kubectl_is_answered_about_rights_the_cluster_and_metrics() {
    let server = Server::start().await;
    for (command, answer) in [
        ("auth can-i create pods", "yes"),
        ("auth can-i --list", "*.*"),
        ("cluster-info", "is running at http://127.0.0.1"),
        ("top pods", "Metrics API not available"),
        ("create deployment web --image=web", "this Deployment is stored here, and nothing runs it"),
    ] {
        let output = server.kubectl(command).await;
        assert!(output.contains(answer), "{command}: {output}");
    }
}

#[tokio::test]
async fn apply_without_an_allowlist_prunes_what_it_applied_before() {
    let server = Server::start().await;
    server.kubectl("create configmap old --save-config").await;
    server.kubectl("create ingress old --rule=a.example/*=web:80 --save-config").await;
    server.kubectl("create configmap other").await;
    let applied = server.kubectl(&format!("apply --prune --all -f {STATEFUL_SET}")).await;
    assert!(applied.contains("configmap/old pruned"), "{applied}");
    assert!(applied.contains("ingress.networking.k8s.io/old pruned"), "{applied}");
    let left = server.kubectl("get configmaps,ingresses,statefulsets --output name").await;
    assert_eq!(left, "configmap/other\nstatefulset.apps/db\n");
}

#[tokio::test]
async fn a_scaled_stateful_set_gets_its_next_claims() {
    let server = Server::start().await;
    server.kubectl(&format!("apply -f {STATEFUL_SET}")).await;
    let scaled = server.kubectl("scale statefulset db --current-replicas=1 --replicas=2").await;
    assert!(scaled.contains("statefulset.apps/db scaled"), "{scaled}");
    server.kubectl("scale statefulset db --replicas=3").await;
    let claims = server.kubectl("get pvc --output name").await.replace("persistentvolumeclaim/", "");
    assert_eq!(claims, "data-db-0\ndata-db-1\ndata-db-2\n");
}
