//! A cluster that a release is installed on, object by object.

use std::path::PathBuf;
use std::time::Duration;

use bindery_chart::{NAMESPACE, Objects, offered, yaml};
use bindery_cluster::{ControlPlane, Manager, Programs};
use http::request::Builder;
use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tempfile::TempDir;

/// What the API server says of a request that it refuses.
pub(super) type Refusal = String;

/// A control plane with the release's namespace.
pub(super) struct Site {
    client: Client,
    plane: ControlPlane,
    /// Where the API server writes down who has asked for what.
    audit: PathBuf,
    _folder: TempDir,
}

/// Who asks.
#[derive(Clone, Copy)]
pub(super) struct As {
    pub(super) user: &'static str,
    pub(super) groups: &'static [&'static str],
}

/// The one user of the control plane, who may do everything.
pub(super) const ADMIN: As = As { user: "admin", groups: &["system:masters"] };

/// How often, and how often at most, it is looked whether something has come about: for three minutes, a slow
/// machine stands still for seconds.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);
pub(super) const LOOKS_MAX: usize = 3_600;

/// Who has asked for what, and nothing of what it was.
const AUDIT_POLICY: &str =
    r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}"#;

/// The content type of a merge patch.
const MERGE: &str = "application/merge-patch+json";

impl Site {
    pub(super) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// A site whose API server has further arguments.
    pub(super) async fn start_with(further: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (policy, audit) = (folder.path().join("audit-policy.yaml"), folder.path().join("audit.log"));
        std::fs::write(&policy, AUDIT_POLICY).unwrap();
        let arguments = [("--audit-policy-file", &policy), ("--audit-log-path", &audit)];
        let arguments = arguments.map(|(flag, path)| format!("{flag}={}", path.display()));
        let arguments: Vec<_> = arguments.iter().map(String::as_str).chain(further.iter().copied()).collect();
        let programs = Programs::from_env().unwrap();
        let plane = ControlPlane::start_with(programs, Manager::Off, &arguments).await.unwrap();
        let site = Self { client: plane.client().await.unwrap(), plane, audit, _folder: folder };
        // The strictest that there is.
        let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}});
        site.create(&namespace, "").await.unwrap();
        site
    }

    /// How clients find it: a kubeconfig, with the user who may do everything.
    pub(super) fn kubeconfig(&self) -> Value {
        yaml(&std::fs::read_to_string(self.plane.kubeconfig()).unwrap())
    }

    /// What somebody has asked for so far: an event for each request, or for each watch that was begun.
    pub(super) fn asked_by(&self, user: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.audit).unwrap();
        // The last line may still be written.
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(|event| event["user"]["username"] == user).collect()
    }

    /// Has the API server know the custom resources of others that the chart makes.
    pub(super) async fn define(&self) {
        for file in std::env::split_paths(&offered("BINDERY_DEFINITIONS")) {
            let definition = yaml(&std::fs::read_to_string(&file).unwrap());
            self.create(&definition, "").await.unwrap();
            self.until_served(&definition["spec"]).await;
        }
    }

    /// Waits until the resource of a definition is served: it is only a moment after its status says so.
    async fn until_served(&self, spec: &Value) {
        let text = |field: &Value| field.as_str().unwrap().to_owned();
        let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
        let versions = spec["versions"].as_array().unwrap().iter();
        for version in versions.filter(|version| version["served"] == true) {
            let list = format!("/apis/{group}/{}/{plural}", text(&version["name"]));
            let mut looks = tokio::time::interval(LOOK_EVERY);
            let mut last = Ok(Value::Null);
            for _ in 0..LOOKS_MAX {
                looks.tick().await;
                last = self.ask(ADMIN, Method::GET, &list, None).await;
                if last.is_ok() {
                    break;
                }
            }
            assert!(last.is_ok(), "{list} is never served: {last:?}");
        }
    }

    /// Creates the objects of some kinds.
    pub(super) async fn install(&self, objects: &Objects, kinds: &[&str]) {
        for (name, object) in
            objects.iter().filter(|(_, object)| kinds.iter().any(|kind| object["kind"] == *kind))
        {
            self.create(object, "").await.unwrap_or_else(|why| panic!("{name}: {why}"));
        }
    }

    pub(super) async fn create(&self, object: &Value, query: &str) -> Result<Value, Refusal> {
        self.ask(ADMIN, Method::POST, &format!("{}?{query}", folder(object)), Some(object)).await
    }

    pub(super) async fn patch(&self, path: &str, change: &Value) -> Result<Value, Refusal> {
        self.ask(ADMIN, Method::PATCH, path, Some(change)).await
    }

    /// Sends a request for somebody.
    pub(super) async fn ask(
        &self,
        who: As,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Refusal> {
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = request(who, method, path).body(body).unwrap();
        self.client.request(request).await.map_err(|error| match error {
            kube::Error::Api(status) => status.message.clone(),
            other => panic!("{other}"),
        })
    }

    /// The UID of the FlowSchema that a read of somebody falls under, whether it is allowed or not.
    pub(super) async fn flow_of(&self, who: As, path: &str) -> String {
        let request = request(who, Method::GET, path).body(Body::empty()).unwrap();
        let answer = self.client.send(request).await.unwrap();
        answer.headers()["X-Kubernetes-PF-FlowSchema-UID"].to_str().unwrap().to_owned()
    }
}

/// The head of a request for somebody.
fn request(who: As, method: Method, path: &str) -> Builder {
    let content_type = if method == Method::PATCH { MERGE } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("Content-Type", content_type);
    let request = request.header("Impersonate-User", who.user);
    who.groups.iter().fold(request, |request, group| request.header("Impersonate-Group", *group))
}

/// Where objects like this one are created.
fn folder(object: &Value) -> String {
    let text = |field: &Value| field.as_str().unwrap().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let plural = match kind.as_str() {
        "NetworkPolicy" => "networkpolicies".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    object["metadata"]["namespace"].as_str().map_or_else(
        || format!("{root}/{version}/{plural}"),
        |namespace| format!("{root}/{version}/namespaces/{namespace}/{plural}"),
    )
}

/// A volume of 1 GiB without a class.
pub(super) fn volume(name: &str, reclaim_policy: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/volumes/v"},
            "persistentVolumeReclaimPolicy": reclaim_policy,
        },
    })
}

/// A claim without a class.
pub(super) fn claim(namespace: &str, name: &str, storage: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": storage}},
            "storageClassName": "",
        },
    })
}
