//! `bindery plan`: what each claim of some manifests would get, decided without a cluster.
//!
//! The objects go into a simulated API server in this process, and the binder of `serve` decides until
//! nothing changes any more. Nothing else is written. An object with a UID comes from a cluster and is taken
//! as it is; any other is created as `kubectl apply` does, so that defaults, admission and validation are
//! those of the API server.

pub(crate) mod candidates;
pub(crate) mod decider;
mod expand;
pub(crate) mod load;
pub(crate) mod outcome;
pub(crate) mod planner;
pub(crate) mod report;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use self::decider::EngineAndPolicies;
use self::outcome::Plan;
use crate::engine::EngineArguments;
use crate::manifest;
use crate::output::Format;
use crate::policies::PolicyArguments;

/// Show what each claim would get and why, without a cluster.
///
/// Reads manifests, or the output of `kubectl get pv,pvc,sc,ns -A -o yaml`. Exits with status 0 when there
/// is a plan, even if claims would stay pending. Exits with 2 when the manifests or the engine cannot be
/// used, or the engine reaches no decision about an object: then there is no plan, and one sentence says why.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A file, a folder, or `-` for standard input: YAML with any number of documents, JSON, or a List.
    /// Repeat it for several.
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true, num_args = 1..)]
    files: Vec<PathBuf>,
    /// Read subfolders too.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Format of the plan.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// Most volumes that are listed for a claim that gets none, the nearest first; `all` for all.
    #[arg(long, value_name = "COUNT", default_value = "16", value_parser = nearest)]
    nearest: usize,
    #[command(flatten)]
    engine: EngineArguments,
    #[command(flatten)]
    policies: PolicyArguments,
}

/// Runs `bindery plan`. Errors name file, object, field and remedy.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let decider = EngineAndPolicies::load(&arguments.engine, &arguments.policies)?;
    let manifests = manifest::read(&arguments.files, arguments.recursive)?;
    let objects = load::sort(manifests)?;
    load::note_namespaces(&objects, &decider.policies);
    let without = if decider.policies.is_empty() {
        BTreeMap::new()
    } else {
        outcome::gets(&crate::block_on(decider.without_policies().settle(objects.clone()))?)
    };
    let planner = crate::block_on(decider.settle(objects))?;
    let plan = Plan::new(&planner, without, arguments.nearest);
    arguments.output.print(&plan, |out| report::write(&plan, out))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads `--nearest`.
pub(crate) fn nearest(text: &str) -> Result<usize, String> {
    match text.parse() {
        _ if text == "all" => Ok(usize::MAX),
        Ok(count) if count > 0 => Ok(count),
        _ => Err("give a number from 1, or all".to_owned()),
    }
}
