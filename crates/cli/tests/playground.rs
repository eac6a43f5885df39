//! `bindery playground` under stock kubectl: every example as its README tells it, and every command that users type.
//!
//! Waits are kubectl's own: `kubectl wait`, and watches that are read until they say what is waited for.

mod playground {
    pub(crate) mod running;
}
mod support;

use std::fs;
use std::net::TcpListener;

use playground::running::{Playground, lines_until};
use rustix::process::Signal;
use support::{Home, example};

/// The rows of a table as columns, without the head and without the age, which is the last one.
fn rows(table: &str) -> Vec<Vec<&str>> {
    let columns = |line: &'_ str| -> Vec<String> {
        line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    assert!(!columns(table.lines().next().unwrap()).is_empty());
    table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>()).collect()
}

#[test]
fn static_binding() {
    let playground = Playground::start(&[]);
    let kubectl = |arguments: &[&str]| playground.kubectl(arguments);
    let mut watch = playground.spawn(&["get", "pvc", "-w", "--no-headers"]);
    let applied = kubectl(&["apply", "-f", example("static-binding").to_str().unwrap()]);
    assert!(applied.contains("persistentvolume/small created"), "{applied}");
    assert!(applied.contains("persistentvolumeclaim/archive created"), "{applied}");
    let seen = lines_until(&mut watch, |line| line.starts_with("reports") && line.contains("Bound"));
    assert!(seen.iter().any(|line| line.starts_with("archive") && line.contains("Pending")), "{seen:?}");
    playground.wait_for("pvc/notes", "Bound");

    let claims = kubectl(&["get", "pvc"]);
    assert!(claims.starts_with("NAME"), "{claims}");
    let rows = rows(&claims);
    assert_eq!(rows[0][..2], ["archive", "Pending"]);
    assert_eq!(rows[1][..5], ["notes", "Bound", "small", "5Gi", "RWO"]);
    assert_eq!(rows[2][..5], ["reports", "Bound", "large", "100Gi", "RWO,RWX"]);
    let wide = kubectl(&["get", "pv", "-o", "wide"]);
    assert!(wide.lines().next().unwrap().contains("VOLUMEMODE"), "{wide}");
    assert!(wide.lines().any(|line| line.starts_with("large") && line.contains("default/reports")), "{wide}");
    assert_eq!(
        kubectl(&["get", "pvc", "notes", "-o", "jsonpath={.spec.volumeName} {.status.phase}"]),
        "small Bound"
    );
    let yaml: serde_json::Value =
        serde_norway::from_str(&kubectl(&["get", "pv,pvc,sc", "-A", "-o", "yaml"])).unwrap();
    assert_eq!(yaml["items"].as_array().unwrap().len(), 6);
    let names = kubectl(&["get", "pv", "-l", "tier=silver", "-o", "name"]);
    assert_eq!(names, "persistentvolume/medium\npersistentvolume/small\n");

    let described = kubectl(&["describe", "pvc", "archive"]);
    assert!(described.contains("FailedBinding"), "{described}");
    assert!(described.contains("no persistent volumes available for this claim"), "{described}");
    let described = kubectl(&["describe", "pv", "large"]);
    assert!(described.contains("default/reports"), "{described}");
    let events = kubectl(&["events", "--for", "pvc/archive"]);
    assert!(events.contains("FailedBinding"), "{events}");

    // The plan of what the cluster has is what the cluster did.
    let printed = kubectl(&["get", "pv,pvc,sc", "-A", "-o", "yaml"]);
    let plan = playground.home().bindery_with(&["plan", "-f", "-"], &printed);
    assert!(plan.stdout.contains("default/notes    4Gi      -      is bound  small   5Gi"), "{plan:?}");
    assert!(
        plan.stdout.contains("  medium  spec.capacity.storage: offers 10Gi, asked for 200Gi"),
        "{plan:?}"
    );

    kubectl(&["apply", "-f", example("static-binding").join("then").to_str().unwrap()]);
    playground.wait_for("pvc/archive", "Bound");
    let applied = kubectl(&["apply", "-f", example("static-binding").to_str().unwrap()]);
    assert!(applied.lines().all(|line| line.ends_with("unchanged")), "{applied}");
    playground.stop(Signal::INT);
}

#[test]
fn pre_bound() {
    let playground = Playground::start(&[]);
    playground.kubectl(&["create", "-f", example("pre-bound").to_str().unwrap()]);
    playground.wait_for("pvc/media", "Bound");
    playground.wait_for("pvc/intruder", "Pending");
    playground.wait_for("pv/database-disk", "Available");
    playground.kubectl(&["create", "-f", example("pre-bound").join("then").to_str().unwrap()]);
    playground.wait_for("pvc/database", "Bound");
    let volume = playground.kubectl(&["get", "pv", "database-disk", "-o", "jsonpath={.spec.claimRef.uid}"]);
    let claim = playground.kubectl(&["get", "pvc", "database", "-o", "jsonpath={.metadata.uid}"]);
    assert!(!claim.is_empty());
    assert_eq!(volume, claim);
    assert_eq!(playground.kubectl(&["get", "pvc", "intruder", "-o", "jsonpath={.status.phase}"]), "Pending");
    playground.stop(Signal::TERM);
}

#[test]
fn delayed_binding() {
    let playground = Playground::start(&[]);
    let folder = example("delayed-binding");
    let apply = |file: &str| playground.kubectl(&["apply", "-f", folder.join(file).to_str().unwrap()]);
    apply("");
    playground.wait_for("pvc/scratch", "Pending");
    let watch_events = || playground.spawn(&["events", "--for", "pvc/scratch", "--watch", "--no-headers"]);
    lines_until(&mut watch_events(), |line| line.contains("WaitForFirstConsumer"));
    apply("then/5-pod.yaml");
    let seen = lines_until(&mut watch_events(), |line| line.contains("WaitForPodScheduled"));
    assert!(seen.last().unwrap().contains("worker"), "{seen:?}");
    apply("then/6-scheduler.yaml");
    playground.wait_for("pvc/scratch", "Bound");
    assert_eq!(
        playground.kubectl(&["get", "pvc", "scratch", "-o", "jsonpath={.spec.volumeName}"]),
        "local-b"
    );
    playground.stop(Signal::INT);
}

#[test]
fn release_and_delete() {
    let playground = Playground::start(&[]);
    playground.kubectl(&["apply", "-f", example("release-and-delete").to_str().unwrap()]);
    playground.wait_for("pvc/ledger", "Bound");
    playground.wait_for("pvc/cache", "Bound");
    let volume = playground.kubectl(&["get", "pvc", "cache", "-o", "jsonpath={.spec.volumeName}"]);
    let path = playground.kubectl(&["get", "pv", &volume, "-o", "jsonpath={.spec.hostPath.path}"]);
    assert!(fs::metadata(&path).unwrap().is_dir(), "{path}");
    assert!(path.starts_with(playground.temporary().to_str().unwrap()), "{path}");

    let deleted = playground.kubectl(&["delete", "pvc", "ledger", "cache"]);
    assert!(deleted.contains("persistentvolumeclaim \"cache\" deleted"), "{deleted}");
    playground.kubectl(&["wait", &format!("pv/{volume}"), "--for=delete", "--timeout=60s"]);
    assert!(!fs::exists(&path).unwrap(), "{path} is left");
    playground.wait_for("pv/ledger-disk", "Released");
    let patch = r#"[{"op": "remove", "path": "/spec/claimRef"}]"#;
    playground.kubectl(&["patch", "pv", "ledger-disk", "--type", "json", "-p", patch]);
    playground.wait_for("pv/ledger-disk", "Available");
    playground.stop(Signal::INT);
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
fn a_provisioner() {
    let playground = Playground::start(&[]);
    playground.kubectl(&["apply", "-f", example("provisioner").to_str().unwrap()]);
    let annotation = r"jsonpath={.metadata.annotations.volume\.kubernetes\.io/storage-provisioner}";
    playground.kubectl(&[
        "wait",
        "pvc/shop",
        &format!("--for={annotation}=disks.example.com"),
        "--timeout=60s",
    ]);
    let class = playground.kubectl(&["get", "pvc", "shop", "-o", "jsonpath={.spec.storageClassName}"]);
    assert_eq!(class, "fast");
    let mut events = playground.spawn(&["events", "--for", "pvc/shop", "--watch", "--no-headers"]);
    lines_until(&mut events, |line| line.contains("ExternalProvisioning"));
    playground.kubectl(&["apply", "-f", example("provisioner").join("then").to_str().unwrap()]);
    playground.wait_for("pvc/shop", "Bound");
    playground.kubectl(&["delete", "pvc", "shop"]);
    playground.wait_for("pv/pvc-shop", "Released");
    playground.stop(Signal::INT);
}

#[test]
fn objects_are_changed_in_every_way_that_kubectl_has() {
    let playground = Playground::start(&["--example", "static-binding"]);
    let kubectl = |arguments: &[&str]| playground.kubectl(arguments);
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
    let editor =
        playground.home().file("editor.sh", "#!/bin/sh\nsed -i 's/json: \"yes\"/json: edited/' \"$1\"\n");
    let editor = format!("sh {}", playground.home().path().join(editor).display());
    let edited = playground.kubectl_with(&["edit", "pvc", "notes"], &[("KUBE_EDITOR", &editor)]);
    assert_eq!(
        (edited.status, edited.stdout.as_str()),
        (0, "persistentvolumeclaim/notes edited\n"),
        "{edited:?}"
    );
    let labels = kubectl(&["get", "pvc", "notes", "-o", "jsonpath={.metadata.labels}"]);
    let labels: serde_json::Value = serde_json::from_str(&labels).unwrap();
    let expected = serde_json::json!({"team": "blue", "strategic": "yes", "merge": "yes", "json": "edited"});
    assert_eq!(labels, expected);
    kubectl(&["label", "pvc", "notes", "team-"]);
    let note = kubectl(&["get", "pvc", "notes", "-o", r"jsonpath={.metadata.annotations.example\.com/note}"]);
    assert_eq!(note, "kept");

    let grow = r#"{"spec": {"volumeName": "medium"}}"#;
    let refused = playground.kubectl_with(&["patch", "pvc", "notes", "-p", grow], &[]);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(refused.stderr.contains("Forbidden"), "{refused:?}");

    let created = kubectl(&["create", "namespace", "team"]);
    assert_eq!(created, "namespace/team created\n");
    let namespaces = kubectl(&["get", "ns", "-o", "name"]);
    assert!(namespaces.contains("namespace/team"), "{namespaces}");
    let explained = kubectl(&["explain", "pvc.spec.volumeName"]);
    assert!(explained.contains("volumeName"), "{explained}");
    let resources = kubectl(&["api-resources"]);
    for name in
        ["persistentvolumeclaims", "persistentvolumes", "storageclasses", "volumeattributesclasses", "events"]
    {
        assert!(resources.lines().any(|line| line.starts_with(name)), "{name} is missing: {resources}");
    }
    kubectl(&["delete", "pv", "medium"]);
    kubectl(&["wait", "pv/medium", "--for=delete", "--timeout=60s"]);
    kubectl(&["get", "nodes", "playground"]);
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
    for pending in ["archive", "intruder", "scratch", "shop"] {
        playground.wait_for(&format!("pvc/{pending}"), "Pending");
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
    assert!(replayed.stdout.ends_with(" 0 different, 0 not replayable, 0 not decided\n"), "{replayed:?}");
    assert!(!replayed.stdout.starts_with("0 records"), "{replayed:?}");
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
