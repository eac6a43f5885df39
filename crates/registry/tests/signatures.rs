//! Signatures in both formats, in registries with and without the referrers API, and in layouts.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bindery_kit::{OciRegistry, Referrers, RegistrySettings};
use bindery_registry::limits::SIGNATURE_MAX;
use bindery_registry::{
    Access, Descriptor, Digest, Format, Layout, Name, PublicKey, Reference, RegistryError, Remote, Require,
    SigningKey, TrustedKeys, copy, media, pull, push, sign, verify,
};
use rcgen::KeyPair;
use serde_json::{Value, json};
use support::{artifact, recorded, reference, repository};

/// A key with its public part.
fn key() -> (SigningKey, PublicKey) {
    let key = SigningKey::read(KeyPair::generate().unwrap().serialize_pem().as_bytes(), None).unwrap();
    let public = key.public().unwrap();
    (key, public)
}

fn any(keys: &[&PublicKey]) -> TrustedKeys {
    TrustedKeys::new(keys.iter().map(|key| (*key).clone()).collect(), Require::Any).unwrap()
}

fn all(keys: &[&PublicKey]) -> TrustedKeys {
    TrustedKeys::new(keys.iter().map(|key| (*key).clone()).collect(), Require::All).unwrap()
}

/// A registry with the artifact, and the reference by digest.
async fn pushed(settings: RegistrySettings) -> (OciRegistry, Remote, Reference, Digest) {
    let registry = OciRegistry::start(settings);
    let remote = repository(&registry, Access::Push);
    let digest = push(&remote, &artifact(), Some("1.0.0")).await.unwrap();
    let reference = reference(&registry).with_digest(digest);
    (registry, remote, reference, digest)
}

fn unverified(outcome: Result<bindery_registry::Verified, RegistryError>) -> String {
    match outcome {
        Err(RegistryError::Unverified(why)) => why,
        other => panic!("it must not be verified: {other:?}"),
    }
}

#[tokio::test]
async fn what_a_key_has_signed_is_verified_in_both_formats() {
    for referrers in Referrers::ALL {
        for format in [Format::Bundle, Format::Tag] {
            let settings = RegistrySettings { referrers, ..Default::default() };
            let (_registry, remote, reference, digest) = pushed(settings).await;
            let (ours, public) = key();
            let (_, other) = key();
            let none = unverified(verify(&remote, &digest, &any(&[&public])).await);
            assert!(none.contains("it has no signature"), "{none}");
            sign(&remote, &reference, &ours, format).await.unwrap();
            let verified = verify(&remote, &digest, &any(&[&other, &public])).await.unwrap();
            assert_eq!(verified.keys.into_iter().collect::<Vec<_>>(), [public.fingerprint()]);
            let why = unverified(verify(&remote, &digest, &any(&[&other])).await);
            assert!(
                why.contains("not signed by the trusted key: its signatures are 1 by other keys"),
                "{why}"
            );

            let folder = tempfile::tempdir().unwrap();
            let layout = Layout::new(folder.path());
            copy(&remote, &layout, &Name::Digest(digest)).await.unwrap();
            verify(&layout, &digest, &any(&[&public])).await.unwrap();
        }
    }
}

#[tokio::test]
async fn all_keys_must_have_signed_where_all_are_required() {
    let (_registry, remote, reference, digest) = pushed(RegistrySettings::default()).await;
    let ((first, first_public), (second, second_public)) = (key(), key());
    sign(&remote, &reference, &first, Format::Bundle).await.unwrap();
    // A key that is given twice, or that signs twice, does not count twice.
    sign(&remote, &reference, &first, Format::Tag).await.unwrap();
    let trusted = all(&[&first_public, &second_public, &first_public]);
    let why = unverified(verify(&remote, &digest, &trusted).await);
    assert!(why.contains("all 2 trusted keys, only by 1"), "{why}");
    sign(&remote, &reference, &second, Format::Tag).await.unwrap();
    assert_eq!(verify(&remote, &digest, &trusted).await.unwrap().keys.len(), 2);
}

/// The signature of another artifact, moved to this one, in both formats.
#[tokio::test]
async fn a_signature_of_another_artifact_does_not_count() {
    let (registry, remote, reference, digest) = pushed(RegistrySettings::default()).await;
    let (ours, public) = key();
    let mut other = artifact();
    other.module.push(0);
    let other = push(&remote, &other, None).await.unwrap();
    sign(&remote, &reference.with_digest(other), &ours, Format::Tag).await.unwrap();
    sign(&remote, &reference.with_digest(other), &ours, Format::Bundle).await.unwrap();

    let moved = registry.manifest("team/policy", &format!("sha256-{}.sig", other.hex())).unwrap();
    registry.put_manifest("team/policy", &format!("sha256-{}.sig", digest.hex()), &moved);
    use bindery_registry::Repository as _;
    for entry in remote.referrers(&other).await.unwrap() {
        let bytes = registry.manifest("team/policy", &entry.digest.to_string()).unwrap();
        let mut manifest: Value = serde_json::from_slice(&bytes).unwrap();
        manifest["subject"]["digest"] = json!(digest);
        registry.put_manifest("team/policy", "moved", manifest.to_string().as_bytes());
    }
    let why = unverified(verify(&remote, &digest, &any(&[&public])).await);
    assert!(why.contains("2 of another artifact"), "{why}");
    verify(&remote, &other, &any(&[&public])).await.unwrap();
}

/// As `cosign attest` writes a long list of packages.
#[tokio::test]
async fn given_an_attestation_beside_a_signature_the_artifact_is_copied() {
    let (registry, remote, reference, digest) = pushed(RegistrySettings::default()).await;
    let (ours, public) = key();
    sign(&remote, &reference, &ours, Format::Bundle).await.unwrap();
    let attestation = vec![b' '; SIGNATURE_MAX + 1];
    registry.put_blob(&attestation);
    let manifest = json!({
        "schemaVersion": 2, "mediaType": media::MANIFEST, "artifactType": media::BUNDLE,
        "subject": Descriptor { digest, ..Descriptor::of(media::MANIFEST, b"") },
        "config": Descriptor::of(media::EMPTY, b"{}"),
        "layers": [Descriptor::of(media::BUNDLE, &attestation)],
    });
    registry.put_manifest("team/policy", "attestation", manifest.to_string().as_bytes());
    verify(&remote, &digest, &any(&[&public])).await.unwrap();

    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::new(folder.path());
    copy(&remote, &layout, &Name::Digest(digest)).await.unwrap();
    verify(&layout, &digest, &any(&[&public])).await.unwrap();
}

/// The tag of the signatures that cosign 2 wrote, and the manifest under it.
fn tagged(registry: &OciRegistry, digest: &Digest) -> (String, Value) {
    let tag = format!("sha256-{}.sig", digest.hex());
    let bytes = registry.manifest("team/policy", &tag).unwrap();
    (tag, serde_json::from_slice(&bytes).unwrap())
}

#[tokio::test]
async fn of_a_thousand_signatures_a_bounded_number_is_looked_at() {
    let (registry, remote, reference, digest) = pushed(RegistrySettings::default()).await;
    let (ours, public) = key();
    sign(&remote, &reference, &ours, Format::Tag).await.unwrap();
    let (tag, mut manifest) = tagged(&registry, &digest);
    let good = manifest["layers"][0].clone();
    let mut layers = vec![good.clone(); 1_000];
    for layer in &mut layers[..999] {
        layer["annotations"]["dev.cosignproject.cosign/signature"] = "MEUCIQ==".into();
    }
    manifest["layers"] = layers.into();
    registry.put_manifest("team/policy", &tag, manifest.to_string().as_bytes());
    let before = registry.requests().len();
    let why = unverified(verify(&remote, &digest, &any(&[&public])).await);
    assert!(why.contains("64 by other keys") && why.contains("more than 64 are not looked at"), "{why}");
    assert!(registry.requests().len() - before < 70);

    manifest["layers"][3] = good;
    registry.put_manifest("team/policy", &tag, manifest.to_string().as_bytes());
    verify(&remote, &digest, &any(&[&public])).await.unwrap();
}

#[tokio::test]
async fn signatures_that_cannot_be_read_are_none() {
    let (registry, remote, reference, digest) = pushed(RegistrySettings::default()).await;
    let (ours, public) = key();
    sign(&remote, &reference, &ours, Format::Tag).await.unwrap();
    let (tag, manifest) = tagged(&registry, &digest);
    let changes: [fn(&mut Value); 4] = [
        |layer| layer["mediaType"] = "text/plain".into(),
        |layer| layer["annotations"] = json!({}),
        |layer| layer["annotations"]["dev.cosignproject.cosign/signature"] = "%".into(),
        |layer| layer["size"] = json!(1u64 << 40),
    ];
    for change in changes {
        let mut manifest = manifest.clone();
        change(&mut manifest["layers"][0]);
        registry.put_manifest("team/policy", &tag, manifest.to_string().as_bytes());
        let why = unverified(verify(&remote, &digest, &any(&[&public])).await);
        assert!(why.contains("1 that cannot be read"), "{why}");
    }
}

#[tokio::test]
async fn a_registry_that_does_not_answer_is_not_an_unsigned_artifact() {
    let (registry, remote, _, digest) = pushed(RegistrySettings::default()).await;
    let (_, public) = key();
    registry.intercept(|_, path, _| {
        let response = http::Response::builder().status(503).body(bytes::Bytes::new()).unwrap();
        path.contains(".sig").then_some(bindery_kit::Reply::Answer(response))
    });
    let error = verify(&remote, &digest, &any(&[&public])).await.unwrap_err();
    assert!(matches!(error, RegistryError::Unavailable(_)), "{error}");
}

#[tokio::test]
async fn a_tag_is_not_signed() {
    let (registry, remote, ..) = pushed(RegistrySettings::default()).await;
    let error = sign(&remote, &reference(&registry), &key().0, Format::Bundle).await.unwrap_err();
    assert!(error.to_string().contains("names no digest"), "{error}");
}

#[test]
fn a_key_of_another_kind_is_refused_with_the_remedy() {
    let kind = "ENCRYPTED SIGSTORE PRIVATE KEY";
    let sealed = format!("-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n");
    for (text, why) in [
        ("", "it is no PEM"),
        ("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n", "openssl pkcs8"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "it cannot be used"),
        (&sealed, "COSIGN_PASSWORD"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cosign generate-key-pair"),
    ] {
        let error = SigningKey::read(text.as_bytes(), None).err().unwrap().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
    let rsa = "-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAK==\n-----END PUBLIC KEY-----\n";
    assert!(PublicKey::read_all(rsa.as_bytes()).is_err());
    let both = KeyPair::generate().unwrap().public_key_pem() + &KeyPair::generate().unwrap().public_key_pem();
    assert_eq!(PublicKey::read_all(both.as_bytes()).unwrap().len(), 2);
    assert!(TrustedKeys::new(Vec::new(), Require::Any).is_err());
    let many = std::iter::repeat_with(|| key().1).take(17).collect();
    assert!(TrustedKeys::new(many, Require::Any).is_err());
}

/// `cosign copy` puts the manifest itself under the tag of its referrers.
#[tokio::test]
async fn a_manifest_under_the_tag_of_referrers_is_not_replaced() {
    let settings = RegistrySettings { referrers: Referrers::Untold, ..Default::default() };
    let registry = OciRegistry::start(settings);
    let remote = repository(&registry, Access::Push);
    let bare = bindery_registry::Artifact { cases: Vec::new(), page: None, ..artifact() };
    let digest = push(&remote, &bare, Some("1.0.0")).await.unwrap();
    let bytes = registry.manifest("team/policy", "1.0.0").unwrap();
    let tag = format!("sha256-{}", digest.hex());
    registry.put_manifest("team/policy", &tag, &bytes);
    let (ours, public) = key();
    let reference = reference(&registry).with_digest(digest);
    let error = sign(&remote, &reference, &ours, Format::Bundle).await.unwrap_err().to_string();
    assert!(error.contains(&tag) && error.contains("or sign with --format tag"), "{error}");
    assert_eq!(registry.manifest("team/policy", &tag), Some(bytes));
    sign(&remote, &reference, &ours, Format::Tag).await.unwrap();
    verify(&remote, &digest, &any(&[&public])).await.unwrap();
}

/// `tests/recorded` says how these were recorded.
#[tokio::test]
async fn what_wkg_crane_and_both_cosigns_have_written_is_read_and_verified() {
    let folder = recorded();
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let public = PublicKey::read_all(&read("cosign.pub")).unwrap().remove(0);
    let key = SigningKey::read(&read("cosign.key"), Some(b"secret")).unwrap();
    assert_eq!(key.public().unwrap(), public);
    assert!(SigningKey::read(&read("cosign.key"), Some(b"wrong")).is_err());
    for name in ["cosign2-bundle", "cosign2-tag", "cosign3-bundle", "cosign3-tag", "crane"] {
        let layout = Layout::new(folder.join(name));
        let mut modules = 0;
        for entry in layout.entries().unwrap() {
            if pull(&layout, &Name::Digest(entry.digest)).await.is_ok() {
                let verified = verify(&layout, &entry.digest, &any(&[&public])).await;
                assert_eq!(verified.is_ok(), name != "crane", "{name}");
                unverified(verify(&layout, &entry.digest, &any(&[&another_key()])).await);
                modules += 1;
            }
        }
        assert_eq!(modules, 1, "{name}");
    }
}

fn another_key() -> PublicKey {
    key().1
}
