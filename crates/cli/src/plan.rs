//! `bindery plan`: what each claim of some manifests would get, decided without any cluster.
//!
//! The objects go into a simulated API server inside this process, the same binder that serves clusters
//! decides on them until nothing changes any more, and what it decided is told. Nothing is written anywhere
//! else. What is in a cluster already (an object with a UID) is taken as it is; what is not is created as
//! `kubectl apply` would, so that defaults, admission and validation are those of the API server.

mod load;
mod outcome;
mod report;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use bindery_host::Limits;
use clap::ValueEnum;

use crate::engine::EngineArguments;
use crate::{manifest, output, yaml};

/// Tell what each claim would get, and why not more, without any cluster.
///
/// Reads manifests, or the output of `kubectl get pv,pvc,sc -A -o yaml`. Exits with status 0 when there is a
/// plan, also where claims would stay pending, and with 2 when the manifests or the engine cannot be used,
/// also where the engine comes to no decision on one of the objects: then there is no plan, and one sentence
/// says why.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A file, a folder, or `-` for standard input: YAML with any number of documents, JSON, or a List. May
    /// be repeated.
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true, num_args = 1..)]
    files: Vec<PathBuf>,
    /// Read the folders in folders, too.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// How to print the plan.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// How many volumes to list in the table for a claim that gets none; 0 for all. JSON and YAML have all.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    nearest: usize,
    #[command(flatten)]
    engine: EngineArguments,
}

/// How to print the plan.
#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// For people.
    Table,
    /// For programs.
    Json,
    /// For both.
    Yaml,
}

/// Carries out `bindery plan`.
///
/// # Errors
///
/// The manifests or the engine cannot be used, or the engine fails; the error names file, object, field and
/// remedy.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let engine = arguments.engine.load(Limits::unhurried())?;
    let manifests = manifest::read(&arguments.files, arguments.recursive)?;
    let objects = load::sort(manifests)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let plan = runtime.block_on(async {
        let world = world::World::new(engine, objects).await?;
        world.settle().await.with_context(|| arguments.engine.name())?;
        anyhow::Ok(outcome::plan(&world))
    })?;
    output::print(&match arguments.output {
        Format::Table => report::table(&plan, arguments.nearest),
        Format::Json => format!("{:#}\n", serde_json::to_value(&plan).context("the plan is no JSON")?),
        Format::Yaml => yaml::write(&plan).context("the plan is no YAML")?,
    })?;
    Ok(ExitCode::SUCCESS)
}
