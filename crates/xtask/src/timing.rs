//! How long the parts of a run take. `.ci/run` prints the slowest ones at its end.
//!
//! Each part becomes a line `SECONDS NAME` of the file that `BINDERY_TIMINGS` names, if it is set.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::toolchain;

const VARIABLE: &str = "BINDERY_TIMINGS";
/// Contains names of test programs that are not run, separated by spaces.
pub(crate) const LEFT_OUT: &str = "BINDERY_TESTS_LEFT_OUT";

/// A part of a run that is under way; dropped at its end.
pub(crate) struct Part {
    name: String,
    began: Instant,
    file: Option<PathBuf>,
}

/// Begins a part.
pub(crate) fn begin(name: &str) -> Part {
    let file = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    Part { name: name.to_owned(), began: Instant::now(), file }
}

impl Drop for Part {
    fn drop(&mut self) {
        let Some(path) = &self.file else { return };
        let line = format!("{:6.0} {}\n", self.began.elapsed().as_secs_f64(), self.name);
        let file = OpenOptions::new().create(true).append(true).open(path);
        if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
            eprintln!("cannot write {}: {error}", path.display());
        }
    }
}

/// Has cargo run each test program by `this` program.
pub(crate) fn time_tests(command: &mut Command, this: &Path) -> Result<()> {
    let host = toolchain::host()?.to_uppercase().replace('-', "_");
    command.env(format!("CARGO_TARGET_{host}_RUNNER"), format!("{} timed", this.display()));
    Ok(())
}

/// Runs a test program and ends as it ended. Cargo starts it in the folder of its package. A program that
/// [`LEFT_OUT`] names is left out.
pub(crate) fn run(command: &[OsString]) -> Result<()> {
    let (program, arguments) = command.split_first().context("no program is named")?;
    let package = std::env::current_dir()?;
    let package = package.file_name().unwrap_or_default();
    let stem = Path::new(program).file_stem().unwrap_or_default().to_string_lossy();
    // Cargo adds a digest to the name.
    let test = stem.rsplit_once('-').map_or(&*stem, |(test, _)| test);
    if std::env::var(LEFT_OUT).is_ok_and(|names| names.split(' ').any(|name| name == test)) {
        eprintln!("     (beside the other tests)");
        return Ok(());
    }
    let part = begin(&format!("test {} {test}", package.to_string_lossy()));
    let status = Command::new(program).args(arguments).status();
    drop(part);
    let status = status.with_context(|| format!("cannot start {}", program.display()))?;
    // 101 is the code of a panic; there is none after a signal.
    std::process::exit(status.code().unwrap_or(101))
}
