//! Running other programs: each is named when it cannot be started or fails.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail};

/// Runs a program to its end, its output shown as it comes.
///
/// # Errors
/// When it cannot be started or does not exit with status 0; the error shows the whole command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", shown(command)))?;
    succeeded(command, status)
}

/// Runs a program to its end and returns what it printed on standard output; its errors are shown as they come.
///
/// # Errors
/// As [`run`], and when the output is not UTF-8.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
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
    Err(command.exec()).with_context(|| format!("cannot start {}", shown(command)))
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
