//! `bindery policy` as authors see it, with the policies that ship.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use support::{Ended, Home, ended, root};

/// The folder of the built policies: that of `BINDERY_POLICIES`, else the one beside the programs under test.
fn built() -> PathBuf {
    let beside = || Path::new(env!("CARGO_BIN_EXE_bindery")).with_file_name("../components");
    std::env::var_os("BINDERY_POLICIES").map_or_else(beside, PathBuf::from)
}

fn policy(home: &Home, arguments: &[&str]) -> Ended {
    let mut command = home.command(&["policy"]);
    command.args(arguments).env("BINDERY_POLICIES", built());
    ended(command, "")
}

#[test]
fn every_policy_in_rust_passes_its_cases_and_they_reach_all_of_it() {
    let mut tested = 0;
    for entry in fs::read_dir(root().join("policies")).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.join("Cargo.toml").is_file() {
            continue;
        }
        let module = format!("builtin:{}", folder.file_name().unwrap().display());
        let cases = folder.join("cases");
        let ended = policy(&Home::new(), &["test", &module, cases.to_str().unwrap()]);
        assert!(ended.status == 0 && !ended.stdout.contains("no case"), "{module}: {ended:?}");
        tested += 1;
    }
    assert!(tested > 3, "{tested}");
}

#[test]
fn a_policy_is_inspected_and_one_that_does_not_ship_is_told() {
    let home = Home::new();
    let inspected = policy(&home, &["inspect", "builtin:same-zone"]);
    assert_eq!(inspected.status, 0, "{inspected:?}");
    for line in [
        "digest:  sha256:",
        "- label topology.kubernetes.io/zone",
        "- the value of topology.kubernetes.io/zone that its node affinity requires",
        "- other-zone: the claim is for zone {claim.0}",
        "- the name of the claim",
        "\"enum\": [\"NodeAffinity\", \"Label\"]",
    ] {
        assert!(inspected.stdout.contains(line), "{line}: {}", inspected.stdout);
    }
    let unknown = policy(&home, &["inspect", "builtin:same-zones"]);
    assert_eq!(unknown.status, 2);
    assert!(unknown.stderr.contains("same-zone"), "{unknown:?}");
}

#[test]
fn a_policy_that_spreads_says_what_it_counts() {
    let inspected = policy(&Home::new(), &["inspect", "builtin:spread"]).stdout;
    let counts = "counts volumes that share the value of topology.kubernetes.io/zone that its node affinity \
                  requires, of claims with the same:\n- namespace\n- label app\n";
    assert!(inspected.contains(counts), "{inspected}");
}

#[test]
fn a_new_policy_is_the_copy_of_one_that_ships_and_replaces_nothing() {
    for (language, module, file, name) in [
        ("rust", "Cargo.toml", "src/lib.rs", "name: \"tenants\".into()"),
        ("javascript", "package-lock.json", "policy.js", "name: 'tenants'"),
        ("python", "requirements.txt", "policy.py", "name=\"tenants\""),
    ] {
        let home = Home::new();
        let made = policy(&home, &["new", "--language", language, "tenants"]);
        assert_eq!(made.status, 0, "{made:?}");
        let read = |file: &str| fs::read_to_string(home.path().join("tenants").join(file)).unwrap();
        assert!(read(file).contains(name), "{}", read(file));
        assert!(!read(module).contains("NAME") && read("policy.yaml").contains("module: tenants.wasm"));
        assert!(read("wit/world.wit").contains("world matcher"));
        let again = policy(&home, &["new", "--language", language, "tenants"]);
        assert!(again.status == 2 && again.stderr.contains("cannot be made"), "{again:?}");
    }
    let unnamed = policy(&Home::new(), &["new", "--language", "rust", "Tenants"]);
    assert!(unnamed.stderr.contains("\"Tenants\" is not a name"), "{unnamed:?}");
}

#[test]
fn a_folder_without_a_policy_is_not_built() {
    let home = Home::new();
    let built = policy(&home, &["build"]);
    assert!(built.status == 2 && built.stderr.contains("no Cargo.toml, package.json or"), "{built:?}");
}
