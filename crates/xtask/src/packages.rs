//! The packages that a package of the workspace is compiled of, as `cargo tree` lists them.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{process, workspace};

/// Edges to everything that decides what the compiler makes.
pub(crate) const COMPILED_WITH: &str = "normal,build";
/// Edges to what becomes part of a program: no build scripts and no macros.
pub(crate) const PART_OF: &str = "normal,no-proc-macro";

/// A package of the workspace and the packages that it reaches by these edges for a target, without its
/// default features, each as cargo's metadata describes it.
///
/// The metadata alone would name too many: it contains the features that any member of the workspace enables.
pub(crate) fn reached(package: &str, target: &str, edges: &str) -> Result<Vec<&'static Value>> {
    let mut tree = workspace::cargo();
    tree.args(["tree", "--package", package, "--target", target, "--edges", edges]);
    tree.args(["--no-default-features", "--prefix", "none", "--format", "{p}"]);
    let printed = process::output(&mut tree)?;
    // Lines such as `serde v1.0.229 (*)`.
    let named: BTreeSet<_> = printed
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.next()?.strip_prefix('v')?))
        })
        .collect();
    let mut found = Vec::new();
    for package in all()? {
        if named.contains(&(text(package, "name")?, text(package, "version")?)) {
            found.push(package);
        }
    }
    if found.len() != named.len() {
        bail!("cargo tree lists {} packages of {package}, cargo metadata {}", named.len(), found.len());
    }
    Ok(found)
}

/// A package of the workspace.
pub(crate) fn ours(package: &str) -> Result<&'static Value> {
    all()?
        .iter()
        .find(|candidate| candidate["name"] == package && candidate["source"].is_null())
        .with_context(|| format!("the workspace has no package {package}"))
}

/// All packages of cargo's metadata.
fn all() -> Result<&'static Vec<Value>> {
    workspace::metadata()?["packages"].as_array().context("cargo's metadata has no list packages")
}

/// A text of cargo's metadata.
pub(crate) fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str> {
    value[field].as_str().with_context(|| format!("cargo's metadata has no text {field}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edges_decide_whether_macros_are_listed_and_tests_never_are() {
        let names = |edges: &str| -> Vec<_> {
            let found = reached("xtask", "x86_64-unknown-linux-gnu", edges).unwrap();
            found.into_iter().map(|package| package["name"].as_str().unwrap()).collect()
        };
        let (with, part) = (names(COMPILED_WITH), names(PART_OF));
        assert!(["xtask", "wit-component", "clap_derive"].iter().all(|name| with.contains(name)), "{with:?}");
        assert!(part.contains(&"wit-component"), "{part:?}");
        assert!(!part.contains(&"clap_derive") && !part.contains(&"quote"), "{part:?}");
        assert!(!with.contains(&"tempfile"), "{with:?}");
    }
}
