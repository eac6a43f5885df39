//! Rules of the repository that no compiler checks: the dependencies between crates, the names of types, and
//! the style of files.
//!
//! ARCHITECTURE.md lists the dependencies. They are compared with the normal and build dependencies of `cargo
//! metadata`; dependencies of tests do not count.

#[path = "tidy/files.rs"]
mod files;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/style.rs"]
mod style;
#[path = "tidy/workspace.rs"]
mod workspace;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use files::{root, rust_files, shown, word};
use workspace::Workspace;

/// Libraries with the only crates that may depend on them directly, tests and automation aside.
const MAY_NAME: [(&str, &[&str]); 5] = [
    ("wasmtime", &["bindery-host"]),
    ("kube", &["bindery-kube", "bindery-sim", "bindery-webhook", "bindery"]),
    ("k8s-openapi", &["bindery-kube", "bindery-sim", "bindery-webhook"]),
    (
        "serde_json",
        &["bindery-kube", "bindery-policy", "bindery-registry", "bindery-sim", "bindery-webhook", "bindery"],
    ),
    (
        "tokio",
        &[
            "bindery-controller",
            "bindery-kube",
            "bindery-registry",
            "bindery-sim",
            "bindery-webhook",
            "bindery",
        ],
    ),
];

/// The crates that compute decisions: pure, and so small.
const PURE: [&str; 3] = ["bindery-core", "bindery-engine", "bindery-component"];

/// What a pure crate may not depend on, not even through another crate: IO, time, randomness, and the formats
/// of Kubernetes.
const IMPURE: [&str; 12] = [
    "chrono",
    "getrandom",
    "http",
    "hyper",
    "jiff",
    "k8s-openapi",
    "kube",
    "mio",
    "rand",
    "serde_json",
    "tokio",
    "wasmtime",
];

/// The crates that reach a cluster only through `Port`: they may not depend on a Kubernetes client.
const BEHIND_THE_PORT: [&str; 4] = ["bindery-controller", "bindery-host", "bindery-journal", "bindery-store"];

/// Functions of core that guard and engine may both call: names, look-ups, set operations and formatting, but
/// no rules.
const SHARED_FUNCTIONS: [&str; 14] = [
    "as_ref", "contains", "default", "fmt", "found", "is_empty", "iter", "key", "len", "map", "name", "new",
    "target", "uid",
];

#[test]
fn dependencies_between_crates_are_those_of_the_architecture() {
    let workspace = Workspace::read();
    let members: BTreeSet<&str> = workspace.members().map(|member| member.name.as_str()).collect();
    let mut found = Vec::new();
    let mut described = described_edges();
    for package in workspace.members().filter(|package| !package.is_workshop()) {
        let edges: BTreeSet<String> = workspace
            .dependencies(package)
            .into_iter()
            .filter(|dependency| members.contains(dependency.name.as_str()))
            .map(|dependency| dependency.name.clone())
            .collect();
        match described.remove(&package.name) {
            None => found.push(format!("{} has no row in ARCHITECTURE.md", package.name)),
            Some(row) => {
                let differs = |what: &str, name: &String| format!("{} {what} {name}", package.name);
                found.extend(edges.difference(&row).map(|name| differs("may not depend on", name)));
                found.extend(row.difference(&edges).map(|name| differs("does not depend on", name)));
            }
        }
    }
    found.extend(described.keys().map(|name| format!("ARCHITECTURE.md has {name}, the workspace does not")));
    nothing_in(&found);
}

/// The rows of the table of dependencies in ARCHITECTURE.md.
fn described_edges() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md must be readable");
    let (_, table) =
        text.split_once("| crate | depends on |\n").expect("ARCHITECTURE.md must have the table");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    // Names are in backquotes; the first is the crate.
    let names = rows.map(|row| row.split('`').skip(1).step_by(2).map(str::to_owned));
    names.filter_map(|mut names| Some((names.next()?, names.collect()))).collect()
}

/// A mistake in a rule that guard and engine shared would stay hidden. So both call only [`SHARED_FUNCTIONS`]
/// of core, and the guard imports only types of core. Operators, such as the comparison of quantities, belong
/// to the types.
#[test]
fn the_guard_shares_no_rule_with_the_engine() {
    let files = rust_files();
    let of = |choose: fn(&str) -> bool| -> String {
        let chosen = files.iter().filter(|(path, _)| choose(&shown(path)));
        chosen.map(|(_, text)| text.split("#[cfg(test)]").next().unwrap_or_default()).collect()
    };
    let guard = of(|path| path.starts_with("crates/core/src/guard"));
    let engine = of(|path| path.starts_with("crates/engine/src/"));
    let core = of(|path| path.starts_with("crates/core/src/") && !path.starts_with("crates/core/src/guard"));
    let functions = core.split("fn ").skip(1).map(word);
    let functions: BTreeSet<&str> = functions.filter(|name| !name.is_empty()).collect();
    assert!(
        functions.contains("is_bound_to") && calls(&engine, "is_bound_to"),
        "the search no longer finds a function that the engine calls"
    );
    let mut found: Vec<String> = functions
        .into_iter()
        .filter(|name| !SHARED_FUNCTIONS.contains(name) && calls(&guard, name) && calls(&engine, name))
        .map(|name| format!("the guard and the engine both call {name} of core: write the guard's own"))
        .collect();
    for imports in guard.split("use crate::").skip(1) {
        let imports = imports.split(';').next().unwrap_or_default();
        let parts =
            imports.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|part| !part.is_empty());
        let lower = parts.filter(|part| part.starts_with(|c: char| c.is_lowercase()));
        found.extend(lower.map(|part| format!("the guard imports {part} of core, which is not a type")));
    }
    nothing_in(&found);
}

/// Whether a text calls or names a function of that name: as a method, or of a type.
fn calls(text: &str, name: &str) -> bool {
    [".", "::"]
        .iter()
        .any(|before| text.split(&format!("{before}{name}")).skip(1).any(|rest| word(rest).is_empty()))
}

#[test]
fn a_restricted_library_is_used_only_by_the_crates_that_may() {
    let workspace = Workspace::read();
    let mut found = Vec::new();
    for package in workspace.members().filter(|package| !package.is_workshop()) {
        for (library, allowed) in MAY_NAME {
            let names = workspace.dependencies(package).iter().any(|dependency| dependency.name == library);
            if names && !allowed.contains(&package.name.as_str()) {
                found.push(format!("{} depends on {library}; only {allowed:?} may", package.name));
            }
        }
    }
    nothing_in(&found);
}

#[test]
fn the_crates_that_decide_are_pure() {
    nothing_in(&reached(&PURE, &IMPURE));
}

#[test]
fn the_controller_reaches_a_cluster_only_through_its_port() {
    nothing_in(&reached(&BEHIND_THE_PORT, &["kube", "k8s-openapi"]));
}

#[test]
fn the_checker_of_invariants_shares_no_code_with_the_product() {
    const CHECKER: &str = "bindery-invariants";
    let workspace = Workspace::read();
    let others: Vec<_> =
        workspace.members().map(|member| member.name.as_str()).filter(|name| *name != CHECKER).collect();
    nothing_in(&reached(&[CHECKER], &others));
}

#[test]
fn every_package_inherits_the_settings_of_the_workspace() {
    let mut found = Vec::new();
    for package in Workspace::read().members() {
        let manifest = fs::read_to_string(&package.manifest).unwrap();
        for line in ["[lints]\nworkspace = true", "edition.workspace = true", "license.workspace = true"] {
            if !manifest.contains(line) {
                found.push(format!("{} lacks {line:?}", shown(&package.manifest)));
            }
        }
    }
    nothing_in(&found);
}

/// Fails with everything that was found, one per line.
fn nothing_in(found: &[String]) {
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// The paths by which packages depend on libraries that are forbidden to them.
fn reached(packages: &[&str], forbidden: &[&str]) -> Vec<String> {
    let workspace = Workspace::read();
    let paths = packages.iter().flat_map(|package| workspace.reached_from(package));
    let wrong = paths.filter(|path| path.last().is_some_and(|library| forbidden.contains(library)));
    wrong.map(|path| path.join(" depends on ")).collect()
}
