//! What people try in their first hour: the start of the playground as README tells, installs by Helm and
//! kustomize, and the Python client.
//!
//! `playground.rs` runs the examples and the usual verbs of kubectl, `plan` the manifests.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "playground/running.rs"]
mod running;
mod support;

use std::path::Path;
use std::process::Command;

use running::{Playground, Running, kubectl, lines_until};
use rustix::process::Signal;
use support::{Home, ended, engine, offered, root};

fn fixture(name: &str) -> String {
    root().join("crates/cli/tests/first_hour").join(name).display().to_string()
}

/// Runs a program on the playground, which must succeed; returns its output.
fn run(playground: &Playground, mut command: Command) -> String {
    command.env("KUBECONFIG", playground.home().path().join("config"));
    let ended = ended(command, "");
    assert_eq!(ended.status, 0, "{ended:?}");
    ended.stdout
}

/// README shows the lines for the default port, which may be in use here.
#[test]
fn the_first_command_prints_the_lines_of_readme_which_bind_claims() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let block = readme.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let home = Home::new();
    let xtask = Path::new(env!("CARGO_BIN_EXE_bindery")).with_file_name("xtask");
    let mut command = home.program(xtask);
    command.args(["playground", "--address", "127.0.0.1:0"]).current_dir(root());
    command.env("CARGO", fixture("cargo")).env("BINDERY_UNDER_TEST", env!("CARGO_BIN_EXE_bindery"));
    let mut playground = Running::start(command.env("BINDERY_ENGINE", engine()));
    let welcome = lines_until(&mut playground, |line| line.starts_with("Ctrl-C ends it")).concat();
    let port = welcome.split("http://127.0.0.1:").nth(1).unwrap().split(';').next().unwrap();
    let block = block.replace('~', &home.path().display().to_string()).replace("8180", port);
    let lines: Vec<&str> = block.lines().filter(|line| !line.contains("PATH=")).collect();
    assert!(welcome.contains(&format!("\n  {}\n", lines.join("\n  "))), "{welcome}\nlacks\n{block}");

    let [variable, apply, _watch] = lines[..] else { panic!("{block}") };
    let wait = "kubectl wait pvc/notes --for=jsonpath={.status.phase}=Bound --timeout=60s";
    let mut shell = home.program("/bin/sh");
    shell.args(["-euxc", &[variable, apply, wait].join("\n")]).current_dir(root());
    shell.env("PATH", kubectl().parent().unwrap());
    let ended = ended(shell, "");
    assert_eq!(ended.status, 0, "{ended:?}");
}

#[test]
fn helm_installs_upgrades_and_uninstalls_volumes_and_claims() {
    let playground = Playground::start(&[]);
    let chart = fixture("chart");
    let helm = |arguments: &[&str]| {
        let mut command = playground.home().program(offered("BINDERY_HELM"));
        command.args(arguments).args(["--namespace", "shop"]);
        run(&playground, command)
    };
    let volumes = |claims: &[&str]| {
        let path = "jsonpath={.items[*].spec.volumeName} {.items[*].metadata.labels.team}";
        playground.kubectl(&[&["get", "pvc", "-n", "shop", "-o", path], claims].concat())
    };
    helm(&["install", "shop", &chart, "--create-namespace"]);
    let bound = "--for=jsonpath={.status.phase}=Bound";
    playground.kubectl(&["wait", "pvc/orders", "pvc/images", "-n", "shop", bound, "--timeout=60s"]);
    assert_eq!(volumes(&["orders", "images"]), "shop-0 shop-1 green green");
    helm(&["upgrade", "shop", &chart, "--set", "team=blue"]);
    assert_eq!(volumes(&["orders", "images"]), "shop-0 shop-1 blue blue");
    helm(&["rollback", "shop", "1"]);
    assert_eq!(volumes(&["orders", "images"]), "shop-0 shop-1 green green");
    let list = helm(&["list", "--short"]);
    assert_eq!(list, "shop\n");
    helm(&["uninstall", "shop"]);
    for object in ["pv/shop-0", "pv/shop-1", "pvc/orders", "pvc/images"] {
        playground.kubectl(&["wait", object, "-n", "shop", "--for=delete", "--timeout=60s"]);
    }
    assert_eq!(playground.kubectl(&["get", "pv,pvc", "-A"]), "");
    playground.stop(Signal::INT);
}

#[test]
fn kustomize_applies_and_deletes_volumes_and_claims() {
    let playground = Playground::start(&[]);
    let overlay = fixture("kustomize/overlay");
    playground.kubectl(&["apply", "-k", &overlay]);
    let bound = "--for=jsonpath={.status.phase}=Bound";
    playground.kubectl(&["wait", "pvc/staging-data", "-n", "staging", bound, "--timeout=60s"]);
    let claim = playground.field("pv/staging-disk", "{.spec.claimRef.namespace}/{.spec.claimRef.name}");
    assert_eq!(claim, "staging/staging-data");
    let applied = playground.kubectl(&["diff", "-k", &overlay]);
    assert_eq!(applied, "");
    // The namespace goes first, and takes the claim with it.
    playground.kubectl(&["delete", "-k", &overlay, "--ignore-not-found", "--timeout=60s"]);
    assert_eq!(playground.kubectl(&["get", "pv,pvc", "-A"]), "");
    playground.stop(Signal::INT);
}

#[test]
fn the_python_client_creates_watches_changes_and_deletes() {
    let playground = Playground::start(&["--example", "provisioner"]);
    let mut python = playground.home().program("/usr/bin/env");
    python.arg("python3").arg(fixture("client.py")).env("PYTHONPATH", offered("BINDERY_PYTHON_CLIENT"));
    python.env("PYTHONDONTWRITEBYTECODE", "1").env("PATH", std::env::var_os("PATH").unwrap_or_default());
    assert_eq!(
        run(&playground, python),
        "from-python is bound to from-python\nteam blue\n404 Not Found\nclasses ['fast']\n"
    );
    playground.stop(Signal::INT);
}
