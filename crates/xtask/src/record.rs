//! `cargo xtask record`: makes cases for `tests/conformance/corpora` by running upstream's controller.
//!
//! The recorder is a Go test within upstream's own package, because it uses that package's test framework. So
//! it is built in a copy of the package, at the version that `tools/kubernetes` pins, in cargo's target
//! folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::tools::go;
use crate::{process, workspace};

/// The package that is copied.
const PACKAGE: &str = "k8s.io/kubernetes/pkg/controller/volume/persistentvolume";
/// Its only test file that is copied.
const FRAMEWORK: &str = "framework_test.go";
/// The import path of the copy, in the module of `tools/kubernetes`.
const COPY: &str = "bindery/tools/kubernetes/persistentvolume";

/// Record what upstream's controller makes of worlds, as cases for `cargo xtask conformance`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Worlds, one line of JSON each: cases whose world and call are used.
    worlds: PathBuf,
    /// The file to write the cases to. Worlds with varying results are left out and counted.
    cases: PathBuf,
}

/// Carries out `cargo xtask record`.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    record(&arguments.worlds, &arguments.cases)
}

/// Writes to the file `cases` what upstream's controller makes of the worlds in the file `worlds`.
pub(crate) fn record(worlds: &Path, cases: &Path) -> Result<()> {
    let worlds = fs::canonicalize(worlds).with_context(|| format!("cannot read {}", worlds.display()))?;
    let cases = std::path::absolute(cases)?;
    let folder = workspace::target_folder()?.join("recorder");
    lay_out(&folder)?;
    let recorder = folder.join("recorder");
    let mut build = go::command()?;
    // `-mod=mod`: the checksums of upstream's test dependencies are not pinned.
    build.args(["test", "-mod=mod", "-vet=off", "-trimpath", "-c", "-o"]).arg(&recorder).arg(COPY);
    process::run(build.current_dir(&folder))?;
    let mut record = std::process::Command::new(recorder);
    record.args(["-test.run=^TestRecord$", "-test.timeout=0"]).current_dir(&folder);
    process::run(record.env("RECORD_WORLDS", worlds).env("RECORD_CASES", cases))
}

/// Makes a module of upstream's package, its framework, and the recorder.
fn lay_out(folder: &Path) -> Result<()> {
    let upstream = go::KUBERNETES.fetch()?.join("pkg/controller/volume/persistentvolume");
    let recorder = workspace::root().join("tests/conformance/recorder");
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let (package, testing) = (folder.join("persistentvolume"), folder.join("persistentvolume/testing"));
    fs::create_dir_all(&testing).with_context(|| format!("cannot create {}", testing.display()))?;
    for name in ["go.mod", "go.sum"] {
        copy(&workspace::root().join("tools/kubernetes").join(name), &folder.join(name))?;
    }
    let is_wanted = |name: &str| !name.ends_with("_test.go") || name == FRAMEWORK;
    copy_sources(&upstream, &package, is_wanted)?;
    copy_sources(&upstream.join("testing"), &testing, is_wanted)?;
    copy_sources(&recorder, &package, |name| name.ends_with("_test.go"))?;
    copy_sources(&recorder, &testing, |name| !name.ends_with("_test.go"))
}

/// Copies the wanted Go files of a folder.
fn copy_sources(from: &Path, to: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".go") && is_wanted(&name) {
            copy(&entry.path(), &to.join(name))?;
        }
    }
    Ok(())
}

/// Copies a file, with imports of the package replaced by imports of the copy.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let text = fs::read_to_string(from).with_context(|| format!("cannot read {}", from.display()))?;
    let text = text.replace(&format!("\"{PACKAGE}/testing\""), &format!("\"{COPY}/testing\""));
    fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))
}
