//! Who may use a cluster: one user, who may do everything.
//!
//! This protects nothing. The servers listen on loopback or in a network of their own, and are gone soon.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::json;

use super::place::Place;

/// The user's token.
const TOKEN: &str = "bindery";
/// The certificate that kube-apiserver makes for itself.
const CERTIFICATE: &str = "apiserver.crt";

/// Writes the user, and the key that service accounts' tokens are signed with.
///
/// # Errors
/// When a key cannot be made or a file not be written.
pub(super) fn write(place: &Place) -> Result<()> {
    let key = rcgen::KeyPair::generate().context("no key can be made")?;
    place.write("service-account.key", key.serialize_pem())?;
    place.write("service-account.pub", key.public_key_pem())?;
    place.write("tokens.csv", format!("{TOKEN},admin,admin,\"system:masters\"\n"))
}

/// The certificate that clients trust.
pub(super) fn certificate(place: &Place) -> std::path::PathBuf {
    place.file(CERTIFICATE)
}

/// Writes a kubeconfig for the API server on this port of loopback, wherever its reader's loopback leads.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write_kubeconfig(place: &Place, path: &Path, port: u16) -> Result<()> {
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bindery",
        "clusters": [{"name": "bindery", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority": certificate(place),
            // Of the certificate's names the one that does not depend on where the server listens.
            "tls-server-name": "kubernetes",
        }}],
        "users": [{"name": "bindery", "user": {"token": TOKEN}}],
        "contexts": [{"name": "bindery", "context": {"cluster": "bindery", "user": "bindery"}}],
    });
    std::fs::write(path, format!("{kubeconfig:#}\n"))
        .with_context(|| format!("cannot write {}", path.display()))
}
