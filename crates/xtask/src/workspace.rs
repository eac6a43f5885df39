//! Where things are: the checkout, cargo's target folder, the tools cache.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::process;

/// The root of the checkout that this program works on: that of the package as cargo runs it, wherever that
/// was started, or as it was built, for who runs it without cargo.
pub(crate) fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let is_ours = |folder: &PathBuf| folder.ends_with("crates/xtask");
        let root = package.filter(is_ours).and_then(|package| Some(package.ancestors().nth(2)?.to_owned()));
        root.or_else(|| option_env!("BINDERY_CHECKOUT").map(PathBuf::from))
            .expect("cargo runs xtask, or built it within the checkout")
    })
}

/// The cargo that runs us, or the one on the path.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// What `cargo metadata` says of the workspace and of everything it depends on.
///
/// # Errors
/// When cargo fails or prints what is not JSON.
pub(crate) fn metadata() -> Result<&'static Value> {
    static METADATA: OnceLock<Value> = OnceLock::new();
    if let Some(metadata) = METADATA.get() {
        return Ok(metadata);
    }
    let metadata = read_metadata(&[])?;
    Ok(METADATA.get_or_init(|| metadata))
}

/// What `cargo metadata` says to these further arguments.
///
/// # Errors
/// As [`metadata`].
pub(crate) fn read_metadata(further: &[&str]) -> Result<Value> {
    let printed = process::output(cargo().args(["metadata", "--format-version", "1"]).args(further))?;
    serde_json::from_str(&printed).context("cargo metadata printed what is not JSON")
}

/// Cargo's target folder (`CARGO_TARGET_DIR`, its configuration, or `target`).
///
/// # Errors
/// As [`metadata`].
pub(crate) fn target_folder() -> Result<PathBuf> {
    let folder =
        metadata()?["target_directory"].as_str().context("cargo metadata names no target_directory")?;
    Ok(PathBuf::from(folder))
}

/// The folder that outlives checkouts: `BINDERY_CACHE`, else `bindery` in the user's cache folder.
///
/// # Errors
/// When neither `BINDERY_CACHE`, `XDG_CACHE_HOME` nor `HOME` is set.
pub(crate) fn cache_folder() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("BINDERY_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|folder| folder.join("bindery")))
        .or_else(|| set("HOME").map(|folder| folder.join(".cache/bindery")))
        .context("no place for the tools cache: set BINDERY_CACHE to a folder")
}

/// The content of a file.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// A hidden name in the same folder, and so on the same file system, that only this process uses.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().expect("what is put somewhere must have a name"));
    name.push(format!(".{}", std::process::id()));
    path.with_file_name(name)
}

/// Makes a folder that is whole where it is there: `fill` writes into one beside it. Nothing is done where it
/// is there.
///
/// # Errors
/// When `fill` fails, or the folder cannot be put there.
pub(crate) fn folder_once(folder: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let unfinished = beside(folder);
    fs::create_dir_all(&unfinished).with_context(|| format!("cannot create {}", unfinished.display()))?;
    fill(&unfinished)?;
    if let Err(error) = fs::rename(&unfinished, folder) {
        fs::remove_dir_all(&unfinished)?;
        // Another process that was faster has made the same.
        if !folder.is_dir() {
            return Err(error).with_context(|| format!("cannot put {} there", folder.display()));
        }
    }
    Ok(())
}

/// Puts a whole file in place of another, or where there was none, in one step.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let unfinished = beside(path);
    fs::write(&unfinished, content)
        .and_then(|()| fs::rename(&unfinished, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The flag of the compiler that keeps the place of dependencies on this machine out of what it makes, so
/// that its digest is the same elsewhere.
///
/// The checkout needs no flag: cargo gives the compiler its files by paths within it, and what is published
/// has no debug information. One that named the checkout would have every other checkout build all anew.
///
/// # Errors
/// When it is not known where cargo keeps its files.
pub(crate) fn path_flag() -> Result<String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let home =
        home.context("neither CARGO_HOME nor HOME is set: where does cargo keep what it downloads?")?;
    Ok(renaming_flag(&home, "/cargo"))
}

/// The flag of the compiler that has it call a folder by another name in what it makes. Where folders lie in
/// each other, the last flag that fits is followed.
///
/// Cargo leaves flags with such names out of what it derives symbols and folders from, so they are the same
/// for all folders.
pub(crate) fn renaming_flag(folder: &Path, name: &str) -> String {
    format!("--remap-path-prefix={}={name}", folder.display())
}

/// A content key: SHA-256 over the parts, each with its length before it, in hexadecimal.
pub(crate) fn content_key<Part: AsRef<[u8]>>(parts: impl IntoIterator<Item = Part>) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        let part = part.as_ref();
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hexadecimal(&hasher.finalize())
}

/// The SHA-256 of some bytes in hexadecimal, as `sha256sum` prints it.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_key_tells_where_one_part_ends() {
        assert_ne!(content_key(["ab", "c"]), content_key(["a", "bc"]));
        assert_eq!(content_key(["ab", "c"]), content_key(["ab", "c"]));
    }

    #[test]
    fn sha256_is_what_sha256sum_prints() {
        assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
