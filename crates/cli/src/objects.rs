//! Kubernetes objects as JSON: what they are called, and creating them through the API.

use std::fmt;

use serde_json::Value;

/// A kind of object that decisions depend on, in the order in which objects have to be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Namespace.
    Namespace,
    /// StorageClass.
    Class,
    /// VolumeAttributesClass.
    AttributesClass,
    /// Node.
    Node,
    /// PersistentVolume.
    Volume,
    /// PersistentVolumeClaim.
    Claim,
    /// Pod.
    Pod,
}

/// apiVersion, kind, and path of the collection; `{}` stands for the namespace.
const KINDS: [(Kind, &str, &str, &str); 7] = [
    (Kind::Namespace, "v1", "Namespace", "/api/v1/namespaces"),
    (Kind::Class, "storage.k8s.io/v1", "StorageClass", "/apis/storage.k8s.io/v1/storageclasses"),
    (
        Kind::AttributesClass,
        "storage.k8s.io/v1",
        "VolumeAttributesClass",
        "/apis/storage.k8s.io/v1/volumeattributesclasses",
    ),
    (Kind::Node, "v1", "Node", "/api/v1/nodes"),
    (Kind::Volume, "v1", "PersistentVolume", "/api/v1/persistentvolumes"),
    (Kind::Claim, "v1", "PersistentVolumeClaim", "/api/v1/namespaces/{}/persistentvolumeclaims"),
    (Kind::Pod, "v1", "Pod", "/api/v1/namespaces/{}/pods"),
];

impl Kind {
    /// The kind of an object; `None` for one that no decision depends on.
    pub(crate) fn of(object: &Value) -> Option<Self> {
        let (api_version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
        KINDS.iter().find(|entry| entry.1 == api_version && entry.2 == kind).map(|entry| entry.0)
    }

    /// The apiVersion that an object of one of these kinds should have, where it has another one of the same
    /// group.
    pub(crate) fn version_served(object: &Value) -> Option<&'static str> {
        fn group(api_version: &str) -> &str {
            api_version.split_once('/').map_or("", |(group, _)| group)
        }
        let (api_version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
        let entry = KINDS.iter().find(|entry| entry.2 == kind && group(entry.1) == group(api_version))?;
        (entry.1 != api_version).then_some(entry.1)
    }

    /// Whether objects of the kind live in namespaces.
    pub(crate) fn is_namespaced(self) -> bool {
        self.collection().contains("{}")
    }

    fn collection(self) -> &'static str {
        KINDS
            .iter()
            .find(|entry| entry.0 == self)
            .map(|entry| entry.3)
            .expect("every kind must be in the table")
    }
}

/// What a person calls an object: kind, and namespace and name.
pub(crate) struct Title<'a>(pub(crate) &'a Value);

impl fmt::Display for Title<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meta = &self.0["metadata"];
        let name = meta["name"].as_str().or(meta["generateName"].as_str()).unwrap_or_default();
        write!(f, "{} ", self.0["kind"].as_str().unwrap_or("object"))?;
        match meta["namespace"].as_str() {
            Some(namespace) => write!(f, "\"{namespace}/{name}\""),
            None => write!(f, "{name:?}"),
        }
    }
}

/// Creates an object through the API as kubectl does: one without namespace where it needs one goes to
/// `default`, and fields that do not exist are refused.
///
/// # Errors
///
/// The API server refuses it; what it says.
pub(crate) async fn create(client: &kube::Client, kind: Kind, object: &Value) -> Result<Value, String> {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
    let path = kind.collection().replace("{}", namespace);
    let request = http::Request::post(format!("{path}?fieldValidation=Strict"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(object.to_string().into_bytes())
        .map_err(|error| format!("metadata.namespace: {namespace:?} is not a name: {error}"))?;
    client.request(request).await.map_err(|error| match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    })
}
