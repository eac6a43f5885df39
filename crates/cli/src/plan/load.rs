//! From manifests to objects that make a world: checked, in the order in which they have to be created.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use anyhow::{Context as _, Result, bail};
use bindery_kube::decode;
use bindery_store::Observed;
use serde_json::{Value, json};

use crate::manifest::Manifest;
use crate::objects::{Kind, Title};

/// An object of a known kind.
pub(super) struct Object {
    /// The file that it is from.
    pub(super) file: String,
    /// Its kind.
    pub(super) kind: Kind,
    /// The object, with its namespace.
    pub(super) value: Value,
}

impl Object {
    /// Whether it is from a cluster, rather than to be created in one.
    pub(super) fn exists(&self) -> bool {
        self.value["metadata"]["uid"].as_str().is_some_and(|uid| !uid.is_empty())
    }
}

/// The objects that decisions depend on, in the order of their kinds, else of the manifests. Says on standard
/// error what is left out.
///
/// # Errors
///
/// An object has no name, cannot be understood, or is there twice.
pub(super) fn sort(manifests: Vec<Manifest>) -> Result<Vec<Object>> {
    let mut ignored = BTreeMap::<String, usize>::new();
    let mut seen = BTreeMap::<String, String>::new();
    let mut objects = Vec::new();
    for Manifest { file, object: mut value } in manifests {
        let Some(kind) = Kind::of(&value) else {
            let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
            if let Some(served) = Kind::version_served(&value) {
                let version = text("apiVersion");
                bail!("{file}: {}: apiVersion: {version:?} is not served; write {served}", Title(&value));
            }
            *ignored.entry(format!("{} {}", text("apiVersion"), text("kind"))).or_default() += 1;
            continue;
        };
        settle_name(&mut value, kind).with_context(|| format!("{file}: {}", Title(&value)))?;
        check(&value, kind).with_context(|| format!("{file}: {}", Title(&value)))?;
        match seen.entry(Title(&value).to_string()) {
            Entry::Occupied(first) => {
                bail!("{file}: {} is there twice, first in {}: remove one", Title(&value), first.get())
            }
            Entry::Vacant(entry) => entry.insert(file.clone()),
        };
        objects.push(Object { file, kind, value });
    }
    for (kind, count) in ignored {
        eprintln!("note: {count} x {kind} ignored: nothing that is decided here depends on it");
    }
    objects.sort_by_key(|object| object.kind);
    Ok(objects)
}

fn settle_name(value: &mut Value, kind: Kind) -> Result<()> {
    let Some(meta) = value["metadata"].as_object_mut() else {
        bail!("it has no metadata: give it a metadata.name")
    };
    if meta.get("name").and_then(Value::as_str).is_none_or(str::is_empty) {
        bail!("it has no metadata.name: give it one");
    }
    if !kind.is_namespaced() {
        meta.remove("namespace");
    } else if meta.get("namespace").is_none_or(|namespace| namespace.as_str() == Some("")) {
        meta.insert("namespace".to_owned(), json!("default"));
    }
    // A namespace becomes part of paths before the API server sees it.
    if let Some(namespace) = meta.get("namespace").and_then(Value::as_str)
        && !namespace.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    {
        bail!("metadata.namespace: {namespace:?} is no name; use lower case letters, digits and '-'");
    }
    Ok(())
}

/// Whether the object can be understood; the complaint names field, value and remedy.
fn check(value: &Value, kind: Kind) -> Result<()> {
    fn readable<N, T>(decoded: Result<(N, Observed<T>), decode::DecodeError>) -> Result<()> {
        match decoded? {
            (_, Observed::Readable(_)) => Ok(()),
            (_, Observed::Unreadable(unreadable)) => bail!("{}", unreadable.why),
        }
    }
    match kind {
        Kind::Volume => readable(decode::volume(value)),
        Kind::Claim => readable(decode::claim(value)),
        Kind::Class => readable(decode::class(value)),
        Kind::Pod => Ok(decode::pod(value).map(drop)?),
        Kind::Namespace | Kind::Node | Kind::AttributesClass => Ok(decode::name(value).map(drop)?),
    }
}
