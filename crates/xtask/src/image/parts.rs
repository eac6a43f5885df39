//! What an image is made of: packages, the standard library of Rust, and a C library, each with the texts of its licence.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::program::{self, Program};
use crate::packages::{self, Needs};
use crate::{process, workspace};

/// The packages that the image's files are compiled of: those of the program, and the default engine's.
const PACKAGES: [&str; 2] = [program::NAME, "bindery-component"];
/// How files begin, in capitals, in which authors keep what they ask to go with their work.
const TEXTS: [&str; 6] = ["LICENSE", "LICENCE", "UNLICENSE", "COPYING", "COPYRIGHT", "NOTICE"];
/// Where Debian keeps the terms of glibc, which it compiled, and the licence that they name.
const GLIBC_TERMS: [&str; 2] = ["/usr/share/doc/libc6-dev/copyright", "/usr/share/common-licenses/LGPL-2.1"];

/// A work that is in an image.
pub(super) struct Part {
    pub(super) name: String,
    pub(super) version: String,
    /// Its package URL, <https://github.com/package-url/purl-spec>.
    pub(super) purl: String,
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
/// # Errors
/// When cargo's metadata cannot be read, or a compiler does not tell its version.
pub(super) fn list(program: &Program) -> Result<Vec<Part>> {
    let metadata = workspace::read_metadata(&["--locked", "--filter-platform", program.target.triple])?;
    let mut parts = vec![standard_library(program)?, c_library(program)?];
    for package in PACKAGES {
        for needed in packages::closure(&metadata, package, Needs::ToRun)? {
            parts.push(package_part(needed)?);
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

/// The standard library of the compiler that made the program; the engine's is of the same licence, and in the image without
/// what needs a system.
fn standard_library(program: &Program) -> Result<Part> {
    let printed = program.toolchain.version()?;
    let version = printed.lines().find_map(|line| line.strip_prefix("release: "));
    let version = version.context("rustc -vV names no release")?.to_owned();
    Ok(Part {
        name: "rust-std".to_owned(),
        purl: format!("pkg:generic/rust-std@{version}"),
        version,
        license: Some("MIT OR Apache-2.0".to_owned()),
        source: Some("https://github.com/rust-lang/rust".to_owned()),
        texts: vec![program.toolchain.library_terms()?],
        is_ours: false,
    })
}

fn c_library(program: &Program) -> Result<Part> {
    let (name, version, license, source, texts) = match &program.zig {
        None => {
            let printed = process::output(Command::new("getconf").arg("GNU_LIBC_VERSION"))?;
            let version = printed.trim().strip_prefix("glibc ").map(ToOwned::to_owned);
            let version = version.with_context(|| format!("getconf told {printed:?} for glibc's version"))?;
            (
                "glibc",
                version,
                "LGPL-2.1-or-later",
                "https://sourceware.org/git/glibc.git",
                GLIBC_TERMS.map(PathBuf::from).to_vec(),
            )
        }
        Some(zig) => {
            let musl = zig.join("lib/libc/musl");
            let header = musl.join("src/internal/version.h");
            let printed = String::from_utf8(workspace::read(&header)?)?;
            let version = printed.split('"').nth(1).map(ToOwned::to_owned);
            let version = version.with_context(|| format!("{} has no version of musl", header.display()))?;
            ("musl", version, "MIT", "https://git.musl-libc.org/cgit/musl", vec![musl.join("COPYRIGHT")])
        }
    };
    Ok(Part {
        name: name.to_owned(),
        purl: format!("pkg:generic/{name}@{version}"),
        version,
        license: Some(license.to_owned()),
        source: Some(source.to_owned()),
        texts,
        is_ours: false,
    })
}
