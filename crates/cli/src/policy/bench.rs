//! `bindery policy bench`.

mod compare;

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use bindery_host::{ComponentPolicy, FUEL_SCHEDULE, Limits, PolicyHost, Stats};
use serde::{Deserialize, Serialize};
use serde_json::Map;

use super::judge::{ROWS_MAX, Tested};
use super::questions::{self, PolicyQuestion};
use super::{cases, module};
use crate::output::{self, Format};

/// Numbers of volumes that are judged.
const SIZES: [usize; 3] = [10, 100, 1_000];

/// Measure a policy.
///
/// The policy is asked about 10, 100 and 1,000 volumes: those of its cases, over and over, each time a byte
/// larger. Without cases, claims and volumes are made up of the facts that it declares. Fuel is the same at
/// every run, on every machine; times are not, and differ by half on a busy machine.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    module: module::ModuleArgument,
    /// Files and folders of cases. By default the folder `cases` beside the module, if it exists.
    #[arg(value_name = "CASES")]
    cases: Vec<PathBuf>,
    /// How often each question is asked, each time in a fresh instance.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// An earlier result (`-o json`). Exit with status 1 if fuel a row has grown by more than `--growth`.
    /// Times are not compared.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// By how many per cent fuel a row may grow.
    #[arg(long, value_name = "PERCENT", default_value_t = 5, requires = "compare")]
    growth: u32,
    /// Format of the result.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    // What cannot be compared is told before the time is spent.
    let earlier = arguments.compare.as_deref().map(compare::read).transpose()?;
    let path = arguments.module.path()?;
    let policy = arguments.module.load()?;
    let beside = cases::folder_beside(&path);
    let files = match arguments.cases.as_slice() {
        [] if !beside.is_dir() => Vec::new(),
        [] => cases::read(&[beside])?,
        named => cases::read(named)?,
    };
    let questions = questions::of_cases(Tested::from(&policy), &files)?;
    let rows = if questions.is_empty() { Rows::Generated } else { Rows::Cases };
    let questions = match rows {
        Rows::Cases => questions,
        Rows::Generated => vec![generated(Tested::from(&policy))?],
    };
    let calls = measure(Tested::from(&policy), &questions, arguments.rounds)?;
    let bytes = fs::metadata(&path).with_context(|| format!("{} cannot be read", path.display()))?.len();
    let result = Bench::new(&policy, rows, calls, bytes);
    arguments.output.print(&result, |out| result.write(out))?;
    let Some(earlier) = earlier else { return Ok(ExitCode::SUCCESS) };
    let grown = compare::grown(&earlier, &result, arguments.growth)?;
    for sentence in &grown {
        eprintln!("{sentence}");
    }
    Ok(if grown.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The result.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bench {
    policy: String,
    version: String,
    digest: String,
    /// Units of fuel are comparable within one schedule.
    fuel_schedule: String,
    /// Where the volumes came from.
    rows: Rows,
    calls: Vec<Measured>,
    limits: Vec<Share>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Rows {
    Cases,
    Generated,
}

/// A function with a number of volumes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Measured {
    function: Function,
    /// How many volumes it was asked about; 1 for `narrow`, which is asked about a claim.
    rows: usize,
    /// Median in microseconds, over all claims.
    p50_us: f64,
    /// 99th percentile in microseconds.
    p99_us: f64,
    /// Units of fuel, for the claim that costs most.
    fuel: u64,
    /// The same by row, to a tenth.
    fuel_per_row: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Function {
    Narrow,
    Judge,
}

impl Function {
    fn name(self) -> &'static str {
        match self {
            Self::Narrow => "narrow",
            Self::Judge => "judge",
        }
    }
}

/// How much of a limit the call that used most of it has used.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Share {
    limit: String,
    used: u64,
    max: u64,
    percent: f64,
}

/// A question that is made up, without settings.
fn generated(policy: Tested<'_>) -> Result<PolicyQuestion<'_>> {
    let settings = Map::new();
    if let Err(why) = policy.checked(&settings)? {
        bail!("the policy has no cases, and needs settings ({why}): write a case with settings");
    }
    Ok(questions::generated(policy, &settings, true)?)
}

/// Asks everything, `rounds` times.
fn measure(policy: Tested<'_>, questions: &[PolicyQuestion<'_>], rounds: u32) -> Result<Vec<Measured>> {
    let mut calls = Vec::new();
    if let Tested::Matcher(_) = policy {
        calls.push(timed(policy, Function::Narrow, 1, questions, rounds)?);
    }
    let judging: Vec<&PolicyQuestion<'_>> = questions.iter().filter(|question| question.has_rows()).collect();
    if judging.is_empty() {
        return Ok(calls);
    }
    for rows in SIZES {
        let varied: Vec<PolicyQuestion<'_>> =
            judging.iter().map(|question| question.with_rows(rows)).collect();
        calls.push(timed(policy, Function::Judge, rows, &varied, rounds)?);
    }
    Ok(calls)
}

fn timed(
    policy: Tested<'_>,
    function: Function,
    rows: usize,
    questions: &[PolicyQuestion<'_>],
    rounds: u32,
) -> Result<Measured> {
    let (mut times, mut fuel) = (Vec::new(), 0);
    for _ in 0..rounds {
        for question in questions {
            let (before, begun) = (policy.fuel(), Instant::now());
            let asked = match function {
                Function::Narrow => question.narrow(),
                Function::Judge => question.judge(),
            };
            asked.with_context(|| format!("{}, {rows} rows", function.name()))?;
            times.push(begun.elapsed().as_secs_f64() * 1e6);
            fuel = fuel.max(policy.fuel() - before);
        }
    }
    times.sort_by(f64::total_cmp);
    // Nearest rank: always a measured value.
    let percentile = |percent: usize| times[(times.len() * percent).div_ceil(100) - 1];
    let (p50_us, p99_us) = (percentile(50), percentile(99));
    let fuel_per_row = (fuel as f64 / rows as f64 * 10.0).round() / 10.0;
    Ok(Measured { function, rows, p50_us, p99_us, fuel, fuel_per_row })
}

impl Bench {
    fn new(policy: &ComponentPolicy, rows: Rows, calls: Vec<Measured>, bytes: u64) -> Self {
        let metadata = policy.metadata();
        let limits = shares(policy, &calls, bytes);
        Self {
            policy: metadata.name.to_string(),
            version: metadata.version.to_string(),
            digest: policy.digest().to_owned(),
            fuel_schedule: FUEL_SCHEDULE.to_owned(),
            rows,
            calls,
            limits,
        }
    }

    /// For people.
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { policy, version, .. } = self;
        let volumes = match self.rows {
            Rows::Cases => "the volumes of its cases",
            Rows::Generated => "volumes that are made up, because it has no cases",
        };
        writeln!(out, "{policy} {version}, with {volumes}\n")?;
        let heading = ["function", "rows", "p50 us", "p99 us", "fuel", "fuel a row"];
        let calls = self.calls.iter().map(|call| {
            let Measured { function, rows, p50_us, p99_us, fuel, fuel_per_row } = call;
            let rows = if *function == Function::Narrow { String::new() } else { rows.to_string() };
            let times = [p50_us, p99_us].map(|time| format!("{time:.1}"));
            let [p50, p99] = times;
            vec![function.name().to_owned(), rows, p50, p99, fuel.to_string(), fuel_per_row.to_string()]
        });
        let rows: Vec<Vec<String>> =
            std::iter::once(heading.map(str::to_owned).to_vec()).chain(calls).collect();
        out.write_all(output::table(&rows).as_bytes())?;
        if self.calls.iter().all(|call| call.function == Function::Narrow) {
            writeln!(out, "It judges no volume: its requirements say everything.")?;
        }
        writeln!(out, "\nMost that a call uses of each limit:")?;
        let limits = self.limits.iter().map(|Share { limit, used, max, percent }| {
            vec![limit.clone(), format!("{percent:.1}%"), format!("{used} of {max}")]
        });
        out.write_all(output::table(&limits.collect::<Vec<_>>()).as_bytes())
    }
}

/// The share of each limit that the calls have used.
fn shares(policy: &ComponentPolicy, calls: &[Measured], bytes: u64) -> Vec<Share> {
    let limits = Limits::policy();
    let Stats { fuel, memory_bytes, table_elements, .. } = policy.most();
    let is_matcher = matches!(policy, ComponentPolicy::Matcher(_));
    // A matcher is asked about many rows in one call, a reclaimer about one.
    let rows_of_call = if is_matcher { ROWS_MAX } else { 1 };
    let times = calls.iter().map(|call| call.p99_us / call.rows.div_ceil(rows_of_call) as f64);
    let judges = calls.iter().any(|call| call.function == Function::Judge);
    let numbers = 1 + usize::from(policy.metadata().scores);
    let answer = if is_matcher && judges { ROWS_MAX * numbers * size_of::<u32>() } else { 0 };
    let share = |limit: &str, used: u64, max: u64| {
        let percent = (used as f64 / max as f64 * 1_000.0).round() / 10.0;
        Share { limit: limit.to_owned(), used, max, percent }
    };
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    vec![
        share("fuel", fuel, limits.fuel),
        share("microseconds", times.fold(0.0, f64::max) as u64, count(limits.time.as_micros() as usize)),
        share("bytes of memory", count(memory_bytes), count(limits.memory_bytes)),
        share("elements of a table", count(table_elements), count(limits.table_elements)),
        share("bytes of the verdicts", count(answer), count(limits.lifted_bytes)),
        share("bytes of the component", bytes, count(PolicyHost::COMPONENT_BYTES_MAX)),
    ]
}
