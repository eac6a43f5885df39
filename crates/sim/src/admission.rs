//! The admission plugins of the default set that matter here.
//!
//! `NamespaceLifecycle`, `TaintNodesByCondition`, `Priority`, `DefaultTolerationSeconds`,
//! `DefaultStorageClass`, `StorageObjectInUseProtection` and `PersistentVolumeClaimResize`.

use std::cmp::Ordering;

use serde_json::{Value, json};

use crate::object;
use crate::quantity::Quantity;
use crate::registry::{self, CLASSES, NAMESPACES, Resource};
use crate::state::State;
use crate::status::{ApiError, ApiResult};
use crate::store::Key;

/// Marks the class that claims without one get.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const BETA_DEFAULT_CLASS: &str = "storageclass.beta.kubernetes.io/is-default-class";
/// The annotation that named a class before the field did.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Finalizer that protects volumes.
pub(crate) const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
/// Finalizer that protects claims.
pub(crate) const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Finalizer that protects attributes classes.
const ATTRIBUTES_CLASS_PROTECTION: &str = "kubernetes.io/vac-protection";

/// Changes or refuses an object to be created.
pub(crate) fn on_create(state: &State, resource: &Resource, value: &mut Value) -> ApiResult<()> {
    namespace_lifecycle(state, resource, value)?;
    match resource.kind {
        "Pod" => pod(value),
        "Node" => node(value),
        _ => {}
    }
    if resource.kind == "PersistentVolumeClaim" {
        default_class(state, value);
    }
    let finalizer = match resource.kind {
        "PersistentVolume" => VOLUME_PROTECTION,
        "PersistentVolumeClaim" => CLAIM_PROTECTION,
        "VolumeAttributesClass" => ATTRIBUTES_CLASS_PROTECTION,
        _ => return Ok(()),
    };
    if state.protection && !object::finalizers(value).contains(&finalizer) {
        let mut finalizers = object::items(value, "/metadata/finalizers").to_vec();
        finalizers.push(finalizer.into());
        object::meta_mut(value).insert("finalizers".to_owned(), finalizers.into());
    }
    Ok(())
}

/// Refuses an update: `PersistentVolumeClaimResize`.
pub(crate) fn on_update(state: &State, resource: &Resource, new: &Value, old: &Value) -> ApiResult<()> {
    if resource.kind != "PersistentVolumeClaim" {
        return Ok(());
    }
    let size = |claim: &Value| Quantity::parse(object::text(claim, "/spec/resources/requests/storage"));
    let grows = match (size(new), size(old)) {
        (Ok(new), Ok(old)) => new.compare(&old) == Ordering::Greater,
        _ => false,
    };
    if !grows {
        return Ok(());
    }
    let name = object::name(new);
    if object::text(old, "/status/phase") != "Bound" {
        return Err(ApiError::forbidden(
            resource,
            name,
            "Only bound persistent volume claims can be expanded",
        ));
    }
    let class = class_of(new);
    let expandable = class == class_of(old)
        && state
            .store
            .get(CLASSES, &Key::new("", class))
            .is_some_and(|class| class.get("allowVolumeExpansion") == Some(&Value::Bool(true)));
    if expandable {
        return Ok(());
    }
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
               support resize";
    Err(ApiError::forbidden(resource, name, why))
}

/// The class of a claim by the old annotation, else by the field.
fn class_of(claim: &Value) -> &str {
    let annotation =
        object::meta_field(claim, "annotations").and_then(|all| all.get(BETA_CLASS)).and_then(Value::as_str);
    annotation.unwrap_or_else(|| object::text(claim, "/spec/storageClassName"))
}

fn namespace_lifecycle(state: &State, resource: &Resource, value: &Value) -> ApiResult<()> {
    let name = object::namespace(value);
    if !resource.namespaced || name.is_empty() {
        return Ok(());
    }
    let Some(namespace) = state.store.get(NAMESPACES, &Key::new("", name)) else {
        return Err(ApiError::not_found(&registry::RESOURCES[NAMESPACES], name));
    };
    if object::text(namespace, "/status/phase") != "Terminating" {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {name} because it is being terminated");
    let mut error = ApiError::forbidden(resource, object::name(value), &why);
    if let Some(details) = &mut error.details {
        details["causes"] = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {name} is being terminated"),
            "field": "metadata.namespace",
        }]);
    }
    Err(error)
}

/// `DefaultTolerationSeconds` and `Priority`.
fn pod(pod: &mut Value) {
    const KEYS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
    let mut tolerations = object::items(pod, "/spec/tolerations").to_vec();
    for key in KEYS {
        if !tolerations.iter().any(|toleration| toleration["key"] == key || toleration.get("key").is_none()) {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
    let spec = object::child_mut(pod, "spec");
    spec.insert("tolerations".to_owned(), tolerations.into());
    spec.entry("priority").or_insert_with(|| 0.into());
    spec.entry("preemptionPolicy").or_insert_with(|| "PreemptLowerPriority".into());
}

/// `TaintNodesByCondition`: a node is not ready until somebody says so.
fn node(node: &mut Value) {
    const KEY: &str = "node.kubernetes.io/not-ready";
    let mut taints = object::items(node, "/spec/taints").to_vec();
    if !taints.iter().any(|taint| taint["key"] == KEY) {
        taints.push(json!({"key": KEY, "effect": "NoSchedule"}));
    }
    object::child_mut(node, "spec").insert("taints".to_owned(), taints.into());
}

/// A claim that names no class gets the default one; of several the newest, then the first by name.
fn default_class(state: &State, claim: &mut Value) {
    let annotated = object::meta_field(claim, "annotations").and_then(|all| all.get(BETA_CLASS)).is_some();
    if annotated || claim.pointer("/spec/storageClassName").is_some() {
        return;
    }
    let is_default = |class: &Value| {
        [DEFAULT_CLASS, BETA_DEFAULT_CLASS].iter().any(|annotation| {
            object::meta_field(class, "annotations")
                .and_then(|all| all.get(*annotation))
                .is_some_and(|value| value == "true")
        })
    };
    let class = state.store.all(CLASSES).values().filter(|class| is_default(class)).max_by(|left, right| {
        let created = |class: &Value| object::meta_text(class, "creationTimestamp").to_owned();
        created(left).cmp(&created(right)).then_with(|| object::name(right).cmp(object::name(left)))
    });
    if let Some(class) = class {
        let name = object::name(class).to_owned();
        object::child_mut(claim, "spec").insert("storageClassName".to_owned(), name.into());
    }
}
