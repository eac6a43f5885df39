//! DELETE of one object or of a collection.

use std::sync::Arc;

use serde_json::Value;

use super::events::to_view;
use super::{Answer, body, check_dry_run, existing, list, success};
use crate::clock::{self, Clock};
use crate::controllers::delete_namespace;
use crate::field::FieldErrors;
use crate::http::route::Call;
use crate::object::{self, meta_number};
use crate::registry::{NAMESPACE, Resource};
use crate::state::State;
use crate::status::{ApiError, ApiResult};
use crate::storage::Key;

/// The finalizer of a deletion that waits for the objects which the deleted one owns.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of a deletion that keeps the objects which the deleted one owns.
pub(crate) const ORPHAN: &str = "orphan";

/// The fate of the objects that a deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// `metav1.DeleteOptions`, from the body or the query.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    grace_seconds: Option<i64>,
    uid: Option<String>,
    resource_version: Option<String>,
    dry_run: bool,
    orphan_dependents: Option<bool>,
    propagation: Option<Propagation>,
}

impl Options {
    pub(crate) fn of(propagation: Propagation) -> Self {
        Options { propagation: Some(propagation), ..Options::default() }
    }
}

pub(super) fn delete(state: &mut State, call: &Call) -> ApiResult<Answer> {
    let options = options(call)?;
    let key = Key::new(&call.namespace, &call.name);
    let existing = existing(state, call)?;
    check_preconditions(call, &existing, &options)?;
    let deleted = delete_object(state, call.resource, &key, &options);
    // With `orphanDependents: false`, the code says whether the object is gone.
    let accepted =
        deleted.as_ref().is_some_and(|deleted| deleted.pending) && options.orphan_dependents == Some(false);
    let body = match deleted {
        Some(deleted) if deleted.pending || call.resource.delete_returns_object => {
            to_view(call.resource, &deleted.object)
        }
        _ => deleted_status(call, &existing),
    };
    Ok(Answer { code: if accepted { 202 } else { 200 }, ..Answer::ok(body) })
}

fn deleted_status(call: &Call, existing: &Value) -> Value {
    let mut status = success();
    status["details"]["name"] = call.name.as_str().into();
    status["details"]["kind"] = call.resource.plural.into();
    status["details"]["uid"] = object::uid(existing).into();
    if !call.resource.group.is_empty() {
        status["details"]["group"] = call.resource.group.into();
    }
    status
}

pub(super) fn delete_collection(state: &mut State, call: &Call) -> ApiResult<Answer> {
    list::check_numbers(call)?;
    let options = options(call)?;
    let selector = list::selector(call)?;
    let answer = list::list(state, call)?;
    let objects = state.store.all(call.resource.kind).iter();
    let selected = objects.filter(|(_, object)| selector.matches(object));
    let keys: Vec<Key> = selected.map(|(key, _)| key.clone()).collect();
    for key in keys {
        delete_object(state, call.resource, &key, &options);
    }
    Ok(answer)
}

/// Reads the options: from the body if there is one, else from the query.
fn options(call: &Call) -> ApiResult<Options> {
    if call.body.is_empty() {
        let query = &call.query;
        let options = Options {
            grace_seconds: query.number("gracePeriodSeconds")?,
            orphan_dependents: query.has("orphanDependents").then(|| query.flag("orphanDependents")),
            dry_run: query.has("dryRun"),
            ..Options::default()
        };
        let dry_run: Vec<&str> = query.all("dryRun").collect();
        return check_options(options, &dry_run, query.get("propagationPolicy"));
    }
    let value = body::read(call, "DeleteOptions")?;
    let (api_version, kind) = (object::text(&value, "/apiVersion"), object::text(&value, "/kind"));
    // Each group has its own version of DeleteOptions.
    if !matches!(kind, "" | "DeleteOptions") {
        return Err(ApiError::bad_request(body::unknown_kind(api_version, kind)));
    }
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let dry_run = object::texts(value.get("dryRun"));
    let options = Options {
        grace_seconds: value["gracePeriodSeconds"].as_i64(),
        uid: text("/preconditions/uid"),
        resource_version: text("/preconditions/resourceVersion"),
        orphan_dependents: value["orphanDependents"].as_bool(),
        dry_run: !dry_run.is_empty(),
        propagation: None,
    };
    check_options(options, &dry_run, object::text(&value, "/propagationPolicy"))
}

/// `ValidateDeleteOptions` of apimachinery.
fn check_options(mut options: Options, dry_run: &[&str], policy: &str) -> ApiResult<Options> {
    let mut errors = FieldErrors::default();
    if options.orphan_dependents.is_some() && !policy.is_empty() {
        let why = "orphanDependents and deletionPropagation cannot be both set";
        errors.invalid("propagationPolicy", policy, why);
    }
    if !matches!(policy, "" | "Background" | "Foreground" | "Orphan") {
        errors.not_supported("propagationPolicy", policy, &["Foreground", "Background", "Orphan", "nil"]);
    }
    check_dry_run(&mut errors, dry_run);
    ApiError::check("DeleteOptions", "meta.k8s.io", "", &errors)?;
    options.propagation = match (policy, options.orphan_dependents) {
        ("Foreground", _) => Some(Propagation::Foreground),
        ("Orphan", _) | (_, Some(true)) => Some(Propagation::Orphan),
        ("Background", _) | (_, Some(false)) => Some(Propagation::Background),
        _ => None,
    };
    Ok(options)
}

fn check_preconditions(call: &Call, existing: &Value, options: &Options) -> ApiResult<()> {
    let refuse = |why: String| Err(ApiError::precondition(call.resource, &call.name, &why));
    let (uid, version) = (object::uid(existing), object::resource_version(existing));
    match (&options.uid, &options.resource_version) {
        (Some(wanted), _) if wanted != uid => refuse(format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object \
             might have been deleted and then recreated"
        )),
        (_, Some(wanted)) if wanted != version => refuse(format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
             ({version}). The object might have been modified"
        )),
        _ => Ok(()),
    }
}

/// The result of a deletion.
pub(crate) struct Deleted {
    /// The object, or its last state.
    object: Arc<Value>,
    /// Whether finalizers or a grace period still hold the object.
    pending: bool,
}

/// Deletes an object as far as its finalizers and grace period permit. `None` if there is no such object.
pub(crate) fn delete_object(
    state: &mut State,
    resource: &Resource,
    key: &Key,
    options: &Options,
) -> Option<Deleted> {
    let existing = state.store.get(resource.kind, key)?.clone();
    if resource.kind == NAMESPACE {
        let object = delete_namespace(state, key, &existing, options.dry_run);
        return Some(Deleted { object, pending: true });
    }
    let mut object = (*existing).clone();
    let pending = meta_number(&existing, "deletionGracePeriodSeconds");
    let mut seconds = 0;
    if resource.graceful && !(object::is_deleting(&existing) && pending == 0) {
        seconds = grace_seconds(&existing, options);
        // A running grace period can only be shortened.
        if pending > 0 && options.grace_seconds.is_none_or(|seconds| seconds >= pending) {
            return Some(Deleted { object: existing, pending: true });
        }
        mark_deleting(&mut object, &state.clock, seconds);
    }
    if let Some(propagation) = options.propagation.filter(|_| state.strategies) {
        set_propagation(&mut object, propagation);
    }
    let finalizers = state.strategies && !object::finalizers(&object).is_empty();
    if finalizers && seconds == 0 {
        mark_deleting(&mut object, &state.clock, 0);
    }
    let stays = finalizers || seconds > 0;
    let object = match (options.dry_run, stays) {
        (true, _) => Arc::new(object),
        (false, true) if object == *existing => existing,
        (false, true) => state.put(resource.kind, object),
        (false, false) => {
            state.remove(resource.kind, key);
            Arc::new(object)
        }
    };
    Some(Deleted { object, pending: stays })
}

/// Sets the finalizer of a propagation policy (`deletionFinalizersForGarbageCollection`).
fn set_propagation(object: &mut Value, propagation: Propagation) {
    let mut finalizers = object::items(object, "/metadata/finalizers").to_vec();
    finalizers.retain(|name| name != FOREGROUND && name != ORPHAN);
    finalizers.extend(match propagation {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND.into()),
        Propagation::Orphan => Some(ORPHAN.into()),
    });
    let finalizers = Some(finalizers).filter(|finalizers| !finalizers.is_empty());
    object::set(object::meta_mut(object), "finalizers", finalizers.map(Value::from));
}

/// The grace period of a pod.
fn grace_seconds(pod: &Value, options: &Options) -> i64 {
    let ended = matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed");
    if ended || object::text(pod, "/spec/nodeName").is_empty() {
        return 0;
    }
    let own = pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
    // Negative values count as one second.
    match options.grace_seconds.or(own).unwrap_or(30) {
        seconds if seconds < 0 => 1,
        seconds => seconds,
    }
}

/// Sets the deletion time and the grace period of an object. A second call can only shorten the period.
pub(crate) fn mark_deleting(object: &mut Value, clock: &Clock, grace_seconds: i64) {
    let now = clock.now();
    let marked = clock::parse(object::meta_text(object, "deletionTimestamp"));
    let pending = meta_number(object, "deletionGracePeriodSeconds");
    let metadata = object::meta_mut(object);
    let at = match marked {
        // The new period counts from the first deletion.
        Some(marked) => {
            let began = clock::after(marked, pending.saturating_neg());
            marked.min(clock::after(began, grace_seconds).max(now))
        }
        None => {
            if let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
                metadata.insert("generation".to_owned(), generation.saturating_add(1).into());
            }
            clock::after(now, grace_seconds)
        }
    };
    metadata.insert("deletionTimestamp".to_owned(), clock::seconds_text(at).into());
    metadata.insert("deletionGracePeriodSeconds".to_owned(), grace_seconds.into());
}
