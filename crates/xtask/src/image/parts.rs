//! What an image is made of: packages, the standard library of Rust, and what else is linked, each with the
//! texts of its licence.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::linked;
use super::program::Program;
use crate::packages::{self, Needs};
use crate::toolchain::Toolchain;
use crate::workspace;

/// The package of the default engine's component, and what it is compiled for.
const ENGINE: &str = "bindery-component";
const ENGINE_TARGET: &str = "wasm32-unknown-unknown";
/// How files begin, in capitals, in which authors keep what they ask to go with their work.
const TEXTS: [&str; 6] = ["LICENSE", "LICENCE", "UNLICENSE", "COPYING", "COPYRIGHT", "NOTICE"];

/// A work that is in an image.
#[derive(Default)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) version: String,
    /// Its package URL, <https://github.com/package-url/purl-spec>.
    pub(super) purl: String,
    /// Its name in the lists of vulnerabilities, where scanners know no package of this URL's type.
    pub(super) cpe: Option<String>,
    /// Its licence, an SPDX expression, where its authors state one.
    pub(super) license: Option<String>,
    /// Where its source is.
    pub(super) source: Option<String>,
    /// Files with the texts of the licence.
    pub(super) texts: Vec<PathBuf>,
    /// Whether it is Bindery's own.
    pub(super) is_ours: bool,
}

/// What the image of a program is made of, by package URL.
///
/// Of the program, these are the packages that cargo compiled for it; of the engine, which may have been
/// compiled long before, those that it needs by cargo's metadata. That names too many where another package
/// turns on more features of one; a test of the image would tell.
///
/// # Errors
/// When cargo's metadata cannot be read or does not know what was compiled, or a compiler does not tell its
/// version.
pub(super) fn list(program: &Program) -> Result<Vec<Part>> {
    let mut parts = linked::list(program)?;
    parts.push(standard_library(program)?);
    let known = packages::list(workspace::metadata()?, "packages")?;
    for id in &program.packages {
        match known.iter().find(|package| package["id"] == id.as_str()) {
            Some(package) => parts.push(package_part(package)?),
            // It compiles the standard library too, of which cargo's metadata says nothing.
            None if matches!(program.toolchain, Toolchain::Debian) => {}
            None => bail!("cargo compiled {id}, which its metadata does not know"),
        }
    }
    let metadata = workspace::read_metadata(&["--locked", "--filter-platform", ENGINE_TARGET])?;
    for package in packages::closure(&metadata, ENGINE, Needs::ToRun)? {
        parts.push(package_part(package)?);
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
        // Older crates write a slash where the expression's word is `OR`.
        license: package["license"].as_str().map(|license| license.replace('/', " OR ")),
        source: package["repository"].as_str().map(ToOwned::to_owned),
        texts: texts(folder)?,
        is_ours: package["source"].is_null(),
        name,
        version,
    })
}

/// The files in a folder that tell a licence.
fn texts(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry.with_context(|| format!("cannot read {}", folder.display()))?;
        let name = entry.file_name().to_string_lossy().to_ascii_uppercase();
        if TEXTS.iter().any(|text| name.starts_with(text)) && entry.path().is_file() {
            texts.push(entry.path());
        }
    }
    texts.sort();
    Ok(texts)
}

/// The standard library of the compiler that made the program, with the crates that it is compiled of itself,
/// which its terms name. The engine's is of the same licence, and in the image without what needs a system.
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
