//! `cargo xtask soak`: tests that take hours, and so do not run for every change.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use crate::defects::{self, Copy};
use crate::tools::{self, Tool, debian};
use crate::{components, process, record, test, workspace};

/// Packages whose tests must notice a mutant of the engine or the guard.
const WATCHING: [&str; 3] = ["bindery-engine", "bindery-guard-tests", "bindery-core"];

/// Fuzz targets, each with the maximal length of an input in bytes.
const FUZZED: [(&str, u32); 3] = [("guard", 512), ("review", 4_096), ("requests", 1_024)];

/// Corpora whose worlds are varied: cases of single calls, and cases of settled worlds.
const VARIED: [&[&str]; 2] =
    [&["upstream-cases.jsonl.gz", "single-step.jsonl.gz", "changed.jsonl.gz"], &["settle.jsonl.gz"]];

/// The tests that start control planes. Left out are those of a node, and the matrix, whose expectations are
/// those of one version.
const ON_CONTROL_PLANES: [&str; 5] = ["cluster", "encodings", "operate", "serve", "webhook"];

/// The chart's tests that use Helm: all those without a cluster, and some of those on a control plane.
const OF_CHART: [(&str, &[&str]); 2] =
    [("chart", &[]), ("cluster", &["release::", "stopping::", "upgrading::"])];

/// Those of them that hold for Helm 4 only: its dry run asks no cluster, and it overwrites no field that
/// another client has set.
const OF_HELM_4: [&str; 3] = [
    "sets::the_notes_",
    "release::when_the_source_of_certificates_",
    "stopping::a_deployment_that_another_client_scales_",
];

/// Run the long tests: more random worlds, fuzzing, mutants, faults and deaths on a real API server.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The runs; by default all, one after the other.
    #[arg(value_enum)]
    runs: Vec<Run>,
    /// Random worlds of each kind, and random decisions for the guard.
    #[arg(long, default_value_t = 2_000_000)]
    worlds: u32,
    /// Scripts of `pairs` in all. Every single disturbance is tried in any case, and every pair of the
    /// smallest scenarios.
    #[arg(long, default_value_t = 1_760_000)]
    scripts: u32,
    /// States that are visited of each large world of the model, about 100 bytes of memory each.
    #[arg(long, default_value_t = 12_000_000)]
    states: u32,
    /// New worlds of each kind of call for upstream's controller.
    #[arg(long, default_value_t = 100_000)]
    cases: u32,
    /// Seconds of fuzzing for each target.
    #[arg(long, default_value_t = 3_600)]
    seconds: u32,
    /// Seconds that each kind of fault lasts.
    #[arg(long, default_value_t = 300)]
    fault_seconds: u32,
    /// Leaders that are killed at random moments.
    #[arg(long, default_value_t = 200)]
    kills: u32,
    /// Swaps of engine and policy, in turn.
    #[arg(long, default_value_t = 1_000)]
    swaps: u32,
    /// Pairs that are bound before the run on a cluster begins.
    #[arg(long, default_value_t = 100_000)]
    pairs: u32,
    /// Minutes of the run on a cluster.
    #[arg(long, default_value_t = 60)]
    minutes: u32,
}

/// A long run.
#[derive(Clone, Copy, ValueEnum)]
enum Run {
    /// The property tests, over more worlds.
    Worlds,
    /// Scenarios with two replicas, in which one or two requests or deliveries are disturbed. Continues where
    /// it was interrupted, on the same commit.
    Pairs,
    /// All states of clusters with two volumes, two claims and two replicas.
    Model,
    /// Takes each rule of the guard out in turn, and has an engine that proposes anything look for the harm.
    Rules,
    /// New worlds, in which Bindery must do what upstream's controller does.
    Upstream,
    /// The guard against an oracle, and admission and the playground's API server against any request, guided
    /// by coverage; needs a nightly toolchain.
    Fuzz,
    /// Builds the image of the last commit in two places, and fails if the digests differ.
    Image,
    /// Changes engine and guard in one place at a time, and lists the changes that no test notices.
    Mutants,
    /// Faults between `bindery serve` and a real API server, under load.
    Faults,
    /// Kills or stops leaders of `bindery serve` at random moments, on a real API server under load.
    Deaths,
    /// Swaps engine and policy of `bindery serve` on a real API server under load, and compares its memory
    /// and the writes and events of binds.
    Swaps,
    /// Three replicas on a cluster with many bound pairs, while tenants come and go and everything around
    /// Bindery fails in turn. Writes a report with plots. Needs root or user namespaces.
    Cluster,
    /// The tests on a control plane, with the oldest and the newest Kubernetes that Bindery supports.
    Versions,
    /// The chart with Helm 3.
    Helm3,
    /// The chart's alerts and the dashboard, evaluated by Prometheus' own code.
    Alerts,
    /// k9s in a terminal, on the playground.
    K9s,
    /// Policies through the real registry, crane, wkg and both cosigns, without any other network. Needs root
    /// or user namespaces.
    Registries,
    /// The chart with certificates from a real cert-manager, on a whole node; needs root.
    CertManager,
    /// The chart's NetworkPolicy, enforced by the network of a whole node; needs root.
    Network,
}

/// Carries out `cargo xtask soak`. All runs are made, even if one fails; the error names all that failed.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let runs = if arguments.runs.is_empty() { Run::value_variants() } else { &arguments.runs };
    let mut failed = Vec::new();
    for run in runs {
        let result = match run {
            Run::Worlds => worlds(arguments.worlds),
            Run::Pairs => pairs(arguments.scripts),
            Run::Model => model(arguments.states),
            Run::Rules => rules(),
            Run::Upstream => upstream(arguments.cases),
            Run::Fuzz => fuzz(arguments.seconds),
            Run::Image => image(),
            Run::Mutants => mutants(),
            Run::Faults => serve("faults::", "BINDERY_FAULT_SECONDS", arguments.fault_seconds),
            Run::Deaths => serve("deaths::", "BINDERY_KILLS", arguments.kills),
            Run::Swaps => serve("swaps::swaps_", "BINDERY_SWAPS", arguments.swaps),
            Run::Cluster => cluster(arguments.pairs, arguments.minutes),
            Run::Versions => versions(),
            Run::Helm3 => helm3(),
            Run::Alerts => alerts(),
            Run::K9s => k9s(),
            Run::Registries => registries(),
            Run::CertManager => on_node(test::CERT_MANAGER, tools::offer_cert_manager),
            Run::Network => on_node(test::NETWORK, tools::offer_kube_router),
        };
        if let Err(error) = result {
            let name = run.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
            eprintln!("soak: {name}: {error:#}");
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// `cargo test` with these arguments.
///
/// Callers select the whole workspace, so that the dependencies have the features that all other tests use.
fn cargo_test(arguments: &[&str]) -> Command {
    let mut command = workspace::cargo();
    command.arg("test").args(arguments);
    command
}

fn worlds(worlds: u32) -> Result<()> {
    let worlds = worlds.to_string();
    for (package, test) in [("bindery-tests", "settle"), ("bindery-guard-tests", "properties")] {
        let mut command =
            cargo_test(&["--release", "--package", package, "--test", test, "--", "--nocapture"]);
        process::run(command.env("BINDERY_WORLDS", &worlds).env("BINDERY_TRIALS", &worlds))?;
    }
    Ok(())
}

fn pairs(scripts: u32) -> Result<()> {
    let folder = workspace::target_folder()?.join("perturb-soak");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut git = Command::new("git");
    let commit = process::output(git.args(["rev-parse", "HEAD"]).current_dir(workspace::root()))?;
    // The same commit and options continue where they were interrupted.
    let progress = folder.join(format!("{}-{scripts}.json", commit.trim()));
    let tests = ["--release", "--package", "bindery-perturb", "--", "--nocapture", "all_scripts_of_a_soak"];
    let mut command = cargo_test(&tests);
    process::run(command.env("BINDERY_PROGRESS", progress).env("BINDERY_SCRIPTS", scripts.to_string()))
}

fn model(states: u32) -> Result<()> {
    let mut command = cargo_test(&["--release", "--package", "bindery-model", "--", "--nocapture"]);
    process::run(command.env("BINDERY_MODEL", "whole").env("BINDERY_STATES", states.to_string()))
}

fn rules() -> Result<()> {
    let target = workspace::target_folder()?;
    let copy = Copy::make(workspace::root(), &target.join("rules"))?;
    copy.with(&workspace::root().join(defects::RULES), || {
        let test = "each_rule_that_is_taken_out_is_found_as_listed";
        let mut command = cargo_test(&["--release", "--package", "bindery-model", "--", "--nocapture", test]);
        command.current_dir(copy.root()).env("CARGO_TARGET_DIR", target.join("rules-build"));
        process::run(command.env("BINDERY_MODEL", "rules"))
    })
}

fn upstream(count: u32) -> Result<()> {
    let folder = workspace::target_folder()?.join("upstream-soak");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
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

/// Writes new worlds that resemble those of the corpora.
fn vary(corpora: &[&str], count: u32, worlds: &Path) -> Result<()> {
    let mut vary = Command::new(workspace::target_folder()?.join("debug/bindery-worlds"));
    vary.args(["--count", &count.to_string()]);
    vary.args(corpora.iter().map(|corpus| workspace::root().join("tests/conformance/corpora").join(corpus)));
    let file = fs::File::create(worlds).with_context(|| format!("cannot write {}", worlds.display()))?;
    process::run(vary.stdout(file))
}

fn fuzz(seconds: u32) -> Result<()> {
    for (target, length) in FUZZED {
        let mut command = Command::new(tools::install(Tool::CargoFuzz)?);
        command.current_dir(workspace::root()).args(["run", target, "--"]);
        command.arg(format!("-max_total_time={seconds}")).arg(format!("-max_len={length}"));
        // The cargo that runs us has set the others, to its own toolchain.
        command.env("RUSTUP_TOOLCHAIN", "nightly").env_remove("CARGO").env_remove("LD_LIBRARY_PATH");
        process::run(&mut command)?;
    }
    Ok(())
}

fn image() -> Result<()> {
    let root = workspace::target_folder()?.join("image-soak");
    let places = ["one", "two"].map(|place| root.join(place));
    // Both clones are made first: a build takes long enough for a new commit.
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
        digests.insert(printed.split_whitespace().last().context("no digest was printed")?.to_owned());
    }
    if digests.len() > 1 {
        bail!("two builds of one commit differ: {digests:?}");
    }
    Ok(())
}

fn mutants() -> Result<()> {
    let mut command = Command::new(tools::install(Tool::CargoMutants)?);
    command.current_dir(workspace::root()).args(["mutants", "--workspace", "--output"]);
    command.arg(workspace::target_folder()?);
    for glob in ["crates/engine/src/**/*.rs", "crates/core/src/guard.rs", "crates/core/src/guard/*.rs"] {
        command.args(["--file", glob]);
    }
    for package in WATCHING {
        command.args(["--test-package", package]);
    }
    process::run(&mut command)
}

fn cluster(pairs: u32, minutes: u32) -> Result<()> {
    let tests = cargo_test(&["--workspace", "--test", test::SOAK, "--", "--nocapture"]);
    // The test mounts a small disk, which ends with this namespace.
    let mut command = Command::new("unshare");
    command.current_dir(workspace::root()).arg("--mount");
    command.args((!process::is_root()).then_some("--map-root-user"));
    command.arg("--").arg(tests.get_program()).args(tests.get_args());
    command.env("BINDERY_ENGINE", components::build()?);
    command.env("BINDERY_SOAK_PAIRS", pairs.to_string()).env("BINDERY_SOAK_MINUTES", minutes.to_string());
    tools::offer_control_plane(&mut command)?;
    process::run(&mut command)
}

fn versions() -> Result<()> {
    let engine = components::build()?;
    let failures: Vec<_> = tools::SUPPORTED_ENDS
        .into_iter()
        .filter_map(|end| on_version(end, &engine).err())
        .map(|error| format!("{error:#}"))
        .collect();
    if !failures.is_empty() {
        bail!("{}", failures.join("; "));
    }
    Ok(())
}

fn on_version(end: &'static str, engine: &Path) -> Result<()> {
    let mut command = cargo_test(&["--workspace", "--no-fail-fast"]);
    command.args(ON_CONTROL_PLANES.iter().flat_map(|test| ["--test", test]));
    let version = tools::offer_control_plane_of(&mut command, end)?;
    eprintln!("Kubernetes {version}");
    test::offer(&mut command, engine)?;
    // By default the oldest has no VolumeAttributesClasses, so fewer recorded cases can be set up on it.
    command.env("BINDERY_SAMPLES", "3");
    process::run(&mut command).with_context(|| format!("on Kubernetes {version}"))
}

/// Runs a test on a node that `cargo xtask test` leaves out, with the further programs that it needs.
fn on_node(test: &str, offer: fn(&mut Command) -> Result<()>) -> Result<()> {
    // The build below may replace this program's file.
    let this = std::env::current_exe().context("this program cannot find itself")?;
    let mut command = cargo_test(&["--workspace", "--test", test, "--", "--nocapture"]);
    test::offer(&mut command, &components::build()?)?;
    test::offer_node(&mut command, &this)?;
    offer(&mut command)?;
    process::run(&mut command)
}

fn helm3() -> Result<()> {
    let engine = components::build()?;
    for (test, chosen) in OF_CHART {
        let mut command = cargo_test(&["--workspace", "--bin", "bindery", "--test", test, "--"]);
        command.args(chosen).args(OF_HELM_4.iter().flat_map(|test| ["--skip", test]));
        test::offer(&mut command, &engine)?;
        tools::offer_control_plane(&mut command)?;
        process::run(command.env("BINDERY_HELM", tools::install(Tool::Helm3)?))?;
    }
    Ok(())
}

fn alerts() -> Result<()> {
    let mut command = cargo_test(&["--workspace", "--test", test::ALERTS]);
    command.env("BINDERY_HELM", tools::install(Tool::Helm)?);
    command.env("BINDERY_PROMTOOL", tools::install(Tool::Promtool)?);
    process::run(&mut command)
}

fn k9s() -> Result<()> {
    let mut command = cargo_test(&["--workspace", "--test", test::K9S]);
    command.env("BINDERY_ENGINE", components::build()?).env("BINDERY_K9S", tools::install(Tool::K9s)?);
    process::run(&mut command)
}

/// In a network namespace in which only these addresses can be reached, all of them of this machine. Bindery
/// asks loopback without TLS, so the registries have addresses that could be anyone's.
fn registries() -> Result<()> {
    const PREPARE: &str = "ip link set lo up && ip address add 192.0.2.1/32 dev lo && \
                           ip address add 192.0.2.2/32 dev lo && exec \"$@\"";
    if !process::exists("ip", "-Version")? {
        debian::install(&["iproute2"], "the registries have addresses of their own")?;
    }
    let built = ["--workspace", "--bin", "bindery", "--test", test::REGISTRIES];
    // Cargo may want the network.
    process::run(cargo_test(&built).arg("--no-run"))?;
    let tests = cargo_test(&built);
    let mut command = Command::new("unshare");
    command.current_dir(workspace::root()).arg("--net");
    command.args((!process::is_root()).then_some("--map-root-user"));
    command.args(["--", "sh", "-c", PREPARE, "sh"]).arg(tests.get_program()).args(tests.get_args());
    command.args(["--", "--nocapture", "--test-threads=1"]);
    command.env("BINDERY_POLICIES", components::policies()?);
    tools::offer_registries(&mut command)?;
    process::run(&mut command)
}

/// Runs some tests of `bindery serve` one after the other. The variable sets their duration or number.
fn serve(tests: &str, variable: &str, value: u32) -> Result<()> {
    let arguments = ["--workspace", "--test", "serve", "--", "--nocapture", "--test-threads=1", tests];
    let mut command = cargo_test(&arguments);
    command.env("BINDERY_ENGINE", components::build()?).env(variable, value.to_string());
    command.env("BINDERY_POLICIES", components::policies()?);
    command.env("BINDERY_EXAMPLE_ENGINE", components::example()?);
    tools::offer_control_plane(&mut command)?;
    process::run(&mut command)
}
