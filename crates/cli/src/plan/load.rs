//! Checks manifests, and sorts their objects in the order of creation.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use anyhow::{Context as _, Result, bail};
use bindery_kube::decode;
use bindery_store::Observed;
use serde_json::{Value, json};

use crate::manifest::Manifest;
use crate::objects::{Resource, Title};

/// An object that decisions depend on.
pub(super) struct Object {
    pub(super) file: String,
    pub(super) resource: Resource,
    /// The object, with its namespace.
    pub(super) value: Value,
}

impl Object {
    /// Whether the object comes from a cluster, and need not be created.
    pub(super) fn exists(&self) -> bool {
        self.value["metadata"]["uid"].as_str().is_some_and(|uid| !uid.is_empty())
    }
}

/// The objects that decisions depend on, sorted by resource, then as in the manifests. Names the others on
/// standard error.
pub(super) fn sort(manifests: Vec<Manifest>) -> Result<Vec<Object>> {
    let mut ignored = BTreeMap::<String, usize>::new();
    let mut seen = BTreeMap::<String, String>::new();
    let mut objects = Vec::new();
    for Manifest { file, object: mut value } in manifests {
        let Some(resource) = Resource::of(&value) else {
            let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
            if let Some(served) = Resource::version_served(&value) {
                let version = text("apiVersion");
                bail!("{file}: {}: apiVersion: {version:?} is not served; write {served}", Title(&value));
            }
            *ignored.entry(format!("{} {}", text("apiVersion"), text("kind"))).or_default() += 1;
            continue;
        };
        complete_name(&mut value, resource).with_context(|| format!("{file}: {}", Title(&value)))?;
        check(&value, resource).with_context(|| format!("{file}: {}", Title(&value)))?;
        match seen.entry(Title(&value).to_string()) {
            Entry::Occupied(first) => {
                bail!("{file}: {} is there twice, first in {}: remove one", Title(&value), first.get())
            }
            Entry::Vacant(entry) => entry.insert(file.clone()),
        };
        objects.push(Object { file, resource, value });
    }
    for (kind, count) in ignored {
        eprintln!("note: {count} x {kind} ignored: nothing that is decided here depends on it");
    }
    objects.sort_by_key(|object| object.resource);
    Ok(objects)
}

fn complete_name(value: &mut Value, resource: Resource) -> Result<()> {
    let Some(meta) = value["metadata"].as_object_mut() else {
        bail!("it has no metadata: give it a metadata.name")
    };
    if meta.get("name").and_then(Value::as_str).is_none_or(str::is_empty) {
        bail!("it has no metadata.name: give it one");
    }
    if !resource.is_namespaced() {
        meta.remove("namespace");
    } else if meta.get("namespace").is_none_or(|namespace| namespace.as_str() == Some("")) {
        meta.insert("namespace".to_owned(), json!("default"));
    }
    // The namespace becomes part of a path.
    if let Some(namespace) = meta.get("namespace").and_then(Value::as_str)
        && !namespace.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    {
        bail!("metadata.namespace: {namespace:?} is not a name; use lower case letters, digits and '-'");
    }
    Ok(())
}

/// Decodes the object; the error names field, value and remedy.
fn check(value: &Value, resource: Resource) -> Result<()> {
    fn readable<N, T>(decoded: Result<(N, Observed<T>), decode::DecodeError>) -> Result<()> {
        match decoded? {
            (_, Observed::Readable(_)) => Ok(()),
            (_, Observed::Unreadable(unreadable)) => bail!("{}", unreadable.why),
        }
    }
    match resource {
        Resource::Volume => readable(decode::volume(value)),
        Resource::Claim => readable(decode::claim(value)),
        Resource::Class => readable(decode::class(value)),
        Resource::Pod => Ok(decode::pod(value).map(drop)?),
        Resource::Namespace | Resource::Node | Resource::AttributesClass => {
            Ok(decode::name(value).map(drop)?)
        }
    }
}
