//! The real cosign signs and verifies what this crate writes and reads. A long run: give the program in
//! `BINDERY_COSIGN`. With `BINDERY_RECORD`, what it wrote is recorded in that folder, as OCI layouts.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use bindery_kit::{OciRegistry, RegistrySettings};
use bindery_registry::{
    Access, Format, Layout, Name, PublicKey, Require, SigningKey, TrustedKeys, copy, push, sign, verify,
};
use support::{artifact, reference, repository};

/// Runs cosign in a folder; returns what it prints.
fn cosign(folder: &Path, arguments: &[&str]) -> String {
    let program = std::env::var("BINDERY_COSIGN").expect("BINDERY_COSIGN must name the program");
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).env("HOME", folder).env("COSIGN_PASSWORD", "secret");
    let ended = command.output().unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "cosign {arguments:?}: {text}");
    text
}

#[tokio::test]
async fn cosign_and_this_crate_verify_each_others_signatures() {
    let folder = tempfile::tempdir().unwrap();
    cosign(folder.path(), &["generate-key-pair"]);
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    let public = PublicKey::read_all(&read("cosign.pub")).unwrap();
    let trusted = TrustedKeys::new(public, Require::Any).unwrap();
    assert!(SigningKey::read(&read("cosign.key"), Some(b"wrong")).is_err());
    let key = SigningKey::read(&read("cosign.key"), Some(b"secret")).unwrap();
    for without_referrers in [false, true] {
        for (format, new) in [(Format::Bundle, "true"), (Format::Tag, "false")] {
            for is_ours in [true, false] {
                let settings = RegistrySettings { without_referrers, ..Default::default() };
                let registry = OciRegistry::start(settings);
                let remote = repository(&registry, Access::Push);
                let digest = push(&remote, &artifact(), Some("1.0.0")).await.unwrap();
                let named = reference(&registry).with_digest(digest);
                let image = format!("{}@{digest}", named.place());
                let flag = format!("--new-bundle-format={new}");
                if is_ours {
                    sign(&remote, &named, &key, format).await.unwrap();
                } else {
                    let arguments = [
                        "sign",
                        "--yes",
                        "--key",
                        "cosign.key",
                        "--tlog-upload=false",
                        "--use-signing-config=false",
                        "--allow-http-registry",
                        &flag,
                        &image,
                    ];
                    cosign(folder.path(), &arguments);
                }
                verify(&remote, &digest, &trusted).await.unwrap();
                let ignore = ["--insecure-ignore-tlog", "--allow-http-registry"];
                cosign(
                    folder.path(),
                    &[&["verify", "--key", "cosign.pub", &flag, &image][..], &ignore].concat(),
                );
                if let (Ok(to), false) = (std::env::var("BINDERY_RECORD"), is_ours) {
                    let name = if format == Format::Bundle { "cosign-bundle" } else { "cosign-tag" };
                    let to = PathBuf::from(to);
                    copy(&remote, &Layout::new(to.join(name)), &Name::Digest(digest)).await.unwrap();
                    for file in ["cosign.pub", "cosign.key"] {
                        std::fs::write(to.join(file), read(file)).unwrap();
                    }
                }
            }
        }
    }
}
