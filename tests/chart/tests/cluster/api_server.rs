//! A real API server, on which a release is installed object by object.

use std::path::PathBuf;

use bindery_chart::{NAMESPACE, Objects, offered, yaml};
use bindery_cluster::{Cluster, Manager, poll, request};
use bindery_kit::json;
use http::{HeaderValue, Method, Request};
use kube::client::Body;
use serde_json::{Value, json};
use tempfile::TempDir;

#[derive(Clone, Copy)]
pub(super) struct User {
    pub(super) name: &'static str,
    pub(super) groups: &'static [&'static str],
}

/// The only user of the control plane, with every right.
pub(super) const ADMIN: User = User { name: "admin", groups: &["system:masters"] };

/// The audit log of an API server, with one event for each request, or for each watch that began.
pub(super) struct Audit {
    folder: TempDir,
}

/// The log contains users and paths, but no objects.
const AUDIT_POLICY: &str =
    r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}"#;

impl User {
    /// A request of this user; null stands for no body.
    pub(super) fn request(self, method: Method, path: &str, body: &Value) -> Request<Vec<u8>> {
        let mut request = request(method, path, body);
        let headers = request.headers_mut();
        headers.insert("Impersonate-User", HeaderValue::from_static(self.name));
        for group in self.groups {
            headers.append("Impersonate-Group", HeaderValue::from_static(group));
        }
        request
    }
}

impl Audit {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("policy.yaml"), AUDIT_POLICY).unwrap();
        Self { folder }
    }

    /// The arguments by which an API server writes the log.
    pub(super) fn arguments(&self) -> [String; 2] {
        let argument = |flag: &str, path: PathBuf| format!("--{flag}={}", path.display());
        let path = self.folder.path();
        [
            argument("audit-policy-file", path.join("policy.yaml")),
            argument("audit-log-path", path.join("audit.log")),
        ]
    }

    pub(super) fn events_of(&self, user: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.path().join("audit.log")).unwrap();
        // The last line may be incomplete.
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(|event| event["user"]["username"] == user).collect()
    }
}

/// Looks until something has happened, and panics with the last reason why it has not.
pub(super) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Result<T, String>) -> T {
    let mut last = String::new();
    let found = poll(async || look().await.map_err(|why| last = why).ok()).await;
    found.unwrap_or_else(|| panic!("it never happened that {what}: {last}"))
}

/// Starts an API server with the release's namespace.
pub(super) async fn start() -> Cluster {
    start_with(&[]).await
}

pub(super) async fn start_with(further: &[&str]) -> Cluster {
    let api = Cluster::start_with(Manager::Off, further).await;
    create_namespace(&api, NAMESPACE).await;
    api
}

/// Creates a namespace with the strictest Pod Security.
pub(super) async fn create_namespace(api: &Cluster, name: &str) {
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let metadata = json!({"name": name, "labels": labels});
    api.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}), "").await.unwrap();
}

/// Installs the definitions of the custom resources that the chart contains.
pub(super) async fn install_definitions(api: &Cluster) {
    for file in std::env::split_paths(&offered("BINDERY_DEFINITIONS")) {
        let definition = yaml(&std::fs::read_to_string(&file).unwrap());
        api.create(&definition, "").await.unwrap();
        let spec = &definition["spec"];
        let text = |field: &Value| field.as_str().unwrap().to_owned();
        for version in spec["versions"].as_array().unwrap().iter().filter(|it| it["served"] == true) {
            let (group, version) = (text(&spec["group"]), text(&version["name"]));
            let list = format!("/apis/{group}/{version}/{}", text(&spec["names"]["plural"]));
            until(&format!("{list} is served"), async || api.get(&list).await).await;
        }
    }
}

pub(super) async fn install(api: &Cluster, objects: &Objects, kinds: &[&str]) {
    for (name, object) in
        objects.iter().filter(|(_, object)| kinds.iter().any(|kind| object["kind"] == *kind))
    {
        api.create(object, "").await.unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}

/// The UID of the FlowSchema that matches a user's read, whether the read is allowed or not.
pub(super) async fn flow_schema_of(api: &Cluster, user: User, path: &str) -> String {
    let request = user.request(Method::GET, path, &Value::Null).map(Body::from);
    let answer = api.client.send(request).await.unwrap();
    answer.headers()["X-Kubernetes-PF-FlowSchema-UID"].to_str().unwrap().to_owned()
}

/// A volume of 1 GiB without a class.
pub(super) fn volume(name: &str, reclaim_policy: &str) -> Value {
    let spec = json!({"hostPath": {"path": "/volumes/v"}, "persistentVolumeReclaimPolicy": reclaim_policy});
    json::volume(name, json!({"spec": spec}))
}

/// A claim without a class.
pub(super) fn claim(namespace: &str, name: &str, storage: &str) -> Value {
    let resources = json!({"requests": {"storage": storage}});
    json::claim(name, json!({"metadata": {"namespace": namespace}, "spec": {"resources": resources}}))
}
