//! A time of day that a test can set for one program.
//!
//! A test cannot set the machine's clock, and time namespaces shift only the clocks that measure durations.
//! So the program is started with a library that replaces the C library's `clock_gettime`, which Rust's
//! `SystemTime` calls. Bindery itself contains nothing of it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

/// The library. Rust links with a C compiler, so one is installed.
const SHIM: &str = include_str!("clock/shim.c");

/// The time of day of the programs that are started with [`Clock::environment`].
#[derive(Debug)]
pub struct Clock {
    folder: TempDir,
    library: PathBuf,
    offset: File,
}

impl Clock {
    /// A clock that shows the right time.
    pub fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("bindery-clock-").tempdir()?;
        let (source, library) = (folder.path().join("shim.c"), folder.path().join("shim.so"));
        fs::write(&source, SHIM)?;
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&library).arg(&source);
        let output = compiler.output().context("the C compiler cc cannot be started")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let path = folder.path().join("offset");
        let offset = File::options().create_new(true).write(true).open(path)?;
        let clock = Self { folder, library, offset };
        clock.set(0)?;
        Ok(clock)
    }

    /// The environment variables of a program with this clock.
    pub fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.library.clone()), ("TEST_CLOCK", self.offset_path())]
    }

    /// Sets it to this many seconds after the right time; before it if negative.
    pub fn set(&self, seconds_ahead: i64) -> Result<()> {
        let written = self.offset.write_all_at(&seconds_ahead.to_ne_bytes(), 0);
        written.with_context(|| format!("{} cannot be written", self.offset_path().display()))
    }

    fn offset_path(&self) -> PathBuf {
        self.folder.path().join("offset")
    }
}
