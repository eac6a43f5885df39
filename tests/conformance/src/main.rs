//! The runner of recorded cases; `cargo xtask conformance` builds what it needs and calls it.

#![expect(clippy::print_stdout, reason = "a command prints its result")]

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, ensure};
use bindery_conformance::case::{self, Case, Line};
use bindery_conformance::{CaseResult, Cluster, Engines, Refusal, run, run_on};
use bindery_core::Engine;
use bindery_engine::DefaultEngine;
use bindery_host::{Host, Limits, Options};
use bindery_kit::{AllowsAll, policy};
use bindery_policy::Chain;
use clap::{Parser, ValueEnum};

/// Runs recorded cases of upstream's controller through the real binder, on the simulator or on a real API
/// server.
///
/// Exit status: 0 if every case passed, 1 if one failed, 2 with a sentence if no case could be judged.
#[derive(Parser)]
struct Arguments {
    /// The engine that decides: `native`, `component`, or the file of an engine of one's own. Of the first
    /// two the other one decides again from the same answers and must agree.
    #[arg(long, default_value = "component", value_name = "native|component|FILE")]
    engine: Which,
    /// The default engine as a component.
    #[arg(long, env = "BINDERY_ENGINE", value_name = "FILE")]
    component: PathBuf,
    /// The API server: the simulator, or a real etcd and kube-apiserver (`BINDERY_ETCD`,
    /// `BINDERY_KUBE_APISERVER`). Cases that a real one cannot hold are counted by reason.
    #[arg(long, value_enum, default_value = "simulator")]
    against: Against,
    /// Run only N cases of each file, evenly spread.
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// How many real API servers share the cases. Most of the time is spent waiting for retries.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    clusters: u8,
    /// Load a policy that judges every volume and allows it. No case may end in another way.
    #[arg(long)]
    allow_all: bool,
    /// Print the whole trace of each failing case.
    #[arg(short, long)]
    verbose: bool,
    /// Run only cases whose id contains this text.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Corpora: JSON lines, plain or gzip.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Clone)]
enum Which {
    Native,
    Component,
    File(PathBuf),
}

impl From<&str> for Which {
    fn from(text: &str) -> Self {
        match text {
            "native" => Self::Native,
            "component" => Self::Component,
            file => Self::File(file.into()),
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Against {
    Simulator,
    Cluster,
}

fn main() -> ExitCode {
    match execute(&Arguments::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs the corpora and returns how many cases failed.
///
/// # Errors
///
/// A corpus, the engine or the API server cannot be used, or no case was judged.
fn execute(arguments: &Arguments) -> Result<usize> {
    let engines = engines(arguments)?;
    let mut lines = Vec::new();
    for file in &arguments.files {
        lines.extend(picked(case::read(file)?, arguments));
    }
    let tally = match arguments.against {
        Against::Simulator => {
            let mut tally = Tally::default();
            for line in &lines {
                let result =
                    line.case.as_ref().map_or_else(CaseResult::unreadable, |case| run(case, &engines));
                tally.count(&result, line, arguments);
            }
            tally
        }
        Against::Cluster => on_clusters(&lines, &engines, arguments)?,
    };
    tally.print(arguments.against);
    // A run that judges no case shows nothing.
    ensure!(
        tally.passed + tally.failed > 0,
        "no case was judged: {}",
        match (&arguments.only, lines.is_empty()) {
            (Some(text), true) => format!("no id contains {text:?}; give another --only, or other files"),
            (None, true) => "the files hold none; give a corpus of JSON lines".to_owned(),
            (_, false) => "a real API server can hold none; raise --sample, or leave it out".to_owned(),
        }
    );
    Ok(tally.failed)
}

/// The lines of a file that are run.
fn picked(lines: Vec<Line>, arguments: &Arguments) -> Vec<Line> {
    let wanted = |line: &Line| match (&arguments.only, &line.case) {
        (Some(text), Ok(case)) => case.id.contains(text.as_str()),
        _ => true,
    };
    let lines: Vec<_> = lines.into_iter().filter(wanted).collect();
    let every = arguments.sample.map_or(1, |sample| lines.len().div_ceil(sample.max(1)).max(1));
    lines.into_iter().step_by(every).collect()
}

/// Runs cases on real API servers. Each server has a thread and a runtime of its own, because a case moves
/// the clock of its runtime, and requests of other cases would time out.
fn on_clusters(lines: &[Line], engines: &Engines, arguments: &Arguments) -> Result<Tally> {
    let (tally, lines) = (Mutex::new(Tally::default()), Mutex::new(lines.iter()));
    let next = || lines.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let cluster = Cluster::start().await?;
            while let Some(line) = next() {
                count_on_cluster(&cluster, line, engines, &tally, arguments).await?;
            }
            Ok(())
        })
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..arguments.clusters).map(|_| scope.spawn(work)).collect();
        let joined =
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        joined.collect::<Result<Vec<_>>>()
    })?;
    Ok(tally.into_inner().unwrap_or_else(PoisonError::into_inner))
}

async fn count_on_cluster(
    cluster: &Cluster,
    line: &Line,
    engines: &Engines,
    tally: &Mutex<Tally>,
    arguments: &Arguments,
) -> Result<()> {
    let result = match &line.case {
        Ok(case) => run_on(cluster, case, engines).await.with_context(|| line.place.clone())?,
        Err(error) => Ok(CaseResult::unreadable(error)),
    };
    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    match result {
        Ok(result) => tally.count(&result, line, arguments),
        Err(why) => *tally.untranslatable.entry(why).or_default() += 1,
    }
    Ok(())
}

/// Counts of cases.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    /// Cases that passed, by their call, and those with requests that fail.
    passed_by: BTreeMap<String, usize>,
    /// Cases that a real API server cannot hold, by reason.
    untranslatable: BTreeMap<Refusal, usize>,
}

impl Tally {
    fn count(&mut self, result: &CaseResult, line: &Line, arguments: &Arguments) {
        if result.passed() {
            self.passed += 1;
            for kind in line.case.iter().flat_map(kinds) {
                *self.passed_by.entry(kind).or_default() += 1;
            }
        } else {
            self.failed += 1;
            print!("{}", result.report(&line.place, arguments.verbose));
        }
    }

    fn print(&self, against: Against) {
        let Self { passed, failed, passed_by, untranslatable } = self;
        for (why, cases) in untranslatable {
            println!("{cases} not translated: {why}");
        }
        // Only some cases can run on a real API server.
        if matches!(against, Against::Cluster) {
            for (kind, cases) in passed_by {
                println!("{cases} passed: {kind}");
            }
        }
        println!("{passed} passed, {failed} failed");
    }
}

/// What a case counts as: its call, and that requests fail.
fn kinds(case: &Case) -> impl Iterator<Item = String> {
    let call = case.call.split(' ').next().unwrap_or_default();
    let errors = (!case.api_errors.is_empty()).then_some("with API errors");
    std::iter::once(call).chain(errors).map(ToOwned::to_owned)
}

fn engines(arguments: &Arguments) -> Result<Engines> {
    let host = Host::new(&Options::default())?;
    let load = |path: &PathBuf| -> Result<Arc<dyn Engine>> {
        let engine = host.load_file(path, Limits::default());
        Ok(Arc::new(engine.with_context(|| format!("cannot load the engine {}", path.display()))?))
    };
    let native: Arc<dyn Engine> = Arc::new(DefaultEngine);
    let policies = arguments.allow_all.then(|| policy("allow-all", AllowsAll));
    let policies = Arc::new(Chain::new(policies.into_iter().collect()));
    let (leader, follower) = match &arguments.engine {
        Which::Native => (native, load(&arguments.component)?),
        Which::Component => (load(&arguments.component)?, native),
        // It has to decide the same again, and is held against upstream alone.
        Which::File(path) => (load(path)?, load(path)?),
    };
    Ok(Engines { leader, follower, policies })
}
