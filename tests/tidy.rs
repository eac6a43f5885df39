//! Rules of the repository that no compiler checks: the dependencies between crates, and the style of files.
//!
//! ARCHITECTURE.md lists the dependencies. They are compared with the normal and build dependencies of `cargo
//! metadata`; dependencies of tests do not count.

#[path = "tidy/workspace.rs"]
mod workspace;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use workspace::Workspace;

/// Most lines of a file.
const LINES_MAX: usize = 500;
/// Most characters of a line of Rust, comments included.
const RUST_LINE_MAX: usize = 110;
/// Most characters of a line of prose in Markdown.
const PROSE_LINE_MAX: usize = 120;
/// Most characters of the name of a test.
const TEST_NAME_MAX: usize = 70;

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

/// The identifier that a text begins with.
fn word(text: &str) -> &str {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default()
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

#[test]
fn files_are_short() {
    let lengths = rust_files().into_iter().map(|(path, text)| (path, text.lines().count()));
    let long = lengths.filter(|(_, lines)| *lines > LINES_MAX);
    let found: Vec<_> =
        long.map(|(path, lines)| format!("{}: {lines} lines, more than {LINES_MAX}", shown(&path))).collect();
    nothing_in(&found);
}

#[test]
fn lines_are_short() {
    let mut found = Vec::new();
    for (path, text) in rust_files() {
        found.extend(long_lines(&path, text.lines(), RUST_LINE_MAX, |_| true));
    }
    for (path, text) in files("md") {
        let mut is_code = false;
        let is_prose = |line: &str| {
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            !is_code && !is_fence && !line.starts_with('|') && !line.starts_with("    ")
        };
        found.extend(long_lines(&path, text.lines(), PROSE_LINE_MAX, is_prose));
    }
    nothing_in(&found);
}

/// The lines of more than `max` characters that contain a space after the first word: a long link cannot be
/// broken.
fn long_lines<'a>(
    path: &Path,
    lines: impl Iterator<Item = &'a str>,
    max: usize,
    mut counts: impl FnMut(&str) -> bool,
) -> Vec<String> {
    let is_long = |line: &str| line.chars().count() > max && line.trim_start().contains(' ');
    let numbered = lines.zip(1..).filter(|(line, _)| counts(line) && is_long(line));
    numbered.map(|(_, number)| format!("{}:{number}: more than {max} characters", shown(path))).collect()
}

#[test]
fn names_of_tests_are_short() {
    let mut found = Vec::new();
    for (path, text) in rust_files() {
        let tests = text.split("test]").skip(1).chain(text.split("test(").skip(1));
        // The function begins within a few lines of its attribute.
        let names = tests.filter_map(|test| test.lines().take(4).find_map(|line| line.split_once("fn ")));
        let long = names.map(|(_, rest)| word(rest)).filter(|name| name.len() > TEST_NAME_MAX);
        found.extend(long.map(|name| format!("{}: {name}: more than {TEST_NAME_MAX}", shown(&path))));
    }
    nothing_in(&found);
}

#[test]
fn no_work_is_left_for_later() {
    // Written apart, so that this file does not find itself.
    let marks = [concat!("#[ig", "nore"), concat!("TO", "DO"), concat!("FIX", "ME"), concat!("todo", "!(")];
    let mut found = Vec::new();
    for (path, text) in rust_files() {
        for (line, number) in text.lines().zip(1..) {
            let here = marks.iter().filter(|mark| line.contains(**mark));
            found.extend(here.map(|mark| format!("{}:{number}: {mark}: do it, or remove it", shown(&path))));
        }
    }
    nothing_in(&found);
}

/// Test code that delays on purpose: simulated clusters by tokio's paused clock, a proxy that injects delays,
/// and a benchmark that measures an idle replica.
const DELAYS_ON_PURPOSE: [&str; 8] = [
    "tests/bench-cluster/src/usage.rs",
    "tests/cluster/src/proxy/serve.rs",
    "tests/kit/src/api.rs",
    "tests/perturb/delay.rs",
    "tests/settle/others.rs",
    "tests/settle/trial.rs",
    "tests/steer/steerer.rs",
    "tests/steer/trial.rs",
];

/// Tests wait for a condition and not for a fixed time. Where nothing reports an event, they poll by
/// `interval`.
#[test]
fn no_test_sleeps() {
    let mut found = Vec::new();
    for (path, text) in rust_files() {
        let path = shown(&path);
        if DELAYS_ON_PURPOSE.contains(&&*path) {
            continue;
        }
        let sleeps = tests_of(&path, &text).lines().filter(|line| is_sleep(line));
        found.extend(sleeps.map(|line| format!("{path}: {}: wait for the condition itself", line.trim())));
    }
    nothing_in(&found);
}

/// Whether a line waits for a fixed time: by a call of `sleep` or `sleep_until`, however it was imported, or
/// by one tick of an interval that begins later.
fn is_sleep(line: &str) -> bool {
    let calls = |name: &str| {
        let mut before = line.match_indices(name).map(|(at, _)| line[..at].chars().next_back());
        before.any(|before| before.is_none_or(|c| !(c.is_alphanumeric() || c == '_' || c == '"')))
    };
    // Written apart, so that this file does not find itself.
    let sleeps = [concat!("sle", "ep("), concat!("sleep_", "until(")];
    sleeps.into_iter().any(calls) || line.contains(concat!("interval", "_at("))
}

#[test]
fn the_path_of_the_checkout_comes_from_a_watched_variable() {
    let call = concat!("env!(\"CARGO_MANIFEST", "_DIR\")");
    let found = rust_files().into_iter().filter(|(_, text)| text.contains(call));
    let told = found
        .map(|(path, _)| format!("{}: use BINDERY_CHECKOUT (.cargo/config.toml tells why)", shown(&path)));
    nothing_in(&told.collect::<Vec<_>>());
}

/// The tests in a file: all of it below a folder of tests, else its unit tests.
fn tests_of<'a>(path: &str, text: &'a str) -> &'a str {
    if path.split('/').any(|part| part == "tests") {
        text
    } else {
        text.split_once("#[cfg(test)]").map_or("", |(_, tests)| tests)
    }
}

#[test]
fn every_source_file_is_compiled() {
    let files = rust_files();
    let mut found = Vec::new();
    for (file, _) in &files {
        // `foo/mod.rs` is the module `foo`, as `foo.rs` would be.
        let path = if file.ends_with("mod.rs") { &folder_of(file).with_extension("rs") } else { file };
        let name = path.file_stem().expect("a source file must have a name").to_string_lossy();
        let is_root = ["lib", "main", "build"].contains(&&*name);
        let declares =
            |text: &str| text.contains(&format!("mod {name};")) || text.contains(&format!("mod r#{name};"));
        let is_declared = || files.iter().any(|(other, text)| may_declare(other, path) && declares(text));
        if !is_root && !is_target(path, &name) && !is_declared() {
            found.push(format!("{} is not a module of its crate: declare it or remove it", shown(file)));
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

/// Whether the manifest of the file's package names it as a target, or cargo finds it as one.
fn is_target(path: &Path, name: &str) -> bool {
    let folder = folder_of(path);
    let package = folder.ancestors().find(|folder| folder.join("Cargo.toml").is_file());
    let package = package.expect("every source file must belong to a package");
    let manifest = fs::read_to_string(package.join("Cargo.toml")).expect("a manifest must be readable");
    let is_named = manifest.contains(&format!("{name}.rs\""));
    is_named
        || ["tests", "benches", "examples", "src/bin"].iter().any(|targets| folder == package.join(targets))
}

/// Whether `other` is where the module in `path` would be declared: `foo.rs` for `foo/…`, or a file in the
/// same folder.
fn may_declare(other: &Path, path: &Path) -> bool {
    let folder = folder_of(path);
    other != path && (folder_of(other) == folder || other.with_extension("") == folder)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().expect("a source file must have a folder")
}

/// A path relative to the root of the workspace.
fn shown(path: &Path) -> Cow<'_, str> {
    path.strip_prefix(root()).unwrap_or(path).to_string_lossy()
}

/// Every Rust file of the checkout, with its text.
fn rust_files() -> Vec<(PathBuf, String)> {
    let files = files("rs");
    assert!(files.iter().any(|(path, _)| path.ends_with("tests/tidy.rs")), "this file itself must be found");
    files
}

/// Every file of the checkout with that extension, with its text.
fn files(extension: &str) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a source folder must be readable") {
            let path = entry.expect("a source folder must be readable").path();
            let name = path.file_name().expect("an entry must have a name").to_string_lossy();
            let is_output = name == "target" || name.starts_with('.');
            if path.is_dir() && !is_output {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                let text = fs::read_to_string(&path).expect("a source file must be readable");
                files.push((path, text));
            }
        }
    }
    files
}

fn root() -> &'static Path {
    Path::new(env!("BINDERY_CHECKOUT"))
}
