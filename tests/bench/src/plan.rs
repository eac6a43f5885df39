//! Measures `bindery plan` of a large cluster: its time and its memory in each format.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};
use bindery_kit::json::{claim, volume};
use serde_json::{Value, json};

/// Most memory of a plan in any format.
const BYTES_MAX: u64 = 200 * MB;
const FORMATS: [&str; 3] = ["table", "json", "yaml"];
const MB: u64 = 1_000_000;

/// Measure a plan.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The program `bindery`.
    #[arg(long, value_name = "FILE")]
    bindery: PathBuf,
    /// Volumes, and as many claims, which fit none of them.
    #[arg(long, default_value_t = 10_000)]
    volumes: usize,
    /// Most volumes that are listed for a claim, as `bindery plan` takes it.
    #[arg(long, default_value = "16")]
    nearest: String,
}

/// Prints a table with a row for each format. An error tells of a plan that takes more memory than the most.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let manifests = manifests(arguments.volumes).to_string();
    let mut out = io::stdout();
    writeln!(out, "| format | volumes | nearest | seconds | CPU seconds | MB at most | MB of plan |")?;
    writeln!(out, "|---|--:|--:|--:|--:|--:|--:|")?;
    for format in FORMATS {
        let Plan { seconds, cpu, peak, length } = plan(arguments, format, &manifests)?;
        let (volumes, nearest) = (arguments.volumes, &arguments.nearest);
        let [peak_mb, length_mb] = [peak, length].map(|bytes| bytes.div_ceil(MB));
        writeln!(out, "| {format} | {volumes} | {nearest} | {seconds} | {cpu} | {peak_mb} | {length_mb} |")?;
        ensure!(peak <= BYTES_MAX, "a plan as {format} took {peak} bytes, more than {BYTES_MAX}");
    }
    Ok(())
}

/// Volumes of mode Filesystem, and as many claims of mode Block.
fn manifests(volumes: usize) -> Value {
    let block = json!({"spec": {"volumeMode": "Block"}});
    let pair = |n| [volume(&format!("v{n}"), json!({})), claim(&format!("c{n}"), block.clone())];
    let items: Vec<_> = (0..volumes).flat_map(pair).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// The figures of a plan.
struct Plan {
    /// Seconds from its start to its end.
    seconds: String,
    /// Seconds of processor time, without those of the kernel.
    cpu: String,
    /// Bytes of memory at most.
    peak: u64,
    /// Bytes that it printed.
    length: u64,
}

fn plan(arguments: &Arguments, format: &str, manifests: &str) -> Result<Plan> {
    let Arguments { bindery, nearest, .. } = arguments;
    let mut command = Command::new("time");
    command.args([Path::new("--format=%e %U %M"), bindery]);
    command.args(["plan", "--filename=-", "--engine=native", "--nearest", nearest, "--output", format]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().context("GNU time cannot be started: install the package `time`")?;
    let pipe = "the pipe was made above";
    let (mut input, mut output) = (process.stdin.take().context(pipe)?, process.stdout.take().context(pipe)?);
    let length = thread::scope(|scope| {
        scope.spawn(move || input.write_all(manifests.as_bytes()));
        io::copy(&mut output, &mut io::sink())
    })?;
    let mut told = String::new();
    process.stderr.take().context(pipe)?.read_to_string(&mut told)?;
    ensure!(process.wait()?.success(), "the plan failed: {told}");
    let figures: Vec<&str> = told.lines().last().unwrap_or_default().split(' ').collect();
    let [seconds, cpu, kib] = figures[..] else { bail!("time told no figures: {told}") };
    let peak = 1024 * kib.parse::<u64>().with_context(|| format!("time told no memory: {told}"))?;
    Ok(Plan { seconds: seconds.to_owned(), cpu: cpu.to_owned(), peak, length })
}
