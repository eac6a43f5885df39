//! `cargo xtask test`: every test of the workspace, with what the tests need.

use std::panic::resume_unwind;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result};
use clap::ValueEnum as _;

use crate::oci::Platform;
use crate::tools::{self, Tool, debian};
use crate::{chart, cluster, components, image, process, workspace};

/// The package of the tests that need a whole node, or at least root.
const NODE_TESTS: &str = "bindery-node";

/// The tests on a whole node that only long runs run: with a cert-manager, and with a network that enforces
/// policies.
pub(crate) const CERT_MANAGER: &str = "cert_manager";
pub(crate) const NETWORK: &str = "network";
/// The chart's test that only a long run runs: promtool takes minutes to build.
pub(crate) const ALERTS: &str = "alerts";
/// The tests that are none of cargo's "all targets", because only long runs run them.
pub(crate) const OF_LONG_RUNS: [&str; 3] = [CERT_MANAGER, NETWORK, ALERTS];

/// Tests of one program that run at the same time, for each processor: many of them wait, for servers that
/// start and for leases that end.
const TESTS_PER_PROCESSOR: usize = 2;

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
    // Before this program is built anew, which takes its file away.
    let this = std::env::current_exe().context("this program cannot find itself")?;
    // Side by side: both end with what one processor does alone, and one of them fetches much on a new
    // machine.
    let (prepared, built) = thread::scope(|scope| {
        let preparing = scope.spawn(|| {
            let prepared = prepared(&this, &engine);
            if let Err(error) = &prepared {
                // The build goes on for minutes.
                eprintln!("what the tests need cannot be had: {error:#}");
            }
            prepared
        });
        let built = process::run(cargo_test().arg("--no-run").args(&arguments.arguments));
        (preparing.join().unwrap_or_else(|panic| resume_unwind(panic)), built)
    });
    let mut command = prepared?;
    built?;
    process::run(command.args(&arguments.arguments))
}

fn cargo_test() -> Command {
    let mut command = workspace::cargo();
    command.args(["test", "--workspace"]);
    if !process::is_root() {
        command.args(["--exclude", NODE_TESTS]);
    }
    command
}

/// Tells a command where tests find the engine and programs, but for those of a control plane.
///
/// # Errors
/// When a program cannot be installed.
pub(crate) fn offer(command: &mut Command, engine: &Path) -> Result<()> {
    command.env("BINDERY_ENGINE", engine);
    command.env("BINDERY_KUBECTL", tools::install(Tool::Kubectl)?);
    chart::offer(command)
}

/// The command that runs the tests, which finds what they need.
fn prepared(this: &Path, engine: &Path) -> Result<Command> {
    let mut command = cargo_test();
    offer(&mut command, engine)?;
    tools::offer_control_plane(&mut command)?;
    // Where this machine can have one.
    if process::is_root() {
        offer_node(&mut command, this)?;
    } else {
        eprintln!("the tests of {NODE_TESTS} are left out: they need root");
    }
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        command.env("RUST_TEST_THREADS", (TESTS_PER_PROCESSOR * processors).to_string());
    }
    Ok(command)
}

/// Installs a node and builds the image, and tells a command where tests find these and this program.
///
/// # Errors
/// When we are not root, or when something cannot be installed or built.
pub(crate) fn offer_node(command: &mut Command, this: &Path) -> Result<()> {
    // Minutes on a new machine, which no test should have to wait for.
    cluster::install_node()?;
    debian::install(&["qemu-user-static"], "an image for another processor is tried under emulation")?;
    let image = image::build(Platform::value_variants(), "image-test")?;
    command.env("BINDERY_XTASK", this);
    command.env("BINDERY_IMAGE", &image.archive);
    command.env("BINDERY_CSI_PROVISIONER", tools::install(Tool::CsiProvisioner)?);
    Ok(())
}
