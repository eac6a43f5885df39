//! Everything that decides what a package compiles to, as one key.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::{packages, workspace};

/// The content key of a package for a target: its sources and those of the workspace's packages below it, the
/// versions of the others, the contract, the workspace's manifest with its profiles, and the settings.
pub(super) fn key(package: &str, target: &str, settings: impl IntoIterator<Item = String>) -> Result<String> {
    let root = workspace::root();
    let mut parts: Vec<Vec<u8>> = settings.into_iter().map(String::into_bytes).collect();
    let mut files = vec![root.join("Cargo.toml"), root.join(".cargo/config.toml")];
    collect_files(&root.join("wit"), &mut files)?;
    for package in packages::reached(package, target, packages::COMPILED_WITH)? {
        match package["source"].as_str() {
            Some(_) => parts.push(packages::text(package, "id")?.into()),
            None => {
                let manifest = Path::new(packages::text(package, "manifest_path")?);
                collect_files(manifest.parent().context("a manifest must have a folder")?, &mut files)?;
            }
        }
    }
    files.sort();
    for file in files {
        parts.push(file.strip_prefix(root).unwrap_or(&file).to_string_lossy().into_owned().into_bytes());
        parts.push(workspace::read(&file)?);
    }
    Ok(workspace::content_key(parts))
}

/// Adds every file below a folder.
fn collect_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let entry = entry?;
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
    fn a_key_changes_with_the_settings_only() {
        let with = |setting: &str| key("xtask", "x86_64-unknown-linux-gnu", [setting.to_owned()]).unwrap();
        assert_eq!(with("a"), with("a"));
        assert_ne!(with("a"), with("b"));
    }
}
