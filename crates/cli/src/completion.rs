//! `bindery completion`, and the completion of `kubectl bindery`.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Command, CommandFactory as _, Parser as _};
use clap_complete::Shell;

use crate::{output, settings};

/// The name under which kubectl looks for a program that completes `kubectl bindery`. It gives the words
/// after these two; the last one is to be completed.
const FOR_KUBECTL: &str = "kubectl_complete-bindery";
/// What ends an answer to kubectl (`ShellCompDirective` of cobra): files may be meant, or no files.
const FILES: &str = ":0";
const NO_FILES: &str = ":4";

/// Print a script that completes commands and flags in a shell.
///
/// For bash: `source <(bindery completion bash)`. kubectl completes `kubectl bindery` if it finds this
/// program under the name `kubectl_complete-bindery` too; then the names of claims and volumes are completed
/// as well.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::Arguments::command(), "bindery", &mut script);
    output::write(|out| out.write_all(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// The answer to kubectl, if this program was started to complete a command line.
pub(crate) fn for_kubectl(line: &[OsString]) -> Option<String> {
    let (program, words) = line.split_first()?;
    let is_asked = Path::new(program).file_name().is_some_and(|name| name == FOR_KUBECTL);
    is_asked.then(|| {
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        let (last, before) = words.split_last().map_or(("", &words[..]), |(last, before)| (&**last, before));
        let mut lines = candidates(before, last);
        lines.push(if lines.is_empty() { FILES } else { NO_FILES }.to_owned());
        lines.join("\n") + "\n"
    })
}

/// The commands, flags or names of objects that begin with the last word, after the words before it.
fn candidates(before: &[impl AsRef<str>], last: &str) -> Vec<String> {
    let mut root = crate::Arguments::command();
    root.build();
    let command =
        before.iter().fold(&root, |command, word| command.find_subcommand(word.as_ref()).unwrap_or(command));
    let all: Vec<String> = if last.starts_with('-') {
        let flags = command.get_arguments().filter(|flag| !flag.is_hide_set());
        flags.filter_map(|flag| Some(format!("--{}", flag.get_long()?))).collect()
    } else if command.has_subcommands() {
        command.get_subcommands().map(Command::get_name).map(str::to_owned).collect()
    } else {
        objects(before, last).unwrap_or_default()
    };
    all.into_iter().filter(|candidate| candidate.starts_with(last)).collect()
}

/// What the last word may be, if it is of the object of `bindery explain`.
fn objects(before: &[impl AsRef<str>], last: &str) -> Option<Vec<String>> {
    // It is the value of this flag.
    before.last().filter(|word| !word.as_ref().starts_with('-'))?;
    let words = before.iter().map(|word| word.as_ref()).chain([last]);
    let line = ["bindery"].into_iter().chain(words).map(OsString::from).collect();
    match crate::Arguments::try_parse_from(settings::with_command_first(line)).ok()?.command {
        crate::Command::Explain(arguments) => arguments.completions(),
        _ => None,
    }
}
