//! `cargo xtask test`: every test of the workspace, with what the tests need.

use std::panic::resume_unwind;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result};
use clap::ValueEnum as _;

use crate::oci::Platform;
use crate::tools::{self, Tool, debian};
use crate::{chart, cluster, components, image, process, timing, workspace};

/// The package of the tests that need root, most of them a whole node.
const NODE_TESTS: &str = "bindery-node";
/// Test programs that run beside the others: those of that package, and the longest of the others, which
/// builds policies most of its time.
const BESIDE: [&str; 6] = ["authors", "image", "leftovers", "node", "release", "release_steering"];

/// Tests on a whole node that only long runs run: with cert-manager, and with enforced NetworkPolicies.
pub(crate) const CERT_MANAGER: &str = "cert_manager";
pub(crate) const NETWORK: &str = "network";
/// The chart's test that only a long run runs: promtool takes minutes to build.
pub(crate) const ALERTS: &str = "alerts";
/// k9s on the playground, for the same reason.
pub(crate) const K9S: &str = "k9s";
/// Real registries and their clients, for the same reason.
pub(crate) const REGISTRIES: &str = "registries";
/// The long run on a cluster with faults.
pub(crate) const SOAK: &str = "soak";
/// Tests that cargo's "all targets" leaves out, because only long runs run them.
pub(crate) const OF_LONG_RUNS: [&str; 6] = [CERT_MANAGER, NETWORK, ALERTS, K9S, REGISTRIES, SOAK];

/// Tests of one program that run at the same time, for each processor. Many of them wait, for servers to
/// start and for leases to end.
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
/// The tests find the engine in `BINDERY_ENGINE`, policies in `BINDERY_POLICIES`, and programs in variables
/// named after them.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let engine = components::build()?;
    eprintln!("engine  {}", components::description(&engine)?);
    // The build below may replace this program's file.
    let this = std::env::current_exe().context("this program cannot find itself")?;
    // Side by side: both end with work for one processor, and the first one downloads much on a new machine.
    let (prepared, built) = thread::scope(|scope| {
        let preparing = scope.spawn(|| {
            let prepared = prepared(&this, &engine);
            if let Err(error) = &prepared {
                // Now, since the build goes on for minutes.
                eprintln!("cannot prepare what the tests need: {error:#}");
            }
            prepared
        });
        let _part = timing::begin("build the tests");
        let built = process::run(cargo_test().arg("--no-run").args(&arguments.arguments));
        (preparing.join().unwrap_or_else(|panic| resume_unwind(panic)), built)
    });
    let mut command = prepared?;
    built?;
    timing::time_tests(&mut command, &this)?;
    if arguments.arguments.is_empty() && process::is_root() {
        return run_in_two_lanes(command);
    }
    process::run(command.args(&arguments.arguments))
}

/// Runs all tests: those of [`BESIDE`] beside the others. Both lanes select the whole
/// workspace, so that cargo builds nothing again.
fn run_in_two_lanes(mut others: Command) -> Result<()> {
    let mut beside = cargo_test();
    beside.args(BESIDE.iter().flat_map(|name| ["--test", name]));
    beside.envs(others.get_envs().filter_map(|(name, value)| Some((name, value?))));
    others.env(timing::LEFT_OUT, BESIDE.join(" "));
    thread::scope(|scope| {
        let beside = scope.spawn(|| process::run_silently(&mut beside));
        let others = process::run(&mut others);
        beside.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        others
    })
}

fn cargo_test() -> Command {
    let mut command = workspace::cargo();
    command.args(["test", "--workspace", "--no-fail-fast"]);
    if !process::is_root() {
        command.args(["--exclude", NODE_TESTS]);
    }
    command
}

/// Passes to a command the paths of the engine, the policies and programs, without those of a control plane.
pub(crate) fn offer(command: &mut Command, engine: &Path) -> Result<()> {
    command.env("BINDERY_ENGINE", engine);
    command.env("BINDERY_POLICIES", components::policies()?);
    command.env("BINDERY_KUBECTL", tools::install(Tool::Kubectl)?);
    chart::offer(command)
}

/// The command that runs the tests, with the paths of what they need.
fn prepared(this: &Path, engine: &Path) -> Result<Command> {
    let mut command = cargo_test();
    offer(&mut command, engine)?;
    command.env("BINDERY_EXAMPLE_ENGINE", components::example()?);
    tools::offer_control_plane(&mut command)?;
    command.env("BINDERY_PYTHON_CLIENT", tools::python_client()?);
    let tools::Componentize { js, py } = tools::componentize()?;
    command.env("BINDERY_COMPONENTIZE_JS", js).env("BINDERY_COMPONENTIZE_PY", py);
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

/// Installs a node and builds the image, and passes their paths and this program's to a command. Needs root.
pub(crate) fn offer_node(command: &mut Command, this: &Path) -> Result<()> {
    // This takes minutes on a new machine, too long for a test to wait.
    cluster::install_node()?;
    debian::install(&["qemu-user-static"], "the image of another processor runs under emulation")?;
    let image = image::build(Platform::value_variants(), "image-test")?;
    command.env("BINDERY_XTASK", this);
    command.env("BINDERY_IMAGE", &image.archive);
    command.env("BINDERY_CSI_PROVISIONER", tools::install(Tool::CsiProvisioner)?);
    Ok(())
}
