//! `cargo xtask test`: every test of the workspace, with what the tests need.

use std::process::Command;

use anyhow::{Context as _, Result};
use clap::ValueEnum as _;

use crate::oci::Platform;
use crate::tools::{self, Tool, debian};
use crate::{chart, cluster, components, image, process, workspace};

/// The package of the tests that need a whole node, or at least root.
const NODE_TESTS: &str = "bindery-node";

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
    let mut command = workspace::cargo();
    command.args(["test", "--workspace"]);
    // First what may be missing on a machine, so that it is said before minutes of building.
    command.env("BINDERY_KUBECTL", tools::install(Tool::Kubectl)?);
    tools::offer_control_plane(&mut command)?;
    chart::offer(&mut command)?;
    offer_node(&mut command)?;
    let engine = components::build()?;
    eprintln!("engine  {}", components::description(&engine)?);
    command.env("BINDERY_ENGINE", &engine);
    process::run(command.args(&arguments.arguments))
}

/// Lets the tests on a real node run where this machine can have one.
fn offer_node(command: &mut Command) -> Result<()> {
    if !process::is_root() {
        eprintln!("the tests of {NODE_TESTS} are left out: they need root");
        command.args(["--exclude", NODE_TESTS]);
        return Ok(());
    }
    // Minutes on a new machine, which no test should have to wait for.
    cluster::install_node()?;
    debian::install(&["qemu-user-static"], "an image for another processor is tried under emulation")?;
    let image = image::build(Platform::value_variants(), "image-test")?;
    command.env("BINDERY_XTASK", std::env::current_exe().context("this program cannot find itself")?);
    command.env("BINDERY_IMAGE", &image.archive);
    command.env("BINDERY_CSI_PROVISIONER", tools::install(Tool::CsiProvisioner)?);
    Ok(())
}
