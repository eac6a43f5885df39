//! A real API server, on which a release is installed object by object.

use std::path::PathBuf;
use std::time::Duration;

use bindery_chart::{NAMESPACE, Objects, offered, yaml};
use bindery_cluster::{ControlPlane, Manager, Programs};
use bindery_kit::json;
use http::request::Builder;
use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tempfile::TempDir;

/// An API server with the release's namespace.
pub(super) struct ApiServer {
    client: Client,
    plane: ControlPlane,
    /// The audit log: one event for each request.
    audit: PathBuf,
    _folder: TempDir,
}

/// The user of a request.
#[derive(Clone, Copy)]
pub(super) struct User {
    pub(super) name: &'static str,
    pub(super) groups: &'static [&'static str],
}

/// The only user of the control plane, who may do everything.
pub(super) const ADMIN: User = User { name: "admin", groups: &["system:masters"] };

/// The pause between two looks, and their number: three minutes in all, since a slow machine may stand still
/// for seconds.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOOKS_MAX: usize = 3_600;

/// The audit log contains users and paths, but no objects.
const AUDIT_POLICY: &str =
    r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}"#;

/// Looks until something has happened, and panics with the last reason why it has not.
pub(super) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Result<T, String>) -> T {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    let mut last = String::new();
    for _ in 0..LOOKS_MAX {
        looks.tick().await;
        match look().await {
            Ok(found) => return found,
            Err(why) => last = why,
        }
    }
    panic!("it never happened that {what}: {last}");
}

impl ApiServer {
    pub(super) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts one with further arguments.
    pub(super) async fn start_with(further: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (policy, audit) = (folder.path().join("audit-policy.yaml"), folder.path().join("audit.log"));
        std::fs::write(&policy, AUDIT_POLICY).unwrap();
        let arguments = [("--audit-policy-file", &policy), ("--audit-log-path", &audit)];
        let arguments = arguments.map(|(flag, path)| format!("{flag}={}", path.display()));
        let arguments: Vec<_> = arguments.iter().map(String::as_str).chain(further.iter().copied()).collect();
        let programs = Programs::from_env().unwrap();
        let plane = ControlPlane::start_with(programs, Manager::Off, &arguments).await.unwrap();
        let api = Self { client: plane.client().await.unwrap(), plane, audit, _folder: folder };
        api.create_namespace(NAMESPACE).await;
        api
    }

    /// Creates a namespace with the strictest Pod Security.
    pub(super) async fn create_namespace(&self, name: &str) {
        let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        let metadata = json!({"name": name, "labels": labels});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        self.create(&namespace, "").await.unwrap();
    }

    /// The administrator's kubeconfig.
    pub(super) fn kubeconfig(&self) -> Value {
        yaml(&std::fs::read_to_string(self.plane.kubeconfig()).unwrap())
    }

    /// The audit log's events for a user: one for each request, or for each watch that began.
    pub(super) fn requests_of(&self, user: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.audit).unwrap();
        // The last line may be incomplete.
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(|event| event["user"]["username"] == user).collect()
    }

    /// Installs the definitions of the custom resources that the chart contains.
    pub(super) async fn install_definitions(&self) {
        for file in std::env::split_paths(&offered("BINDERY_DEFINITIONS")) {
            let definition = yaml(&std::fs::read_to_string(&file).unwrap());
            self.create(&definition, "").await.unwrap();
            let spec = &definition["spec"];
            let text = |field: &Value| field.as_str().unwrap().to_owned();
            for version in spec["versions"].as_array().unwrap().iter().filter(|it| it["served"] == true) {
                let (group, version) = (text(&spec["group"]), text(&version["name"]));
                let list = format!("/apis/{group}/{version}/{}", text(&spec["names"]["plural"]));
                until(&format!("{list} is served"), async || self.get(&list).await).await;
            }
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

    pub(super) async fn get(&self, path: &str) -> Result<Value, String> {
        self.request(ADMIN, Method::GET, path, None).await
    }

    pub(super) async fn create(&self, object: &Value, query: &str) -> Result<Value, String> {
        self.request(ADMIN, Method::POST, &format!("{}?{query}", collection(object)), Some(object)).await
    }

    pub(super) async fn patch(&self, path: &str, change: &Value) -> Result<Value, String> {
        self.request(ADMIN, Method::PATCH, path, Some(change)).await
    }

    pub(super) async fn delete(&self, path: &str) -> Result<Value, String> {
        self.request(ADMIN, Method::DELETE, path, None).await
    }

    /// Sends a request as a user. The error is the API server's message.
    pub(super) async fn request(
        &self,
        user: User,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, String> {
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = head(user, method, path).body(body).unwrap();
        self.client.request(request).await.map_err(|error| match error {
            kube::Error::Api(status) => status.message.clone(),
            other => panic!("{other}"),
        })
    }

    /// The UID of the FlowSchema that matches a user's read, whether the read is allowed or not.
    pub(super) async fn flow_schema_of(&self, user: User, path: &str) -> String {
        let request = head(user, Method::GET, path).body(Body::empty()).unwrap();
        let answer = self.client.send(request).await.unwrap();
        answer.headers()["X-Kubernetes-PF-FlowSchema-UID"].to_str().unwrap().to_owned()
    }
}

/// The head of a user's request.
fn head(user: User, method: Method, path: &str) -> Builder {
    let is_patch = method == Method::PATCH;
    let content_type = if is_patch { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("Content-Type", content_type);
    let request = request.header("Impersonate-User", user.name);
    user.groups.iter().fold(request, |request, group| request.header("Impersonate-Group", *group))
}

/// The path of the collection that an object belongs to.
fn collection(object: &Value) -> String {
    let text = |field: &Value| field.as_str().unwrap().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let plural = match kind.as_str() {
        "NetworkPolicy" => "networkpolicies".to_owned(),
        "StorageClass" => "storageclasses".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    object["metadata"]["namespace"].as_str().map_or_else(
        || format!("{root}/{version}/{plural}"),
        |namespace| format!("{root}/{version}/namespaces/{namespace}/{plural}"),
    )
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
