//! What a registry stores.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::Referrers;

type Manifest = (String, Vec<u8>);

/// Blobs, manifests and tags.
#[derive(Default)]
pub(super) struct Store {
    pub(super) blobs: BTreeMap<String, Vec<u8>>,
    /// Media type and bytes, by repository and digest.
    manifests: BTreeMap<(String, String), Manifest>,
    tags: BTreeMap<(String, String), String>,
    /// What was uploaded in pieces, by path.
    pub(super) uploads: BTreeMap<String, Vec<u8>>,
    begun: u64,
}

/// SHA-256 of bytes.
pub(super) fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

impl Store {
    /// The number of a new upload.
    pub(super) fn begin_upload(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    pub(super) fn put_blob(&mut self, bytes: &[u8]) -> String {
        let digest = digest(bytes);
        self.blobs.insert(digest.clone(), bytes.to_vec());
        digest
    }

    pub(super) fn put_manifest(
        &mut self,
        repository: &str,
        name: &str,
        media_type: &str,
        bytes: &[u8],
    ) -> String {
        let digest = digest(bytes);
        let key = (repository.to_owned(), digest.clone());
        self.manifests.insert(key, (media_type.to_owned(), bytes.to_vec()));
        if !name.contains(':') {
            self.tags.insert((repository.to_owned(), name.to_owned()), digest.clone());
        }
        digest
    }

    pub(super) fn manifest(&self, repository: &str, name: &str) -> Option<&Manifest> {
        let tag = self.tags.get(&(repository.to_owned(), name.to_owned()));
        let digest = tag.cloned().unwrap_or_else(|| name.to_owned());
        self.manifests.get(&(repository.to_owned(), digest))
    }

    pub(super) fn corrupt(&mut self, digest: &str) {
        let manifests = self.manifests.iter_mut().filter(|((_, of), _)| of == digest);
        let manifests = manifests.map(|(_, (_, bytes))| bytes);
        for bytes in self.blobs.get_mut(digest).into_iter().chain(manifests) {
            if let Some(last) = bytes.last_mut() {
                *last ^= 1;
            }
        }
    }

    /// The list of manifests whose subject is this one.
    pub(super) fn referrers(&self, repository: &str, subject: &str, told: Referrers) -> Value {
        let of = self.manifests.iter().filter(|((of, _), _)| of == repository);
        let entries = of.filter_map(|((_, digest), (media_type, bytes))| {
            let manifest: Value = serde_json::from_slice(bytes).ok()?;
            (manifest["subject"]["digest"] == subject).then(|| {
                let kind = match &manifest["artifactType"] {
                    Value::String(kind) if told == Referrers::ByArtifact => json!(kind),
                    _ => manifest["config"]["mediaType"].clone(),
                };
                let annotations = &manifest["annotations"];
                json!({"mediaType": media_type, "digest": digest, "size": bytes.len(), "artifactType": kind,
                       "annotations": if annotations.is_null() { json!({}) } else { annotations.clone() }})
            })
        });
        let media_type = "application/vnd.oci.image.index.v1+json";
        json!({"schemaVersion": 2, "mediaType": media_type, "manifests": entries.collect::<Vec<_>>()})
    }
}
