//! The house's rules that no compiler knows: the edges between crates, and what may not be in a file.
//!
//! The edges are those of ARCHITECTURE.md. They are read from `cargo metadata`, where a normal or a build
//! dependency is an edge; what only tests use is not.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A file that is longer than this holds more than one thing.
const LINES_MAX: usize = 500;

/// Who may name a library as a dependency; nobody else in the workspace may, tests and automation aside.
const MAY_NAME: [(&str, &[&str]); 5] = [
    ("wasmtime", &["bindery-host"]),
    ("kube", &["bindery-kube", "bindery-sim", "bindery-webhook", "bindery"]),
    ("k8s-openapi", &["bindery-kube", "bindery-sim", "bindery-webhook"]),
    ("serde_json", &["bindery-kube", "bindery-sim", "bindery-webhook", "bindery"]),
    ("tokio", &["bindery-controller", "bindery-kube", "bindery-sim", "bindery-webhook", "bindery"]),
];

/// The crates that compute decisions: pure, and so small.
const PURE: [&str; 3] = ["bindery-core", "bindery-engine", "bindery-component"];

/// What a pure crate may not reach, not even through another crate: IO, time, chance, and the formats of the
/// world outside.
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

/// Who waits for nothing but what it is told of: the decision maker, its loops and its facts never see an API
/// server.
const BEHIND_THE_PORT: [&str; 4] = ["bindery-controller", "bindery-host", "bindery-journal", "bindery-store"];

/// What both the guard and the engine may call of core: what objects are called, set operations, and
/// formatting. No rule is among them.
const VOCABULARY: [&str; 9] = ["contains", "fmt", "is_empty", "iter", "len", "name", "new", "target", "uid"];

/// ARCHITECTURE.md has the whole table of edges between the crates of the workspace; no more and no less are
/// there.
#[test]
fn the_edges_between_crates_are_those_of_the_architecture() {
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
            None => found.push(format!("{} has no row in the table of edges", package.name)),
            Some(row) => {
                let differs = |what: &str, name: &String| format!("{} {what} {name}", package.name);
                found.extend(edges.difference(&row).map(|name| differs("may not depend on", name)));
                found.extend(row.difference(&edges).map(|name| differs("does not depend on", name)));
            }
        }
    }
    found
        .extend(described.keys().map(|name| format!("the table of edges has {name}, the workspace has not")));
    nothing_in(&found);
}

/// The rows of the table of ARCHITECTURE.md whose head is `crate` and `depends on`.
fn described_edges() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md must be readable");
    let (_, table) =
        text.split_once("| crate | depends on |\n").expect("ARCHITECTURE.md must have the edges");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    // Names stand in backquotes: the first is the crate.
    let names = rows.map(|row| row.split('`').skip(1).step_by(2).map(str::to_owned));
    names.filter_map(|mut names| Some((names.next()?, names.collect()))).collect()
}

/// A rule that both went by would hide its mistake from the other. So what both call of core is the
/// vocabulary, and what the guard imports of core is types. Comparisons by operators, such as that of
/// quantities, are those of the types.
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
        "the search has lost its object"
    );
    let mut found: Vec<String> = functions
        .into_iter()
        .filter(|name| !VOCABULARY.contains(name) && calls(&guard, name) && calls(&engine, name))
        .map(|name| format!("the guard and the engine both call {name} of core: write the guard's own"))
        .collect();
    for imports in guard.split("use crate::").skip(1) {
        let imports = imports.split(';').next().unwrap_or_default();
        let parts =
            imports.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|part| !part.is_empty());
        let lower = parts.filter(|part| part.starts_with(|c: char| c.is_lowercase()));
        found.extend(lower.map(|part| format!("the guard imports {part} of core, which is no type")));
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
fn only_those_who_may_name_a_library_do() {
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
fn what_decides_is_pure() {
    nothing_in(&reached(&PURE, &IMPURE));
}

#[test]
fn the_controller_reaches_a_cluster_only_through_its_port() {
    nothing_in(&reached(&BEHIND_THE_PORT, &["kube", "k8s-openapi"]));
}

#[test]
fn the_checker_of_invariants_shares_no_code_with_what_it_checks() {
    const CHECKER: &str = "bindery-invariants";
    let workspace = Workspace::read();
    let others: Vec<_> =
        workspace.members().map(|member| member.name.as_str()).filter(|name| *name != CHECKER).collect();
    nothing_in(&reached(&[CHECKER], &others));
}

#[test]
fn every_package_inherits_what_the_workspace_fixes() {
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
    let found: Vec<_> = long
        .map(|(path, lines)| format!("{}: {lines} lines; {LINES_MAX} are enough", shown(&path)))
        .collect();
    nothing_in(&found);
}

#[test]
fn nothing_is_put_off() {
    // Written apart, so that this file does not find itself.
    let marks = [concat!("#[ig", "nore"), concat!("TO", "DO"), concat!("FIX", "ME"), concat!("todo", "!(")];
    let mut found = Vec::new();
    for (path, text) in rust_files() {
        for (line, number) in text.lines().zip(1..) {
            let here = marks.iter().filter(|mark| line.contains(**mark));
            found.extend(
                here.map(|mark| format!("{}:{number}: {mark}: do it, or leave it out", shown(&path))),
            );
        }
    }
    nothing_in(&found);
}

/// Clusters of tests that take their time as real ones do, by tokio's paused clock.
const IN_NO_HURRY: [&str; 3] = ["tests/kit/src/api.rs", "tests/settle/others.rs", "tests/settle/trial.rs"];

#[test]
fn no_test_sleeps() {
    let calls = [concat!("thread::", "sleep("), concat!("time::", "sleep(")];
    let mut found = Vec::new();
    for (path, text) in rust_files() {
        let path = shown(&path);
        let tests = tests_of(&path, &text);
        if !IN_NO_HURRY.contains(&&*path) && calls.iter().any(|call| tests.contains(call)) {
            found.push(format!("{path}: a test sleeps; wait for the event itself"));
        }
    }
    nothing_in(&found);
}

#[test]
fn where_the_checkout_is_comes_from_what_cargo_watches() {
    let call = concat!("env!(\"CARGO_MANIFEST", "_DIR\")");
    let found = rust_files().into_iter().filter(|(_, text)| text.contains(call));
    let told = found
        .map(|(path, _)| format!("{}: use BINDERY_CHECKOUT (.cargo/config.toml tells why)", shown(&path)));
    nothing_in(&told.collect::<Vec<_>>());
}

/// What of a file is tests: all of it below a folder of tests, else its unit tests.
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
            found.push(format!("{} is no module of its crate: declare it or remove it", shown(file)));
        }
    }
    nothing_in(&found);
}

/// Fails with everything that was found, one a line.
fn nothing_in(found: &[String]) {
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// How each of some packages reaches a library that it may not.
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

/// A path as one would name it from the workspace's root.
fn shown(path: &Path) -> Cow<'_, str> {
    path.strip_prefix(root()).unwrap_or(path).to_string_lossy()
}

/// Every Rust file of the checkout, with its text.
fn rust_files() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a source folder must be readable") {
            let path = entry.expect("a source folder must be readable").path();
            let name = path.file_name().expect("an entry must have a name").to_string_lossy();
            let is_output = name == "target" || name.starts_with('.');
            if path.is_dir() && !is_output {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source file must be readable");
                files.push((path, text));
            }
        }
    }
    assert!(files.iter().any(|(path, _)| path.ends_with("tests/tidy.rs")), "this file itself must be found");
    files
}

fn root() -> &'static Path {
    Path::new(env!("BINDERY_CHECKOUT"))
}

/// A package as cargo resolved it.
struct Package {
    name: String,
    manifest: PathBuf,
    is_macro: bool,
    /// Ids of what it needs to be built, its tests aside.
    needs: Vec<String>,
}

impl Package {
    /// Whether the package tests or automates: such a one may use anything.
    fn is_workshop(&self) -> bool {
        let path = shown(&self.manifest);
        path.starts_with("tests/") || path.starts_with("crates/xtask/")
    }
}

/// The workspace's packages and all below them, by cargo's id.
struct Workspace {
    packages: BTreeMap<String, Package>,
    members: BTreeSet<String>,
}

impl Workspace {
    fn read() -> Self {
        let mut metadata = Command::new(env!("CARGO"));
        metadata.current_dir(root()).args(["metadata", "--format-version", "1", "--locked"]);
        let output = metadata.output().expect("cargo must start");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo must print JSON");

        let mut needs: BTreeMap<String, Vec<String>> = list(&metadata["resolve"]["nodes"])
            .map(|node| {
                (text(&node["id"]), list(&node["deps"]).filter(is_needed).map(|d| text(&d["pkg"])).collect())
            })
            .collect();
        let package = |package: &Value| {
            let id = text(&package["id"]);
            let is_macro = list(&package["targets"])
                .any(|target| list(&target["kind"]).any(|kind| kind == "proc-macro"));
            let needs = needs.remove(&id).unwrap_or_default();
            let manifest = PathBuf::from(text(&package["manifest_path"]));
            (id, Package { name: text(&package["name"]), manifest, is_macro, needs })
        };
        Self {
            packages: list(&metadata["packages"]).map(package).collect(),
            members: list(&metadata["workspace_members"]).map(text).collect(),
        }
    }

    fn members(&self) -> impl Iterator<Item = &Package> {
        self.members.iter().map(|id| &self.packages[id])
    }

    fn dependencies(&self, package: &Package) -> Vec<&Package> {
        package.needs.iter().map(|id| &self.packages[id]).collect()
    }

    /// A path of names to every package that becomes part of this one's program: macros run in the compiler,
    /// so what they need does not.
    fn reached_from(&self, name: &str) -> Vec<Vec<&str>> {
        let start = self.members().find(|package| package.name == name);
        let start = start.unwrap_or_else(|| panic!("the workspace has no package {name}"));
        let mut seen = BTreeSet::new();
        let mut paths = Vec::new();
        let mut pending = vec![(start, Vec::new())];
        while let Some((package, mut path)) = pending.pop() {
            if !seen.insert(&package.manifest) {
                continue;
            }
            path.push(package.name.as_str());
            let dependencies =
                self.dependencies(package).into_iter().filter(|dependency| !dependency.is_macro);
            pending.extend(dependencies.map(|dependency| (dependency, path.clone())));
            paths.push(path);
        }
        paths
    }
}

/// Whether a dependency of a node is there for more than tests.
fn is_needed(dependency: &&Value) -> bool {
    list(&dependency["dep_kinds"]).any(|kind| kind["kind"] != "dev")
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().expect("cargo's metadata must have a list here").iter()
}

fn text(value: &Value) -> String {
    value.as_str().expect("cargo's metadata must have a text here").to_owned()
}
