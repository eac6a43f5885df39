//! The recorded OpenAPI v3 documents of a real server, cut to the served resources (`examples/capture.rs`),
//! and an empty OpenAPI v2 document.
//!
//! kubectl requests version 2 before it creates an object that version 3 does not describe: a `List`, or a
//! kind that is not served. It leaves the validation of objects without a description to the server.

use std::collections::HashMap;
use std::io::Read;
use std::sync::LazyLock;

use flate2::read::GzDecoder;
use serde_json::{Map, Value, json};

use crate::registry::{Resource, VERSION};

/// The path of each group and version, and its compressed document.
static DOCUMENTS: [(&str, &[u8]); 9] = [
    ("api/v1", include_bytes!("../../data/openapi-api.json.gz")),
    ("apis/apps/v1", include_bytes!("../../data/openapi-apps.json.gz")),
    ("apis/authorization.k8s.io/v1", include_bytes!("../../data/openapi-authorization.k8s.io.json.gz")),
    ("apis/batch/v1", include_bytes!("../../data/openapi-batch.json.gz")),
    ("apis/coordination.k8s.io/v1", include_bytes!("../../data/openapi-coordination.k8s.io.json.gz")),
    ("apis/discovery.k8s.io/v1", include_bytes!("../../data/openapi-discovery.k8s.io.json.gz")),
    ("apis/events.k8s.io/v1", include_bytes!("../../data/openapi-events.k8s.io.json.gz")),
    ("apis/networking.k8s.io/v1", include_bytes!("../../data/openapi-networking.k8s.io.json.gz")),
    ("apis/storage.k8s.io/v1", include_bytes!("../../data/openapi-storage.k8s.io.json.gz")),
];

/// The definitions of all documents by name.
static DEFINITIONS: LazyLock<HashMap<String, Value>> = LazyLock::new(|| {
    let schemas = |(path, _): (&str, _)| {
        let document: Value = serde_json::from_slice(&document(path)?).ok()?;
        serde_json::from_value::<HashMap<String, Value>>(document.get("components")?.get("schemas")?.clone())
            .ok()
    };
    DOCUMENTS.into_iter().filter_map(schemas).flatten().collect()
});

/// The media type of OpenAPI v2 in protobuf.
pub(crate) const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// The media types that request it; kubectl uses the first, which is malformed.
pub(crate) const V2_PROTOBUF_ASKED: [&str; 2] =
    ["application/com.github.proto-openapi.spec.v2@v1.0+protobuf", V2_PROTOBUF];

/// [`v2`] in protobuf: the fields `swagger` (1), `info` (2) with `title` (1) and `version` (2), and `paths`
/// (8), which is empty.
pub(crate) const V2_DOCUMENT: &[u8] = b"\x0a\x032.0\x12\x15\x0a\x0aKubernetes\x12\x07v1.36.2\x42\x00";

/// The OpenAPI v2 document.
pub(crate) fn v2() -> Value {
    json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.36.2"}, "paths": {}})
}

/// The list of documents. Clients cache a document by its hash.
pub(crate) fn index() -> Value {
    let mut paths = Map::new();
    for (path, compressed) in DOCUMENTS {
        let url = format!("/openapi/v3/{path}?hash={:016X}", hash(compressed));
        paths.insert(path.to_owned(), json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

/// FNV-1a; different documents need different hashes, and no more.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The definition of a kind.
pub(crate) fn definition(resource: &Resource) -> Option<&'static Value> {
    let kind = json!({"group": resource.group, "kind": resource.kind, "version": VERSION});
    let defines = |definition: &&Value| definition["x-kubernetes-group-version-kind"][0] == kind;
    DEFINITIONS.values().find(defines)
}

/// The definition that a `$ref` names.
pub(crate) fn referenced(reference: &str) -> Option<&'static Value> {
    DEFINITIONS.get(reference.rsplit('/').next()?)
}

/// One document.
pub(crate) fn document(path: &str) -> Option<Vec<u8>> {
    let (_, compressed) = DOCUMENTS.iter().find(|(known, _)| *known == path)?;
    let mut document = Vec::new();
    GzDecoder::new(*compressed).read_to_end(&mut document).ok()?;
    Some(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_document_describes_its_kinds() {
        for (path, definition) in [
            ("api/v1", "io.k8s.api.core.v1.PersistentVolumeClaim"),
            ("apis/storage.k8s.io/v1", "io.k8s.api.storage.v1.StorageClass"),
            ("apis/events.k8s.io/v1", "io.k8s.api.events.v1.Event"),
            ("apis/coordination.k8s.io/v1", "io.k8s.api.coordination.v1.Lease"),
        ] {
            let document: Value = serde_json::from_slice(&document(path).unwrap()).unwrap();
            assert!(document["components"]["schemas"].get(definition).is_some(), "{path}");
        }
        assert!(document("apis/policy/v1").is_none());
    }
}
