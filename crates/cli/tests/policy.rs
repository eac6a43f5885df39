//! `bindery policy` as authors see it, with the policies that ship.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
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
fn every_recipe_of_the_cookbook_is_loaded_and_passes_its_case() {
    let cookbook = fs::read_to_string(root().join("docs/policies/cookbook.md")).unwrap();
    let home = Home::new();
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c, namespace: default}, \
                 spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}";
    let claim = home.file("claim.yaml", claim);
    let mut recipes = 0;
    for block in cookbook.split("\n```yaml").skip(1) {
        let (kind, content) = block.split_once('\n').unwrap();
        let file = home.file("block.yaml", content.split("```").next().unwrap());
        let ended = match kind.strip_prefix(" case=") {
            Some(module) => policy(&home, &["test", module, &file]),
            None => {
                let mut plan = home.command(&["plan", "-f", &claim, "--policy", &file]);
                plan.env("BINDERY_POLICIES", built());
                ended(plan, "")
            }
        };
        assert_eq!(ended.status, 0, "{block}\n{ended:?}");
        recipes += usize::from(!kind.is_empty());
    }
    assert!(recipes > 5, "{recipes}");
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

/// The result of `bindery policy bench` with one round, and how the command ended.
fn bench(home: &Home, arguments: &[&str]) -> (Ended, Value) {
    let ended = policy(home, &[&["bench", "--rounds", "1", "-o", "json"], arguments].concat());
    let result = serde_json::from_str(&ended.stdout).unwrap_or_default();
    (ended, result)
}

fn cases_of(policy: &str) -> String {
    root().join("policies").join(policy).join("cases").to_str().unwrap().to_owned()
}

/// What was measured: function, number of rows, and fuel.
fn fuel(result: &Value) -> Vec<(String, u64, u64)> {
    let call = |call: &Value| {
        let text = call["function"].as_str().unwrap().to_owned();
        (text, call["rows"].as_u64().unwrap(), call["fuel"].as_u64().unwrap())
    };
    result["calls"].as_array().unwrap().iter().map(call).collect()
}

#[test]
fn a_bench_counts_the_same_fuel_at_every_run_and_the_share_of_each_limit() {
    let home = Home::new();
    let cases = cases_of("prefer");
    let (ended, result) = bench(&home, &["builtin:prefer", &cases]);
    assert_eq!(ended.status, 0, "{ended:?}");
    let measured = fuel(&result);
    let calls: Vec<(&str, u64)> = measured.iter().map(|(function, rows, _)| (&**function, *rows)).collect();
    assert_eq!(calls, [("narrow", 1), ("judge", 10), ("judge", 100), ("judge", 1_000)]);
    assert!(
        measured[1].2 > 0 && 100 * measured[1].2 > measured[3].2,
        "a call costs more than its rows: {measured:?}"
    );
    assert_eq!(fuel(&bench(&home, &["builtin:prefer", &cases]).1), measured);
    let limits: Vec<&str> =
        result["limits"].as_array().unwrap().iter().map(|limit| limit["limit"].as_str().unwrap()).collect();
    let expected = [
        "fuel",
        "microseconds",
        "bytes of memory",
        "elements of a table",
        "bytes of the verdicts",
        "bytes of the component",
    ];
    assert_eq!(limits, expected);
    for limit in result["limits"].as_array().unwrap() {
        assert!(limit["limit"] == "microseconds" || limit["used"].as_u64() > Some(0), "{limit}");
    }
}

#[test]
fn a_bench_fails_where_fuel_has_grown_and_never_for_a_time() {
    let home = Home::new();
    let cases = cases_of("prefer");
    let (_, mut earlier) = bench(&home, &["builtin:prefer", &cases]);
    for call in earlier["calls"].as_array_mut().unwrap() {
        call["p50Us"] = 0.into();
        call["p99Us"] = 0.into();
    }
    let compared = |earlier: &Value, growth: &str| {
        let file = home.file("earlier.json", earlier.to_string());
        bench(&home, &["builtin:prefer", &cases, "--compare", &file, "--growth", growth]).0
    };
    assert_eq!(compared(&earlier, "0").status, 0);
    let now = earlier["calls"][3]["fuel"].as_u64().unwrap();
    earlier["calls"][3]["fuel"] = (now * 10 / 11 + 1).into();
    assert_eq!(compared(&earlier, "10").status, 0);
    let grown = compared(&earlier, "5");
    assert_eq!(grown.status, 1);
    assert!(grown.stderr.starts_with("judge, 1000 rows: fuel a row grew from "), "{grown:?}");
    assert!(grown.stderr.ends_with(", by more than 5%\n"), "{grown:?}");
    earlier["rows"] = "generated".into();
    let other = compared(&earlier, "5");
    assert!(other.status == 2 && other.stderr.contains("measure both with the same cases"), "{other:?}");
    let no_result = compared(&Value::Null, "5");
    assert!(no_result.status == 2 && no_result.stderr.contains("is not a result of"), "{no_result:?}");
}

#[test]
fn a_bench_needs_no_cases_and_asks_what_the_policy_answers() {
    let home = Home::new();
    for (module, calls) in [("builtin:spread", 4), ("builtin:keep-labelled", 3)] {
        let cases = cases_of(module.strip_prefix("builtin:").unwrap());
        for arguments in [&[module][..], &[module, &cases]] {
            let (ended, result) = bench(&home, arguments);
            assert_eq!((ended.status, fuel(&result).len()), (0, calls), "{arguments:?}: {ended:?}");
        }
    }
    let narrow = policy(&home, &["bench", "builtin:same-zone", "--rounds", "1"]);
    assert!(
        narrow.stdout.contains("\nIt judges no volume: its requirements say everything.\n"),
        "{narrow:?}"
    );
    let needs = policy(&home, &["bench", "builtin:prefer"]);
    assert!(needs.status == 2 && needs.stderr.contains("write a case with settings"), "{needs:?}");
}

#[test]
fn a_new_policy_is_the_copy_of_one_that_ships_and_replaces_nothing() {
    for (kind, language, module, file, name) in [
        ("matcher", "rust", "Cargo.toml", "src/lib.rs", "name: \"tenants\".into()"),
        ("matcher", "javascript", "package-lock.json", "policy.js", "name: 'tenants'"),
        ("matcher", "python", "requirements.txt", "policy.py", "name=\"tenants\""),
        ("reclaimer", "rust", "Cargo.lock", "src/lib.rs", "name: \"tenants\".into()"),
    ] {
        let home = Home::new();
        let made = policy(&home, &["new", "--kind", kind, "--language", language, "tenants"]);
        assert_eq!(made.status, 0, "{made:?}");
        let read = |file: &str| fs::read_to_string(home.path().join("tenants").join(file)).unwrap();
        assert!(read(file).contains(name), "{}", read(file));
        assert_eq!(read(file).contains("#[test]"), language == "rust");
        assert!(!read(module).contains("NAME") && read("policy.yaml").contains("module: tenants.wasm"));
        assert!(read("wit/world.wit").contains(&format!("world {kind} ")));
        let again = policy(&home, &["new", "--language", language, "tenants"]);
        assert!(again.status == 2 && again.stderr.contains("cannot be made"), "{again:?}");
    }
    let unnamed = policy(&Home::new(), &["new", "--language", "rust", "Tenants"]);
    assert!(unnamed.stderr.contains("\"Tenants\" is not a name"), "{unnamed:?}");
    let home = Home::new();
    let nothing = policy(&home, &["new", "--kind", "reclaimer", "--language", "python", "tenants"]);
    assert!(nothing.status == 2 && nothing.stderr.contains("write --language rust"), "{nothing:?}");
    assert!(home.content().is_empty());
}

#[test]
fn a_folder_in_place_of_a_module_is_refused_with_the_module_in_it() {
    let home = Home::new();
    home.file("disks/disks.wasm", "");
    let tested = policy(&home, &["test", "disks"]);
    let told = "disks is a folder; name the module in it, disks/disks.wasm";
    assert!(tested.status == 2 && tested.stderr.contains(told), "{tested:?}");
}

#[test]
fn a_folder_without_a_policy_is_not_built() {
    let home = Home::new();
    let built = policy(&home, &["build"]);
    assert!(built.status == 2 && built.stderr.contains("no Cargo.toml, package.json or"), "{built:?}");
}
