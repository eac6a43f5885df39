//! The encodings of API servers: Protocol Buffers, which cost both sides the least, or JSON if the server
//! offers nothing else.
//!
//! Follows `runtime/serializer/protobuf` and `runtime/serializer/streaming` of k8s.io/apimachinery. An
//! object is the bytes `k8s\0` and a `runtime.Unknown` with the object inside. An event of a watch is a
//! `metav1.WatchEvent` after its length.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap};
use prost::Message as _;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::decode::{Decodable, Encoded};

/// `Accept` of all requests: the server sends the first encoding that it knows.
pub const ACCEPT: &str = "application/vnd.kubernetes.protobuf,application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The first bytes of every object in Protocol Buffers.
const MAGIC: &[u8] = b"k8s\0";

/// An encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`.
    Json,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

/// An encoded object, or an encoded list of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EncodedObject {
    /// In JSON.
    Json(Bytes),
    /// In Protocol Buffers, without its envelope.
    Protobuf(Bytes),
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPage {
    /// resourceVersion of the list.
    pub version: String,
    /// The continue token of the next page; `None` on the last page.
    pub next: Option<String>,
    /// Number of objects after this page; 0 if the server does not say.
    pub remaining: u64,
    /// The objects.
    pub items: Vec<EncodedObject>,
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchEvent {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub kind: String,
    /// The object, as it was before its deletion for `DELETED`; a Status for `ERROR`.
    pub object: EncodedObject,
}

impl Encoding {
    /// The encoding of an answer.
    pub fn of(headers: &HeaderMap) -> Self {
        let content_type = headers.get(CONTENT_TYPE).map(http::HeaderValue::as_bytes).unwrap_or_default();
        if content_type.starts_with(PROTOBUF.as_bytes()) { Self::Protobuf } else { Self::Json }
    }

    /// The object in an answer.
    pub fn object(self, bytes: Bytes) -> Result<EncodedObject, String> {
        match self {
            Self::Json => Ok(EncodedObject::Json(bytes)),
            Self::Protobuf => unwrapped(bytes).map(EncodedObject::Protobuf),
        }
    }

    /// The event in a frame of a watch.
    pub fn event(self, frame: Bytes) -> Result<WatchEvent, String> {
        match self {
            Self::Json => {
                let event: JsonEvent<'_> =
                    serde_json::from_slice(&frame).map_err(|error| error.to_string())?;
                let object = EncodedObject::Json(part(&frame, event.object));
                Ok(WatchEvent { kind: event.kind.to_owned(), object })
            }
            Self::Protobuf => {
                let event = ProtobufEvent::decode(frame).map_err(|error| error.to_string())?;
                Ok(WatchEvent {
                    kind: event.kind,
                    object: EncodedObject::Protobuf(unwrapped(event.object.raw)?),
                })
            }
        }
    }
}

impl EncodedObject {
    /// The page of a list.
    pub fn page(&self) -> Result<ListPage, String> {
        let (metadata, items) = match self {
            Self::Json(bytes) => {
                let list: JsonList<'_> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
                let items = list.items.into_iter().flatten();
                (list.metadata, items.map(|item| Self::Json(part(bytes, item))).collect())
            }
            Self::Protobuf(bytes) => {
                let list = ProtobufList::decode(bytes.clone()).map_err(|error| error.to_string())?;
                (list.metadata, list.items.into_iter().map(Self::Protobuf).collect())
            }
        };
        let next = metadata.next.filter(|token| !token.is_empty());
        let remaining = metadata.remaining_item_count.and_then(|count| count.try_into().ok()).unwrap_or(0);
        Ok(ListPage { version: metadata.resource_version, next, remaining, items })
    }
}

impl Encoded for EncodedObject {
    fn read<T: Decodable>(&self) -> Result<T, String> {
        match self {
            Self::Json(bytes) => bytes.as_ref().read(),
            Self::Protobuf(bytes) => T::decode(bytes.as_ref()).map_err(|error| error.to_string()),
        }
    }
}

/// A part of the bytes, which is not copied.
fn part(bytes: &Bytes, part: &RawValue) -> Bytes {
    bytes.slice_ref(part.get().as_bytes())
}

/// Takes an object out of its envelope.
fn unwrapped(bytes: Bytes) -> Result<Bytes, String> {
    if !bytes.starts_with(MAGIC) {
        return Err("it does not begin with the bytes of Kubernetes' Protocol Buffers".to_owned());
    }
    let envelope = Unknown::decode(bytes.slice(MAGIC.len()..)).map_err(|error| error.to_string())?;
    Ok(envelope.raw)
}

#[derive(Deserialize)]
struct JsonEvent<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct JsonList<'a> {
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    #[prost(string, tag = "2")]
    resource_version: String,
    #[serde(rename = "continue")]
    #[prost(string, optional, tag = "3")]
    next: Option<String>,
    #[prost(int64, optional, tag = "4")]
    remaining_item_count: Option<i64>,
}

/// `metav1.WatchEvent`.
#[derive(Clone, PartialEq, prost::Message)]
struct ProtobufEvent {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(message, required, tag = "2")]
    object: RawExtension,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RawExtension {
    #[prost(bytes = "bytes", tag = "1")]
    raw: Bytes,
}

/// A list of encoded objects of any kind.
#[derive(Clone, PartialEq, prost::Message)]
struct ProtobufList {
    #[prost(message, required, tag = "1")]
    metadata: ListMeta,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    items: Vec<Bytes>,
}

/// `runtime.Unknown`.
#[derive(Clone, PartialEq, prost::Message)]
struct Unknown {
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_bytes_are_errors() {
        // The envelope of an object with an empty name.
        let object = [MAGIC, b"\x12\x02\x0a\x00"].concat();
        assert!(Encoding::Protobuf.object(object.clone().into()).is_ok());
        for bytes in [&object[1..], &object[..object.len() - 1], b"", b"{}"] {
            assert!(Encoding::Protobuf.object(bytes.to_vec().into()).is_err());
            assert!(Encoding::Protobuf.event(bytes.to_vec().into()).is_err());
        }
        assert!(Encoding::Json.event(Bytes::from_static(b"{}\n")).is_err());
    }
}
