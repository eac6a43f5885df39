//! Fetches beside each other.

use bindery_kit::{OciRegistry, RegistrySettings};
use bindery_registry::{Artifact, push};

use super::*;
use crate::tests::arguments_of;

#[tokio::test]
async fn a_fetch_keeps_its_blobs_while_another_makes_room() {
    let registry = OciRegistry::start(RegistrySettings::default());
    let client = Registry::new(None, None, Timeouts::default()).unwrap();
    let reference: Reference = format!("oci://{}/team/policy", registry.host()).parse().unwrap();
    let artifact = Artifact { module: b"\0asm\x0d\0\x01\0".to_vec(), ..Artifact::default() };
    let remote = client.repository(&reference, Access::Push).unwrap();
    let digest = push(&remote, &artifact, None).await.unwrap();

    let folder = tempfile::tempdir().unwrap();
    let cache = arguments_of(&["--engine-cache", folder.path().to_str().unwrap()]);
    let modules = RegistryModules::with(&cache, Some(client), None, None);
    let another = Arc::clone(&modules.0);
    // Before each answer of the registry.
    registry.intercept(move |_, _, _| {
        another.layout().unwrap().retain(|_| false).unwrap();
        None
    });
    let fetched = modules.get(&reference.with_digest(digest).to_string(), &Pull::default(), None).await;
    assert_eq!(fetched.map(|module| module.bytes).map_err(|missing| missing.why), Ok(artifact.module));
}
