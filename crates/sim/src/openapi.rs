//! OpenAPI v3 documents, as a real server gives them, cut to what is served (`examples/capture.rs`).

use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::{Map, Value, json};

/// Path of a group and version, and its document, compressed.
static DOCUMENTS: [(&str, &[u8]); 4] = [
    ("api/v1", include_bytes!("../data/openapi-api.json.gz")),
    ("apis/coordination.k8s.io/v1", include_bytes!("../data/openapi-coordination.k8s.io.json.gz")),
    ("apis/events.k8s.io/v1", include_bytes!("../data/openapi-events.k8s.io.json.gz")),
    ("apis/storage.k8s.io/v1", include_bytes!("../data/openapi-storage.k8s.io.json.gz")),
];

/// The list of documents. Clients keep a document under its hash.
pub(crate) fn index() -> Value {
    let mut paths = Map::new();
    for (path, compressed) in DOCUMENTS {
        let url = format!("/openapi/v3/{path}?hash={:016X}", hash(compressed));
        paths.insert(path.to_owned(), json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

/// FNV-1a: it only has to differ when the document does.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
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
    fn documents_explain_the_kinds() {
        for (path, definition) in [
            ("api/v1", "io.k8s.api.core.v1.PersistentVolumeClaim"),
            ("apis/storage.k8s.io/v1", "io.k8s.api.storage.v1.StorageClass"),
            ("apis/events.k8s.io/v1", "io.k8s.api.events.v1.Event"),
            ("apis/coordination.k8s.io/v1", "io.k8s.api.coordination.v1.Lease"),
        ] {
            let document: Value = serde_json::from_slice(&document(path).unwrap()).unwrap();
            assert!(document["components"]["schemas"].get(definition).is_some(), "{path}");
        }
        assert!(document("apis/apps/v1").is_none());
    }
}
