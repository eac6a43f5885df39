//! `cargo xtask soak`: what is worth hours, and not for every change.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use crate::tools::{self, Tool};
use crate::{components, process, record, test, workspace};

/// Packages whose tests are to notice when the engine or the guard is changed.
const WATCHING: [&str; 3] = ["bindery-engine", "bindery-guard-tests", "bindery-core"];

/// Fuzz targets, each with the most bytes that an input of it needs.
const FUZZED: [(&str, u32); 2] = [("guard", 512), ("review", 4_096)];

/// Corpora whose worlds are varied: of single calls, and of worlds that are settled.
const VARIED: [&[&str]; 2] =
    [&["upstream-cases.jsonl.gz", "single-step.jsonl.gz", "changed.jsonl.gz"], &["settle.jsonl.gz"]];

/// The tests that start control planes, but for those of a node, and the matrix: its answers are those of one
/// version.
const ON_CONTROL_PLANES: [&str; 5] = ["cluster", "encodings", "operate", "serve", "webhook"];

/// The chart's tests by what they need: all of those without a cluster, and of those on a control plane what
/// Helm does there.
const OF_CHART: [(&str, &[&str]); 2] =
    [("chart", &[]), ("cluster", &["release::", "stopping::", "upgrading::"])];

/// Those of them that hold of Helm 4 alone: its dry run asks no cluster, and it overwrites nothing that
/// others have set.
const OF_HELM_4: [&str; 3] =
    ["sets::the_notes_", "release::a_source_of_certificates_", "stopping::a_release_that_somebody_else_"];

/// Run the long tests: more random worlds, fuzzing, mutants, faults and deaths on a real API server.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What to run; by default everything, one after the other.
    #[arg(value_enum)]
    runs: Vec<Run>,
    /// Random worlds of each kind, and random decisions for the guard.
    #[arg(long, default_value_t = 2_000_000)]
    worlds: u32,
    /// New worlds of each kind of call, of which upstream's controller makes cases.
    #[arg(long, default_value_t = 100_000)]
    cases: u32,
    /// Seconds of fuzzing, for each target.
    #[arg(long, default_value_t = 3_600)]
    seconds: u32,
    /// Seconds that each kind of fault lasts.
    #[arg(long, default_value_t = 300)]
    fault_seconds: u32,
    /// Leaders that are killed at random moments.
    #[arg(long, default_value_t = 200)]
    kills: u32,
}

/// A long run.
#[derive(Clone, Copy, ValueEnum)]
enum Run {
    /// The property tests, over more worlds.
    Worlds,
    /// New worlds, of which upstream's controller makes cases, which Bindery must pass.
    Upstream,
    /// The guard against an oracle, and admission against any request, guided by coverage; needs a nightly
    /// toolchain.
    Fuzz,
    /// Builds the image of the last commit in two places, and fails where the digests differ.
    Image,
    /// Changes engine and guard everywhere, one place at a time, and lists what no test notices.
    Mutants,
    /// What goes wrong between `bindery serve` and a real API server, under load.
    Faults,
    /// Leaders of `bindery serve` killed at random moments, or stopped, on a real API server under load.
    Deaths,
    /// The tests on a real control plane, on those of the oldest and the newest Kubernetes that Bindery
    /// supports.
    Versions,
    /// The chart by Helm 3.
    Helm3,
    /// The chart's alerts and the dashboard, as Prometheus evaluates them.
    Alerts,
    /// The chart with certificates from a real cert-manager, on a whole node; needs root.
    CertManager,
    /// The chart's NetworkPolicy where the network enforces it, on a whole node; needs root.
    Network,
}

/// Carries out `cargo xtask soak`. Every run is made, whether or not one before it failed.
///
/// # Errors
/// When a run fails; the error names all that did.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let runs = if arguments.runs.is_empty() { Run::value_variants() } else { &arguments.runs };
    let mut failed = Vec::new();
    for run in runs {
        let (name, result) = match run {
            Run::Worlds => ("worlds", worlds(arguments.worlds)),
            Run::Upstream => ("upstream", upstream(arguments.cases)),
            Run::Fuzz => ("fuzz", fuzz(arguments.seconds)),
            Run::Image => ("image", image()),
            Run::Mutants => ("mutants", mutants()),
            Run::Faults => ("faults", serve("faults::", "BINDERY_FAULT_SECONDS", arguments.fault_seconds)),
            Run::Deaths => ("deaths", serve("deaths::", "BINDERY_KILLS", arguments.kills)),
            Run::Versions => ("versions", versions()),
            Run::Helm3 => ("helm3", helm3()),
            Run::Alerts => ("alerts", alerts()),
            Run::CertManager => ("cert-manager", on_node(test::CERT_MANAGER, tools::offer_cert_manager)),
            Run::Network => ("network", on_node(test::NETWORK, tools::offer_kube_router)),
        };
        if let Err(error) = result {
            eprintln!("soak: {name}: {error:#}");
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

fn worlds(worlds: u32) -> Result<()> {
    let worlds = worlds.to_string();
    for (package, test) in [("bindery-tests", "settle"), ("bindery-guard-tests", "properties")] {
        let mut command = workspace::cargo();
        command.args(["test", "--release", "--package", package, "--test", test, "--", "--nocapture"]);
        process::run(command.env("BINDERY_WORLDS", &worlds).env("BINDERY_TRIALS", &worlds))?;
    }
    Ok(())
}

fn upstream(count: u32) -> Result<()> {
    let folder = workspace::target_folder()?.join("upstream-soak");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let engine = components::build()?;
    process::run(workspace::cargo().args(["build", "--workspace", "--bins"]))?;
    let mut cases = Vec::new();
    for (kind, corpora) in VARIED.iter().enumerate() {
        let worlds = folder.join(format!("worlds-{kind}.jsonl"));
        vary(corpora, count, &worlds)?;
        let recorded = folder.join(format!("cases-{kind}.jsonl"));
        record::record(&worlds, &recorded)?;
        cases.push(recorded);
    }
    let mut runner = Command::new(workspace::target_folder()?.join("debug/bindery-conformance"));
    process::run(runner.args(["--engine", "native"]).args(cases).env("BINDERY_ENGINE", engine))
}

/// Writes new worlds that are like those of the corpora.
fn vary(corpora: &[&str], count: u32, worlds: &Path) -> Result<()> {
    let mut vary = Command::new(workspace::target_folder()?.join("debug/bindery-worlds"));
    vary.args(["--count", &count.to_string()]);
    vary.args(corpora.iter().map(|corpus| workspace::root().join("tests/conformance/corpora").join(corpus)));
    let file = fs::File::create(worlds).with_context(|| format!("cannot make {}", worlds.display()))?;
    process::run(vary.stdout(file))
}

fn fuzz(seconds: u32) -> Result<()> {
    for (target, length) in FUZZED {
        let mut command = Command::new(tools::install(Tool::CargoFuzz)?);
        command.current_dir(workspace::root()).args(["run", target, "--"]);
        command.arg(format!("-max_total_time={seconds}")).arg(format!("-max_len={length}"));
        // Set by the cargo that runs us, to its own toolchain.
        command.env("RUSTUP_TOOLCHAIN", "nightly").env_remove("CARGO").env_remove("LD_LIBRARY_PATH");
        process::run(&mut command)?;
    }
    Ok(())
}

fn image() -> Result<()> {
    let root = workspace::target_folder()?.join("image-soak");
    let places = ["one", "two"].map(|place| root.join(place));
    // Both before the first is built: until then there may be another commit.
    for folder in &places {
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        let mut clone = Command::new("git");
        process::run(clone.args(["clone", "--quiet"]).arg(workspace::root()).arg(folder))?;
    }
    let mut digests = BTreeSet::new();
    for folder in places {
        let mut build = Command::new(workspace::cargo().get_program());
        build.args(["xtask", "image"]).current_dir(&folder).env("CARGO_TARGET_DIR", folder.join("target"));
        let printed = process::output(&mut build)?;
        digests.insert(printed.split_whitespace().last().context("an image has a digest")?.to_owned());
    }
    if digests.len() > 1 {
        bail!("two builds of one commit differ: {digests:?}");
    }
    Ok(())
}

fn mutants() -> Result<()> {
    let mut command = Command::new(tools::install(Tool::CargoMutants)?);
    command
        .current_dir(workspace::root())
        .args(["mutants", "--workspace", "--output"])
        .arg(workspace::target_folder()?);
    for glob in ["crates/engine/src/**/*.rs", "crates/core/src/guard.rs", "crates/core/src/guard/*.rs"] {
        command.args(["--file", glob]);
    }
    for package in WATCHING {
        command.args(["--test-package", package]);
    }
    process::run(&mut command)
}

fn versions() -> Result<()> {
    let engine = components::build()?;
    let failed: Vec<_> = tools::SUPPORTED_ENDS
        .into_iter()
        .filter_map(|end| on_version(end, &engine).err())
        .map(|error| format!("{error:#}"))
        .collect();
    if !failed.is_empty() {
        bail!("{}", failed.join("; "));
    }
    Ok(())
}

fn on_version(end: &'static str, engine: &Path) -> Result<()> {
    let mut command = workspace::cargo();
    command.args(["test", "--workspace", "--no-fail-fast"]);
    for test in ON_CONTROL_PLANES {
        command.args(["--test", test]);
    }
    let version = tools::offer_control_plane_of(&mut command, end)?;
    eprintln!("Kubernetes {version}");
    test::offer(&mut command, engine)?;
    // The oldest has no attributes classes unless asked for, so fewer recorded cases can be set on it.
    command.env("BINDERY_SAMPLES", "3");
    process::run(&mut command).with_context(|| format!("on Kubernetes {version}"))
}

/// Runs a test on a node that `cargo xtask test` leaves out, with the further programs that it needs.
fn on_node(test: &str, offer: fn(&mut Command) -> Result<()>) -> Result<()> {
    // Before this program is built anew, which takes its file away.
    let this = std::env::current_exe().context("this program cannot find itself")?;
    let mut command = workspace::cargo();
    command.args(["test", "--workspace", "--test", test, "--", "--nocapture"]);
    test::offer(&mut command, &components::build()?)?;
    test::offer_node(&mut command, &this)?;
    offer(&mut command)?;
    process::run(&mut command)
}

fn helm3() -> Result<()> {
    let engine = components::build()?;
    for (test, chosen) in OF_CHART {
        let mut command = workspace::cargo();
        command.args(["test", "--workspace", "--bin", "bindery", "--test", test, "--"]).args(chosen);
        command.args(OF_HELM_4.iter().flat_map(|test| ["--skip", test]));
        test::offer(&mut command, &engine)?;
        tools::offer_control_plane(&mut command)?;
        tools::offer_helm3(&mut command)?;
        process::run(&mut command)?;
    }
    Ok(())
}

fn alerts() -> Result<()> {
    let mut command = workspace::cargo();
    command.args(["test", "--workspace", "--test", test::ALERTS]);
    command.env("BINDERY_HELM", tools::install(Tool::Helm)?);
    command.env("BINDERY_PROMTOOL", tools::install(Tool::Promtool)?);
    process::run(&mut command)
}

/// Runs some tests of `bindery serve` one after the other, each as long or as often as `variable` says.
fn serve(tests: &str, variable: &str, value: u32) -> Result<()> {
    let mut command = workspace::cargo();
    // Of the whole workspace, as everywhere: by itself the package is built anew, with other features.
    command.args(["test", "--workspace", "--test", "serve"]);
    command.args(["--", "--nocapture", "--test-threads=1", tests]);
    command.env("BINDERY_ENGINE", components::build()?).env(variable, value.to_string());
    tools::offer_control_plane(&mut command)?;
    process::run(&mut command)
}
