//! Runs one case and compares its end with the recording.

use std::fmt::Write as _;
use std::sync::Arc;

use bindery_core::Engine;
use bindery_policy::Chain;

use crate::case::Case;
use crate::cluster::{Cluster, Refusal, Setup};
use crate::compare::{self, Difference};
use crate::deviations::{DEVIATIONS, Deviation, Effect};
use crate::engines::ComparedEngines;
use crate::execution::{End, Execution};
use crate::server::Server;

/// The answer of a real API server if upstream, and therefore Bindery, adds its finalizer to a volume that is
/// being deleted.
const FINALIZER_TOO_LATE: &str = "no new finalizers can be added if the object is being deleted";

/// The engine that decides and the one that replays, and their policies.
pub struct Engines {
    /// Decides.
    pub leader: Arc<dyn Engine>,
    /// Decides again from the same answers, and must agree.
    pub follower: Arc<dyn Engine>,
    /// Asked about each volume that a claim could newly get.
    pub policies: Arc<Chain>,
}

/// The result of a case: its problems, none if it passed.
pub struct CaseResult {
    id: String,
    problems: Vec<String>,
    trace: Vec<String>,
}

impl CaseResult {
    /// A line of a corpus that is not a case.
    pub fn unreadable(error: &anyhow::Error) -> Self {
        Self { id: "not a case".to_owned(), problems: vec![format!("{error:#}")], trace: Vec::new() }
    }

    /// Whether nothing is wrong.
    pub fn passed(&self) -> bool {
        self.problems.is_empty()
    }

    /// A line that names the case, and one for each problem.
    pub fn report(&self, place: &str, verbose: bool) -> String {
        let mut report = format!("FAILED {} ({place})\n", self.id);
        let trace = if verbose { self.trace.as_slice() } else { &[] };
        for line in self.problems.iter().chain(trace) {
            writeln!(report, "  {line}").expect("writing to a string cannot fail");
        }
        report
    }
}

/// Runs a case on the simulator, in a runtime of its own, on a paused clock.
pub fn run(case: &Case, engines: &Engines) -> CaseResult {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let result = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        runtime.block_on(async { run_case(case, engines, Server::simulator_of(case)?).await })
    });
    match result {
        Ok(run) => compared(case, &run),
        Err(error) => {
            CaseResult { id: case.id.clone(), problems: vec![format!("{error:#}")], trace: Vec::new() }
        }
    }
}

/// Runs a case on a real API server, or returns why the server cannot hold its world. The caller's runtime
/// must have one thread, because this moves its clock.
///
/// # Errors
///
/// The API server does not answer.
pub async fn run_on(
    cluster: &Cluster,
    case: &Case,
    engines: &Engines,
) -> anyhow::Result<Result<CaseResult, Refusal>> {
    cluster.clear().await?;
    let setup = match Setup::create(cluster, case).await? {
        Ok(setup) => setup,
        Err(why) => return Ok(Err(why)),
    };
    let mut run = run_case(case, engines, Server::Cluster(&setup)).await?;
    let phased = run.end.log.phased.iter().map(|name| setup.recorded(name)).collect();
    let case = Setup::possible(case, &phased);
    run.end.objects = setup.translated(&case.end, run.end.objects);
    let result = compared(&case, &run);
    if !result.passed() && run.end.log.invalid.iter().any(|message| message.contains(FINALIZER_TOO_LATE)) {
        // The rest of the recording depends on a write that a real API server refuses.
        return Ok(Err(format!("a write that the recorded API server took: {FINALIZER_TOO_LATE}")));
    }
    Ok(Ok(result))
}

/// A case after its call.
struct Run {
    end: End,
    failure: Option<String>,
    disagreements: Vec<String>,
}

async fn run_case(case: &Case, engines: &Engines, server: Server<'_>) -> anyhow::Result<Run> {
    let engine = Arc::new(ComparedEngines::new(Arc::clone(&engines.leader), Arc::clone(&engines.follower)));
    let mut execution = Execution::new(case, engine.clone(), &engines.policies, server).await?;
    let failure = execution.call().await?;
    Ok(Run { end: execution.end().await?, failure, disagreements: engine.take_disagreements() })
}

fn compared(case: &Case, run: &Run) -> CaseResult {
    CaseResult { id: case.id.clone(), problems: problems(case, run), trace: trace(run) }
}

fn problems(case: &Case, run: &Run) -> Vec<String> {
    let applying: Vec<&Deviation> = DEVIATIONS.iter().filter(|deviation| (deviation.applies)(case)).collect();
    let mut problems = beyond(case, run, &applying);
    if !applying.is_empty() && differences(case, run).is_empty() {
        let why: Vec<_> =
            applying.iter().map(|Deviation { name, reason, .. }| format!("{name}: {reason}")).collect();
        problems.push(format!("agrees with upstream, although it should differ ({})", why.join("; ")));
    }
    problems.extend(run.disagreements.iter().map(|what| format!("the engines disagree: {what}")));
    problems
}

/// Differences from upstream that the deviations that apply do not explain.
fn beyond(case: &Case, run: &Run, applying: &[&Deviation]) -> Vec<String> {
    let mut expected = case.clone();
    let mut is_exact = true;
    let mut problems = Vec::new();
    for deviation in applying {
        match deviation.effect {
            Effect::Exact(change) => change(&mut expected),
            Effect::Holds(holds) => {
                is_exact = false;
                if !holds(case, &run.end) {
                    problems.push(format!("not as the deviation {} says", deviation.name));
                }
            }
        }
    }
    if is_exact || !problems.is_empty() {
        problems.extend(differences(&expected, run).iter().map(describe));
    }
    problems
}

fn differences(case: &Case, run: &Run) -> Vec<Difference> {
    let mut differences = compare::objects(&case.end, &run.end.objects);
    if let Some(events) = &case.events {
        differences.extend(compare::plain("events", events, &run.end.log.events));
    }
    if let Some(fails) = case.fails {
        differences.extend(compare::plain("fails", &fails, &run.failure.is_some()));
    }
    differences
}

fn describe(difference: &Difference) -> String {
    format!("{}: upstream {}, here {}", difference.path, difference.expected, difference.found)
}

fn trace(run: &Run) -> Vec<String> {
    let failure = run.failure.iter().map(|failure| format!("the call failed: {failure}"));
    failure.chain(run.end.log.trace.iter().cloned()).collect()
}
