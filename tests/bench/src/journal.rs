//! Measures the journal: decisions that it takes in a second, their bytes, and the time of a replay.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use bindery_core::{
    Claim, ClaimKey, DecisionLimits, Engine as _, Evidence, GuardVerdict, Recorder, Request, Subject, Uid,
};
use bindery_engine::DefaultEngine;
use bindery_journal::{Appender, ChainDigest, FolderWriter, Header, JournalWriter, Record, Rotation, What};
use bindery_kit::NoEnvironment;
use bindery_store::LiveReads;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::scenario::{Scenario, Shape};

/// Decisions that may wait for the thread that writes: fewer than the journal's queue holds.
const WAITING_MAX: u64 = 10_000;
/// Larger than the journals of this benchmark, so that no file is removed.
const KEEP: u64 = 4 << 30;

/// Measure the journal.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The program `bindery`.
    #[arg(long, value_name = "FILE")]
    bindery: PathBuf,
    /// The component that decides again; the native engine is measured beside it.
    #[arg(long)]
    engine: PathBuf,
    /// Decisions of a journal.
    #[arg(long, default_value_t = 100_000)]
    decisions: u64,
}

/// Prints a table with a row for each shape of claims.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut out = io::stdout();
    writeln!(
        out,
        "| shape | decisions | bytes each | us to append | written per second | replay s, native | \
         replay s, component |"
    )?;
    writeln!(out, "|---|--:|--:|--:|--:|--:|--:|")?;
    for shape in [Shape::BestFit, Shape::NothingFits] {
        let folder = tempfile::tempdir()?;
        let Journaled { bytes, append, all } = journal(shape, arguments.decisions, folder.path())?;
        let again = |engine: &Path| replay(&arguments.bindery, engine, folder.path());
        let (native, component) = (again(Path::new("native"))?, again(&arguments.engine)?);
        let decisions = arguments.decisions;
        writeln!(
            out,
            "| {} | {decisions} | {} | {:.1} | {:.0} | {native:.1} | {component:.1} |",
            shape.name(),
            bytes / decisions,
            append.as_secs_f64() * 1e6 / decisions as f64,
            decisions as f64 / all.as_secs_f64(),
        )?;
    }
    Ok(())
}

/// What a journal took.
struct Journaled {
    bytes: u64,
    /// The time of the thread that decides.
    append: Duration,
    /// The time until all decisions were written.
    all: Duration,
}

/// Writes decisions as fast as the journal takes them.
fn journal(shape: Shape, decisions: u64, folder: &Path) -> Result<Journaled> {
    let scenario = Scenario::new(shape, 1_000);
    let mut chance = StdRng::seed_from_u64(1);
    let rotation = Rotation { size: 64 << 20, age: Duration::from_secs(3_600), keep: KEEP };
    let header = Header {
        number: 1,
        previous: ChainDigest::default(),
        began_ms: 0,
        replica: "bench".to_owned(),
        mode: "own".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        fuel_schedule: "none".to_owned(),
        redaction: None,
    };
    let writer = JournalWriter::start(FolderWriter::new(folder, rotation, header))?;
    let appender = writer.appender();
    let (begun, mut append) = (Instant::now(), Duration::ZERO);
    for (number, request) in (0..decisions).zip(scenario.requests.iter().cycle()) {
        let record = record(&scenario, &of_another_claim(request, number, chance.random())?)?;
        let before = Instant::now();
        appender.append(What::Decision(Box::new(record)));
        append += before.elapsed();
        wait_for(&appender, WAITING_MAX);
    }
    wait_for(&appender, 0);
    let (all, counts) = (begun.elapsed(), appender.counts());
    writer.finish(Duration::from_secs(60));
    ensure!(counts.lost == 0, "{} records are lost", counts.lost);
    let sizes = std::fs::read_dir(folder)?.map(|file| Ok(file?.metadata()?.len()));
    Ok(Journaled { bytes: sizes.sum::<Result<_>>()?, append, all })
}

/// The request about a claim with a name and a UID of its own, ten thousand in a second.
fn of_another_claim(request: &Request, number: u64, uid: u128) -> Result<Request> {
    let Subject::SyncClaim(claim) = &request.subject else { bail!("the scenario decides claims") };
    let claim = Claim {
        key: ClaimKey::new("default", format!("claim-{number}")),
        uid: Uid(format!("{uid:032x}").into()),
        ..Claim::clone(claim)
    };
    let now = request.now + i64::try_from(number / 10_000)?;
    Ok(Request { now, subject: Subject::SyncClaim(Arc::new(claim)) })
}

/// Waits until at most this many records wait for the disk.
fn wait_for(appender: &Appender, waiting: u64) {
    while {
        let counts = appender.counts();
        counts.made - counts.written - counts.lost > waiting
    } {
        thread::yield_now();
    }
}

fn record(scenario: &Scenario, request: &Request) -> Result<Record> {
    let live = LiveReads::default();
    let mut session = scenario.store.session(&NoEnvironment, &live, DecisionLimits::default());
    if let Subject::SyncClaim(claim) = &request.subject {
        session = session.for_claim(claim.key.clone(), claim.uid.clone());
    }
    let mut recorder = Recorder::new(&mut session);
    let decision = DefaultEngine.decide(request, &mut recorder)?;
    let exchanges = recorder.into_exchanges();
    let engine = DefaultEngine.digest().to_owned();
    let evidence = Evidence { engine, request: request.clone(), exchanges, decision };
    let (reads, redacted) = Default::default();
    let guard = GuardVerdict::Passed;
    Ok(Record { evidence, guard, chain: None, policies: None, fuel: None, reads, redacted })
}

/// Seconds of a replay that decides each record the same.
fn replay(bindery: &Path, engine: &Path, folder: &Path) -> Result<f64> {
    let begun = Instant::now();
    let mut command = Command::new(bindery);
    command.arg("replay").arg("--engine").arg(engine).arg(folder).stdout(Stdio::null());
    ensure!(command.status()?.success(), "the replay by {} differs", engine.display());
    Ok(begun.elapsed().as_secs_f64())
}
