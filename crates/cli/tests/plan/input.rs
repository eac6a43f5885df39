//! Unusable and needless manifests, unusable engines, and the compiled engine that is kept.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use super::support::{Home, ended, engine, list};
use super::{claim, table, volume};

/// Each is refused with one sentence and status 2; nothing is printed or written.
#[test]
fn bad_input_is_refused_in_one_sentence() {
    let twice = list(&[volume("v", json!({})), volume("v", json!({}))]).to_string();
    let mut nameless = volume("v", json!({}));
    nameless["metadata"] = json!({});
    for (manifest, starts) in [
        ("a: [".to_owned(), "bad.yaml is neither YAML nor JSON: "),
        ("{\"a\": ".to_owned(), "bad.yaml is neither YAML nor JSON: "),
        ("just words".to_owned(), "bad.yaml: the document at line 1 is not a Kubernetes object: "),
        ("kind: PersistentVolume".to_owned(), "bad.yaml: the document at line 1 has no apiVersion: "),
        (nameless.to_string(), "bad.yaml: PersistentVolume \"\": it has no metadata.name: give it one"),
        (
            twice,
            "bad.yaml: PersistentVolume \"v\" at line 1, item 2 is also in bad.yaml at line 1, item 1: \
             remove one",
        ),
        (
            volume("v", json!({"capacity": {"storage": "100E"}})).to_string(),
            "bad.yaml: PersistentVolume \"v\": spec.capacity.storage: \"100E\" is out of range; Bindery \
             handles less than",
        ),
        (
            claim("c", json!({"accessModes": ["ReadWriteSometimes"]})).to_string(),
            "bad.yaml: PersistentVolumeClaim \"default/c\": spec.accessModes: \"ReadWriteSometimes\" is \
             not an access mode; one of ReadWriteOnce,",
        ),
        (
            claim("c", json!({"resources": {"requests": {"storage": ["1Gi"]}}})).to_string(),
            "bad.yaml: PersistentVolumeClaim \"default/c\": spec.resources.requests.storage: invalid type: \
             sequence, expected a text or a number, such as 10Gi",
        ),
        (
            claim("c", json!({"acessModes": ["ReadWriteOnce"]})).to_string(),
            "bad.yaml: PersistentVolumeClaim \"default/c\": strict decoding error: unknown field \
             \"spec.acessModes\"",
        ),
        (
            "{kind: PersistentVolume, apiVersion: v2, metadata: {name: v}}".to_owned(),
            "bad.yaml: PersistentVolume \"v\": apiVersion: \"v2\" is not served; write v1",
        ),
        (
            "{kind: Pod, apiVersion: v1, metadata: {name: p, namespace: a/b}}".to_owned(),
            "bad.yaml: Pod \"a/b/p\": metadata.namespace: \"a/b\" is not a name; use ",
        ),
        (
            claim("c", json!({"accessModes": []})).to_string(),
            "bad.yaml: PersistentVolumeClaim \"default/c\": spec.accessModes: Required value",
        ),
    ] {
        let home = Home::new();
        let file = home.file("bad.yaml", manifest);
        let ended = home.bindery(&["plan", "-f", &file]);
        assert_eq!((ended.status, ended.stdout.as_str()), (2, ""), "{ended:?}");
        assert!(ended.stderr.starts_with(&format!("error: {starts}")), "{}\nand not\n{starts}", ended.stderr);
        assert_eq!(home.content(), ["bad.yaml"]);
    }
}

#[test]
fn unusable_files_and_engines_are_refused_in_one_sentence() {
    let home = Home::new();
    home.file("empty/readme.txt", "");
    for name in ["claim.yaml", "again.yaml"] {
        home.file(name, claim("c", json!({})).to_string());
    }
    home.file("text.wasm", "#!/bin/sh\n");
    home.file("module.wasm", b"\0asm\x01\0\0\0");
    home.file("cut.wasm", b"\0asm\x0d\0\x01\0\x00\x05\x00");
    let before = home.content();
    for (arguments, starts) in [
        (vec!["-f", "missing.yaml"], "missing.yaml cannot be read: "),
        (
            vec!["-f", "claim.yaml", "-f", "again.yaml"],
            "again.yaml: PersistentVolumeClaim \"default/c\" at line 1 is also in claim.yaml at line 1: ",
        ),
        (vec!["-f", "empty"], "empty holds no manifest: no file in it ends in .yaml, .yml, .json"),
        (vec!["-f", "claim.yaml", "--engine", "missing.wasm"], "the component missing.wasm cannot be read: "),
        (vec!["-f", "claim.yaml", "--engine", "text.wasm"], "text.wasm: the component is not WebAssembly"),
        (vec!["-f", "claim.yaml", "--engine", "module.wasm"], "module.wasm: the component is a core module"),
        (vec!["-f", "claim.yaml", "--engine", "cut.wasm"], "cut.wasm: the component is truncated"),
    ] {
        let ended = home.bindery(&[&["plan"], &arguments[..]].concat());
        assert_eq!((ended.status, ended.stdout.as_str()), (2, ""), "{ended:?}");
        assert!(ended.stderr.starts_with(&format!("error: {starts}")), "{}\nand not\n{starts}", ended.stderr);
    }
    assert_eq!(home.content(), before);
}

#[test]
fn a_component_beside_the_program_is_the_default_engine() {
    let home = Home::new();
    home.file("claim.yaml", claim("c", json!({})).to_string());
    // As in the image. On the file system of the program, so that it need not be copied.
    let installed = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = installed.path().join("bindery");
    std::fs::hard_link(env!("CARGO_BIN_EXE_bindery"), &program).unwrap();
    let component = installed.path().join("bindery-engine.wasm");
    let plan = |engine: &[&str]| {
        let mut command = home.program(&program);
        command.args(["plan", "-f", "claim.yaml"]).args(engine);
        ended(command, "")
    };
    let native = plan(&[]);
    assert_eq!((native.status, native.stderr.as_str()), (0, ""), "there is none yet");
    std::fs::copy(engine(), &component).unwrap();
    assert_eq!((plan(&[]).status, &plan(&[]).stdout), (0, &native.stdout));
    std::fs::write(&component, "damaged").unwrap();
    let damaged = plan(&[]);
    assert_eq!((damaged.status, damaged.stdout.as_str()), (2, ""), "{damaged:?}");
    assert!(damaged.stderr.contains("bindery-engine.wasm: the component is not WebAssembly"), "{damaged:?}");
    assert_eq!(plan(&["--engine", "native"]).stdout, native.stdout);
}

#[test]
fn a_compiled_engine_is_kept_only_in_a_folder_of_this_user_alone() {
    let home = Home::new();
    home.file("claim.yaml", claim("c", json!({})).to_string());
    let plan = |cache: &str| {
        let mut command = home.command(&["--log", "bindery_host=debug", "plan", "-f", "claim.yaml"]);
        command.arg("--engine").arg(engine()).args(["--engine-cache", cache]);
        ended(command, "")
    };
    let first = plan("compiled");
    assert_eq!(first.status, 0, "{first:?}");
    assert!(first.stderr.contains("not compiled before"), "{first:?}");
    assert!(!first.stderr.contains('\u{1b}'), "colours in a pipe: {first:?}");
    let second = plan("compiled");
    assert_eq!((second.status, &second.stdout), (0, &first.stdout));
    assert_eq!(second.stderr, "");
    std::fs::set_permissions(home.path().join("compiled"), Permissions::from_mode(0o777)).unwrap();
    let refused = plan("compiled");
    assert_eq!((refused.status, refused.stdout.as_str()), (2, ""));
    assert!(
        refused.stderr.contains("and what they wrote would be run; remove it, or name another"),
        "{refused:?}"
    );
    // A file that others could write is not run, even if its folder is closed later.
    let compiled = home.path().join("compiled");
    let artefact = std::fs::read_dir(&compiled).unwrap().next().unwrap().unwrap().path();
    std::fs::set_permissions(&artefact, Permissions::from_mode(0o666)).unwrap();
    std::fs::set_permissions(&compiled, Permissions::from_mode(0o700)).unwrap();
    let again = plan("compiled");
    assert_eq!((again.status, &again.stdout), (0, &first.stdout));
    assert!(
        again.stderr.contains("compiling again") && again.stderr.contains("others may write to it"),
        "{again:?}"
    );
    assert_eq!(plan("compiled").stderr, "");
}

#[test]
fn objects_that_no_decision_depends_on_are_ignored_with_a_note() {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}});
    let manifests = list(&[service.clone(), service, claim("c", json!({}))]).to_string();
    let ended = Home::new().bindery_with(&["plan", "-f", "-"], &manifests);
    assert_eq!(ended.status, 0);
    assert_eq!(ended.stderr, "note: 2 x v1 Service left out: no volume or claim depends on it\n");
    let ended = Home::new().bindery_with(&["plan", "-f", "-"], "");
    assert_eq!(ended.status, 2);
    assert!(ended.stderr.contains("no object that a plan could use"), "{}", ended.stderr);
    assert_eq!(
        table(&volume("v", json!({})).to_string()),
        "There are no claims, and no volumes to reclaim.\n"
    );
}
