//! `cargo xtask conformance`: recorded cases of upstream's controller, run through the real binder.

use std::ffi::OsString;

use anyhow::Result;

use crate::{components, process, tools, workspace};

/// Build the engine's component and the runner, then run recorded cases; `--help` after `--` lists all
/// options.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Passed on to the runner: `[--engine native|component|FILE] [--against simulator|cluster] [--only TEXT]
    /// [--sample N] [--clusters N] [-v] FILE...`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Carries out `cargo xtask conformance`. The runner replaces this process and sets its exit status.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let engine = components::build()?;
    // The whole workspace is selected, so that the dependencies have the features that the tests use.
    let build = ["build", "--quiet", "--workspace", "--bin", "bindery-conformance"];
    process::run(workspace::cargo().args(build))?;
    let runner = workspace::target_folder()?.join("debug/bindery-conformance");
    let mut command = std::process::Command::new(runner);
    command.args(&arguments.arguments).env("BINDERY_ENGINE", engine);
    // Installing a control plane takes minutes, so it is done only on request.
    if arguments.arguments.iter().any(|argument| argument == "cluster" || argument == "--against=cluster") {
        tools::offer_control_plane(&mut command)?;
    }
    process::replace(&mut command)
}
