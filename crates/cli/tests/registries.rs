//! Policies through real registries, crane, wkg and cosign: `cargo xtask soak registries` runs it, because
//! these take minutes to build.
//!
//! It runs in a network namespace in which the registries' addresses are the only ones. So it also shows that
//! nothing but the registry is asked, to sign and to verify.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "registries/place.rs"]
mod place;
mod support;

use std::fs;
use std::path::PathBuf;

use place::{HOSTS, Place, WITHOUT_REFERRERS};
use serde_json::Value;

const COSIGNS: [&str; 2] = ["cosign2", "cosign3"];
const FORMATS: [&str; 2] = ["bundle", "tag"];

/// Makes a pair of keys PREFIX.key and PREFIX.pub by a cosign.
fn keys(place: &Place, cosign: &str, prefix: &str) {
    place.done(cosign, &["generate-key-pair", "--output-key-prefix", prefix]);
}

/// Signs an image, HOST/REPOSITORY@DIGEST, by a cosign or by `bindery policy sign`.
fn sign(place: &Place, signer: &str, format: &str, key: &str, image: &str) {
    if signer == "bindery" {
        place.done(signer, &["sign", &format!("oci://{image}"), "--key", key, "--format", format]);
        return;
    }
    let form = format!("--new-bundle-format={}", format == "bundle");
    let offline = ["--tlog-upload=false", "--use-signing-config=false", "--yes"];
    place.done(signer, &[&["sign", "--key", key, &form][..], &offline, &[image]].concat());
}

/// Whether a cosign or `bindery policy verify` finds that a key has signed an image. To Bindery, both formats
/// are one.
fn is_signed(place: &Place, verifier: &str, format: &str, key: &str, image: &str) -> bool {
    let form = format!("--new-bundle-format={}", format == "bundle");
    let image_of_bindery = format!("oci://{image}");
    let mut arguments = match verifier {
        "bindery" => vec!["verify", &image_of_bindery, "--registry-key", key],
        _ => vec!["verify", image, "--key", key, "--insecure-ignore-tlog", &form],
    };
    if verifier == "cosign2" {
        // It would fetch one, and a key needs nothing of it.
        arguments.extend(["--trusted-root", "root.json"]);
    }
    let ended = place.run(verifier, &arguments);
    let told = ["no matching signatures", "no matching attestations", "not signed by the trusted key"];
    let text = format!("{}{}", ended.stdout, ended.stderr);
    let is_refused = told.iter().any(|told| text.contains(told));
    assert!(ended.status == 0 || is_refused, "{verifier} {arguments:?}: {ended:?}");
    ended.status == 0
}

#[tokio::test]
async fn crane_and_wkg_read_what_bindery_pushes_and_it_reads_theirs() {
    let place = Place::start().await;
    let module = place.read("same-zone.wasm");
    // It pushes only where the registry tells the place of a blob, which go-containerregistry's does not.
    let wkg = format!("{WITHOUT_REFERRERS}/wkg/pushed:1.0.0");
    place.done("wkg", &["oci", "push", &wkg, "same-zone.wasm"]);
    for host in HOSTS {
        let image = format!("{host}/team/same-zone:1.0.0");
        // crane copies no referrers, so there must be no cases and no page.
        let bare = ["push", "same-zone.wasm", &format!("oci://{image}"), "--bare"];
        let pushed = place.done("bindery", &bare);
        let digest = pushed.trim_end().split_once('@').unwrap().1;
        assert_eq!(place.done("crane", &["digest", &image]).trim_end(), digest);
        let manifest: Value = serde_json::from_str(&place.done("crane", &["manifest", &image])).unwrap();
        assert_eq!(manifest["config"]["mediaType"], "application/vnd.wasm.config.v0+json");
        let layout = format!("crane-{host}");
        place.done("crane", &["pull", "--format=oci", &image, &layout]);
        place.done("wkg", &["oci", "pull", &image, "--output", "by-wkg.wasm"]);
        assert_eq!(place.read("by-wkg.wasm"), module);

        place.done("crane", &["push", &layout, &format!("{host}/crane/pushed:1.0.0")]);
        place.done("crane", &["copy", &wkg, &format!("{host}/crane/copied:1.0.0")]);
        for (host, repository, file) in [
            (host, "crane/pushed", "same-zone"),
            (host, "crane/copied", "copied"),
            (WITHOUT_REFERRERS, "wkg/pushed", "pushed"),
        ] {
            let out = format!("{host}/{repository}");
            place.done("bindery", &["pull", &format!("oci://{out}:1.0.0"), "--output", &out]);
            assert_eq!(place.read(&format!("{out}/{file}.wasm")), module, "{repository}");
        }
        let named = format!("oci://{host}/team/same-zone@{digest}");
        let out = format!("{host}/layout");
        place.done("bindery", &["pull", &named, "--layout", &layout, "--output", &out]);
        assert_eq!(place.read(&format!("{out}/same-zone.wasm")), module);
    }
}

/// Three keys sign one artifact, so that each signer keeps the signatures of the others. cosign 2 looks at no
/// tag where an artifact has bundles, so each format has an artifact of its own.
#[tokio::test]
async fn both_cosigns_and_bindery_verify_each_others_signatures() {
    let place = Place::start().await;
    keys(&place, COSIGNS[0], "other");
    place.done(COSIGNS[0], &["trusted-root", "create", "--out", "root.json"]);
    for (host, format) in HOSTS.into_iter().flat_map(|host| FORMATS.map(|format| (host, format))) {
        let digest = place.push(host, &format!("team/{format}"));
        let image = format!("{host}/team/{format}@{digest}");
        let signed = [COSIGNS[0], COSIGNS[1], "bindery"].map(|signer| {
            let prefix = format!("{host}-{signer}-{format}");
            keys(&place, if signer == "bindery" { COSIGNS[1] } else { signer }, &prefix);
            sign(&place, signer, format, &format!("{prefix}.key"), &image);
            format!("{prefix}.pub")
        });
        for verifier in [COSIGNS[0], COSIGNS[1], "bindery"] {
            for key in &signed {
                assert!(is_signed(&place, verifier, format, key, &image), "{verifier}, {key}");
            }
            assert!(!is_signed(&place, verifier, format, "other.pub", &image), "{verifier}");
        }
        let all = ["--registry-require", "all", "--registry-key", &signed.join(",")];
        let (named, mirror) = (format!("oci://{image}"), format!("mirror-{host}-{format}"));
        place.done("bindery", &[&["pull", &named, "--to", &mirror][..], &all].concat());
        place.done("bindery", &[&["verify", &named, "--layout", &mirror][..], &all].concat());

        // Signatures go along in a layout.
        let mirrored = format!("{host}/mirrored/{format}@{digest}");
        place.done("bindery", &["push", &mirror, &format!("oci://{mirrored}")]);
        for key in &signed {
            assert!(is_signed(&place, "cosign3", format, key, &mirrored), "{key}");
        }
    }
}

#[tokio::test]
async fn what_cosign_copies_is_signed_by_tags_and_takes_no_bundle() {
    let place = Place::start().await;
    keys(&place, "cosign3", "ours");
    for host in HOSTS {
        let digest = place.push(host, "team/same-zone");
        let image = format!("{host}/team/same-zone@{digest}");
        for format in FORMATS {
            sign(&place, "bindery", format, "ours.key", &image);
        }
        place.done("cosign3", &["copy", &image, &format!("{host}/copied:1.0.0")]);
        let copied = format!("{host}/copied@{digest}");
        assert!(is_signed(&place, "bindery", "tag", "ours.pub", &copied));
        // It has put the manifest under the tag of referrers.
        let refused = place.run("bindery", &["sign", &format!("oci://{copied}"), "--key", "ours.key"]);
        assert!(refused.status == 2 && refused.stderr.contains("or sign with --format tag"), "{refused:?}");
    }
}

#[tokio::test]
async fn what_real_registries_refuse_is_told_with_the_reason() {
    let place = Place::start().await;
    place.home.file("wrong.json", wrong_credentials());
    place.home.file("other.pem", bindery_kit::Authority::new().pem());
    for host in HOSTS {
        let digest = place.push(host, "team/same-zone");
        let (there, away) =
            (format!("oci://{host}/team/same-zone@{digest}"), format!("oci://{host}/team/no:1"));
        for (arguments, why) in [
            (vec!["--registry-auth", "nobody.json", &*there], "credentials"),
            (vec!["--registry-auth", "wrong.json", &there], "refuses the credentials"),
            (vec!["--registry-ca", "other.pem", &there], "cannot be trusted by TLS"),
            (vec![&away], "status 404"),
        ] {
            let ended = place.run("bindery", &[&["pull", "--output", "out"][..], &arguments].concat());
            assert!(ended.status == 2 && ended.stderr.contains(why), "{arguments:?}: {ended:?}");
            assert!(ended.stderr.contains(host), "{ended:?}");
        }
    }
}

fn wrong_credentials() -> String {
    let auth = serde_json::json!({"username": place::USER, "password": "wrong"});
    let auths: serde_json::Map<_, _> =
        HOSTS.map(|host| (host.to_owned(), auth.clone())).into_iter().collect();
    serde_json::json!({"auths": auths}).to_string()
}

/// With `BINDERY_RECORD`, what they write is kept in that folder for the tests of every change.
#[tokio::test]
async fn what_others_write_is_recorded_and_read_without_a_registry() {
    let place = Place::start().await;
    let kept = place.home.path().join("recorded");
    let to = std::env::var_os("BINDERY_RECORD").map_or(kept, PathBuf::from);
    let folder = |name: &str| to.join(name).display().to_string();
    place.home.file("empty.wasm", b"\0asm\x0d\0\x01\0");
    keys(&place, COSIGNS[0], "cosign");
    for name in ["cosign2-bundle", "cosign2-tag", "cosign3-bundle", "cosign3-tag", "crane"] {
        // What is there of an earlier run, if anything, has another key.
        let _ = fs::remove_dir_all(folder(name));
    }
    fs::create_dir_all(&to).unwrap();
    for file in ["cosign.key", "cosign.pub"] {
        fs::write(to.join(file), place.read(file)).unwrap();
    }
    let host = WITHOUT_REFERRERS;
    for (cosign, format) in COSIGNS.into_iter().flat_map(|cosign| FORMATS.map(|format| (cosign, format))) {
        let name = format!("{cosign}-{format}");
        let tagged = format!("{host}/recorded/{name}:1.0.0");
        place.done("wkg", &["oci", "push", &tagged, "empty.wasm"]);
        let digest = place.done("crane", &["digest", &tagged]);
        let image = format!("{host}/recorded/{name}@{}", digest.trim_end());
        sign(&place, cosign, format, "cosign.key", &image);
        let named = format!("oci://{image}");
        place.done("bindery", &["pull", &named, "--to", &folder(&name)]);
        let offline = ["--layout", &folder(&name), "--registry-key", "cosign.pub"];
        place.done("bindery", &[&["verify", &named][..], &offline].concat());
    }
    let tagged = format!("{host}/recorded/{}-{}:1.0.0", COSIGNS[0], FORMATS[0]);
    place.done("crane", &["pull", "--format=oci", &tagged, &folder("crane")]);
}
