//! Events as the API server takes them (core/v1).

use bindery_controller::WriteError;
use bindery_core::{Regarding, Timestamp};
use serde_json::{Value, json};

use super::correlate::Correlated;
use super::{COMPONENT, Entry};
use crate::request;

/// Longest message that the API server takes (events.k8s.io).
const MESSAGE_BYTES_MAX: usize = 1_024;

/// The event of a note that is new.
pub(super) fn event(entry: &Entry, correlated: &Correlated) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event_name(entry, correlated), "namespace": namespace(&entry.regarding)},
        "involvedObject": involved(&entry.regarding),
        "type": entry.event_type.name(),
        "reason": entry.reason,
        "message": message(&correlated.message),
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": "",
        "firstTimestamp": time(correlated.first),
        "lastTimestamp": time(correlated.last),
        "count": correlated.count,
    })
}

/// The merge patch that counts a note in its event.
pub(super) fn patch(correlated: &Correlated) -> Value {
    json!({
        "count": correlated.count,
        "lastTimestamp": time(correlated.last),
        "message": message(&correlated.message),
    })
}

/// `<object>.<16 hexadecimal digits>`, as client-go names events: unique by what it says and when.
pub(super) fn event_name(entry: &Entry, correlated: &Correlated) -> String {
    let object = name(&entry.regarding);
    // A name has at most 253 characters; the rest is a dot and the digits.
    let object = object.get(..object.len().min(236)).unwrap_or_default().trim_end_matches(['.', '-']);
    format!("{object}.{:016x}", correlated.id)
}

/// Where the events of an object are.
///
/// # Errors
///
/// Its names, which an engine may have given, cannot be those of an object.
pub(super) fn folder(regarding: &Regarding) -> Result<String, WriteError> {
    request::segment(name(regarding))?;
    Ok(format!("/api/v1/namespaces/{}/events", request::segment(namespace(regarding))?))
}

fn name(regarding: &Regarding) -> &str {
    match regarding {
        Regarding::Claim(claim) => &claim.key.name,
        Regarding::Volume(volume) => &volume.name,
    }
}

/// Events of claims go where the claim is; volumes have no namespace, so theirs go to `default`.
fn namespace(regarding: &Regarding) -> &str {
    match regarding {
        Regarding::Claim(claim) => &claim.key.namespace,
        Regarding::Volume(_) => "default",
    }
}

fn involved(regarding: &Regarding) -> Value {
    match regarding {
        Regarding::Claim(claim) => json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": *claim.key.namespace,
            "name": *claim.key.name,
            "uid": *claim.uid.0,
            "resourceVersion": *claim.version.0,
        }),
        Regarding::Volume(volume) => json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "name": *volume.name,
            "uid": *volume.uid.0,
            "resourceVersion": *volume.version.0,
        }),
    }
}

pub(crate) fn time(seconds: Timestamp) -> String {
    jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}

fn message(text: &str) -> &str {
    let mut end = text.len().min(MESSAGE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
