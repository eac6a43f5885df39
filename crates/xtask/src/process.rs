//! Running other programs: each is named when it cannot be started or fails.
//!
//! None of them is told of the package that cargo runs, which is this program's. Build scripts look at the
//! variables for that (those of `ring` do), so that a cargo that we start would compile anew what the one
//! that started us has compiled, and the other way round.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail};

/// How the names of the variables begin that tell of a package:
/// <https://doc.rust-lang.org/cargo/reference/environment-variables.html#environment-variables-cargo-sets-for-crates>.
const OF_PACKAGE: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// Runs a program to its end, its output shown as it comes.
///
/// # Errors
/// When it cannot be started or does not exit with status 0; the error shows the whole command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = untold(command).status().with_context(|| format!("cannot start {}", shown(command)))?;
    succeeded(command, status)
}

/// Runs a program to its end and returns what it printed on standard output; its errors are shown as they
/// come.
///
/// # Errors
/// As [`run`], and when the output is not UTF-8.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = untold(command)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    succeeded(command, output.status)?;
    String::from_utf8(output.stdout).with_context(|| format!("{} printed what is not UTF-8", shown(command)))
}

/// Runs a program in the place of this process, so that signals reach it and its exit status is ours.
///
/// # Errors
/// When it cannot be started; otherwise it does not return.
pub(crate) fn replace(command: &mut Command) -> Result<()> {
    Err(untold(command).exec()).with_context(|| format!("cannot start {}", shown(command)))
}

/// Whether a program of this name can be started; it is run with the argument given, which must do nothing.
pub(crate) fn exists(program: &str, harmless_argument: &str) -> Result<bool> {
    let mut command = Command::new(program);
    command.arg(harmless_argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot start {}", shown(&command))),
    }
}

/// Whether this process may do what only root may.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The command without what cargo tells the program that it runs, of its package.
fn untold(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        if OF_PACKAGE.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes())) {
            command.env_remove(name);
        }
    }
    command
}

fn succeeded(command: &Command, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("{} failed: {status}", shown(command));
    }
    Ok(())
}

/// The command as one would type it, without its environment.
fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words.map(|word| quoted(&word.to_string_lossy())).collect();
    format!("`{}`", words.join(" "))
}

fn quoted(word: &str) -> String {
    if word.is_empty() || word.contains(char::is_whitespace) { format!("{word:?}") } else { word.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_not_told_of_our_package() {
        // Cargo runs this test and so has told us.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let told = output(&mut Command::new("env")).unwrap();
        let of_package = |line: &&str| OF_PACKAGE.iter().any(|prefix| line.starts_with(prefix));
        assert_eq!(told.lines().filter(of_package).collect::<Vec<_>>(), Vec::<&str>::new());
        assert!(told.lines().any(|line| line.starts_with("PATH=")));
    }
}
