//! The packages of the workspace and their dependencies, as cargo resolves them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::files::{root, shown};

/// A package as cargo resolved it.
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest: PathBuf,
    is_macro: bool,
    /// Ids of its dependencies, those of tests aside.
    needs: Vec<String>,
}

impl Package {
    /// Whether the package tests, automates or is a policy; it may depend on anything.
    pub(crate) fn is_workshop(&self) -> bool {
        let path = shown(&self.manifest);
        ["tests/", "crates/xtask/", "policies/"].iter().any(|folder| path.starts_with(folder))
    }
}

/// The packages of the workspace and all their dependencies, by cargo's id.
pub(crate) struct Workspace {
    packages: BTreeMap<String, Package>,
    members: BTreeSet<String>,
}

impl Workspace {
    pub(crate) fn read() -> Self {
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

    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.members.iter().map(|id| &self.packages[id])
    }

    pub(crate) fn dependencies(&self, package: &Package) -> Vec<&Package> {
        package.needs.iter().map(|id| &self.packages[id]).collect()
    }

    /// A path of names to every package that is linked with this one. Macros run in the compiler, so their
    /// dependencies do not count.
    pub(crate) fn reached_from(&self, name: &str) -> Vec<Vec<&str>> {
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

/// Whether a dependency is not for tests alone.
fn is_needed(dependency: &&Value) -> bool {
    list(&dependency["dep_kinds"]).any(|kind| kind["kind"] != "dev")
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().expect("cargo's metadata must have a list here").iter()
}

fn text(value: &Value) -> String {
    value.as_str().expect("cargo's metadata must have a text here").to_owned()
}
