//! `cargo xtask bench`: benchmarks, built in release mode.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Result;
use clap::ValueEnum;

use crate::{components, process, tools, workspace};

/// Measure Bindery.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[arg(value_enum)]
    bench: Bench,
    /// Passed on to the benchmark; `--help` after `--` lists its options.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// A benchmark.
#[derive(Clone, Copy, ValueEnum)]
enum Bench {
    /// One decision: by the component, natively, and as a scan like upstream's.
    Decide,
    /// Decisions that a journal takes in a second, their bytes, and the time of a replay: `[--decisions N]`.
    Journal,
    /// A plan of 10,000 claims that fit none of 10,000 volumes, in each format: `[--volumes N] [--nearest
    /// N|all]`. Fails if it takes more than 200 MB.
    Plan,
    /// Policies in each language, the same rule as a policy in JSON, and decisions with policies. Those whose
    /// language is not installed are left out.
    Policy,
    /// Reviews per second of the webhook, and the time that it adds to creating a claim, beside CEL:
    /// `[--volumes N] [--seconds N] [--connections N] [--creations N] [--rounds N]`.
    Admission,
    /// Binds per second on a real API server: `[--claims N,...] [--shapes plain,pre-bound,waiting] [--classes
    /// N,...] [--against upstream] [--beside journal,shadow,swaps]`.
    Bind,
    /// Binds per second of claims without a policy, alone and beside 20 claims a second with a policy in
    /// Python: `[--claims N] [--rate N] [--volumes N] [--rounds N]`.
    Beside,
    /// What one write costs the API server, by kind of request: `[--writes N] [--rounds N]`.
    Writes,
    /// Memory of a binder with 100,000 bound pairs, time to its first bind, CPU without work: `[--pairs N]
    /// [--against upstream]`.
    Memory,
    /// Claims per second of steered claims through upstream's binder, beside plain ones through the same, and
    /// the time from a pod to its claim's Bound: `[--claims N] [--volumes N,...] [--singles N] [--rounds N]
    /// [--limited]`.
    Steer,
    /// Time to the next bind after a leader is killed, and after an outage of the API server: `[--pairs N]
    /// [--rounds N]`.
    Takeover,
}

/// Carries out `cargo xtask bench`.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let name = match arguments.bench {
        Bench::Decide => {
            let mut command = released("bindery-bench")?;
            command.arg("decide").arg("--engine").arg(components::build()?);
            return process::run(command.args(&arguments.arguments));
        }
        Bench::Journal => {
            let mut command = released("bindery-bench")?;
            command.arg("journal").arg("--engine").arg(components::build()?);
            command.arg("--bindery").arg(released("bindery")?.get_program());
            return process::run(command.args(&arguments.arguments));
        }
        Bench::Plan => {
            let mut command = released("bindery-bench")?;
            command.arg("plan").arg("--bindery").arg(released("bindery")?.get_program());
            return process::run(command.args(&arguments.arguments));
        }
        Bench::Policy => return policy(&arguments.arguments),
        Bench::Admission => "admission",
        Bench::Bind => "bind",
        Bench::Beside => "beside",
        Bench::Writes => "writes",
        Bench::Memory => "memory",
        Bench::Steer => "steer",
        Bench::Takeover => "takeover",
    };
    let mut command = released("bindery-bench-cluster")?;
    command.arg(name);
    // Of all that run on a cluster, only the writes need no Bindery.
    if name != "writes" {
        let bindery = released("bindery")?.get_program().to_owned();
        command.env("BINDERY_BINDERY", &bindery).env("BINDERY_ENGINE", components::build()?);
        if arguments.arguments.iter().any(|argument| argument == "--beside") {
            command.env("BINDERY_POLICIES", components::policies()?);
            command.env("BINDERY_EXAMPLE_ENGINE", components::example()?);
            command.env("BINDERY_JAVASCRIPT_POLICY", authored(&bindery, "javascript")?);
        }
        if name == "beside" {
            command.arg("--policy").arg(authored(&bindery, "python")?);
        }
    }
    tools::offer_control_plane(&mut command)?;
    process::run(command.args(&arguments.arguments))
}

/// Measures policies.
fn policy(arguments: &[OsString]) -> Result<()> {
    let mut command = released("bindery-bench")?;
    command.arg("policy").arg("--engine").arg(components::build()?);
    command.arg("--policies").arg(components::policies()?).arg("--twice").arg(components::bench_policy()?);
    let bindery = released("bindery")?.get_program().to_owned();
    for (language, option) in [("javascript", "--javascript"), ("python", "--python")] {
        match authored(&bindery, language) {
            Ok(component) => _ = command.arg(option).arg(component),
            Err(error) => eprintln!("the policy in {language} is left out: {error:#}"),
        }
    }
    process::run(command.args(arguments))
}

/// The component of a new policy in JavaScript or Python, made and built by `bindery policy`.
fn authored(bindery: &OsStr, language: &str) -> Result<PathBuf> {
    let tools::Componentize { js, py } = tools::componentize()?;
    let parent = workspace::target_folder()?.join("components/authored");
    let folder = parent.join(language);
    if folder.is_dir() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&parent)?;
    let policy = || {
        let mut command = Command::new(bindery);
        command.arg("policy").current_dir(&parent);
        command
    };
    process::run(policy().args(["new", "--language", language, language]).stdout(Stdio::null()))?;
    // As they are after the first build.
    symlink(js.join("node_modules"), folder.join("node_modules"))?;
    symlink(&py, folder.join(".venv"))?;
    process::run(policy().args(["build", language]).env("PYTHONPATH", &py).stdout(Stdio::null()))?;
    Ok(folder.join(language).with_extension("wasm"))
}

/// The program of a package, built as for users.
fn released(package: &str) -> Result<Command> {
    process::run(workspace::cargo().args(["build", "--quiet", "--release", "--package", package]))?;
    Ok(Command::new(workspace::target_folder()?.join("release").join(package)))
}
