//! What packages are made of, as `cargo metadata` tells it.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use serde_json::Value;

/// What of a package's dependencies is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// What it is compiled with and of: what decides what comes out.
    ToCompile,
    /// What it is compiled of, and so what is in its program: neither build scripts nor macros.
    ToRun,
}

/// A package of the workspace and every package that it needs, each as cargo's metadata describes it, by
/// their order there.
///
/// # Errors
/// When the metadata lacks the package, or is not as cargo documents it.
pub(crate) fn closure<'a>(metadata: &'a Value, package: &str, needs: Needs) -> Result<Vec<&'a Value>> {
    let packages = list(metadata, "packages")?;
    let start = ours(metadata, package)?;
    let nodes = list(&metadata["resolve"], "nodes")?;
    let is_macro = |id: &str| packages.iter().any(|package| package["id"] == id && is_macro(package));
    let mut found = BTreeSet::new();
    let mut pending = vec![text(start, "id")?];
    while let Some(id) = pending.pop() {
        if (needs == Needs::ToRun && is_macro(id)) || !found.insert(id) {
            continue;
        }
        let node =
            nodes.iter().find(|node| node["id"] == id).with_context(|| format!("cargo resolved no {id}"))?;
        for dependency in list(node, "deps")? {
            let kinds = list(dependency, "dep_kinds")?;
            let is_needed = |kind: &Value| match needs {
                Needs::ToCompile => kind != "dev",
                Needs::ToRun => kind.is_null(),
            };
            if kinds.iter().any(|kind| is_needed(&kind["kind"])) {
                pending.push(text(dependency, "pkg")?);
            }
        }
    }
    Ok(packages
        .iter()
        .filter(|package| package["id"].as_str().is_some_and(|id| found.contains(id)))
        .collect())
}

/// A package of the workspace.
///
/// # Errors
/// When there is none of this name.
pub(crate) fn ours<'a>(metadata: &'a Value, package: &str) -> Result<&'a Value> {
    list(metadata, "packages")?
        .iter()
        .find(|candidate| candidate["name"] == package && candidate["source"].is_null())
        .with_context(|| format!("the workspace has no package {package}"))
}

/// Whether a package runs in the compiler, and not in the program.
fn is_macro(package: &Value) -> bool {
    let targets = package["targets"].as_array().into_iter().flatten();
    targets.flat_map(|target| target["kind"].as_array()).flatten().any(|kind| kind == "proc-macro")
}

/// A list of cargo's metadata.
///
/// # Errors
/// When it is missing.
pub(crate) fn list<'a>(value: &'a Value, field: &str) -> Result<&'a Vec<Value>> {
    value[field].as_array().with_context(|| format!("cargo's metadata has no list {field}"))
}

/// A text of cargo's metadata.
///
/// # Errors
/// When it is missing.
pub(crate) fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str> {
    value[field].as_str().with_context(|| format!("cargo's metadata has no text {field}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    fn names(package: &str, needs: Needs) -> Vec<&'static str> {
        let closure = closure(workspace::metadata().unwrap(), package, needs).unwrap();
        closure.iter().map(|package| package["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn a_closure_has_what_a_package_needs_and_leaves_out_what_its_tests_need() {
        let names = names("xtask", Needs::ToCompile);
        assert!(
            names.contains(&"xtask") && names.contains(&"wit-component") && names.contains(&"clap_derive")
        );
        assert!(!names.contains(&"wasmtime"));
        assert!(closure(workspace::metadata().unwrap(), "no-such-package", Needs::ToRun).is_err());
    }

    #[test]
    fn what_runs_has_no_macros_and_nothing_that_only_they_need() {
        let names = names("xtask", Needs::ToRun);
        assert!(names.contains(&"wit-component"));
        assert!(!names.contains(&"clap_derive") && !names.contains(&"quote"));
    }
}
