//! The command line, the environment and, for `serve`, a settings file.
//!
//! A setting has one name everywhere: `--lease-duration` on the command line, `BINDERY_LEASE_DURATION` in the
//! environment, `lease-duration` in the file. The command line overrides the environment, and that the file.

mod file;
mod values;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Arg, Command, CommandFactory, FromArgMatches as _};

use self::file::Setting;
pub(crate) use self::values::{absolute, address, whole};
use crate::Arguments;

/// The command that reads a settings file.
const SERVE: &str = "serve";
/// The argument that names the settings file.
const CONFIG: &str = "config";
/// The variable of `--policy`.
const POLICY: &str = "BINDERY_POLICY";
/// The name under which kubectl finds this program as a plugin.
const PLUGIN: &str = "kubectl-bindery";
/// Flags of kubectl that may stand before the command, as `--namespace` in `kubectl bindery -n shop explain`.
const BEFORE_COMMAND: [&str; 4] = ["-n", "--namespace", "--kubeconfig", "--context"];
/// Prefix of the variables of settings. Kubernetes gives the variables of a Service named `bindery` the same
/// prefix.
const PREFIX: &str = "BINDERY_";
/// Most edits between an unknown variable and a setting that the error suggests.
const EDITS_MAX: usize = 2;

/// Reads the command line. Ends the process as clap does for a wrong command line, and for `--help`. Other
/// errors name the setting, its place, and what is allowed.
pub(crate) fn parse(line: Vec<OsString>) -> Result<Arguments> {
    let line = with_command_first(line);
    let command = named(Arguments::command(), &line);
    let Some(config) = config(&command, &line) else { return finish(command, line) };
    let mut serve = command.clone();
    serve.build();
    check_variables(&serve)?;
    let Some(serve) = serve.find_subcommand(SERVE).cloned() else { return finish(command, line) };
    let mut settings = Vec::new();
    if let Some(path) = config {
        settings = file::read(&path).with_context(|| format!("--config {}", path.display()))?;
        for Setting { name, value } in &settings {
            let context = || format!("setting {name} in {}", path.display());
            check(&serve, name, value).with_context(context)?;
        }
    }
    for (variable, name, value) in environment(&serve) {
        check(&serve, &name, &value)
            .with_context(|| format!("setting {name} in the environment, as {variable}"))?;
    }
    finish(with_defaults(command, settings), line)
}

/// The line with the flags of [`BEFORE_COMMAND`] behind the command.
pub(crate) fn with_command_first(mut line: Vec<OsString>) -> Vec<OsString> {
    let mut command = 1;
    while let Some(word) = line.get(command).and_then(|word| word.to_str()) {
        command += match word.split_once('=') {
            None if BEFORE_COMMAND.contains(&word) => 2,
            Some((flag, _)) if BEFORE_COMMAND.contains(&flag) => 1,
            _ => break,
        };
    }
    let is_command = |word: &OsString| !word.as_encoded_bytes().starts_with(b"-");
    if line.get(command).is_some_and(is_command) {
        line[1..=command].rotate_right(1);
    }
    line
}

/// The command under the name that its user knows: `kubectl bindery` where kubectl runs this program as its
/// plugin.
fn named(command: Command, line: &[OsString]) -> Command {
    let name = line.first().and_then(|program| Path::new(program).file_name());
    if name.is_some_and(|name| name == PLUGIN) { command.bin_name("kubectl bindery") } else { command }
}

/// `Some` if the command is `serve`, with the settings file if one is named. Other errors in the command line
/// are reported later.
fn config(command: &Command, line: &[OsString]) -> Option<Option<PathBuf>> {
    let matches = command.clone().ignore_errors(true).try_get_matches_from(line).ok()?;
    let serve = matches.subcommand_matches(SERVE)?;
    Some(serve.try_get_one::<PathBuf>(CONFIG).ok().flatten().cloned())
}

fn finish(command: Command, line: Vec<OsString>) -> Result<Arguments> {
    let matches = with_paths(command)?.try_get_matches_from(line).unwrap_or_else(|error| error.exit());
    Ok(Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()))
}

/// The command with the paths of [`POLICY`] as its defaults. The variable separates them by colons, as `PATH`
/// does; a flag names one path.
fn with_paths(command: Command) -> Result<Command> {
    let Some(value) = std::env::var_os(POLICY) else { return Ok(command) };
    let paths: Vec<PathBuf> = std::env::split_paths(&value).collect();
    if paths.iter().any(|path| path.as_os_str().is_empty()) {
        bail!("{POLICY} is {value:?} and has an empty path; separate paths by single colons, or unset it");
    }
    // Leaked once, as in `with_defaults`.
    let paths = paths.into_iter().map(|path| &*path.into_os_string().leak());
    let paths: Vec<&'static OsStr> = paths.collect();
    let set = |argument: Arg| match argument.get_env() {
        Some(variable) if variable == POLICY => argument.env(None::<&str>).default_values(paths.clone()),
        _ => argument,
    };
    Ok(command.mut_subcommands(|subcommand| subcommand.mut_args(set)))
}

/// The settings of the environment: variable, setting and value.
fn environment(serve: &Command) -> Vec<(String, String, String)> {
    let set = |argument: &Arg| {
        let variable = argument.get_env()?.to_str()?.to_owned();
        let value = std::env::var(&variable).ok()?;
        Some((variable, argument.get_long()?.to_owned(), value))
    };
    let arguments = serve.get_arguments().filter(|argument| settable(argument).is_some());
    arguments.filter_map(set).collect()
}

/// Checks that every variable of the environment with our prefix is one of these commands: another would be
/// ignored. The error suggests a setting with a similar name.
fn check_variables(commands: &Command) -> Result<()> {
    let known = variables(commands);
    let set = std::env::vars_os().filter_map(|(variable, _)| variable.into_string().ok());
    for variable in set.filter(|variable| variable.starts_with(PREFIX) && !is_of_service(variable)) {
        let edits = |name: &&String| strsim::damerau_levenshtein(name, &variable);
        let Some(meant) = known.iter().min_by_key(edits).filter(|meant| edits(meant) > 0) else { continue };
        let remedy = match edits(&meant) {
            ..=EDITS_MAX => format!("did you mean {meant}?"),
            _ => "unset it; `bindery serve --help` lists the settings".to_owned(),
        };
        bail!("the environment sets {variable}, and there is no such setting; {remedy}");
    }
    Ok(())
}

/// The variables of a command and of the commands below it.
fn variables(command: &Command) -> Vec<String> {
    let own = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
    own.map(str::to_owned).chain(command.get_subcommands().flat_map(variables)).collect()
}

/// Whether Kubernetes sets a variable in pods, for a Service in their namespace: the Service's name, and then
/// `_SERVICE_HOST`, `_SERVICE_PORT` or `_PORT` with more behind it.
fn is_of_service(variable: &str) -> bool {
    variable.ends_with("_SERVICE_HOST") || variable.contains("_PORT")
}

/// Checks that a setting exists and that the value is allowed. The error says what is allowed.
fn check(serve: &Command, name: &str, value: &str) -> Result<()> {
    let mut names: Vec<_> = serve.get_arguments().filter_map(settable).collect();
    names.sort_unstable();
    if !names.contains(&name) {
        bail!("there is no such setting; there are {}", names.join(", "));
    }
    // Without other settings, so that the error is about this value.
    let alone = serve.clone().mut_args(|argument| argument.env(None::<&str>));
    let read = alone.try_get_matches_from([SERVE.to_owned(), format!("--{name}={value}")]);
    read.map(drop).map_err(|error| anyhow!(complaint(&error)))
}

/// The name of an argument that a file or the environment may set.
fn settable(argument: &Arg) -> Option<&str> {
    argument.get_long().filter(|name| argument.get_action().takes_values() && *name != CONFIG)
}

/// The message of clap, without its usage.
fn complaint(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text.lines().take_while(|line| !line.starts_with("For more information"));
    let joined = lines.map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    joined.trim_start_matches("error: ").to_owned()
}

/// The command with the settings of the file as its defaults.
fn with_defaults(command: Command, settings: Vec<Setting>) -> Command {
    settings.into_iter().fold(command, |command, Setting { name, value }| {
        let id = name.replace('-', "_");
        // Leaked once: settings are read once in a process.
        let value: &'static str = value.leak();
        let set = |argument: Arg| argument.default_value(value);
        if command.get_arguments().any(|argument| argument.get_id() == id.as_str()) {
            command.mut_arg(id, set)
        } else {
            command.mut_subcommand(SERVE, |serve| serve.mut_arg(id, set))
        }
    })
}
