//! `bindery playground` under stock kubectl: every example by the commands of its README, and every command
//! that users type.
//!
//! Waits are kubectl's own: `kubectl wait`, and watches that are read until they say what is waited for.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod playground {
    pub(crate) mod running;
}
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;

use playground::running::{Playground, Story, lines_until};
use rustix::process::Signal;
use serde_json::{Value, json};
use support::{Home, example};

#[test]
fn static_binding() {
    let playground = Playground::start(&[]);
    let mut story = Story::of("static-binding");
    let mut watch = playground.spawn(&["get", "pvc", "--watch", "--no-headers"]);
    playground.tell(&mut story);
    let mut awaited = BTreeSet::from([["archive", "Pending"], ["notes", "Bound"], ["reports", "Bound"]]);
    lines_until(&mut watch, |line| {
        awaited.retain(|is| !line.split_whitespace().take(2).eq(is.iter().copied()));
        awaited.is_empty()
    });
    let claims = playground.kubectl(&["get", "pvc", "--no-headers"]);
    let rows: Vec<Vec<&str>> = claims.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..2], ["archive", "Pending"]);
    assert_eq!(rows[1][..5], ["notes", "Bound", "small", "5Gi", "RWO"]);
    assert_eq!(rows[2][..5], ["reports", "Bound", "large", "100Gi", "RWO,RWX"]);

    playground.wait_for_event("pvc/archive", "FailedBinding");
    let told = playground.tell(&mut story);
    assert!(told.contains("no persistent volumes available for this claim"), "{told}");
    assert!(told.contains("  medium  spec.capacity.storage: offers 10Gi, asked for 200Gi"), "{told}");
    playground.tell(&mut story);
    let volume = playground.kubectl(&["get", "pvc", "archive", "-o", "jsonpath={.spec.volumeName}"]);
    assert_eq!(volume, "huge");
    story.end();
    let applied = playground.kubectl(&["apply", "-f", example("static-binding").to_str().unwrap()]);
    assert!(applied.lines().all(|line| line.ends_with("unchanged")), "{applied}");
    playground.stop(Signal::INT);
}

#[test]
fn pre_bound() {
    let playground = Playground::start(&[]);
    let mut story = Story::of("pre-bound");
    playground.tell(&mut story);
    playground.wait_for("pvc/media", "Bound");
    playground.wait_for_event("pvc/intruder", "FailedBinding");
    playground.wait_for("pv/database-disk", "Available");
    playground.tell(&mut story);
    playground.wait_for("pvc/database", "Bound");
    let uid = playground.tell(&mut story);
    assert!(!uid.is_empty());
    assert_eq!(playground.kubectl(&["get", "pvc", "database", "-o", "jsonpath={.metadata.uid}"]), uid);
    let volumes = |claim| playground.kubectl(&["get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}"]);
    assert_eq!(["media", "database", "intruder"].map(volumes), ["media-disk", "database-disk", ""]);
    story.end();
    playground.stop(Signal::TERM);
}

#[test]
fn delayed_binding() {
    let playground = Playground::start(&[]);
    let mut story = Story::of("delayed-binding");
    playground.tell(&mut story);
    playground.wait_for_event("pvc/scratch", "WaitForFirstConsumer");
    playground.tell(&mut story);
    let told = playground.wait_for_event("pvc/scratch", "WaitForPodScheduled");
    assert!(told.contains("worker"), "{told}");
    playground.tell(&mut story);
    playground.wait_for("pvc/scratch", "Bound");
    let volume = playground.kubectl(&["get", "pvc", "scratch", "-o", "jsonpath={.spec.volumeName}"]);
    assert_eq!(volume, "local-b");
    playground.wait_for("pv/local-a", "Available");
    story.end();
    playground.stop(Signal::INT);
}

#[test]
fn release_and_delete() {
    let playground = Playground::start(&[]);
    let mut story = Story::of("release-and-delete");
    playground.tell(&mut story);
    playground.wait_for("pvc/ledger", "Bound");
    playground.wait_for("pvc/cache", "Bound");
    let volume = playground.kubectl(&["get", "pvc", "cache", "-o", "jsonpath={.spec.volumeName}"]);
    let paths = playground.tell(&mut story);
    let path = paths.lines().find_map(|line| line.strip_prefix(&volume)).unwrap().trim();
    assert!(fs::metadata(path).unwrap().is_dir(), "{path}");
    assert!(path.starts_with(playground.temporary().to_str().unwrap()), "{path}");

    let deleted = playground.tell(&mut story);
    assert!(deleted.contains("persistentvolumeclaim \"cache\" deleted"), "{deleted}");
    playground.kubectl(&["wait", &format!("pv/{volume}"), "--for=delete", "--timeout=60s"]);
    assert!(!fs::exists(path).unwrap(), "{path} is left");
    playground.wait_for("pv/ledger-disk", "Released");
    playground.tell(&mut story);
    playground.wait_for("pv/ledger-disk", "Available");
    story.end();
    playground.stop(Signal::INT);
}

#[test]
fn a_provisioner() {
    let playground = Playground::start(&[]);
    let mut story = Story::of("provisioner");
    playground.tell(&mut story);
    playground.wait_for_event("pvc/shop", "ExternalProvisioning");
    let shop = |path: &str| playground.kubectl(&["get", "pvc", "shop", "-o", &format!("jsonpath={path}")]);
    assert_eq!(shop("{.spec.storageClassName}"), "fast");
    let provisioner = r"{.metadata.annotations.volume\.kubernetes\.io/storage-provisioner}";
    assert_eq!(shop(provisioner), "disks.example.com");
    playground.tell(&mut story);
    playground.wait_for("pvc/shop", "Bound");
    assert_eq!(shop("{.spec.volumeName}"), "pvc-shop");
    playground.tell(&mut story);
    playground.wait_for("pv/pvc-shop", "Released");
    story.end();
    playground.stop(Signal::HUP);
}

/// A volume with policy Delete whose path lies elsewhere fails, and what it points at is left alone.
#[test]
fn nothing_outside_the_playgrounds_own_folder_is_deleted() {
    let playground = Playground::start(&[]);
    let precious = playground.home().path().join("precious");
    playground.home().file("precious/data", "data");
    let volume = format!(
        "{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: v}}, spec: {{capacity: {{storage: 1Gi}}, \
         accessModes: [ReadWriteOnce], storageClassName: \"\", persistentVolumeReclaimPolicy: Delete, \
         hostPath: {{path: {}}}}}}}",
        precious.display()
    );
    playground.kubectl(&[
        "apply",
        "-f",
        playground.home().path().join(playground.home().file("v.yaml", volume)).to_str().unwrap(),
    ]);
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {storageClassName: \"\", \
                 accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}";
    playground.kubectl(&[
        "apply",
        "-f",
        playground.home().path().join(playground.home().file("c.yaml", claim)).to_str().unwrap(),
    ]);
    playground.wait_for("pvc/c", "Bound");
    playground.kubectl(&["delete", "pvc", "c"]);
    playground.wait_for("pv/v", "Failed");
    let message = playground.kubectl(&["get", "pv", "v", "-o", "jsonpath={.status.message}"]);
    assert!(message.contains("only folders directly below"), "{message}");
    assert_eq!(fs::read_to_string(precious.join("data")).unwrap(), "data");
    playground.stop(Signal::INT);
}

#[test]
fn objects_are_changed_in_every_way_that_kubectl_has() {
    let playground = Playground::start(&["--example", "static-binding"]);
    let kubectl = |arguments: &[&str]| playground.kubectl(arguments);
    // From now on nobody else writes it, and what is bound stays where it is.
    playground.wait_for("pvc/notes", "Bound");
    kubectl(&["label", "pvc", "notes", "team=blue"]);
    kubectl(&["annotate", "pvc", "notes", "example.com/note=kept"]);
    kubectl(&["patch", "pvc", "notes", "-p", r#"{"metadata": {"labels": {"strategic": "yes"}}}"#]);
    kubectl(&[
        "patch",
        "pvc",
        "notes",
        "--type",
        "merge",
        "-p",
        r#"{"metadata": {"labels": {"merge": "yes"}}}"#,
    ]);
    let json = r#"[{"op": "add", "path": "/metadata/labels/json", "value": "yes"}]"#;
    kubectl(&["patch", "pvc", "notes", "--type", "json", "-p", json]);
    let editor = r#"sed -i 's/json: "yes"/json: edited/'"#;
    let edited = playground.kubectl_with(&["edit", "pvc", "notes"], &[("EDITOR", editor)]);
    assert_eq!(
        (edited.status, edited.stdout.as_str()),
        (0, "persistentvolumeclaim/notes edited\n"),
        "{edited:?}"
    );
    let labels = kubectl(&["get", "pvc", "notes", "-o", "jsonpath={.metadata.labels}"]);
    let labels: Value = serde_json::from_str(&labels).unwrap();
    let expected = json!({"team": "blue", "strategic": "yes", "merge": "yes", "json": "edited"});
    assert_eq!(labels, expected);
    kubectl(&["label", "pvc", "notes", "team-"]);
    let note = kubectl(&["get", "pvc", "notes", "-o", r"jsonpath={.metadata.annotations.example\.com/note}"]);
    assert_eq!(note, "kept");

    let grow = r#"{"spec": {"volumeName": "medium"}}"#;
    let refused = playground.kubectl_with(&["patch", "pvc", "notes", "-p", grow], &[]);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(refused.stderr.contains("Forbidden"), "{refused:?}");

    kubectl(&["delete", "pv", "medium"]);
    kubectl(&["wait", "pv/medium", "--for=delete", "--timeout=60s"]);
    let created = kubectl(&["create", "namespace", "team"]);
    assert_eq!(created, "namespace/team created\n");
    let deleted = kubectl(&["delete", "namespace", "team"]);
    assert_eq!(deleted, "namespace \"team\" deleted\n");
    playground.stop(Signal::INT);
}

/// A List, which kubectl would check by the older description of the API, and what lies beyond the kinds that
/// are served.
#[test]
fn lists_are_created_and_what_is_not_served_is_said() {
    let playground = Playground::start(&[]);
    let claim = |name: &str, modes: &str| {
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name},
            "spec": {modes: ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        })
    };
    let list = |items: &[Value]| json!({"apiVersion": "v1", "kind": "List", "items": items});
    let written = |name: &str, object: &Value| {
        let file = playground.home().file(name, object.to_string());
        playground.home().path().join(file).display().to_string()
    };
    let refused = |arguments: &[&str], why: &str| {
        let ended = playground.kubectl_with(arguments, &[]);
        assert_eq!(ended.status, 1, "{ended:?}");
        assert!(ended.stderr.contains(why), "{ended:?}");
    };
    let good = written("good.json", &list(&[claim("a", "accessModes"), claim("b", "accessModes")]));
    let created = playground.kubectl(&["create", "-f", &good]);
    assert_eq!(created, "persistentvolumeclaim/a created\npersistentvolumeclaim/b created\n");
    let printed = playground.kubectl(&["get", "pvc", "-o", "json"]);
    let printed = written("printed.json", &serde_json::from_str(&printed).unwrap());
    let applied = playground.kubectl(&["apply", "-f", &printed]);
    assert_eq!(applied, "persistentvolumeclaim/a configured\npersistentvolumeclaim/b configured\n");
    let typo = written("typo.json", &list(&[claim("c", "acessModes")]));
    refused(&["apply", "-f", &typo], "unknown field \"spec.acessModes\"");
    let other = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}});
    let other = written("other.json", &other);
    refused(&["apply", "-f", &other], "no matches for kind \"Deployment\" in version \"apps/v1\"");
    refused(&["apply", "--server-side", "-f", &good], "the simulator does not do server-side apply");
    playground.kubectl(&["run", "idle", "--image=idle"]);
    refused(&["logs", "idle"], "there is no kubelet here");
    // kubectl writes the kubeconfig anew; it is still the playground's, and goes with it.
    playground.kubectl(&["config", "set-context", "--current", "--namespace=kube-public"]);
    assert_eq!(playground.kubectl(&["get", "pvc"]), "");
    playground.stop(Signal::INT);
}

#[test]
fn everything_is_shown_in_every_way_that_kubectl_has() {
    let playground = Playground::start(&["--example", "static-binding"]);
    let kubectl = |arguments: &[&str]| playground.kubectl(arguments);
    for claim in ["notes", "reports"] {
        playground.wait_for(&format!("pvc/{claim}"), "Bound");
    }
    playground.wait_for_event("pvc/archive", "FailedBinding");
    let wide = kubectl(&["get", "pv", "-o", "wide"]);
    assert!(wide.lines().next().unwrap().ends_with("VOLUMEMODE"), "{wide}");
    assert!(wide.lines().any(|line| line.starts_with("large") && line.contains("default/reports")), "{wide}");
    let notes = kubectl(&["get", "pvc", "notes", "-o", "jsonpath={.spec.volumeName} {.status.phase}"]);
    assert_eq!(notes, "small Bound");
    let names = kubectl(&["get", "pv", "-l", "tier=silver", "-o", "name"]);
    assert_eq!(names, "persistentvolume/medium\npersistentvolume/small\n");
    let node = kubectl(&["get", "nodes", "--no-headers"]);
    assert!(node.starts_with("playground   Ready ") && !node.contains("unknown"), "{node}");
    let described = kubectl(&["describe", "pvc", "archive"]);
    assert!(described.contains("FailedBinding"), "{described}");
    let described = kubectl(&["describe", "pv", "large"]);
    assert!(described.lines().any(|line| line.starts_with("Claim:") && line.ends_with("default/reports")));
    let events = kubectl(&["events"]);
    assert!(events.contains("PersistentVolumeClaim/archive"), "{events}");
    let explained = kubectl(&["explain", "pvc.spec.volumeName"]);
    assert!(explained.contains("FIELD: volumeName <string>"), "{explained}");
    let resources = kubectl(&["api-resources", "--no-headers"]);
    let resources: Vec<Vec<&str>> = resources.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [
        ["persistentvolumeclaims", "pvc", "v1", "true", "PersistentVolumeClaim"],
        ["persistentvolumes", "pv", "v1", "false", "PersistentVolume"],
        ["storageclasses", "sc", "storage.k8s.io/v1", "false", "StorageClass"],
    ] {
        assert!(resources.iter().any(|known| *known == row), "{row:?} is missing: {resources:?}");
    }

    // The plan of what the cluster has is what the cluster did.
    let printed = kubectl(&["get", "pv,pvc,sc", "-A", "-o", "yaml"]);
    let parsed: Value = serde_saphyr::from_str(&printed).unwrap();
    assert_eq!(parsed["items"].as_array().unwrap().len(), 6);
    let plan = playground.home().bindery_with(&["plan", "-f", "-"], &printed);
    assert_eq!((plan.status, plan.stderr.as_str()), (0, ""));
    assert!(plan.stdout.contains("default/notes    4Gi      -      is bound  small   5Gi"), "{plan:?}");
    let reason = "  medium  spec.capacity.storage: offers 10Gi, asked for 200Gi";
    assert!(plan.stdout.contains(reason), "{plan:?}");
    playground.stop(Signal::INT);
}

#[test]
fn all_examples_can_be_there_from_the_start() {
    let examples = ["static-binding", "pre-bound", "delayed-binding", "release-and-delete", "provisioner"];
    let arguments: Vec<&str> = examples.iter().flat_map(|name| ["--example", name]).collect();
    let playground = Playground::start(&arguments);
    for bound in ["notes", "reports", "media", "ledger", "cache"] {
        playground.wait_for(&format!("pvc/{bound}"), "Bound");
    }
    for (pending, why) in [
        ("archive", "FailedBinding"),
        ("intruder", "FailedBinding"),
        ("scratch", "WaitForFirstConsumer"),
        ("shop", "ExternalProvisioning"),
    ] {
        playground.wait_for_event(&format!("pvc/{pending}"), why);
    }
    let volumes =
        playground.kubectl(&["get", "pvc", "notes", "reports", "-o", "jsonpath={.items[*].spec.volumeName}"]);
    assert_eq!(volumes, "small large");
    for name in examples {
        assert!(
            playground.welcome().contains(&format!("It holds the example {name}: ")),
            "{}",
            playground.welcome()
        );
    }
    playground.stop(Signal::INT);
}

#[test]
fn its_journal_is_decided_the_same_again() {
    let playground = Playground::start(&["--journal", "journal", "--example", "static-binding"]);
    playground.wait_for("pvc/reports", "Bound");
    let home = playground.stop(Signal::INT);
    let replayed = home.bindery(&["replay", "journal"]);
    assert_eq!(replayed.status, 0, "{replayed:?}");
    let (told, digest) = replayed.stdout.trim_end().rsplit_once("\ndigest of the last: ").unwrap();
    assert!(told.ends_with(" 0 different, 0 not replayable, 0 not decided"), "{replayed:?}");
    let whole = bindery_journal::Reader::open(fs::File::open(home.path().join("journal")).unwrap());
    let mut whole = whole.unwrap();
    whole.by_ref().for_each(|record| drop(record.unwrap()));
    assert_eq!(digest, whole.digest());
    assert!(!replayed.stdout.starts_with("0 records"), "{replayed:?}");
    // As a crash may leave it: what is whole is decided again.
    let journal = fs::read(home.path().join("journal")).unwrap();
    fs::write(home.path().join("journal"), &journal[..journal.len() - 1]).unwrap();
    let cut = home.bindery(&["replay", "journal"]);
    assert_eq!(cut.status, 2, "{cut:?}");
    assert!(cut.stdout.contains(" 0 different, ") && !cut.stdout.starts_with("0 records"), "{cut:?}");
    assert!(cut.stderr.starts_with("error: journal: "), "{cut:?}");
    fs::write(home.path().join("journal"), "nothing").unwrap();
    let refused = home.bindery(&["replay", "journal"]);
    assert_eq!(
        (refused.status, refused.stderr.as_str()),
        (2, "error: journal: this is not a decision journal of format 1\n")
    );
}

/// Each ends with one sentence and status 2, and nothing is left behind.
#[test]
fn what_cannot_be_used_is_refused_in_one_sentence() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let home = Home::new();
    home.file("mine", "apiVersion: v1\n");
    home.file("not.wasm", "text");
    let before = home.content();
    let free = ["--address", "127.0.0.1:0", "--kubeconfig", "config"];
    for (arguments, starts) in [
        (vec!["--address", &taken], format!("--address {taken} is in use: ")),
        (
            vec!["--address", "0.0.0.0:0"],
            "--address 0.0.0.0:0 can be reached from other machines, ".to_owned(),
        ),
        (
            vec!["--address", "127.0.0.1:0", "--kubeconfig", "missing/config"],
            format!("the kubeconfig {}/missing/config cannot be written; ", home.path().display()),
        ),
        (
            vec!["--address", "127.0.0.1:0", "--kubeconfig", "mine"],
            format!(
                "the kubeconfig {}/mine cannot be written; name another place with --kubeconfig: there is a file that no playground wrote",
                home.path().display()
            ),
        ),
        (
            [&free[..], &["--example", "none"]].concat(),
            "there is no example \"none\"; there are static-binding, ".to_owned(),
        ),
        (
            [&free[..], &["--engine", "gone.wasm"]].concat(),
            "the engine gone.wasm cannot be read: ".to_owned(),
        ),
        (
            [&free[..], &["--engine", "not.wasm"]].concat(),
            "not.wasm: the engine is not WebAssembly: ".to_owned(),
        ),
        ([&free[..], &["--journal", "mine"]].concat(), "the journal mine cannot be started: ".to_owned()),
    ] {
        let ended = home.bindery(&[&["playground"], &arguments[..]].concat());
        assert_eq!((ended.status, ended.stdout.as_str()), (2, ""), "{ended:?}");
        assert!(ended.stderr.starts_with(&format!("error: {starts}")), "{}\nand not\n{starts}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert_eq!(home.content(), before);
    }
}
