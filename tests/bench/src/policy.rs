//! Measures policies. Every call of a policy runs in a fresh instance.
//!
//! Three tables: one call about 1,000 volumes, by language, and the same rule as a policy in JSON; decisions
//! about one claim with policies; and 100,000 volumes that a policy rejects.

mod calls;
mod decisions;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use bindery_host::{ComponentMatcher, ComponentPolicy, Host, Limits, Options, PolicyHost};

/// Measure policies.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The default engine's component.
    #[arg(long)]
    engine: PathBuf,
    /// The folder of the policies that ship.
    #[arg(long)]
    policies: PathBuf,
    /// The policy that has one rule twice: by columns, and in JSON.
    #[arg(long)]
    twice: PathBuf,
    /// A policy in JavaScript: `prefer-owner`.
    #[arg(long)]
    javascript: Option<PathBuf>,
    /// A policy in Python: `wear`.
    #[arg(long)]
    python: Option<PathBuf>,
    /// Volumes of the tables of decisions.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(5_000..))]
    volumes: u32,
    /// Calls and decisions in a round. Rounds of what takes milliseconds have fewer.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(100..))]
    calls: u32,
    /// Rounds. The tables have the median of each figure, and the least of the 99th percentiles.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
}

impl Arguments {
    /// So many calls in a round where one takes `times` as long as the shortest.
    fn calls(&self, times: u32) -> usize {
        (self.calls / times).max(5) as usize
    }
}

/// Measures and prints the tables.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let host = PolicyHost::new(&Options { concurrency: 4, ..Options::default() })?;
    let load = |path: &PathBuf| -> Result<ComponentMatcher> {
        let at = || path.display().to_string();
        let bytes = std::fs::read(path).with_context(at)?;
        match host.load(&bytes, Limits::policy()).with_context(at)? {
            ComponentPolicy::Matcher(matcher) => Ok(matcher),
            ComponentPolicy::Reclaimer(_) => bail!("{} is no matcher", at()),
        }
    };
    let shipped = |name: &str| load(&arguments.policies.join(format!("{name}.wasm")));
    let mut out = std::io::stdout();

    writeln!(out, "| one call about 1,000 volumes | p50 us | p99 (least) | fuel a row |")?;
    writeln!(out, "|---|--:|--:|--:|")?;
    let twice = load(&arguments.twice)?;
    let mut row = |name: &str, calls::Measured { figures, fuel_per_row }| {
        writeln!(out, "| {name} | {figures} | {fuel_per_row} |")
    };
    row("Rust", calls::by_columns(&twice, calls::TIERS, arguments, 1)?)?;
    row("Rust, the same rule in JSON, object by object", calls::in_json(&twice, arguments)?)?;
    for (name, path, settings, times) in
        [("JavaScript", &arguments.javascript, "{}", 10), ("Python", &arguments.python, "{}", 50)]
    {
        if let Some(path) = path {
            row(name, calls::by_columns(&load(path)?, settings, arguments, times)?)?;
        }
    }

    let engine = Host::new(&Options::default())?.load_file(&arguments.engine, Limits::default())?;
    writeln!(
        out,
        "\n| one decision | volumes | policies asked: p50 us | p99 (least) | answers kept: p50 us | \
         p99 (least) |"
    )?;
    writeln!(out, "|---|--:|--:|--:|--:|--:|")?;
    let (zone, prefer) = (shipped("same-zone")?, shipped("prefer")?);
    for scenario in decisions::scenarios(zone, prefer, arguments.volumes)? {
        let [asked, kept] = scenario.measure(&engine, arguments)?;
        writeln!(out, "| {} | {} | {asked} | {kept} |", scenario.name, scenario.volumes)?;
    }

    writeln!(out, "\n| all rejected | volumes | p50 us | p99 (least) | rows judged |")?;
    writeln!(out, "|---|--:|--:|--:|--:|")?;
    let rejected = decisions::Rejected::new(twice, arguments.volumes);
    for (name, figures, rows) in rejected.measure(&engine, arguments)? {
        writeln!(out, "| {name} | {} | {figures} | {rows} |", arguments.volumes)?;
    }
    Ok(())
}
