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
/// The tests find the component in `BINDERY_ENGINE` and kubectl in `BINDERY_KUBECTL`.
///
/// # Errors
/// When what the tests need cannot be built, or when a test fails.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let kubectl = tools::install(Tool::Kubectl)?;
    let engine = components::build()?;
    eprintln!("engine  {}", components::description(&engine)?);
    eprintln!("kubectl {}", kubectl.display());
    let mut command = workspace::cargo();
    command.args(["test", "--workspace"]).args(&arguments.arguments);
    process::run(command.env("BINDERY_ENGINE", &engine).env("BINDERY_KUBECTL", &kubectl))
}
