//! Credentials of a control plane: one user with every right.
//!
//! They protect nothing. The servers are short-lived, and listen on loopback or in a network of their own.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::json;

/// The user's token.
const TOKEN: &str = "bindery";
/// Names of files: tokens of users, the private and the public key of service accounts' tokens, and the
/// certificate that kube-apiserver generates.
pub(crate) const TOKENS: &str = "tokens.csv";
pub(crate) const KEY: &str = "service-account.key";
pub(crate) const PUBLIC_KEY: &str = "service-account.pub";
pub(crate) const CERTIFICATE: &str = "apiserver.crt";

/// Writes the user, and the key that signs tokens of service accounts.
pub(crate) fn write(folder: &Path) -> Result<()> {
    let key = rcgen::KeyPair::generate().context("no key can be generated")?;
    let write = |name: &str, content: String| {
        let path = folder.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    };
    write(KEY, key.serialize_pem())?;
    write(PUBLIC_KEY, key.public_key_pem())?;
    write(TOKENS, format!("{TOKEN},admin,admin,\"system:masters\"\n"))
}

/// Writes a kubeconfig for the API server of this folder, on this port of loopback in the network of its
/// reader.
pub fn write_kubeconfig(folder: &Path, path: &Path, port: u16) -> Result<()> {
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bindery",
        "clusters": [{"name": "bindery", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority": folder.join(CERTIFICATE),
            // This name of the certificate does not depend on the address of the server.
            "tls-server-name": "kubernetes",
        }}],
        "users": [{"name": "bindery", "user": {"token": TOKEN}}],
        "contexts": [{"name": "bindery", "context": {"cluster": "bindery", "user": "bindery"}}],
    });
    fs::write(path, format!("{kubeconfig:#}\n")).with_context(|| format!("cannot write {}", path.display()))
}
