//! Everything that decides what a package compiles to, as one key.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::workspace;

/// The content key of a package: its sources and those of the workspace's packages below it, the versions of
/// the others, the contract, the workspace's manifest with its profiles, and the settings.
///
/// # Errors
/// When cargo's metadata lacks the package or a file cannot be read.
pub(super) fn key(package: &str, settings: impl IntoIterator<Item = String>) -> Result<String> {
    let root = workspace::root();
    let mut parts: Vec<Vec<u8>> = settings.into_iter().map(String::into_bytes).collect();
    let mut files = vec![root.join("Cargo.toml"), root.join(".cargo/config.toml")];
    collect_files(&root.join("wit"), &mut files)?;
    for package in closure(package)? {
        match package["source"].as_str() {
            Some(_) => parts.push(text(package, "id")?.into()),
            None => {
                let manifest = Path::new(text(package, "manifest_path")?);
                collect_files(manifest.parent().context("a manifest must have a folder")?, &mut files)?;
            }
        }
    }
    files.sort();
    for file in files {
        parts.push(file.strip_prefix(root).unwrap_or(&file).to_string_lossy().into_owned().into_bytes());
        parts.push(fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?);
    }
    Ok(workspace::content_key(parts))
}

/// The package and every package that it needs to be built, each as cargo's metadata describes it, by their order there.
fn closure(package: &str) -> Result<Vec<&'static Value>> {
    let metadata = workspace::metadata()?;
    let packages = list(metadata, "packages")?;
    let nodes = list(&metadata["resolve"], "nodes")?;
    let start = packages
        .iter()
        .find(|candidate| candidate["name"] == package && candidate["source"].is_null())
        .with_context(|| format!("the workspace has no package {package}"))?;
    let mut found = BTreeSet::new();
    let mut pending = vec![text(start, "id")?];
    while let Some(id) = pending.pop() {
        if !found.insert(id) {
            continue;
        }
        let node =
            nodes.iter().find(|node| node["id"] == id).with_context(|| format!("cargo resolved no {id}"))?;
        for dependency in list(node, "deps")? {
            let needed = list(dependency, "dep_kinds")?.iter().any(|kind| kind["kind"] != "dev");
            if needed {
                pending.push(text(dependency, "pkg")?);
            }
        }
    }
    Ok(packages
        .iter()
        .filter(|package| package["id"].as_str().is_some_and(|id| found.contains(id)))
        .collect())
}

fn list<'a>(value: &'a Value, field: &str) -> Result<&'a Vec<Value>> {
    value[field].as_array().with_context(|| format!("cargo's metadata has no list {field}"))
}

fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str> {
    value[field].as_str().with_context(|| format!("cargo's metadata has no text {field}"))
}

/// Adds every file below a folder.
fn collect_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {}", folder.display()))?;
        if entry.file_type()?.is_dir() {
            collect_files(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_follows_the_settings_and_nothing_else_that_is_equal() {
        let with = |setting: &str| key("xtask", [setting.to_owned()]).unwrap();
        assert_eq!(with("a"), with("a"));
        assert_ne!(with("a"), with("b"));
    }

    #[test]
    fn a_closure_has_what_a_package_needs_and_leaves_out_what_its_tests_need() {
        let names: Vec<_> =
            closure("xtask").unwrap().iter().map(|package| package["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"xtask") && names.contains(&"wit-component"));
        assert!(!names.contains(&"wasmtime"));
        assert!(closure("no-such-package").is_err());
    }
}
