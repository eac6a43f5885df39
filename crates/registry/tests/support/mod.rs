//! Clients of a registry on loopback.

#![allow(dead_code, reason = "every test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bindery_kit::OciRegistry;
use bindery_registry::{Access, Artifact, Credentials, Extra, Reference, Registry, Remote, Timeouts};

/// Short enough for tests, long enough for a busy machine where an answer is awaited.
pub(crate) fn timeouts() -> Timeouts {
    Timeouts { operation: Duration::from_secs(60), request: Duration::from_secs(30), ..Timeouts::default() }
}

/// The repository `team/policy` of a registry.
pub(crate) fn repository(registry: &OciRegistry, access: Access) -> Remote {
    client(None, None).repository(&reference(registry), access).unwrap()
}

pub(crate) fn reference(registry: &OciRegistry) -> Reference {
    format!("oci://{}/team/policy:1.0.0", registry.host()).parse().unwrap()
}

pub(crate) fn client(authorities: Option<&str>, credentials: Option<Credentials>) -> Registry {
    Registry::new(authorities.map(str::as_bytes), credentials, timeouts()).unwrap()
}

/// The folder of what other programs have written.
pub(crate) fn recorded() -> PathBuf {
    Path::new(env!("BINDERY_CHECKOUT")).join("crates/registry/tests/recorded")
}

/// A small artifact with cases and a page.
pub(crate) fn artifact() -> Artifact {
    let extra = |name: &str, text: &str| Extra { name: name.to_owned(), bytes: text.as_bytes().to_vec() };
    Artifact {
        module: b"\0asm\x0d\0\x01\0".to_vec(),
        exports: vec!["bindery:policy/match@0.2.0".to_owned()],
        cases: vec![extra("a.yaml", "case: a"), extra("b.yaml", "case: b")],
        page: Some(extra("README.md", "# A policy")),
        annotations: BTreeMap::from([("org.opencontainers.image.title".to_owned(), "policy".to_owned())]),
    }
}
