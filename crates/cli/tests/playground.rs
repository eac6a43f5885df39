//! `bindery playground` under stock kubectl: every example by the commands of its README, and the usual
//! commands of users.
//!
//! Tests wait by `kubectl wait`, or read the output of a watch.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod playground {
    mod journal;
    mod preview;
    pub(crate) mod running;
}
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;

use bindery_kit::json;
use playground::running::{Commands, Playground, lines_until};
use rustix::process::Signal;
use serde_json::{Value, json};
use support::{Home, example, list};

#[test]
fn the_example_static_binding_works_as_told() {
    let playground = Playground::start(&[]);
    let mut commands = Commands::of("static-binding");
    let mut watch = playground.spawn(&["get", "pvc", "--watch", "--no-headers"]);
    // A claim that is decided before all volumes are Available may take a larger one.
    playground.kubectl(&["apply", "-f", example("static-binding").join("1-volumes.yaml").to_str().unwrap()]);
    ["pv/small", "pv/medium", "pv/large"].iter().for_each(|volume| playground.wait_for(volume, "Available"));
    playground.run_next(&mut commands);
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
    let output = playground.run_next(&mut commands);
    assert!(output.contains("no persistent volumes available for this claim"), "{output}");
    playground.run_next(&mut commands);
    assert_eq!(playground.field("pvc/archive", "{.spec.volumeName}"), "huge");
    commands.end();
    let applied = playground.kubectl(&["apply", "-f", example("static-binding").to_str().unwrap()]);
    assert!(applied.lines().all(|line| line.ends_with("unchanged")), "{applied}");
    playground.stop(Signal::INT);
}

#[test]
fn the_example_pre_bound_works_as_told() {
    let playground = Playground::start(&[]);
    let mut commands = Commands::of("pre-bound");
    playground.run_next(&mut commands);
    playground.wait_for("pvc/media", "Bound");
    playground.wait_for_event("pvc/intruder", "FailedBinding");
    playground.wait_for("pv/database-disk", "Available");
    playground.run_next(&mut commands);
    playground.wait_for("pvc/database", "Bound");
    let uid = playground.run_next(&mut commands);
    assert!(!uid.is_empty());
    assert_eq!(playground.field("pvc/database", "{.metadata.uid}"), uid);
    let volumes = |claim| playground.field(claim, "{.spec.volumeName}");
    assert_eq!(
        ["pvc/media", "pvc/database", "pvc/intruder"].map(volumes),
        ["media-disk", "database-disk", ""]
    );
    commands.end();
    playground.stop(Signal::TERM);
}

#[test]
fn the_example_delayed_binding_works_as_told() {
    let playground = Playground::start(&[]);
    let mut commands = Commands::of("delayed-binding");
    playground.run_next(&mut commands);
    playground.wait_for_event("pvc/scratch", "WaitForFirstConsumer");
    playground.run_next(&mut commands);
    let told = playground.wait_for_event("pvc/scratch", "WaitForPodScheduled");
    assert!(told.contains("worker"), "{told}");
    playground.run_next(&mut commands);
    playground.wait_for("pvc/scratch", "Bound");
    assert_eq!(playground.field("pvc/scratch", "{.spec.volumeName}"), "local-b");
    playground.wait_for("pv/local-a", "Available");
    commands.end();
    playground.stop(Signal::INT);
}

#[test]
fn the_example_release_and_delete_works_as_told() {
    let playground = Playground::start(&[]);
    let mut commands = Commands::of("release-and-delete");
    playground.run_next(&mut commands);
    playground.wait_for("pvc/ledger", "Bound");
    playground.wait_for("pvc/cache", "Bound");
    let volume = playground.field("pvc/cache", "{.spec.volumeName}");
    let paths = playground.run_next(&mut commands);
    let path = paths.lines().find_map(|line| line.strip_prefix(&volume)).unwrap().trim();
    assert!(fs::metadata(path).unwrap().is_dir(), "{path}");
    assert!(path.starts_with(playground.temporary().to_str().unwrap()), "{path}");

    let deleted = playground.run_next(&mut commands);
    assert!(deleted.contains("persistentvolumeclaim \"cache\" deleted"), "{deleted}");
    playground.kubectl(&["wait", &format!("pv/{volume}"), "--for=delete", "--timeout=60s"]);
    assert!(!fs::exists(path).unwrap(), "{path} is left");
    playground.wait_for("pv/ledger-disk", "Released");
    playground.run_next(&mut commands);
    playground.wait_for("pv/ledger-disk", "Available");
    commands.end();
    playground.stop(Signal::INT);
}

#[test]
fn the_example_provisioner_works_as_told() {
    let playground = Playground::start(&[]);
    let mut commands = Commands::of("provisioner");
    playground.run_next(&mut commands);
    playground.wait_for_event("pvc/shop", "ExternalProvisioning");
    let shop = |path: &str| playground.field("pvc/shop", path);
    assert_eq!(shop("{.spec.storageClassName}"), "fast");
    let provisioner = r"{.metadata.annotations.volume\.kubernetes\.io/storage-provisioner}";
    assert_eq!(shop(provisioner), "disks.example.com");
    playground.run_next(&mut commands);
    playground.wait_for("pvc/shop", "Bound");
    assert_eq!(shop("{.spec.volumeName}"), "pvc-shop");
    playground.run_next(&mut commands);
    playground.wait_for("pv/pvc-shop", "Released");
    commands.end();
    playground.stop(Signal::HUP);
}

/// A volume of policy Delete with a path elsewhere becomes Failed.
#[test]
fn folders_outside_of_the_playground_are_never_deleted() {
    let playground = Playground::start(&[]);
    let precious = playground.home().path().join("precious");
    playground.home().file("precious/data", "data");
    let spec = json!({"persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": precious}});
    let objects = [json::volume("v", json!({"spec": spec})), json::claim("c", json!({}))];
    playground.kubectl(&["create", "-f", &playground.file("objects.json", &list(&objects))]);
    playground.wait_for("pvc/c", "Bound");
    playground.kubectl(&["delete", "pvc", "c"]);
    playground.wait_for("pv/v", "Failed");
    let message = playground.field("pv/v", "{.status.message}");
    assert!(message.contains("only folders directly below"), "{message}");
    assert_eq!(fs::read_to_string(precious.join("data")).unwrap(), "data");
    playground.stop(Signal::INT);
}

/// The volume that was made by hand looks like one that the playground provisioned for a claim that is gone.
#[test]
fn given_a_volume_by_hand_with_anothers_path_the_data_stay() {
    let playground = Playground::start(&["--example", "release-and-delete"]);
    playground.wait_for("pvc/cache", "Bound");
    let owner = format!("pv/{}", playground.field("pvc/cache", "{.spec.volumeName}"));
    let folder = playground.field(&owner, "{.spec.hostPath.path}");
    let data = format!("{folder}/data");
    fs::write(&data, "data").unwrap();
    let change = json!({
        "metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": "kubernetes.io/host-path"}},
        "spec": {
            "claimRef": {"namespace": "default", "name": "gone", "uid": "gone"},
            "hostPath": {"path": folder},
            "persistentVolumeReclaimPolicy": "Delete",
        },
    });
    playground.kubectl(&["create", "-f", &playground.file("v.json", &json::volume("by-hand", change))]);
    playground.wait_for("pv/by-hand", "Failed");
    assert_eq!(playground.field(&owner, "{.status.phase}"), "Bound");
    assert_eq!(fs::read_to_string(data).unwrap(), "data");
    playground.stop(Signal::INT);
}

#[test]
fn every_kubectl_command_that_changes_objects_works() {
    let playground = Playground::start(&["--example", "static-binding"]);
    let kubectl = |arguments: &[&str]| playground.kubectl(arguments);
    // The binder does not write the claim again.
    playground.wait_for("pvc/notes", "Bound");
    kubectl(&["label", "pvc", "notes", "team=blue"]);
    kubectl(&["annotate", "pvc", "notes", "example.com/note=kept"]);
    kubectl(&["patch", "pvc", "notes", "-p", r#"{"metadata": {"labels": {"strategic": "yes"}}}"#]);
    let merge = r#"{"metadata": {"labels": {"merge": "yes"}}}"#;
    kubectl(&["patch", "pvc", "notes", "--type", "merge", "-p", merge]);
    let json = r#"[{"op": "add", "path": "/metadata/labels/json", "value": "yes"}]"#;
    kubectl(&["patch", "pvc", "notes", "--type", "json", "-p", json]);
    let editor = r#"sed -i 's/json: "yes"/json: edited/'"#;
    let edited = playground.kubectl_with(&["edit", "pvc", "notes"], &[("EDITOR", editor)]);
    assert_eq!(
        (edited.status, edited.stdout.as_str()),
        (0, "persistentvolumeclaim/notes edited\n"),
        "{edited:?}"
    );
    let labels = playground.field("pvc/notes", "{.metadata.labels}");
    let labels: Value = serde_json::from_str(&labels).unwrap();
    let expected = json!({"team": "blue", "strategic": "yes", "merge": "yes", "json": "edited"});
    assert_eq!(labels, expected);
    kubectl(&["label", "pvc", "notes", "team-"]);
    assert_eq!(playground.field("pvc/notes", r"{.metadata.annotations.example\.com/note}"), "kept");

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

/// kubectl checks a List by the older description of the API.
#[test]
fn lists_are_created_and_unsupported_requests_are_refused() {
    let playground = Playground::start(&[]);
    let claim = |name: &str| json::claim(name, json!({"metadata": {"namespace": null}}));
    let refused = |arguments: &[&str], why: &str| {
        let ended = playground.kubectl_with(arguments, &[]);
        assert_eq!(ended.status, 1, "{ended:?}");
        assert!(ended.stderr.contains(why), "{ended:?}");
    };
    let good = playground.file("good.json", &list(&[claim("a"), claim("b")]));
    let created = playground.kubectl(&["create", "-f", &good]);
    assert_eq!(created, "persistentvolumeclaim/a created\npersistentvolumeclaim/b created\n");
    let printed = playground.kubectl(&["get", "pvc", "-o", "json"]);
    let printed = playground.file("printed.json", &serde_json::from_str(&printed).unwrap());
    let applied = playground.kubectl(&["apply", "-f", &printed]);
    assert_eq!(applied, "persistentvolumeclaim/a configured\npersistentvolumeclaim/b configured\n");
    let typo = json::merged(claim("c"), json!({"spec": {"acessModes": ["ReadWriteOnce"]}}));
    let typo = playground.file("typo.json", &list(&[typo]));
    refused(&["apply", "-f", &typo], "unknown field \"spec.acessModes\"");
    let other = json!({"apiVersion": "example.com/v1", "kind": "Disk", "metadata": {"name": "d"}});
    let other = playground.file("other.json", &other);
    refused(&["apply", "-f", &other], "no matches for kind \"Disk\" in version \"example.com/v1\"");
    playground.kubectl(&["run", "idle", "--image=idle"]);
    refused(&["logs", "idle"], "there is no kubelet here");
    // kubectl rewrites the kubeconfig, and the playground still removes it.
    playground.kubectl(&["config", "set-context", "--current", "--namespace=kube-public"]);
    assert_eq!(playground.kubectl(&["get", "pvc"]), "");
    playground.stop(Signal::INT);
}

#[test]
fn every_kubectl_command_that_shows_objects_works() {
    let playground = Playground::start(&["--example", "static-binding"]);
    let kubectl = |arguments: &[&str]| playground.kubectl(arguments);
    for claim in ["notes", "reports"] {
        playground.wait_for(&format!("pvc/{claim}"), "Bound");
    }
    playground.wait_for_event("pvc/archive", "FailedBinding");
    let wide = kubectl(&["get", "pv", "-o", "wide"]);
    assert!(wide.lines().next().unwrap().ends_with("VOLUMEMODE"), "{wide}");
    assert!(wide.lines().any(|line| line.starts_with("large") && line.contains("default/reports")), "{wide}");
    assert_eq!(playground.field("pvc/notes", "{.spec.volumeName} {.status.phase}"), "small Bound");
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

    // The plan of the cluster's objects is what the cluster did.
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
fn all_examples_can_be_created_at_the_start() {
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

/// Each ends with one sentence and status 2, and leaves no file.
#[test]
fn unusable_arguments_are_refused_in_one_sentence() {
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
                "the kubeconfig {}/mine cannot be written; name another place with --kubeconfig: there is \
                 a file that no playground wrote",
                home.path().display()
            ),
        ),
        (
            [&free[..], &["--example", "none"]].concat(),
            "there is no example \"none\"; there are static-binding, ".to_owned(),
        ),
        (
            [&free[..], &["--engine", "gone.wasm"]].concat(),
            "the component gone.wasm cannot be read: ".to_owned(),
        ),
        (
            [&free[..], &["--engine", "not.wasm"]].concat(),
            "not.wasm: the component is not WebAssembly: ".to_owned(),
        ),
        (
            [&free[..], &["--journal", "mine"]].concat(),
            "--journal mine cannot be written; name a folder that can: ".to_owned(),
        ),
    ] {
        let ended = home.bindery(&[&["playground"], &arguments[..]].concat());
        assert_eq!((ended.status, ended.stdout.as_str()), (2, ""), "{ended:?}");
        assert!(ended.stderr.starts_with(&format!("error: {starts}")), "{}\nand not\n{starts}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert_eq!(home.content(), before);
    }
}
