//! A cluster with one node that has Bindery's image, for releases of the chart.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test fails by panicking")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bindery_chart::{NAMESPACE, Operator, offered};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::PostParams;
use serde_json::json;
use tempfile::TempDir;

use crate::world::World;
use crate::{Node, command};

/// Label of a release's pods.
pub const PODS: &str = "app.kubernetes.io/name=bindery";
/// How long Helm waits.
pub const TIMEOUT: &str = "--timeout=3m";
/// Values by which no review is given up, though the machine stands still for seconds, and no pod ends while
/// it is still asked.
pub const PATIENT: &str = "webhook.timeoutSeconds=30,webhook.drainSeconds=15";
/// How much of a log is shown to whoever waits in vain, in bytes.
const LOG_SHOWN: usize = 3_000;

/// A cluster with one node, on which Bindery is to be installed.
pub struct Site {
    /// The cluster.
    pub node: Node,
    /// Who installs.
    pub operator: Arc<Operator>,
    /// What is in the cluster.
    pub world: World,
    /// Logs of further programs, and folders that are volumes.
    pub folder: TempDir,
}

impl Site {
    /// Brings a cluster up, and gives its node the image.
    pub async fn start(name: &str) -> Self {
        let name = format!("{name}-{}", std::process::id());
        let node = Node::start(&name).unwrap();
        assert!(command("load", &name).unwrap().arg(offered("BINDERY_IMAGE")).status().unwrap().success());
        let operator = Arc::new(Operator::new(node.kubeconfig()));
        let folder = tempfile::tempdir().unwrap();
        let (told, logs) = (Arc::clone(&operator), folder.path().to_owned());
        let told = move || {
            let said = |arguments: &[&str]| {
                let arguments = [&["--namespace", NAMESPACE], arguments].concat();
                told.kubectl(&arguments, "").unwrap_or_else(|why| why)
            };
            said(&["describe", "pods"]) + &said(&["logs", "--prefix", "--selector", PODS]) + &ends(&logs)
        };
        let world = World::new(node.client().await.unwrap(), told);
        Self { node, operator, world, folder }
    }

    /// Creates a volume without class that is a folder of this machine, and answers the folder.
    pub async fn create_volume(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir(&path).unwrap();
        let spec = json!({
            "storageClassName": "", "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": path},
        });
        self.world.create_volume(name, spec).await;
        path
    }

    /// A claim gets the only volume that is there, and a pod writes into it.
    pub async fn use_a_volume(&self, name: &str) {
        let path = self.create_volume(name).await;
        self.world.create_claim(name, "").await;
        assert_eq!(self.world.until_bound(name).await, name);
        self.world.create_writer(name, name, name).await;
        self.world.until_done(name).await;
        assert_eq!(fs::read_to_string(path.join("file")).unwrap(), format!("{name}\n"));
    }

    /// Waits until the API server asks Bindery: it learns a moment later whom to ask and to trust, and the
    /// node where they are. There must be a volume of this name.
    pub async fn until_reviewed(&self, volume: &str) {
        let look = async || self.try_hopeless_claim(volume).await.ok();
        self.world.until_seen("the refusal of a hopeless claim", look).await;
    }

    /// Has the API server try a claim that asks for more than a volume has, which it names.
    ///
    /// # Errors
    ///
    /// It is not refused by that rule; answers what came of it.
    pub async fn try_hopeless_claim(&self, volume: &str) -> Result<(), String> {
        let refusal = format!("spec.volumeName: volume \"{volume}\" offers ");
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": {"name": "hopeless"},
            "spec": {
                "storageClassName": "", "volumeName": volume, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "10Gi"}},
            },
        }))
        .unwrap();
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        match self.world.claims.create(&dry, &claim).await {
            Err(kube::Error::Api(status)) if status.code == 422 && status.message.contains(&refusal) => {
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    }

    /// Runs kubectl in the release's namespace. Answers what it printed.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let arguments = [&["--namespace", NAMESPACE], arguments].concat();
        self.operator.kubectl(&arguments, "").unwrap_or_else(|why| panic!("kubectl {arguments:?}: {why}"))
    }
}

/// The ends of the logs in a folder.
fn ends(folder: &Path) -> String {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let logs = entries.map(|entry| entry.path()).filter(|path| path.extension() == Some(OsStr::new("log")));
    let end = |path: PathBuf| {
        let text = fs::read(&path).unwrap_or_default();
        let end = &text[text.len().saturating_sub(LOG_SHOWN)..];
        format!("--- {}\n{}\n", path.display(), String::from_utf8_lossy(end))
    };
    logs.map(end).collect()
}
