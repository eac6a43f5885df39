//! `cargo xtask record`: what upstream's controller makes of worlds, as cases of the corpora of
//! `tests/conformance`.
//!
//! The recorder is a Go test of upstream's own package, beside its test framework: so it is built in a copy
//! of that package, of the version that `tools/kubernetes` pins. The copy lies in cargo's target folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::{process, tools, workspace};

/// The package, which is copied, and the one below it that its tests use.
const PACKAGE: &str = "k8s.io/kubernetes/pkg/controller/volume/persistentvolume";
/// The file of its tests that others build on.
const FRAMEWORK: &str = "framework_test.go";
/// Where the copy is, as Go's import paths name it: in the module of `tools/kubernetes`.
const COPY: &str = "bindery/tools/kubernetes/persistentvolume";

/// Record what upstream's controller makes of worlds: cases for `cargo xtask conformance`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Worlds, a line of JSON each: cases of which only the world and the call count.
    worlds: PathBuf,
    /// The file to write the cases to. Worlds of which upstream makes now this and now that are left out, and
    /// counted.
    cases: PathBuf,
}

/// Carries out `cargo xtask record`.
///
/// # Errors
/// When upstream's module cannot be fetched, the recorder cannot be built, or a file cannot be read or
/// written.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    record(&arguments.worlds, &arguments.cases)
}

/// Writes to the file `cases` what upstream's controller makes of the worlds in the file `worlds`.
///
/// # Errors
/// As [`run`].
pub(crate) fn record(worlds: &Path, cases: &Path) -> Result<()> {
    let worlds = fs::canonicalize(worlds).with_context(|| format!("cannot read {}", worlds.display()))?;
    let cases = std::path::absolute(cases)?;
    let folder = workspace::target_folder()?.join("recorder");
    lay_out(&folder)?;
    let recorder = folder.join("recorder");
    let mut build = tools::go_command()?;
    // The sums of what only tests of upstream's need are not pinned.
    build.args(["test", "-mod=mod", "-vet=off", "-trimpath", "-c", "-o"]).arg(&recorder).arg(COPY);
    process::run(build.current_dir(&folder))?;
    let mut record = std::process::Command::new(recorder);
    record.args(["-test.run=^TestRecord$", "-test.timeout=0"]).current_dir(&folder);
    process::run(record.env("RECORD_WORLDS", worlds).env("RECORD_CASES", cases))
}

/// Makes a module of upstream's package, its framework, and the recorder.
fn lay_out(folder: &Path) -> Result<()> {
    let upstream = tools::kubernetes_sources()?.join("pkg/controller/volume/persistentvolume");
    let recorder = workspace::root().join("tests/conformance/recorder");
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let (package, testing) = (folder.join("persistentvolume"), folder.join("persistentvolume/testing"));
    fs::create_dir_all(&testing).with_context(|| format!("cannot make {}", testing.display()))?;
    for name in ["go.mod", "go.sum"] {
        copy(&workspace::root().join("tools/kubernetes").join(name), &folder.join(name))?;
    }
    let is_wanted = |name: &str| !name.ends_with("_test.go") || name == FRAMEWORK;
    copy_sources(&upstream, &package, is_wanted)?;
    copy_sources(&upstream.join("testing"), &testing, is_wanted)?;
    copy_sources(&recorder, &package, |name| name.ends_with("_test.go"))?;
    copy_sources(&recorder, &testing, |name| !name.ends_with("_test.go"))
}

/// Copies the Go files of a folder whose names are wanted; they import each other by the copy's path.
fn copy_sources(from: &Path, to: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<()> {
    let why = || format!("cannot read {}", from.display());
    for entry in fs::read_dir(from).with_context(why)? {
        let entry = entry.with_context(why)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".go") && is_wanted(&name) {
            copy(&entry.path(), &to.join(name))?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let text = fs::read_to_string(from).with_context(|| format!("cannot read {}", from.display()))?;
    let text = text.replace(&format!("\"{PACKAGE}/testing\""), &format!("\"{COPY}/testing\""));
    fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))
}
