//! Running other programs. An error names the program that cannot be started or fails.
//!
//! Cargo sets variables that describe the package it runs, which is this one. Build scripts read them (those
//! of `ring` do), so a cargo that inherited them would recompile what the outer cargo has compiled. They are
//! removed for every program.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail};

/// Prefixes of the variables that describe a package:
/// <https://doc.rust-lang.org/cargo/reference/environment-variables.html>.
const OF_PACKAGE: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// Runs a program to its end and shows its output.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = prepared(command).status().with_context(|| format!("cannot start {}", shown(command)))?;
    succeeded(command, status)
}

/// Runs a program to its end, and shows its output then.
pub(crate) fn run_silently(command: &mut Command) -> Result<()> {
    let output = prepared(command).output().with_context(|| format!("cannot start {}", shown(command)))?;
    for text in [output.stderr, output.stdout] {
        eprint!("{}", String::from_utf8_lossy(&text));
    }
    succeeded(command, output.status)
}

/// Runs a program to its end and returns its standard output; its standard error is shown.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = prepared(command)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    succeeded(command, output.status)?;
    String::from_utf8(output.stdout).with_context(|| format!("the output of {} is not UTF-8", shown(command)))
}

/// Replaces this process by a program, so that it receives signals and sets the exit status. Returns only if
/// the program cannot be started.
pub(crate) fn replace(command: &mut Command) -> Result<()> {
    Err(prepared(command).exec()).with_context(|| format!("cannot start {}", shown(command)))
}

/// Whether a program of this name can be started. It is run with the argument, which must do nothing.
pub(crate) fn exists(program: &str, harmless_argument: &str) -> Result<bool> {
    let mut command = Command::new(program);
    command.arg(harmless_argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot start {}", shown(&command))),
    }
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The command without the variables that describe our package.
fn prepared(command: &mut Command) -> &mut Command {
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

/// The command as a user would type it, without its environment.
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
    fn a_program_does_not_inherit_the_variables_of_our_package() {
        // Cargo runs this test and so has set them.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let printed = output(&mut Command::new("env")).unwrap();
        let of_package = |line: &&str| OF_PACKAGE.iter().any(|prefix| line.starts_with(prefix));
        assert_eq!(printed.lines().filter(of_package).collect::<Vec<_>>(), Vec::<&str>::new());
        assert!(printed.lines().any(|line| line.starts_with("PATH=")));
    }
}
