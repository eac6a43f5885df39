//! `cargo xtask playground`: `bindery playground` with the default engine's component.

use anyhow::Result;

use crate::{components, process, workspace};

/// Start `bindery playground`, after building the default engine's component; `-- --help` lists its options.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Passed on to `bindery playground`: `[--example NAME] [--address ADDRESS] [--kubeconfig PATH]
    /// [--journal FOLDER]` and more. With `--engine FILE` here, or `BINDERY_ENGINE` set, the component is not
    /// built.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Carries out `cargo xtask playground`. The playground replaces this process, so that Ctrl-C reaches it
/// alone and the shell waits for its clean end.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if !process::exists("kubectl", "--help")? {
        eprintln!("kubectl is not on the path: `cargo xtask tools kubectl` builds it and prints its path");
    }
    let mut command = workspace::cargo();
    // Not quiet: the first build takes minutes, and the user wants to see progress.
    command.args(["run", "--package", "bindery", "--", "playground"]);
    if !names_an_engine(&arguments.arguments) {
        command.arg("--engine").arg(components::build()?);
    }
    // The user's paths are relative to the user's folder.
    command.args(&arguments.arguments).current_dir(std::env::current_dir()?);
    process::replace(&mut command)
}

fn names_an_engine(arguments: &[String]) -> bool {
    let is_option = |argument: &String| argument == "--engine" || argument.starts_with("--engine=");
    std::env::var_os("BINDERY_ENGINE").is_some() || arguments.iter().any(is_option)
}
