//! Artifacts through an honest registry, and through a layout on disk.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;

use bindery_kit::{OciRegistry, Referrers, RegistrySettings};
use bindery_registry::{
    Access, Credentials, Descriptor, Digest, Layout, Manifest, Name, Reference, Registry, RegistryError,
    Repository, copy, media, pull, push,
};
use http::Method;
use serde_json::{Value, json};
use support::{artifact, reference, repository, timeouts};

fn tag() -> Name {
    Name::Tag("1.0.0".to_owned())
}

#[tokio::test]
async fn an_artifact_comes_back_however_referrers_are_told() {
    for referrers in Referrers::ALL {
        let registry = OciRegistry::start(RegistrySettings { referrers, ..Default::default() });
        let remote = repository(&registry, Access::Push);
        let digest = push(&remote, &artifact(), Some("1.0.0")).await.unwrap();
        let again = push(&remote, &artifact(), None).await.unwrap();
        assert_eq!(again, digest, "the same module has the same digest");
        for name in [tag(), Name::Digest(digest)] {
            let (found, pulled) = pull(&remote, &name).await.unwrap();
            assert_eq!(found, digest);
            let mut cases: Vec<_> = pulled.cases.iter().map(|file| &*file.name).collect();
            cases.sort_unstable();
            assert_eq!((cases, &pulled.page), (vec!["a.yaml", "b.yaml"], &artifact().page));
            assert_eq!(pulled.module, artifact().module);
        }
        let list = registry.manifest("team/policy", &format!("sha256-{}", digest.hex()));
        assert_eq!(list.is_some(), referrers == Referrers::Untold);
        let referrers = list.map(|list| serde_json::from_slice::<Value>(&list).unwrap()["manifests"].clone());
        assert!(referrers.is_none_or(|list| list.as_array().unwrap().len() == 2), "none is there twice");
    }
}

#[tokio::test]
async fn the_manifest_is_what_wkg_reads_and_both_pairs_of_types_are_read() {
    let registry = OciRegistry::start(RegistrySettings::default());
    let remote = repository(&registry, Access::Push);
    push(&remote, &artifact(), Some("1.0.0")).await.unwrap();
    let bytes = registry.manifest("team/policy", "1.0.0").unwrap();
    let manifest: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(manifest["schemaVersion"], 2);
    assert_eq!(manifest["mediaType"], "application/vnd.oci.image.manifest.v1+json");
    assert_eq!(manifest["config"]["mediaType"], "application/vnd.wasm.config.v0+json");
    assert_eq!(manifest["layers"].as_array().unwrap().len(), 1);
    assert_eq!(manifest["layers"][0]["mediaType"], "application/wasm");
    let config = Manifest::parse(&bytes, "manifest").unwrap().config;
    let config: Value = serde_json::from_slice(&remote.blob(&config, 4096).await.unwrap()).unwrap();
    assert_eq!((&config["architecture"], &config["os"]), (&json!("wasm"), &json!("wasip2")));
    assert_eq!(config["layerDigests"], json!([Digest::of(&artifact().module)]));
    assert_eq!(config["component"]["exports"], json!(["bindery:policy/match@0.2.0"]));
    assert_eq!(config["created"], "1970-01-01T00:00:00Z");

    let mut old = manifest;
    // Its cases refer to the other manifest.
    old["annotations"] = json!({});
    old["config"]["mediaType"] = "application/vnd.wasm.config.v1+json".into();
    old["layers"][0]["mediaType"] = "application/vnd.wasm.content.layer.v1+wasm".into();
    registry.put_manifest("team/policy", "old", old.to_string().as_bytes());
    let (_, pulled) = pull(&remote, &Name::Tag("old".to_owned())).await.unwrap();
    assert_eq!(pulled.module, artifact().module);
}

#[tokio::test]
async fn a_token_is_asked_for_once_and_wrong_credentials_are_told() {
    let registry =
        OciRegistry::start(RegistrySettings { token_for: Some(("ann", "secret")), ..Default::default() });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("auth.json");
    let with = |auth: &str| {
        let auths = json!({"auths": {registry.host(): {"auth": auth}}});
        std::fs::write(&file, auths.to_string()).unwrap();
        let registry_client = Registry::new(None, Some(Credentials::File(file.clone())), timeouts()).unwrap();
        registry_client.repository(&reference(&registry), Access::Push).unwrap()
    };
    // ann:secret
    let remote = with("YW5uOnNlY3JldA==");
    push(&remote, &artifact(), Some("1.0.0")).await.unwrap();
    let tokens = registry.requests().into_iter().filter(|(_, path, _)| path.starts_with("/token"));
    let tokens: Vec<_> = tokens.collect();
    assert_eq!(tokens.len(), 1);
    assert!(tokens[0].1.contains("scope=repository%3Ateam%2Fpolicy%3Apull%2Cpush"), "{tokens:?}");
    // ann:wrong
    let error = push(&with("YW5uOndyb25n"), &artifact(), None).await.unwrap_err();
    assert!(
        matches!(&error, RegistryError::Denied(why) if why.contains("refuses the credentials")),
        "{error}"
    );
    assert!(!error.to_string().contains("wrong") && !error.to_string().contains("YW5u"), "{error}");
    let error = pull(&repository(&registry, Access::Pull), &tag()).await.unwrap_err();
    assert!(matches!(error, RegistryError::Denied(_)), "{error}");
}

#[tokio::test]
async fn a_layout_has_all_that_the_registry_had_and_can_be_pushed_again() {
    let registry = OciRegistry::start(RegistrySettings::default());
    let remote = repository(&registry, Access::Push);
    let digest = push(&remote, &artifact(), Some("1.0.0")).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::new(folder.path());
    assert_eq!(copy(&remote, &layout, &tag()).await.unwrap(), digest);
    assert_eq!(copy(&remote, &layout, &tag()).await.unwrap(), digest, "a second time changes nothing");
    assert_eq!(layout.entries().unwrap().len(), 3);
    let marker: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("oci-layout")).unwrap()).unwrap();
    assert_eq!(marker, json!({"imageLayoutVersion": "1.0.0"}));
    let offline = pull(&layout, &Name::Digest(digest)).await.unwrap().1;
    assert_eq!((offline.cases.len(), offline.page), (2, artifact().page));

    let other = OciRegistry::start(RegistrySettings::default());
    let there = repository(&other, Access::Push);
    assert_eq!(copy(&layout, &there, &tag()).await.unwrap(), digest);
    assert_eq!(pull(&there, &tag()).await.unwrap().0, digest);
    assert_eq!(there.referrers(&digest).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_tag_is_written_after_the_cases_that_its_manifest_names() {
    let [first, second] = [(); 2].map(|()| OciRegistry::start(RegistrySettings::default()));
    let [from, to] = [&first, &second].map(|registry| repository(registry, Access::Push));
    push(&from, &artifact(), Some("1.0.0")).await.unwrap();
    copy(&from, &to, &tag()).await.unwrap();
    for registry in [first, second] {
        let mut requests = registry.requests();
        requests.retain(|(method, path, _)| *method == Method::PUT && path.contains("/manifests/"));
        let (_, last, _) = requests.last().unwrap();
        assert!(last.ends_with("/manifests/1.0.0"), "{last}");
    }
}

#[tokio::test]
async fn a_layout_finds_changed_bytes_and_forgets_what_is_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::new(folder.path());
    let missing = layout.manifest(&tag()).await.unwrap_err();
    assert!(matches!(missing, RegistryError::NotFound(_)), "{missing}");
    let kept = push(&layout, &artifact(), Some("1.0.0")).await.unwrap();
    let mut other = artifact();
    other.module.push(0);
    let gone = push(&layout, &other, Some("2.0.0")).await.unwrap();
    layout.retain(|digest| *digest == kept).unwrap();
    assert!(layout.has(&kept) && !layout.has(&gone) && !layout.has(&Digest::of(&other.module)));
    assert_eq!(pull(&layout, &tag()).await.unwrap().1.cases.len(), 2);

    let module = folder.path().join("blobs/sha256").join(Digest::of(&artifact().module).hex());
    std::fs::write(&module, b"other!!!").unwrap();
    let changed = pull(&layout, &tag()).await.unwrap_err();
    assert!(matches!(&changed, RegistryError::Invalid(why) if why.contains("it was changed")), "{changed}");
    layout.put_blob(&artifact().module).await.unwrap();
    assert_eq!(pull(&layout, &tag()).await.unwrap().0, kept, "what is broken is written again");
}

#[tokio::test]
async fn given_two_repositories_with_one_tag_a_layout_finds_each() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str| {
        let reference: Reference = format!("oci://localhost/{name}").parse().unwrap();
        Layout::new(folder.path()).with_tags_of(&reference)
    };
    let (any, [one, two, three]) = (Layout::new(folder.path()), ["one", "two", "three"].map(of));
    let mut other = artifact();
    other.module.push(0);
    // As versions before have written it: it names no repository, and the next one takes its place.
    let before = push(&any, &other, Some("1.0.0")).await.unwrap();
    assert_eq!(pull(&one, &tag()).await.unwrap().0, before);
    let first = push(&one, &artifact(), Some("1.0.0")).await.unwrap();
    assert_eq!(pull(&any, &tag()).await.unwrap().0, first);

    let second = push(&two, &other, Some("1.0.0")).await.unwrap();
    assert_eq!(pull(&one, &tag()).await.unwrap().0, first);
    assert_eq!(pull(&two, &tag()).await.unwrap().0, second);
    for (layout, remedy) in [(three, "name one of these"), (any, "name the digest")] {
        let error = pull(&layout, &tag()).await.unwrap_err().to_string();
        let told = format!("localhost/one:1.0.0, localhost/two:1.0.0: {remedy}");
        assert!(error.ends_with(&told), "{error}");
    }
}

#[tokio::test]
async fn what_is_being_copied_stays_while_others_are_removed() {
    let registry = OciRegistry::start(RegistrySettings::default());
    let digest = push(&repository(&registry, Access::Push), &artifact(), None).await.unwrap();
    let (name, folder) = (Name::Digest(digest), tempfile::tempdir().unwrap());
    let layout = Arc::new(Layout::new(folder.path()));
    let of_others = Arc::clone(&layout);
    // Before each answer of the registry.
    registry.intercept(move |_, _, _| {
        of_others.retain(|_| false).unwrap();
        None
    });
    let writer = layout.writer();
    copy(&repository(&registry, Access::Pull), &writer, &name).await.unwrap();
    assert_eq!(pull(&*layout, &name).await.unwrap().1.cases.len(), 2);
    drop(writer);
    layout.retain(|_| false).unwrap();
    assert!(layout.entries().unwrap().is_empty() && layout.size() == 0);
}

#[tokio::test]
async fn a_layout_never_has_more_bytes_than_its_limit() {
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::new(folder.path()).with_limit(100);
    for (blob, has_room) in [(&[0; 60][..], true), (&[0; 60], true), (&[1; 41], false), (&[1; 40], true)] {
        match layout.put_blob(blob).await {
            Ok(()) => assert!(has_room),
            Err(RegistryError::Full(why)) => assert!(!has_room && why.contains("60 of at most 100 bytes")),
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(layout.size(), 100);
}

#[tokio::test]
async fn large_annotations_and_types_of_manifests_leave_the_index_readable() {
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::new(folder.path());
    let digest = push(&layout, &artifact(), None).await.unwrap();
    let bytes = layout.manifest(&Name::Digest(digest)).await.unwrap();
    let manifest = Manifest::parse(&bytes, "manifest").unwrap();
    let large = || "x".repeat(500_000);
    for number in 0..10 {
        let annotations = [(number.to_string(), large()), (media::REF_NAME.to_owned(), "1".to_owned())];
        let (artifact_type, annotations) = (Some(large()), annotations.into());
        let other = Manifest { artifact_type, annotations, ..manifest.clone() };
        let bytes = other.to_bytes();
        layout.put_manifest(&Name::Digest(Digest::of(&bytes)), &other, &bytes).await.unwrap();
    }
    assert_eq!(layout.entries().unwrap().len(), 13);
    assert!(layout.manifest(&Name::Tag("1".to_owned())).await.is_err(), "a manifest gives itself no tag");
}

#[tokio::test]
async fn given_a_full_or_broken_index_it_is_told_as_full_and_begun_anew() {
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::new(folder.path());
    let foreign = json!({"schemaVersion": 2, "manifests": [{"x": "x".repeat((4 << 20) - 100)}]}).to_string();
    for index in [foreign, " ".repeat((4 << 20) + 1), "{".to_owned()] {
        std::fs::write(folder.path().join("index.json"), index).unwrap();
        let full = push(&layout, &artifact(), None).await.unwrap_err();
        assert!(matches!(full, RegistryError::Full(_)), "{full}");
        layout.retain(|_| true).unwrap();
        let digest = push(&layout, &artifact(), None).await.unwrap();
        assert_eq!(pull(&layout, &Name::Digest(digest)).await.unwrap().1.cases.len(), 2);
    }
}

#[tokio::test]
async fn a_module_is_kept_by_its_own_digest_for_as_long_as_it_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::new(folder.path());
    let modules = [b"\0asm\x0d\0\x01\0".to_vec(), b"another".to_vec()];
    let [kept, gone] = [Digest::of(&modules[0]), Digest::of(&modules[1])];
    for module in modules.iter().chain(&modules[..1]) {
        layout.put_module(module.clone()).await.unwrap();
    }
    assert_eq!(layout.entries().unwrap().len(), 2);
    layout.retain(|digest| *digest == kept).unwrap();
    assert_eq!(layout.module(&kept).await.unwrap(), modules[0]);
    assert!(matches!(layout.module(&gone).await.unwrap_err(), RegistryError::NotFound(_)));
    std::fs::write(folder.path().join("blobs/sha256").join(kept.hex()), b"other!!!").unwrap();
    assert!(layout.module(&kept).await.unwrap_err().to_string().contains("it was changed"));
    layout.put_module(modules[0].clone()).await.unwrap();
    assert_eq!(layout.module(&kept).await.unwrap(), modules[0], "what is broken is written again");
}

#[tokio::test]
async fn what_the_signed_manifest_does_not_name_does_not_ride_along() {
    let registry = OciRegistry::start(RegistrySettings::default());
    let remote = repository(&registry, Access::Push);
    let digest = push(&remote, &artifact(), None).await.unwrap();
    let subject = Descriptor { media_type: media::MANIFEST.to_owned(), digest, ..Descriptor::of("", b"") };
    let case = registry.put_blob(b"case: planted");
    let planted = json!({
        "schemaVersion": 2, "mediaType": media::MANIFEST, "artifactType": media::CASES, "subject": subject,
        "config": Descriptor::of(media::EMPTY, b"{}"),
        "layers": [{"mediaType": "application/yaml", "digest": case, "size": 13}],
    });
    registry.put_manifest("team/policy", "planted", planted.to_string().as_bytes());
    assert_eq!(remote.referrers(&digest).await.unwrap().len(), 3);
    let cases = pull(&remote, &Name::Digest(digest)).await.unwrap().1.cases;
    assert!(cases.len() == 2 && cases.iter().all(|file| file.bytes != b"case: planted"));
}

#[tokio::test]
async fn a_pull_asks_for_nothing_that_it_does_not_need() {
    let registry = OciRegistry::start(RegistrySettings::default());
    let bare = bindery_registry::Artifact { cases: Vec::new(), page: None, ..artifact() };
    push(&repository(&registry, Access::Push), &bare, Some("1.0.0")).await.unwrap();
    let before = registry.requests().len();
    pull(&repository(&registry, Access::Pull), &tag()).await.unwrap();
    let requests: Vec<_> = registry.requests().drain(before..).collect();
    assert!(
        requests.len() == 2 && requests.iter().all(|(method, ..)| *method == Method::GET),
        "{requests:?}"
    );
}
