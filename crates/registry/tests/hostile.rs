//! A registry that is not honest ends every operation by a limit or a sentence.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use bindery_kit::{Authority, OciRegistry, RegistrySettings, Reply};
use bindery_registry::{
    Access, Digest, Name, Reference, Registry, RegistryError, Remote, Repository, Timeouts, media, pull, push,
};
use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use serde_json::{Value, json};
use support::{artifact, reference, repository};

/// A change of a manifest, and why it is refused.
type Change = (fn(&mut Value), &'static str);
type Rule = fn(&Method, &str, &HeaderMap) -> Option<Reply>;

fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Option<Reply> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    Some(Reply::Answer(response.body(body.into()).unwrap()))
}

/// A registry with the artifact under the tag 1.0.0, which then behaves by a rule.
async fn registry(rule: Rule) -> OciRegistry {
    let registry = OciRegistry::start(RegistrySettings::default());
    push(&repository(&registry, Access::Push), &artifact(), Some("1.0.0")).await.unwrap();
    registry.intercept(rule);
    registry
}

/// A client that waits too short for a busy machine, so it only serves tests in which no answer comes.
fn impatient(registry: &OciRegistry) -> Remote {
    let timeouts = Timeouts {
        answer: Duration::from_millis(100),
        request: Duration::from_millis(400),
        ..support::timeouts()
    };
    let client = Registry::new(None, None, timeouts).unwrap();
    client.repository(&reference(registry), Access::Pull).unwrap()
}

async fn error(remote: &Remote) -> RegistryError {
    let tag = Name::Tag("1.0.0".to_owned());
    pull(remote, &tag).await.expect_err("a hostile registry must not be believed")
}

#[tokio::test]
async fn a_registry_that_does_not_answer_is_unavailable() {
    let rules: [Rule; 6] = [
        |_, _, _| Some(Reply::Garbage),
        |_, _, _| Some(Reply::Hang),
        |_, path, _| path.contains("/blobs/").then_some(Reply::Hang),
        |_, _, _| answer(503, &[], "{}"),
        |_, _, _| answer(429, &[("retry-after", "9999999")], "{}"),
        |_, path, _| path.contains("/referrers/").then_some(Reply::Hang),
    ];
    for (number, rule) in rules.into_iter().enumerate() {
        let error = error(&impatient(&registry(rule).await)).await;
        assert!(matches!(error, RegistryError::Unavailable(_)), "rule {number}: {error:?}");
    }
}

#[tokio::test]
async fn what_breaks_a_rule_or_a_limit_is_refused_with_a_sentence() {
    let rules: [(Rule, &str); 8] = [
        (|_, path, _| path.contains("/manifests/").then_some(Reply::Endless), "larger than 1048576 bytes"),
        (|_, path, _| path.contains("/blobs/").then_some(Reply::Endless), "larger than 8 bytes"),
        (|_, _, _| answer(200, &[("content-encoding", "gzip")], "x"), "encoded as \"gzip\""),
        (
            |_, path, _| path.contains("/manifests/").then(|| answer(200, &[], "{\"manifests\": []}"))?,
            "list of manifests",
        ),
        (|_, path, _| path.contains("/manifests/").then(|| answer(200, &[], "[1, 2"))?, "no manifest"),
        (
            |_, path, _| path.contains("/manifests/").then(|| answer(302, &[("location", "/v2/x")], ""))?,
            "status 302",
        ),
        (|_, path, _| path.contains("/blobs/").then(|| answer(200, &[], "7 bytes"))?, "it was changed"),
        (|_, path, _| path.contains("/blobs/").then(|| answer(200, &[], "8 bytes!"))?, "it was changed"),
    ];
    for (rule, why) in rules {
        let error = error(&repository(&registry(rule).await, Access::Pull)).await;
        assert!(matches!(&error, RegistryError::Invalid(text) if text.contains(why)), "{why}: {error:?}");
    }
}

#[tokio::test]
async fn a_manifest_of_another_digest_is_refused() {
    let registry = registry(|_, _, _| None).await;
    let remote = repository(&registry, Access::Pull);
    let (digest, _) = pull(&remote, &Name::Tag("1.0.0".to_owned())).await.unwrap();
    registry.corrupt(&digest.to_string());
    let error = pull(&remote, &Name::Digest(digest)).await.unwrap_err();
    assert!(error.to_string().contains("it was changed"), "{error}");
}

#[tokio::test]
async fn what_is_no_module_is_refused_with_what_it_is() {
    let registry = registry(|_, _, _| None).await;
    let remote = repository(&registry, Access::Pull);
    let bytes = registry.manifest("team/policy", "1.0.0").unwrap();
    let changes: [Change; 6] = [
        (|manifest| manifest["config"]["mediaType"] = media::IMAGE_CONFIG.into(), "its configuration is"),
        (|manifest| manifest["layers"][0]["mediaType"] = "text/plain".into(), "its layer is \"text/plain\""),
        (|manifest| manifest["layers"] = json!([]), "it has 0 layers"),
        (
            |manifest| manifest["layers"][0]["size"] = json!(1u64 << 40),
            "has 1099511627776 bytes; at most 67108864 are ",
        ),
        (|manifest| manifest["mediaType"] = media::INDEX.into(), "list of manifests"),
        (
            |manifest| manifest["annotations"][media::CASES_ANNOTATION] = "sha256:0".into(),
            "no list of digests",
        ),
    ];
    for (change, why) in changes {
        let mut manifest: Value = serde_json::from_slice(&bytes).unwrap();
        change(&mut manifest);
        registry.put_manifest("team/policy", "wrong", manifest.to_string().as_bytes());
        let error = pull(&remote, &Name::Tag("wrong".to_owned())).await.unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
}

#[tokio::test]
async fn a_blob_is_redirected_without_credentials_and_nothing_else_is() {
    let storage = OciRegistry::start(RegistrySettings::default());
    storage.put_blob(&artifact().module);
    let settings = RegistrySettings { basic_for: Some(("ann", "secret")), ..Default::default() };
    let registry = OciRegistry::start(settings);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("auth.json");
    std::fs::write(&file, json!({"auths": {registry.host(): {"auth": "YW5uOnNlY3JldA=="}}}).to_string())
        .unwrap();
    let credentials = bindery_registry::Credentials::File(file);
    let client = support::client(None, Some(credentials));
    let remote = client.repository(&reference(&registry), Access::Push).unwrap();
    push(&remote, &artifact(), Some("1.0.0")).await.unwrap();
    let to = storage.host();
    registry.intercept(move |method, path, headers| {
        let is_redirected =
            *method == Method::GET && path.contains("/blobs/") && headers.contains_key("authorization");
        is_redirected.then(|| answer(307, &[("location", &format!("http://{to}{path}"))], ""))?
    });
    pull(&remote, &Name::Tag("1.0.0".to_owned())).await.expect_err("the storage lacks the cases");
    let seen = storage.requests();
    assert!(!seen.is_empty() && seen.iter().all(|(_, _, authorization)| authorization.is_none()), "{seen:?}");
}

#[tokio::test]
async fn no_redirect_leads_around_in_circles_or_to_addresses_inside() {
    let targets = [
        ("/v2/team/policy/blobs/again", "redirects more than 3 times"),
        ("http://169.254.169.254/latest/meta-data", "would be asked without TLS"),
        ("https://169.254.169.254/latest/meta-data", "not connected to"),
        ("https://[fd00:ec2::254]/", "not connected to"),
        ("https://user:pass@example.com/", "no URL"),
        ("file:///etc/passwd", "no URL"),
        ("//example.com/", "no URL"),
    ];
    let registry = registry(|_, _, _| None).await;
    for (target, why) in targets {
        registry.intercept(move |_, path, _| {
            path.contains("/blobs/").then(|| answer(302, &[("location", target)], ""))?
        });
        let error = error(&repository(&registry, Access::Pull)).await.to_string();
        assert!(error.contains(why), "{target}: {error}");
    }
}

#[tokio::test]
async fn a_challenge_sends_credentials_to_no_plain_or_inner_server() {
    for (realm, why) in [
        ("http://example.com/token", "would be asked without TLS"),
        ("https://169.254.169.254/token", "not connected to"),
        ("gopher://example.com/", "no URL"),
    ] {
        let registry = OciRegistry::start(RegistrySettings::default());
        let challenge = format!("Bearer realm=\"{realm}\",service=\"x\"");
        registry.intercept(move |_, _, _| answer(401, &[("www-authenticate", &challenge)], ""));
        let error = error(&repository(&registry, Access::Pull)).await.to_string();
        assert!(error.contains(why), "{realm}: {error}");
    }
}

#[tokio::test]
async fn an_upload_goes_to_no_other_host() {
    let registry = OciRegistry::start(RegistrySettings::default());
    registry.intercept(|method, _, _| {
        (*method == Method::POST).then(|| answer(202, &[("location", "https://example.com/upload")], ""))?
    });
    let error = push(&repository(&registry, Access::Push), &artifact(), None).await.unwrap_err();
    assert!(error.to_string().contains("only its own host is written to"), "{error}");
}

/// A name of loopback has no TLS, so a name that a public server could have is asked for by TLS alone.
#[tokio::test]
async fn a_name_that_leads_to_this_machine_is_not_connected_to() {
    let authority = Authority::new();
    let client = support::client(Some(&authority.pem()), None);
    for host in ["169.254.169.254", "[fe80::1]", "0.0.0.0", "[::ffff:169.254.169.254]"] {
        let of: Reference = format!("oci://{host}/team/policy:1").parse().unwrap();
        let remote = client.repository(&of, Access::Pull).unwrap();
        let error = remote.manifest(&Name::Tag("1".to_owned())).await.unwrap_err();
        assert!(error.to_string().contains("not connected to"), "{host}: {error}");
    }
}

#[tokio::test]
async fn pages_of_referrers_end() {
    let registry = registry(|_, path, _| {
        let next = "</v2/team/policy/referrers/sha256:00?page=again>; rel=\"next\"";
        path.contains("/referrers/")
            .then(|| answer(200, &[("link", next)], "{\"schemaVersion\":2,\"manifests\":[]}"))?
    })
    .await;
    let before = registry.requests().len();
    let told = error(&repository(&registry, Access::Pull)).await;
    assert!(matches!(told, RegistryError::NotFound(_)), "{told:?}");
    let pages =
        registry.requests().iter().skip(before).filter(|(_, path, _)| path.contains("/referrers/")).count();
    assert_eq!(pages, 4);
}

#[tokio::test]
async fn the_tag_of_referrers_is_asked_for_only_without_their_api() {
    let registry = registry(|_, _, _| None).await;
    let remote = repository(&registry, Access::Pull);
    let (digest, _) = pull(&remote, &Name::Tag("1.0.0".to_owned())).await.unwrap();
    for (status, expected) in [
        (404, "none"),
        (400, "none"),
        (406, "none"),
        (403, "denied"),
        (408, "unavailable"),
        (429, "unavailable"),
        (500, "unavailable"),
        (503, "unavailable"),
        (418, "invalid"),
    ] {
        registry
            .intercept(move |_, path, _| path.contains("/referrers/").then(|| answer(status, &[], ""))?);
        let told = match remote.referrers(&digest).await {
            Ok(referrers) if referrers.is_empty() => "none",
            Err(RegistryError::Denied(_)) => "denied",
            Err(RegistryError::Unavailable(_)) => "unavailable",
            Err(RegistryError::Invalid(_)) => "invalid",
            other => panic!("{status}: {other:?}"),
        };
        assert_eq!(told, expected, "{status}");
    }
}

#[tokio::test]
async fn given_named_cases_that_no_referrer_has_nothing_is_pulled() {
    let registry = registry(|_, path, _| {
        let nothing = "{\"schemaVersion\":2,\"manifests\":[]}";
        path.contains("/referrers/").then(|| answer(200, &[], nothing))?
    })
    .await;
    let remote = repository(&registry, Access::Pull);
    let (told, missing) = (error(&remote).await, Digest::of(b"case: a").to_string());
    assert!(matches!(&told, RegistryError::NotFound(why) if why.contains(&missing)), "{told:?}");
    registry.recover();
    let (_, pulled) = pull(&remote, &Name::Tag("1.0.0".to_owned())).await.unwrap();
    assert_eq!(pulled.cases.len(), 2);
}

/// A registry on loopback has no TLS, so the server is the one to which it redirects.
#[tokio::test]
async fn a_certificate_that_does_not_hold_is_refused_with_host_and_reason() {
    let (authority, other) = (Authority::new(), Authority::new());
    let registry = registry(|_, _, _| None).await;
    for (certificate, why) in [
        (authority.server("localhost"), None),
        (authority.expired_server("localhost"), Some("certificate expired")),
        (authority.server("registry.example"), Some("not valid for name")),
        (other.server("localhost"), Some("UnknownIssuer")),
    ] {
        let storage = OciRegistry::start(RegistrySettings {
            certificate: Some(certificate),
            ..RegistrySettings::default()
        });
        let artifact = artifact();
        storage.put_blob(&artifact.module);
        for file in artifact.cases.iter().chain(&artifact.page) {
            storage.put_blob(&file.bytes);
        }
        let host = storage.host();
        registry.redirect_blobs(&storage);
        let client = support::client(Some(&authority.pem()), None);
        let remote = client.repository(&reference(&registry), Access::Pull).unwrap();
        let pulled = pull(&remote, &Name::Tag("1.0.0".to_owned())).await;
        let Some(why) = why else {
            assert_eq!(pulled.unwrap().1.module, artifact.module);
            continue;
        };
        let error = pulled.expect_err("the certificate does not hold").to_string();
        assert!(
            error.contains(&format!("{host} cannot be trusted by TLS")) && error.contains(why),
            "{error}"
        );
        assert!(storage.requests().is_empty(), "{why}");
    }
}
