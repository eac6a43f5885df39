//! Runs the `bindery` command in a home of its own.

#![allow(dead_code, reason = "every test file uses its part")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bindery_cluster::run;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The home folder of commands, also their current and temporary folder.
pub(crate) struct Home {
    folder: TempDir,
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file; returns its path relative to this home.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        name.to_owned()
    }

    /// All files and folders, sorted, relative to this home.
    pub(crate) fn content(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut folders = vec![self.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                names.push(path.strip_prefix(self.path()).unwrap().display().to_string());
                folders.extend(path.is_dir().then_some(path));
            }
        }
        names.sort();
        names
    }

    /// A program with this home and an empty environment.
    pub(crate) fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path()).env_clear().env("HOME", self.path()).env("TMPDIR", self.path());
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_bindery"));
        command.args(arguments);
        command
    }

    pub(crate) fn bindery(&self, arguments: &[&str]) -> Ended {
        self.bindery_with(arguments, "")
    }

    /// Runs `bindery`, which must succeed.
    #[track_caller]
    pub(crate) fn done(&self, arguments: &[&str]) -> Ended {
        let ended = self.bindery(arguments);
        assert_eq!(ended.status, 0, "{ended:?}");
        ended
    }

    /// Runs `bindery` to its end, with standard input.
    pub(crate) fn bindery_with(&self, arguments: &[&str], input: &str) -> Ended {
        ended(self.command(arguments), input)
    }
}

/// Runs a command to its end, with standard input.
pub(crate) fn ended(mut command: Command, input: &str) -> Ended {
    let output = run(&mut command, input);
    Ended {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A list of objects, as kubectl prints it.
pub(crate) fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items})
}

/// What `cargo xtask test` has installed.
pub(crate) fn offered(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable);
    path.unwrap_or_else(|| panic!("{variable} is not set: run `cargo xtask test`")).into()
}

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("BINDERY_CHECKOUT"))
}

pub(crate) fn example(name: &str) -> PathBuf {
    root().join("examples").join(name)
}

/// The default engine's component: that of `BINDERY_ENGINE`, else the one beside the programs under test.
pub(crate) fn engine() -> PathBuf {
    let built = || Path::new(env!("CARGO_BIN_EXE_bindery")).join("../../components/bindery-engine.wasm");
    let engine = std::env::var_os("BINDERY_ENGINE").map_or_else(built, PathBuf::from);
    assert!(engine.is_file(), "there is no {}: run `cargo xtask components`", engine.display());
    engine
}
