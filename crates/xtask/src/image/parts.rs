//! What an image is made of, with licence texts: packages, Rust's standard library, and other linked code.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::linked;
use super::program::{self, Program};
use crate::packages;

/// The package of the default engine's component, and its target.
const ENGINE: (&str, &str) = ("bindery-component", "wasm32-unknown-unknown");
/// How the names of files with licence texts begin, in capitals.
const TEXTS: [&str; 6] = ["LICENSE", "LICENCE", "UNLICENSE", "COPYING", "COPYRIGHT", "NOTICE"];

/// A work that is in an image.
#[derive(Default)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) version: String,
    /// Its package URL, <https://github.com/package-url/purl-spec>.
    pub(super) purl: String,
    /// Its name in lists of vulnerabilities, if scanners know no package of this URL's type.
    pub(super) cpe: Option<String>,
    /// Its licence, an SPDX expression, if its authors state one.
    pub(super) license: Option<String>,
    /// The URL of its source.
    pub(super) source: Option<String>,
    /// Files with the texts of the licence.
    pub(super) texts: Vec<PathBuf>,
    /// Whether it belongs to Bindery.
    pub(super) is_ours: bool,
}

/// The parts of an image, sorted by package URL.
pub(super) fn list(program: &Program) -> Result<Vec<Part>> {
    let mut parts = linked::list(program)?;
    parts.push(standard_library(program)?);
    for (package, target) in [(program::NAME, program.target), ENGINE] {
        for package in packages::reached(package, target, packages::PART_OF)? {
            parts.push(package_part(package)?);
        }
    }
    parts.sort_by(|a, b| a.purl.cmp(&b.purl));
    parts.dedup_by(|a, b| a.purl == b.purl);
    Ok(parts)
}

fn package_part(package: &Value) -> Result<Part> {
    let text = |field: &str| packages::text(package, field).map(ToOwned::to_owned);
    let (name, version) = (text("name")?, text("version")?);
    let manifest = text("manifest_path")?;
    let folder = Path::new(&manifest).parent().with_context(|| format!("{manifest} has no folder"))?;
    Ok(Part {
        purl: format!("pkg:cargo/{name}@{}", version.replace('+', "%2B")),
        cpe: None,
        // Older crates write a slash instead of `OR`.
        license: package["license"].as_str().map(|license| license.replace('/', " OR ")),
        source: package["repository"].as_str().map(ToOwned::to_owned),
        texts: texts(folder)?,
        is_ours: package["source"].is_null(),
        name,
        version,
    })
}

/// The files of a folder that contain a licence.
fn texts(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_ascii_uppercase();
        if TEXTS.iter().any(|text| name.starts_with(text)) && entry.path().is_file() {
            texts.push(entry.path());
        }
    }
    texts.sort();
    Ok(texts)
}

/// The standard library of the compiler that made the program. Its terms name the crates that it contains.
/// The engine contains the same library, without the parts that need an operating system.
fn standard_library(program: &Program) -> Result<Part> {
    let printed = program.toolchain.version()?;
    let version = printed.lines().find_map(|line| line.strip_prefix("release: "));
    let version = version.context("rustc -vV names no release")?.to_owned();
    Ok(Part {
        name: "rust-std".to_owned(),
        purl: format!("pkg:generic/rust-std@{version}"),
        cpe: Some(format!("cpe:2.3:a:rust-lang:rust:{version}:*:*:*:*:*:*:*")),
        version,
        license: Some("MIT OR Apache-2.0".to_owned()),
        source: Some("https://github.com/rust-lang/rust".to_owned()),
        texts: vec![program.toolchain.library_terms()?],
        ..Part::default()
    })
}
