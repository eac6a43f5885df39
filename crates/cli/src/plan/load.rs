//! Checks manifests, and sorts their objects in the order of creation.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};
use bindery_core::{ClaimKey, Declared, Key};
use bindery_kube::decode;
use bindery_policy::Chain;
use bindery_store::Observed;
use serde_json::{Value, json};

use super::expand;
use crate::manifest::Manifest;
use crate::objects::{Resource, Title};

/// An object that decisions depend on.
#[derive(Clone)]
pub(crate) struct ManifestObject {
    pub(crate) file: String,
    pub(crate) resource: Resource,
    /// The object, with its namespace.
    pub(crate) value: Value,
}

impl ManifestObject {
    /// Whether the object comes from a cluster, and need not be created.
    pub(crate) fn exists(&self) -> bool {
        has_uid(&self.value)
    }

    /// The key of a claim or volume.
    pub(crate) fn key(&self) -> Option<Key> {
        let text = |field: &str| self.value["metadata"][field].as_str().unwrap_or_default();
        match self.resource {
            Resource::Volume => Some(Key::Volume(text("name").into())),
            Resource::Claim => Some(Key::Claim(ClaimKey::new(text("namespace"), text("name")))),
            _ => None,
        }
    }
}

/// The objects that decisions depend on, sorted by resource, then as in the manifests; with the claims that
/// controllers will make for them. Names the others on standard error.
pub(crate) fn sort(manifests: Vec<Manifest>) -> Result<Vec<ManifestObject>> {
    let mut sorted = Sorted::default();
    let mut made = Vec::new();
    for Manifest { file, place, object } in manifests {
        let claims = expand::claims(&object).with_context(|| format!("{file}: {}", Title(&object)))?;
        let is_expanded = !claims.is_empty();
        made.extend(claims.into_iter().map(|claim| (file.clone(), claim)));
        let Some(resource) = Resource::of(&object) else {
            if !is_expanded {
                sorted.leave_out(&file, &object)?;
            }
            continue;
        };
        sorted.add(file, Some(place), resource, object)?;
    }
    for (file, claim) in made {
        sorted.add(file, None, Resource::Claim, claim)?;
    }
    for ((kind, why), count) in &sorted.left_out {
        eprintln!("note: {count} x {kind} left out: {why}");
    }
    if sorted.objects.is_empty() {
        bail!(
            "the manifests have no object that a plan could use: give claims and volumes, such as those of \
             `kubectl get pvc,pv,sc -A -o yaml`"
        );
    }
    sorted.objects.sort_by_key(|object| object.resource);
    Ok(sorted.objects)
}

/// Names on standard error the namespaces of claims whose labels policies read, and that are not among the
/// objects.
pub(crate) fn note_namespaces(objects: &[ManifestObject], policies: &Chain) {
    let name =
        |object: &ManifestObject, field: &str| object.value["metadata"][field].as_str().map(str::to_owned);
    let of = |resource, field| -> BTreeSet<String> {
        let objects = objects.iter().filter(|object| object.resource == resource);
        objects.filter_map(|object| name(object, field)).collect()
    };
    let (used, given) = (of(Resource::Claim, "namespace"), of(Resource::Namespace, "name"));
    let missing: Vec<_> = used.difference(&given).map(String::as_str).collect();
    if policies.declared().namespaces && !missing.is_empty() {
        eprintln!(
            "note: policies read labels of namespaces, and these are not given, so they have no labels \
             here: {}",
            missing.join(", ")
        );
    }
}

fn has_uid(value: &Value) -> bool {
    value["metadata"]["uid"].as_str().is_some_and(|uid| !uid.is_empty())
}

#[derive(Default)]
struct Sorted {
    objects: Vec<ManifestObject>,
    /// The place of each object, by its title.
    places: BTreeMap<String, String>,
    /// How many objects of each kind are left out, and why.
    left_out: BTreeMap<(String, &'static str), usize>,
}

impl Sorted {
    /// Adds the object at a place, or without one a claim that a controller will make, unless it exists: then
    /// the controller uses it.
    fn add(
        &mut self,
        file: String,
        place: Option<String>,
        resource: Resource,
        mut value: Value,
    ) -> Result<()> {
        complete_name(&mut value, resource).with_context(|| format!("{file}: {}", Title(&value)))?;
        // A volume of a cluster that cannot be read is a candidate with that obstacle.
        if resource != Resource::Volume || !has_uid(&value) {
            check(&value, resource).with_context(|| format!("{file}: {}", Title(&value)))?;
        }
        match (self.places.entry(Title(&value).to_string()), place) {
            (Entry::Occupied(_), None) => return Ok(()),
            (Entry::Occupied(first), Some(place)) => {
                bail!("{file}: {} at {place} is also in {}: remove one", Title(&value), first.get())
            }
            (Entry::Vacant(entry), place) => {
                entry.insert(format!("{file} at {}", place.as_deref().unwrap_or("a template")))
            }
        };
        self.objects.push(ManifestObject { file, resource, value });
        Ok(())
    }

    fn leave_out(&mut self, file: &str, object: &Value) -> Result<()> {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        if let Some(served) = Resource::version_served(object) {
            let version = text("apiVersion");
            bail!("{file}: {}: apiVersion: {version:?} is not served; write {served}", Title(object));
        }
        if let Some(kind) = Resource::meant(object) {
            bail!("{file}: {}: kind: {:?} does not exist; write {kind}", Title(object), text("kind"));
        }
        let why = if expand::makes_unnamed_claims(object) {
            "the names of its pods, and so of their claims, are not known before"
        } else {
            "no volume or claim depends on it"
        };
        let kind = format!("{} {}", text("apiVersion"), text("kind"));
        *self.left_out.entry((kind, why)).or_default() += 1;
        Ok(())
    }
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
    } else if meta.get("namespace").is_none_or(|namespace| namespace.is_null() || namespace == "") {
        meta.insert("namespace".to_owned(), json!("default"));
    }
    // The namespace becomes part of a path.
    if let Some(namespace) = meta.get("namespace").and_then(Value::as_str)
        && let Err(why) = self::namespace(namespace)
    {
        bail!("metadata.namespace: {why}");
    }
    Ok(())
}

/// The name of a namespace. The error says what is allowed.
pub(crate) fn namespace(text: &str) -> Result<String, String> {
    if text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
        return Ok(text.to_owned());
    }
    Err(format!("{text:?} is not a name; use lower case letters, digits and '-'"))
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
        Resource::Volume => readable(decode::volume(value, Declared::NONE)),
        Resource::Claim => readable(decode::claim(value, Declared::NONE)),
        Resource::Class => readable(decode::class(value, Declared::NONE)),
        Resource::Pod => Ok(decode::pod(value).map(drop)?),
        Resource::Namespace | Resource::Node | Resource::AttributesClass => {
            Ok(decode::name(value).map(drop)?)
        }
    }
}
