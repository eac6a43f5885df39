//! Requests to the API server by path, for objects as JSON, and kubectl.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

use bindery_servers::run;
use http::{Method, Request};
use serde_json::{Value, json};

use crate::Cluster;

impl Cluster {
    /// Reads the object at a path.
    ///
    /// # Errors
    ///
    /// The API server's message; the same for the functions below.
    pub async fn get(&self, path: &str) -> Result<Value, String> {
        self.send(request(Method::GET, path, &Value::Null)).await
    }

    /// Whether the API server has version v1 of MutatingAdmissionPolicy, as since 1.36.
    pub async fn has_mutating_policies(&self) -> bool {
        self.get("/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies").await.is_ok()
    }

    /// Creates an object, which has apiVersion, kind and perhaps a namespace, with a query such as
    /// `dryRun=All`.
    pub async fn create(&self, object: &Value, query: &str) -> Result<Value, String> {
        self.send(request(Method::POST, &format!("{}?{query}", collection(object)), object)).await
    }

    /// Merges a change into the object at a path.
    pub async fn patch(&self, path: &str, change: &Value) -> Result<Value, String> {
        self.send(request(Method::PATCH, path, change)).await
    }

    /// Deletes the object at a path.
    pub async fn delete(&self, path: &str) -> Result<Value, String> {
        self.send(request(Method::DELETE, path, &Value::Null)).await
    }

    /// Sends a request of [`request`], perhaps with further headers.
    pub async fn send(&self, request: Request<Vec<u8>>) -> Result<Value, String> {
        self.client.request(request).await.map_err(|error| match error {
            kube::Error::Api(status) => status.message.clone(),
            other => panic!("{other}"),
        })
    }

    /// Runs kubectl (`BINDERY_KUBECTL`) with a text on its standard input.
    pub fn kubectl(&self, arguments: &[&str], input: &str) -> Output {
        let mut kubectl = Command::new(std::env::var_os("BINDERY_KUBECTL").unwrap());
        kubectl.arg("--kubeconfig").arg(self.kubeconfig()).args(arguments);
        run(&mut kubectl, input)
    }
}

/// A request to the API server; null stands for no body.
pub fn request(method: Method, path: &str, body: &Value) -> Request<Vec<u8>> {
    let is_patch = method == Method::PATCH;
    let content_type = if is_patch { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    Request::builder().method(method).uri(path).header("Content-Type", content_type).body(body).unwrap()
}

/// A kubeconfig with one cluster and one user.
pub fn kubeconfig(cluster: &Value, user: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    })
}

/// The path of the collection that an object belongs to.
fn collection(object: &Value) -> String {
    let text = |field: &Value| field.as_str().unwrap().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let kind = kind.to_lowercase();
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with("class") => format!("{kind}es"),
        None => format!("{kind}s"),
    };
    object["metadata"]["namespace"].as_str().map_or_else(
        || format!("{root}/{version}/{plural}"),
        |namespace| format!("{root}/{version}/namespaces/{namespace}/{plural}"),
    )
}
