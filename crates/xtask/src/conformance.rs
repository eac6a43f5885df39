//! `cargo xtask conformance`: recorded cases of upstream's controller, run through the real binder.

use std::ffi::OsString;

use anyhow::Result;

use crate::{components, process, tools, workspace};

/// Build the engine's component and the runner, then run recorded cases; `--help` after `--` tells all
/// options.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Passed on to the runner: `[--engine native|component] [--against simulator|cluster] [--sample N]
    /// [--clusters N] [-v] FILE...`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Carries out `cargo xtask conformance` in the place of this process, so that its exit status is the
/// runner's.
///
/// # Errors
/// When the component or the runner cannot be built, or the runner cannot be started.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let engine = components::build()?;
    // The whole workspace is selected, so that its dependencies are built with the features that the tests
    // build.
    process::run(workspace::cargo().args([
        "build",
        "--quiet",
        "--workspace",
        "--bin",
        "bindery-conformance",
    ]))?;
    let runner = workspace::target_folder()?.join("debug/bindery-conformance");
    let mut command = std::process::Command::new(runner);
    command.args(&arguments.arguments).env("BINDERY_ENGINE", engine);
    // Installing a control plane takes its time, so it is done for who wants one.
    if arguments.arguments.iter().any(|argument| argument == "cluster" || argument == "--against=cluster") {
        tools::offer_control_plane(&mut command)?;
    }
    process::replace(&mut command)
}
