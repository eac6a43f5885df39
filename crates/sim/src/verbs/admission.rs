//! The default admission plugins that matter here: `NamespaceLifecycle`, `TaintNodesByCondition`, `Priority`,
//! `DefaultTolerationSeconds`, `DefaultStorageClass`, `StorageObjectInUseProtection` and
//! `PersistentVolumeClaimResize`.

use std::cmp::Ordering;

use serde_json::{Value, json};

use crate::object;
use crate::quantity::Quantity;
use crate::registry::{self, CLAIM, CLASS, NAMESPACE, POD, Resource, VOLUME};
use crate::state::State;
use crate::status::{ApiError, ApiResult};
use crate::storage::Key;

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
        POD => pod(value),
        "Node" => node(value),
        CLAIM => default_class(state, value),
        _ => {}
    }
    let finalizer = match resource.kind {
        VOLUME => VOLUME_PROTECTION,
        CLAIM => CLAIM_PROTECTION,
        "VolumeAttributesClass" => ATTRIBUTES_CLASS_PROTECTION,
        _ => return Ok(()),
    };
    if !object::finalizers(value).contains(&finalizer) {
        let mut finalizers = object::items(value, "/metadata/finalizers").to_vec();
        finalizers.push(finalizer.into());
        object::meta_mut(value).insert("finalizers".to_owned(), finalizers.into());
    }
    Ok(())
}

/// Refuses an update: `PersistentVolumeClaimResize`.
pub(crate) fn on_update(state: &State, resource: &Resource, new: &Value, old: &Value) -> ApiResult<()> {
    let size = |claim: &Value| Quantity::parse(object::text(claim, "/spec/resources/requests/storage"));
    let grows = match (size(new), size(old)) {
        (Ok(new), Ok(old)) => new.compare(&old) == Ordering::Greater,
        _ => false,
    };
    if resource.kind != CLAIM || !grows {
        return Ok(());
    }
    let refuse = |why| Err(ApiError::forbidden(resource, object::name(new), why));
    if object::text(old, "/status/phase") != "Bound" {
        return refuse("Only bound persistent volume claims can be expanded");
    }
    let name = object::class(new);
    let class = state.store.get(CLASS, &Key::new("", name));
    if name == object::class(old) && class.is_some_and(|class| class["allowVolumeExpansion"] == true) {
        return Ok(());
    }
    refuse(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
         support resize",
    )
}

fn namespace_lifecycle(state: &State, resource: &Resource, value: &Value) -> ApiResult<()> {
    let name = object::namespace(value);
    if !resource.namespaced || name.is_empty() {
        return Ok(());
    }
    let Some(namespace) = state.store.get(NAMESPACE, &Key::new("", name)) else {
        let namespaces = registry::by_name("namespaces").expect("the registry has namespaces");
        return Err(ApiError::not_found(namespaces, name));
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

/// `TaintNodesByCondition`: a new node is not ready.
fn node(node: &mut Value) {
    const KEY: &str = "node.kubernetes.io/not-ready";
    let mut taints = object::items(node, "/spec/taints").to_vec();
    if !taints.iter().any(|taint| taint["key"] == KEY) {
        taints.push(json!({"key": KEY, "effect": "NoSchedule"}));
    }
    object::child_mut(node, "spec").insert("taints".to_owned(), taints.into());
}

/// Sets the class of a claim without one: the newest default class, and among equally new ones the first by
/// name.
fn default_class(state: &State, claim: &mut Value) {
    let annotated = object::annotation(claim, object::CLASS_ANNOTATION).is_some();
    if annotated || claim.pointer("/spec/storageClassName").is_some() {
        return;
    }
    let defaults = state.store.all(CLASS).values().filter(|class| object::is_default_class(class));
    let newest = defaults.max_by(|left, right| {
        let created = |class| object::meta_text(class, "creationTimestamp");
        created(left).cmp(created(right)).then_with(|| object::name(right).cmp(object::name(left)))
    });
    if let Some(class) = newest {
        let name = object::name(class).to_owned();
        object::child_mut(claim, "spec").insert("storageClassName".to_owned(), name.into());
    }
}
