//! `cargo xtask test`: every test of the workspace, with what the tests need.

use anyhow::Result;

use crate::tools::{self, Tool};
use crate::{components, process, workspace};

/// Build what the tests need, then run every test of the workspace.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Passed on to `cargo test --workspace`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Carries out `cargo xtask test`.
///
/// The tests find the component in `BINDERY_ENGINE`, and programs in variables of their names.
///
/// # Errors
/// When what the tests need cannot be built, or when a test fails.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let engine = components::build()?;
    eprintln!("engine  {}", components::description(&engine)?);
    let mut command = workspace::cargo();
    command.args(["test", "--workspace"]).args(&arguments.arguments).env("BINDERY_ENGINE", &engine);
    command.env("BINDERY_KUBECTL", tools::install(Tool::Kubectl)?);
    tools::offer_control_plane(&mut command)?;
    process::run(&mut command)
}
