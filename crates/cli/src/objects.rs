//! Kubernetes objects as JSON.

use std::fmt;

use bindery_core::named_cases;
use serde_json::Value;

named_cases! {
    /// The resources that decisions depend on, in the order of creation; each has the name of its kind.
    Resource {
        Namespace = "Namespace";
        Class = "StorageClass";
        AttributesClass = "VolumeAttributesClass";
        Node = "Node";
        Volume = "PersistentVolume";
        Claim = "PersistentVolumeClaim";
        Pod = "Pod";
    }
}

impl Resource {
    /// apiVersion, and path of the collection, in which `{}` stands for the namespace.
    fn api(self) -> (&'static str, &'static str) {
        const STORAGE: &str = "storage.k8s.io/v1";
        match self {
            Self::Namespace => ("v1", "/api/v1/namespaces"),
            Self::Class => (STORAGE, "/apis/storage.k8s.io/v1/storageclasses"),
            Self::AttributesClass => (STORAGE, "/apis/storage.k8s.io/v1/volumeattributesclasses"),
            Self::Node => ("v1", "/api/v1/nodes"),
            Self::Volume => ("v1", "/api/v1/persistentvolumes"),
            Self::Claim => ("v1", "/api/v1/namespaces/{}/persistentvolumeclaims"),
            Self::Pod => ("v1", "/api/v1/namespaces/{}/pods"),
        }
    }

    /// The resource of an object; `None` if no decision depends on it.
    pub(crate) fn of(object: &Value) -> Option<Self> {
        let (version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
        Self::ALL.into_iter().find(|resource| (resource.api().0, resource.name()) == (version, kind))
    }

    /// The served apiVersion of an object that has another one of the same group.
    pub(crate) fn version_served(object: &Value) -> Option<&'static str> {
        fn group(api_version: &str) -> &str {
            api_version.split_once('/').map_or("", |(group, _)| group)
        }
        let (version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
        let is_of = |resource: &Self| resource.name() == kind && group(resource.api().0) == group(version);
        let (served, _) = Self::ALL.into_iter().find(is_of)?.api();
        (served != version).then_some(served)
    }

    /// The kind that an object of another kind probably means: one in the plural, or in other letters.
    pub(crate) fn meant(object: &Value) -> Option<&'static str> {
        let plain = |kind: &str| kind.to_ascii_lowercase().trim_end_matches('s').to_owned();
        let (version, kind) = (object["apiVersion"].as_str()?, plain(object["kind"].as_str()?));
        let is_meant = |resource: &Self| resource.api().0 == version && plain(resource.name()) == kind;
        Self::ALL.into_iter().find(is_meant).map(Self::name)
    }

    /// The path of its collection, in a namespace if its objects have one.
    pub(crate) fn collection(self, namespace: &str) -> String {
        self.api().1.replace("{}", namespace)
    }

    /// An item of a list, which has neither apiVersion nor kind, with both.
    pub(crate) fn complete(self, mut object: Value) -> Value {
        (object["apiVersion"], object["kind"]) = (self.api().0.into(), self.name().into());
        object
    }

    /// Whether its objects have a namespace.
    pub(crate) fn is_namespaced(self) -> bool {
        self.api().1.contains("{}")
    }
}

/// Displays kind, namespace and name of an object.
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

/// Creates an object through the API as kubectl does: an object that needs a namespace and has none goes to
/// `default`, and unknown fields are refused. The error is the message of the API server, without the object.
pub(crate) async fn create(
    client: &kube::Client,
    resource: Resource,
    object: &Value,
) -> Result<Value, String> {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
    let path = resource.collection(namespace);
    let request = http::Request::post(format!("{path}?fieldValidation=Strict"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(object.to_string().into_bytes())
        .map_err(|error| format!("metadata.namespace: {namespace:?} is not a name: {error}"))?;
    client.request(request).await.map_err(|error| match error {
        kube::Error::Api(status) => without_object(&status.message, resource).to_owned(),
        error => error.to_string(),
    })
}

/// What a message of the API server says about an object, without its beginning, which names the object.
fn without_object(message: &str, resource: Resource) -> &str {
    let kind = resource.name();
    let ends = [format!(" cannot be handled as a {kind}: "), " is invalid: ".to_owned()];
    let after = ends.iter().find_map(|end| message.split_once(end.as_str()));
    after.filter(|(object, _)| object.starts_with(kind)).map_or(message, |(_, why)| why)
}
