//! Events as the API server takes them (core/v1).

use bindery_controller::{Note, WriteError};
use bindery_core::{EventType, Regarding, Timestamp};
use serde_json::{Value, json};

use super::COMPONENT;
use super::correlate::Correlated;
use crate::request;

/// Longest message of an event. Messages repeat errors of plugins, which may have 64 KiB.
///
/// The number is upstream's `NoteLengthLimit` (`pkg/apis/core/validation/events.go`). The API server refuses
/// longer messages only in events with an `eventTime`, which these do not have.
const MESSAGE_BYTES_MAX: usize = 1_024;

/// An Event with reason and message, which happened once.
pub(crate) fn body(
    metadata: Value,
    involved: Value,
    event_type: EventType,
    (reason, message): (&str, &str),
    now: Timestamp,
) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": metadata,
        "involvedObject": involved,
        "type": event_type.name(),
        "reason": reason,
        "message": truncated(message),
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": "",
        "firstTimestamp": time(now),
        "lastTimestamp": time(now),
        "count": 1,
    })
}

/// The event that is created for a note.
pub(super) fn event(note: &Note, correlated: &Correlated) -> Value {
    let (namespace, name) = (namespace(&note.regarding), event_name(note, correlated));
    let metadata = json!({"name": name, "namespace": namespace});
    let texts = (note.reason, &*correlated.message);
    let mut event = body(metadata, involved(&note.regarding), note.event_type, texts, correlated.last);
    event["firstTimestamp"] = time(correlated.first).into();
    event["count"] = correlated.count.into();
    event
}

/// The merge patch that counts a note in an event that exists.
pub(super) fn patch(correlated: &Correlated) -> Value {
    json!({
        "count": correlated.count,
        "lastTimestamp": time(correlated.last),
        "message": truncated(&correlated.message),
    })
}

/// `<object>.<16 hexadecimal digits>`, as client-go names events.
pub(super) fn event_name(note: &Note, correlated: &Correlated) -> String {
    let object = name(&note.regarding);
    // A name has at most 253 characters; a dot and the digits take 17 of them.
    let object = object.get(..object.len().min(236)).unwrap_or_default().trim_end_matches(['.', '-']);
    format!("{object}.{:016x}", correlated.id)
}

/// Path of the events of an object. An engine may have given a namespace or a name that no object can have.
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

/// Events of claims go to the claim's namespace. Volumes have no namespace, so their events go to `default`.
fn namespace(regarding: &Regarding) -> &str {
    match regarding {
        Regarding::Claim(claim) => &claim.key.namespace,
        Regarding::Volume(_) => "default",
    }
}

fn involved(regarding: &Regarding) -> Value {
    match regarding {
        Regarding::Claim(claim) => request::reference(claim),
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

fn truncated(message: &str) -> &str {
    &message[..message.floor_char_boundary(MESSAGE_BYTES_MAX)]
}
