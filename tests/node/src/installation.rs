//! A cluster with one node that has Bindery's image, on which the chart can be installed.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test fails by panicking")]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use bindery_chart::{NAMESPACE, Operator, offered};
use bindery_kit::json;
use kube::api::PostParams;
use serde_json::json;
use tempfile::TempDir;

use crate::objects::Objects;
use crate::{Node, command, log_ends};

/// The label of a release's pods.
pub const PODS: &str = "app.kubernetes.io/name=bindery";
/// The time that Helm waits. On a busy machine a pod takes minutes to compile the engine.
pub const TIMEOUT: &str = "--timeout=10m";
/// Values for a slow machine: no review times out, no pod ends before the API server stops asking it, and
/// pods get a share of the processors beside other tests.
pub const PATIENT: &str = "webhook.timeoutSeconds=30,webhook.drainSeconds=15,resources.requests.cpu=400m";
/// A cluster for an installation of Bindery.
pub struct Installation {
    /// The cluster with its node.
    pub node: Node,
    /// Helm and kubectl.
    pub operator: Arc<Operator>,
    /// The cluster's objects.
    pub objects: Objects,
    /// Logs of further programs, and folders that are volumes.
    pub folder: TempDir,
}

impl Installation {
    /// Brings a cluster up and loads the image into its node. Upstream's binder is off.
    pub async fn start(name: &str) -> Self {
        Self::start_with(name, "without-binder").await
    }

    /// The same with these loops of upstream's controller manager.
    pub async fn start_with(name: &str, manager: &str) -> Self {
        let name = format!("{name}-{}", std::process::id());
        let node = Node::start_with(&name, manager).unwrap();
        assert!(command("load", &name).unwrap().arg(offered("BINDERY_IMAGE")).status().unwrap().success());
        let operator = Arc::new(Operator::new(node.kubeconfig()));
        let folder = tempfile::tempdir().unwrap();
        let (kubectl, logs) = (Arc::clone(&operator), folder.path().to_owned());
        let logs = move || {
            let show = |arguments: &[&str]| {
                let arguments = [&["--namespace", NAMESPACE], arguments].concat();
                kubectl.kubectl(&arguments, "").unwrap_or_else(|why| why)
            };
            show(&["describe", "pods"]) + &show(&["logs", "--prefix", "--selector", PODS]) + &log_ends(&logs)
        };
        let objects = Objects::new(node.client().await.unwrap(), logs);
        Self { node, operator, objects, folder }
    }

    /// Creates a volume without a class, and returns its folder on this machine.
    pub async fn create_volume(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir(&path).unwrap();
        self.objects.create_volume(name, json!({"hostPath": {"path": path}})).await;
        path
    }

    /// Creates a volume and a claim, waits until they are bound, and has a pod write into the volume.
    pub async fn use_a_volume(&self, name: &str) {
        let path = self.create_volume(name).await;
        self.objects.create_claim(name, "").await;
        assert_eq!(self.objects.until_bound(name).await, name);
        self.objects.create_writer(name, name, name).await;
        self.objects.until_done(name).await;
        assert_eq!(fs::read_to_string(path.join("file")).unwrap(), format!("{name}\n"));
    }

    /// Waits until the API server sends reviews to Bindery: it notices the webhook configuration, and the
    /// node the endpoints, after a moment. A volume with this name must exist.
    pub async fn until_reviewed(&self, volume: &str) {
        let look = async || self.try_hopeless_claim(volume).await.ok();
        self.objects.until_found("the refusal of a hopeless claim", look).await;
    }

    /// Tries to create a claim that names a volume and requests more than the volume has.
    pub async fn try_hopeless_claim(&self, volume: &str) -> Result<(), String> {
        let refusal = format!("spec.volumeName: volume \"{volume}\" offers ");
        let spec = json!({"volumeName": volume, "resources": {"requests": {"storage": "10Gi"}}});
        let claim = json::claim("hopeless", json!({"spec": spec}));
        let claim = serde_json::from_value(claim).unwrap();
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        match self.objects.claims.create(&dry, &claim).await {
            Err(kube::Error::Api(status)) if status.code == 422 && status.message.contains(&refusal) => {
                Ok(())
            }
            Ok(_) => Err(format!("it was created; the pods say:\n{}", self.unchecked())),
            Err(other) => Err(format!("{other:?}")),
        }
    }

    /// The lines of the pods' logs about requests that passed unchecked.
    fn unchecked(&self) -> String {
        let logs = self.kubectl(&["logs", "--prefix", "--tail=-1", "--selector", PODS]);
        let lines: Vec<_> = logs.lines().filter(|line| line.contains("unchecked")).collect();
        lines.join("\n")
    }

    /// Ends all pods of the release at once.
    pub fn kill_pods(&self) {
        self.kubectl(&["delete", "pods", "--selector", PODS, "--force", "--grace-period=0"]);
    }

    /// Runs kubectl in the release's namespace and returns its output.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let arguments = [&["--namespace", NAMESPACE], arguments].concat();
        self.operator.kubectl(&arguments, "").unwrap_or_else(|why| panic!("kubectl {arguments:?}: {why}"))
    }
}
