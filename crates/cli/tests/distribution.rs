//! `bindery policy push|pull|sign|verify` through a registry on loopback.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bindery_kit::{OciRegistry, Referrers, RegistrySettings};
use bindery_registry::Layout;
use rcgen::KeyPair;
use serde_json::{Value, json};
use support::{Ended, Home, ended, engine, root};

const CREDENTIALS: (&str, &str) = ("ann", "secret");

fn policy(home: &Home, arguments: &[&str]) -> Ended {
    home.bindery(&[&["policy"][..], arguments].concat())
}

/// Runs a command that must succeed; returns what it prints.
fn done(home: &Home, arguments: &[&str]) -> String {
    let ended = policy(home, arguments);
    assert_eq!(ended.status, 0, "{arguments:?}: {ended:?}");
    ended.stdout
}

/// A folder with the policy `same-zone` as `bindery policy build` leaves it.
fn home() -> Home {
    let home = Home::new();
    let beside = || Path::new(env!("CARGO_BIN_EXE_bindery")).with_file_name("../components");
    let built = std::env::var_os("BINDERY_POLICIES").map_or_else(beside, Into::into);
    home.file("same-zone.wasm", fs::read(built.join("same-zone.wasm")).unwrap());
    for file in ["README.md", "cases/cases.yaml"] {
        home.file(file, fs::read(root().join("policies/same-zone").join(file)).unwrap());
    }
    home
}

fn key(home: &Home, name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    (
        home.file(&format!("{name}.key"), key.serialize_pem()),
        home.file(&format!("{name}.pub"), key.public_key_pem()),
    )
}

#[test]
fn a_policy_is_pushed_signed_verified_and_pulled() {
    for referrers in Referrers::ALL {
        let settings = RegistrySettings { referrers, token_for: Some(CREDENTIALS), ..Default::default() };
        let registry = OciRegistry::start(settings);
        let home = home();
        let auths = json!({"auths": {registry.host(): {"auth": "YW5uOnNlY3JldA=="}}});
        home.file(".docker/config.json", auths.to_string());
        let (private, public) = key(&home, "ours");
        let (_, other) = key(&home, "other");

        let tagged = format!("oci://{}/team/same-zone:1.0.0", registry.host());
        let reference = done(&home, &["push", "same-zone.wasm", &tagged]);
        let reference = reference.trim_end();
        assert!(reference.starts_with(&format!("{tagged}@sha256:")), "{reference}");
        assert_eq!(done(&home, &["push", "same-zone.wasm", &tagged]).trim_end(), reference);
        let manifest: Value =
            serde_json::from_slice(&registry.manifest("team/same-zone", "1.0.0").unwrap()).unwrap();
        assert_eq!(manifest["annotations"]["org.opencontainers.image.title"], "same-zone");

        let unsigned = policy(&home, &["verify", reference, "--registry-key", &public]);
        assert!(unsigned.status == 1 && unsigned.stdout.contains("it has no signature"), "{unsigned:?}");
        let tag = policy(&home, &["sign", &tagged, "--key", &private]);
        assert!(tag.status == 2 && tag.stderr.contains("names no digest"), "{tag:?}");
        done(&home, &["sign", reference, "--key", &private]);
        done(&home, &["sign", reference, "--key", &private, "--format", "tag"]);
        let verified = done(&home, &["verify", &tagged, "--registry-key", &public]);
        assert!(verified.contains(reference) && verified.contains(": signed by sha256:"), "{verified}");
        let both = format!("{public},{other}");
        let all = policy(&home, &["verify", reference, "--registry-key", &both, "--registry-require", "all"]);
        assert!(all.status == 1 && all.stdout.contains("all 2 trusted keys, only by 1"), "{all:?}");

        let refused = policy(&home, &["pull", reference, "--output", "no", "--registry-key", &other]);
        assert!(refused.status == 1 && refused.stdout.contains("by other keys"), "{refused:?}");
        assert!(!home.path().join("no").exists());
        let at = |repository: &str, key: &str| format!("oci://{}/{repository}={key}", registry.host());
        let (whole, part) = (format!("{},{other}", at("team", &public)), at("tea", &public));
        done(&home, &["verify", reference, "--registry-key", &whole]);
        let elsewhere = policy(&home, &["verify", reference, "--registry-key", &part]);
        assert!(elsewhere.status == 1 && elsewhere.stdout.contains("no key is trusted for"), "{elsewhere:?}");
        let none = ["verify", reference, "--registry-key", &public, "--registry-require", &at("team", "all")];
        let none = policy(&home, &none);
        assert!(none.status == 2 && none.stderr.contains("no --registry-key does"), "{none:?}");
        done(&home, &["pull", &tagged, "--output", "out", "--to", "mirror", "--registry-key", &public]);
        for file in ["same-zone.wasm", "README.md", "cases/cases.yaml"] {
            let (ours, pulled) = (home.path().join(file), home.path().join("out").join(file));
            assert_eq!(fs::read(ours).unwrap(), fs::read(pulled).unwrap(), "{file}");
        }
        let tested = done(&home, &["test", "out/same-zone.wasm"]);
        assert!(!tested.contains("no case"), "{tested}");

        // With the registry away.
        registry.hang();
        let offline = ["--layout", "mirror", "--registry-key", &public];
        done(&home, &[&["verify", &tagged], &offline[..]].concat());
        done(&home, &[&["pull", reference, "--output", "again"], &offline[..]].concat());
        let inside = OciRegistry::start(RegistrySettings::default());
        let (_, digest) = reference.split_once('@').unwrap();
        let there = format!("oci://{}/inside/same-zone@{digest}", inside.host());
        assert_eq!(done(&home, &["push", "mirror", &there]).trim_end(), there);
        done(&home, &["verify", &there, "--registry-key", &public]);
    }
}

#[test]
fn given_a_server_that_makes_room_meanwhile_a_pull_into_its_folder_fails() {
    let registry = OciRegistry::start(RegistrySettings::default());
    let home = home();
    let tagged = format!("oci://{}/team/same-zone:1.0.0", registry.host());
    done(&home, &["push", "same-zone.wasm", &tagged]);
    let layout = Layout::new(home.path().join("registry"));
    registry.intercept(move |_, _, _| {
        layout.retain(|_| false).unwrap();
        None
    });
    let pulled = policy(&home, &["pull", &tagged, "--to", "registry"]);
    let told = "registry lacks a part: a server may have made room there; run the command again: ";
    assert!(pulled.status == 2 && pulled.stderr.contains(told), "{pulled:?}");
}

#[test]
fn given_a_signature_that_its_folder_has_lost_a_pull_into_it_fails() {
    let registry = OciRegistry::start(RegistrySettings::default());
    let home = home();
    let (private, public) = key(&home, "ours");
    let tagged = format!("oci://{}/team/same-zone:1.0.0", registry.host());
    let reference = done(&home, &["push", "same-zone.wasm", &tagged]);
    let reference = reference.trim_end();
    done(&home, &["sign", reference, "--key", &private]);
    let blobs = home.path().join("registry/blobs/sha256");
    registry.intercept(move |_, path, _| {
        // The last request, after the bundle was written.
        if path.ends_with(".sig") {
            for file in fs::read_dir(&blobs).into_iter().flatten().flatten() {
                let bytes = fs::read(file.path()).unwrap();
                if String::from_utf8_lossy(&bytes).contains("dsseEnvelope") {
                    fs::remove_file(file.path()).unwrap();
                }
            }
        }
        None
    });
    let pulled = policy(&home, &["pull", reference, "--to", "registry", "--registry-key", &public]);
    assert!(pulled.status == 2 && pulled.stderr.contains("registry lacks a part: "), "{pulled:?}");
    assert!(pulled.stderr.contains("its signatures are 1 that cannot be read"), "{pulled:?}");
}

#[test]
fn given_a_tag_that_moves_meanwhile_only_what_was_verified_is_kept() {
    let registry = Arc::new(OciRegistry::start(RegistrySettings::default()));
    let home = home();
    let (private, public) = key(&home, "ours");
    let [tagged, other] =
        ["1.0.0", "2.0.0"].map(|tag| format!("oci://{}/team/same-zone:{tag}", registry.host()));
    let reference = done(&home, &["push", "same-zone.wasm", &tagged]);
    done(&home, &["sign", reference.trim_end(), "--key", &private]);
    done(&home, &["push", "same-zone.wasm", &other, "--annotation", "of=another"]);
    let unsigned = registry.manifest("team/same-zone", "2.0.0").unwrap();
    let (moving, asked) = (Arc::clone(&registry), AtomicUsize::new(0));
    registry.intercept(move |_, path, _| {
        // Twice it names what is signed.
        if path.ends_with("/manifests/1.0.0") && asked.fetch_add(1, Ordering::Relaxed) == 2 {
            moving.put_manifest("team/same-zone", "1.0.0", &unsigned);
        }
        None
    });
    done(&home, &["pull", &tagged, "--to", "mirror", "--registry-key", &public]);
    done(&home, &["verify", &tagged, "--layout", "mirror", "--registry-key", &public]);
}

#[test]
fn given_two_policies_with_one_tag_a_folder_has_both() {
    let registry = OciRegistry::start(RegistrySettings::default());
    let home = home();
    let [one, two] = ["one", "two"].map(|name| format!("oci://{}/{name}:1.0.0", registry.host()));
    let pushed = [(&one, "of=one"), (&two, "of=two")].map(|(tagged, annotation)| {
        let reference = done(&home, &["push", "same-zone.wasm", tagged, "--annotation", annotation]);
        done(&home, &["pull", tagged, "--to", "mirror"]);
        (tagged, reference)
    });
    for (tagged, reference) in pushed {
        let pulled = done(&home, &["pull", tagged, "--layout", "mirror", "--to", "again"]);
        assert_eq!(pulled, format!("again: {reference}"));
    }
}

#[test]
fn given_a_tag_beside_the_digest_a_layout_is_pushed_under_both() {
    let [outside, inside] = [(); 2].map(|()| OciRegistry::start(RegistrySettings::default()));
    let home = home();
    let tagged = format!("oci://{}/team/same-zone:1.0.0", outside.host());
    let reference = done(&home, &["push", "same-zone.wasm", &tagged]);
    let reference = reference.trim_end();
    done(&home, &["pull", reference, "--to", "mirror"]);
    let there = reference.replace(&outside.host(), &inside.host());
    assert_eq!(done(&home, &["push", "mirror", &there]).trim_end(), there);
    assert_eq!(inside.manifest("team/same-zone", "1.0.0"), outside.manifest("team/same-zone", "1.0.0"));
}

#[test]
fn an_engine_is_pushed_and_what_is_neither_is_refused() {
    let registry = OciRegistry::start(RegistrySettings::default());
    let home = home();
    home.file("engine/engine.wasm", fs::read(engine()).unwrap());
    let to = format!("oci://{}/engine:1", registry.host());
    done(&home, &["push", "engine/engine.wasm", &to]);
    home.file("wrong.wasm", "not a component");
    for (arguments, why) in [
        (["push", "wrong.wasm", &to], "is no policy"),
        (["push", "missing.wasm", &to], "missing.wasm"),
        (["push", "same-zone.wasm", "oci://localhost/a/B"], "a repository has"),
        (["push", "same-zone.wasm", "ghcr.io/a/b"], "does not begin with oci://"),
        (["verify", &to, "--layout=missing"], "no key is given"),
    ] {
        let ended = policy(&home, &arguments);
        assert!(ended.status == 2 && ended.stderr.contains(why), "{why}: {ended:?}");
    }
}

/// A policy of this size is refused.
#[test]
fn given_an_engine_of_33_mib_it_is_pushed_pulled_and_replayed_with() {
    const PADDING: usize = 33 << 20;
    let registry = OciRegistry::start(RegistrySettings::default());
    let home = Home::new();
    // A section without a name, behind its size in LEB128.
    let section = [&[0, 0x80, 0x80, 0xc0, 0x10][..], &vec![0; PADDING][..]].concat();
    let large = [fs::read(engine()).unwrap(), section].concat();
    home.file("large.wasm", &large);
    let to = format!("oci://{}/engine:1", registry.host());
    done(&home, &["push", "large.wasm", &to]);
    done(&home, &["pull", &to, "--output", "out"]);
    assert!(fs::read(home.path().join("out/large.wasm")).unwrap() == large);
    let replayed = home.bindery(&["replay", "no-journal", "--with", "large.wasm"]);
    assert!(replayed.stderr.starts_with("error: no-journal: "), "{replayed:?}");
}

#[test]
fn credentials_come_from_the_helper_that_the_file_of_the_user_names() {
    let settings = RegistrySettings { basic_for: Some(CREDENTIALS), ..Default::default() };
    let registry = OciRegistry::start(settings);
    let home = home();
    let to = format!("oci://{}/team/same-zone:1.0.0", registry.host());
    let helpers = root().join("crates/registry/tests/helpers").display().to_string();
    let push = |config: Value| {
        home.file(".docker/config.json", config.to_string());
        let mut command = home.command(&["policy", "push", "same-zone.wasm", &to]);
        command.env("PATH", format!("{helpers}:/usr/bin:/bin"));
        ended(command, "")
    };
    for config in [
        json!({"credHelpers": {registry.host(): "kept"}}),
        // The file has a wrong password, which the helper of the host comes before.
        json!({"credHelpers": {registry.host(): "kept"}, "auths": {registry.host(): {"auth": "YW5uOng="}}}),
        json!({"credsStore": "kept", "auths": {registry.host(): {}}}),
    ] {
        let pushed = push(config);
        assert_eq!(pushed.status, 0, "{pushed:?}");
    }
    let missing = push(json!({"credsStore": "missing"}));
    assert_eq!(missing.status, 2, "{missing:?}");
    for told in ["\"missing\", which", "config.json names: there is no program docker-credential-missing"] {
        assert!(missing.stderr.contains(told), "{told}: {missing:?}");
    }
}
