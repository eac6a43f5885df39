//! `cargo xtask check`: what can be checked without running the code.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::tools::{self, Tool};
use crate::{crds, process, test, timing, workspace};

/// Makes the command of a check, after installing what it needs.
type Check = fn() -> Result<Command>;

/// Carries out `cargo xtask check`. All checks run, even if one fails; the error names all that failed.
pub(crate) fn run() -> Result<()> {
    let checks: [(&str, Check); 11] = [
        ("format", || Ok(cargo(&["fmt", "--all", "--", "--check"]))),
        ("lints", || {
            Ok(cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]))
        }),
        ("long tests", long_tests),
        ("generator of definitions", generator),
        ("fuzz targets", fuzz_targets),
        ("documents", documents),
        ("dependencies", dependencies),
        ("chart", || this(&["chart", "--check"])),
        ("definitions", || this(&["crds", "--check"])),
        ("reference", || this(&["reference", "--check"])),
        ("workflows", workflows),
    ];
    let mut failed = Vec::new();
    for (name, check) in checks {
        eprintln!("check: {name}");
        let _part = timing::begin(&format!("check {name}"));
        if let Err(error) = check().and_then(|mut command| process::run(&mut command)) {
            eprintln!("check: {name}: {error:#}");
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = workspace::cargo();
    command.args(arguments);
    command
}

fn long_tests() -> Result<Command> {
    let mut command = cargo(&["clippy", "--quiet", "--workspace"]);
    command.args(test::OF_LONG_RUNS.iter().flat_map(|test| ["--test", test])).args(["--", "-D", "warnings"]);
    Ok(command)
}

/// It needs a feature that nothing else has.
fn generator() -> Result<Command> {
    let mut command = cargo(&["clippy", "--quiet"]);
    command.args(crds::GENERATOR).args(["--", "-D", "warnings"]);
    Ok(command)
}

/// The fuzz targets are a workspace of their own, which only a long run builds. This checks them against the
/// current code and their lock file. Nothing is linked, so the fuzzer's C++ need not be built: the variable
/// tells its build script that it is built already.
fn fuzz_targets() -> Result<Command> {
    let mut command = cargo(&["clippy", "--quiet", "--locked", "--manifest-path", "fuzz/Cargo.toml"]);
    command.args(["--", "-D", "warnings"]).env("CUSTOM_LIBFUZZER_PATH", "elsewhere/libfuzzer.a");
    // The workspace's target folder, instead of one below `fuzz/`.
    command.env("CARGO_TARGET_DIR", workspace::target_folder()?);
    Ok(command)
}

fn documents() -> Result<Command> {
    let mut command = cargo(&["doc", "--quiet", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    Ok(command)
}

/// Licences, banned crates and sources of crates, by `deny.toml`. Advisories are left out: a new advisory
/// would fail a change that has nothing to do with it.
fn dependencies() -> Result<Command> {
    let program = tools::install(Tool::CargoDeny).context("cannot install cargo-deny")?;
    let mut command = Command::new(program);
    command.current_dir(workspace::root());
    command.args(["check", "--hide-inclusion-graph", "bans", "licenses", "sources"]);
    Ok(command)
}

/// Another command of this program, which checks that generated parts are up to date.
fn this(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("this program cannot find itself")?);
    command.args(arguments);
    Ok(command)
}

/// The workflows for GitHub.
fn workflows() -> Result<Command> {
    let mut command = Command::new(tools::install(Tool::Actionlint)?);
    // The linters of scripts are left out, which some machines have and others lack. It looks for workflows
    // in the repository of the current folder.
    command.args(["-shellcheck=", "-pyflakes="]).current_dir(workspace::root());
    Ok(command)
}
