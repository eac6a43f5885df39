//! `cargo xtask check`: what can be said of a change without running it.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::tools::{self, Tool};
use crate::{process, test, workspace};

/// Makes the command of a check, having installed what it needs.
type Check = fn() -> Result<Command>;

/// Carries out `cargo xtask check`. Every check is made, whether or not one before it failed.
///
/// # Errors
/// When a check fails; the error names all that did.
pub(crate) fn run() -> Result<()> {
    let checks: [(&str, Check); 7] = [
        ("format", format),
        ("lints", lints),
        ("long tests", long_tests),
        ("fuzz targets", fuzz_targets),
        ("documents", documents),
        ("dependencies", dependencies),
        ("chart", chart),
    ];
    let mut failed = Vec::new();
    for (name, check) in checks {
        eprintln!("check: {name}");
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

fn format() -> Result<Command> {
    let mut command = workspace::cargo();
    command.args(["fmt", "--all", "--", "--check"]);
    Ok(command)
}

fn lints() -> Result<Command> {
    let mut command = workspace::cargo();
    command.args(["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    Ok(command)
}

fn long_tests() -> Result<Command> {
    let mut command = workspace::cargo();
    command.args(["clippy", "--quiet", "--workspace"]);
    for test in test::OF_LONG_RUNS {
        command.args(["--test", test]);
    }
    command.args(["--", "-D", "warnings"]);
    Ok(command)
}

/// The fuzz targets are a workspace of their own, which only a long run builds: here they are held against
/// today's code and their lock file. Nothing is linked, so the fuzzer's C++ is not built: its build script is
/// told that it is elsewhere.
fn fuzz_targets() -> Result<Command> {
    let mut command = workspace::cargo();
    command.args([
        "clippy",
        "--quiet",
        "--locked",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--",
        "-D",
        "warnings",
    ]);
    command.env("CUSTOM_LIBFUZZER_PATH", "elsewhere/libfuzzer.a");
    // The target folder of everything else, not one below `fuzz/`.
    command.env("CARGO_TARGET_DIR", workspace::target_folder()?);
    Ok(command)
}

fn documents() -> Result<Command> {
    let mut command = workspace::cargo();
    command.args(["doc", "--quiet", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    Ok(command)
}

/// Licences, banned crates and where crates come from, by `deny.toml`. Advisories are left out: they need a
/// database that is fetched, and would fail a change for what it did not change.
fn dependencies() -> Result<Command> {
    let program = tools::install(Tool::CargoDeny).context("cannot install cargo-deny")?;
    let mut command = Command::new(program);
    command.current_dir(workspace::root()).args([
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]);
    Ok(command)
}

/// What in the chart is made from other files is what would be made now.
fn chart() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("this program cannot find itself")?);
    command.args(["chart", "--check"]);
    Ok(command)
}
