//! DELETE of one object or of a collection.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Answer, list, to_view};
use crate::clock::{self, Clock};
use crate::negotiate::{read_object, unknown_kind};
use crate::object;
use crate::registry::{NAMESPACES, RESOURCES};
use crate::request::Call;
use crate::state::State;
use crate::status::{ApiError, ApiResult, FieldError};
use crate::store::Key;

/// `metav1.DeleteOptions`, from the body or the query.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    grace_seconds: Option<i64>,
    uid: Option<String>,
    resource_version: Option<String>,
    dry_run: bool,
    orphan_dependents: Option<bool>,
}

pub(super) fn delete(state: &mut State, call: &Call, content_type: &str, body: &Bytes) -> ApiResult<Answer> {
    let options = options(call, content_type, body)?;
    let key = Key::new(&call.namespace, &call.name);
    let existing = state
        .store
        .get(call.stored_as(), &key)
        .cloned()
        .ok_or_else(|| ApiError::not_found(call.resource, &call.name))?;
    check_preconditions(call, &existing, &options)?;
    let deleted = delete_object(state, call.stored_as(), &key, &options);
    // Who asks that nothing be orphaned is told whether the object is gone.
    let accepted =
        deleted.as_ref().is_some_and(|deleted| deleted.pending) && options.orphan_dependents == Some(false);
    let body = match deleted {
        Some(deleted) if deleted.pending || call.resource.delete_returns_object => {
            to_view(call.resource, &deleted.object)
        }
        _ => success(call, &existing),
    };
    Ok(Answer { code: if accepted { 202 } else { 200 }, ..Answer::ok(body) })
}

fn success(call: &Call, existing: &Value) -> Value {
    let mut details = json!({
        "name": call.name,
        "kind": call.resource.plural,
        "uid": object::uid(existing),
    });
    if !call.resource.group.is_empty() {
        details["group"] = call.resource.group.into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

pub(super) fn delete_collection(
    state: &mut State,
    call: &Call,
    content_type: &str,
    body: &Bytes,
) -> ApiResult<Answer> {
    list::check_numbers(call)?;
    let options = options(call, content_type, body)?;
    let selector = list::selector(call)?;
    let answer = list::list(state, call)?;
    let keys: Vec<Key> = state
        .store
        .all(call.stored_as())
        .iter()
        .filter(|(_, object)| selector.matches(object))
        .map(|(key, _)| key.clone())
        .collect();
    for key in keys {
        delete_object(state, call.stored_as(), &key, &options);
    }
    Ok(answer)
}

/// Reads the options: from the body where there is one, else from the query.
fn options(call: &Call, content_type: &str, body: &Bytes) -> ApiResult<Options> {
    let query = &call.query;
    let (options, dry_run, policy);
    let value;
    if body.is_empty() {
        options = Options {
            grace_seconds: query.number("gracePeriodSeconds")?,
            orphan_dependents: query.has("orphanDependents").then(|| query.flag("orphanDependents")),
            ..Options::default()
        };
        dry_run = query.all("dryRun").collect();
        policy = query.get("propagationPolicy");
    } else {
        value = read_object(content_type, "DeleteOptions", body)?;
        check_options_kind(&value)?;
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        options = Options {
            grace_seconds: value["gracePeriodSeconds"].as_i64(),
            uid: text("/preconditions/uid"),
            resource_version: text("/preconditions/resourceVersion"),
            orphan_dependents: value["orphanDependents"].as_bool(),
            ..Options::default()
        };
        dry_run = object::texts(value.get("dryRun"));
        policy = object::text(&value, "/propagationPolicy");
    }
    check_options(&options, &dry_run, policy)?;
    Ok(Options { dry_run: !dry_run.is_empty(), ..options })
}

/// Every group has its own version of the options; what else is sent is no option.
fn check_options_kind(value: &Value) -> ApiResult<()> {
    let (api_version, kind) = (object::text(value, "/apiVersion"), object::text(value, "/kind"));
    if matches!(kind, "" | "DeleteOptions") {
        return Ok(());
    }
    Err(ApiError::bad_request(unknown_kind(api_version, kind)))
}

/// `ValidateDeleteOptions` of apimachinery.
fn check_options(options: &Options, dry_run: &[&str], policy: &str) -> ApiResult<()> {
    let mut errors = Vec::new();
    if options.orphan_dependents.is_some() && !policy.is_empty() {
        let why = "orphanDependents and deletionPropagation cannot be both set";
        errors.push(FieldError::invalid("propagationPolicy", policy, why));
    }
    if !matches!(policy, "" | "Background" | "Foreground" | "Orphan") {
        let known = ["Foreground", "Background", "Orphan", "nil"];
        errors.push(FieldError::not_supported("propagationPolicy", policy, &known));
    }
    errors.extend(super::check_dry_run(dry_run));
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid("DeleteOptions", "meta.k8s.io", "", &errors))
}

fn check_preconditions(call: &Call, existing: &Value, options: &Options) -> ApiResult<()> {
    let refuse = |why: String| Err(ApiError::precondition(call.resource, &call.name, &why));
    let (uid, version) = (object::uid(existing), object::resource_version(existing));
    match (&options.uid, &options.resource_version) {
        (Some(wanted), _) if wanted != uid => refuse(format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have \
             been deleted and then recreated"
        )),
        (_, Some(wanted)) if wanted != version => refuse(format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
             ({version}). The object might have been modified"
        )),
        _ => Ok(()),
    }
}

/// What became of an object that was deleted.
pub(crate) struct Deleted {
    /// The object as it is, or as it was last.
    pub(crate) object: Arc<Value>,
    /// Whether it is still there, for its finalizers or its grace period.
    pub(crate) pending: bool,
}

/// Deletes an object as far as its finalizers and grace period let it. `None` where there is none.
pub(crate) fn delete_object(
    state: &mut State,
    resource: usize,
    key: &Key,
    options: &Options,
) -> Option<Deleted> {
    let existing = state.store.get(resource, key)?.clone();
    if resource == NAMESPACES {
        let object = crate::protection::delete_namespace(state, key, &existing, options.dry_run);
        return Some(Deleted { object, pending: true });
    }
    let mut object = (*existing).clone();
    let graceful = RESOURCES[resource].graceful;
    let pending =
        object::meta_field(&existing, "deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    let mut seconds = 0;
    if graceful && !(object::is_deleting(&existing) && pending == 0) {
        seconds = grace_seconds(&existing, options);
        // The grace period that runs may only be made shorter.
        if pending > 0 && options.grace_seconds.is_none_or(|seconds| seconds >= pending) {
            return Some(Deleted { object: existing, pending: true });
        }
        mark_deleting(&mut object, &state.clock, seconds);
    }
    let finalizers = state.strategies && !object::finalizers(&existing).is_empty();
    if finalizers && seconds == 0 {
        mark_deleting(&mut object, &state.clock, 0);
    }
    let stays = finalizers || seconds > 0;
    let object = match (options.dry_run, stays) {
        (true, _) => Arc::new(object),
        (false, true) if object == *existing => existing,
        (false, true) => state.put(resource, object),
        (false, false) => {
            state.remove(resource, key);
            Arc::new(object)
        }
    };
    Some(Deleted { object, pending: stays })
}

/// How long a pod may take to end.
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

/// Sets the time from which an object is being deleted, and its grace period, which may only become shorter.
pub(crate) fn mark_deleting(object: &mut Value, clock: &Clock, grace_seconds: i64) {
    let now = clock.now();
    let marked = clock::parse(object::meta_text(object, "deletionTimestamp"));
    let pending =
        object::meta_field(object, "deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    let metadata = object::meta_mut(object);
    let at = match marked {
        // What was marked before counts from then.
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
