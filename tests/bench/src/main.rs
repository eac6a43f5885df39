//! Measures one decision about a claim, in the shapes that matter: a best fit exists, nothing fits, a
//! selector over many labels that only the largest volume meets.
//!
//! Every shape is measured natively, through the component with a fresh instance for every decision, and
//! against a scan like upstream's, turn by turn in the same run. A decision is all that the controller does
//! to get one: open a session on the store, ask, record the evidence, decide. Before anything is measured,
//! all three must agree.
//!
//! `cargo xtask bench decide` builds this and runs it; `docs/benchmarks.md` has the figures.

mod measure;
mod scan;
mod world;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use bindery_core::{Action, Claim, Decision, DecisionLimits, Engine, Recorder, Request, Subject, Text};
use bindery_engine::DefaultEngine;
use bindery_host::{Host, Limits, Options};
use bindery_store::LiveReads;
use clap::{Parser, ValueEnum as _};

use crate::measure::Figures;
use crate::world::{Nothing, Shape, World};

/// Measure one decision.
#[derive(Parser)]
struct Arguments {
    /// The default engine's component.
    #[arg(long)]
    engine: PathBuf,
    /// Volumes in the index.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000, 100_000])]
    volumes: Vec<u32>,
    /// Decisions in a round, of each kind; a round of scans has as many as fit into the time.
    #[arg(long, default_value_t = 2_000)]
    decisions: usize,
    /// Rounds, in turns. Of each figure the median is told, and of the 99th percentiles the least too.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// What is to be found.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Shape::value_variants().to_vec())]
    shapes: Vec<Shape>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let host = Host::new(&Options::default())?;
    let component = host.load_file(&arguments.engine, Limits::default())?;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "| shape | volumes | component p50 | p99 (least) | native p50 | p99 (least) | scan p50 | p99 (least) | scan : component | scan : native |"
    )?;
    writeln!(out, "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")?;
    for shape in arguments.shapes.iter().copied() {
        for volumes in &arguments.volumes {
            let world = World::new(shape, *volumes);
            agree(&world, &component).with_context(|| format!("{} of {volumes}", shape.name()))?;
            let [through, native, scan] = measure(&world, &component, &arguments);
            writeln!(
                out,
                "| {} | {volumes} | {through} | {native} | {scan} | {:.1} | {:.0} |",
                shape.name(),
                scan.p50 / through.p50,
                scan.p50 / native.p50
            )?;
        }
    }
    Ok(())
}

/// Whether the component, the native engine and the scan come to the same for every claim of the world.
fn agree(world: &World, component: &dyn Engine) -> Result<()> {
    for request in &world.requests {
        let native = decide(&DefaultEngine, world, request)?;
        ensure!(decide(component, world, request)? == native, "the component decides otherwise");
        let scanned = world.scan.best_match(claim_of(request)).map(|volume| volume.name.clone());
        ensure!(picked(&native) == scanned, "the scan finds {scanned:?}, the engine {:?}", picked(&native));
        ensure!(scanned.is_some() == (world.shape != Shape::NothingFits), "the shape is not what it says");
    }
    Ok(())
}

/// Times the component, the native engine and the scan, in turns.
fn measure(world: &World, component: &dyn Engine, arguments: &Arguments) -> [Figures; 3] {
    let decided = |engine: &dyn Engine| {
        measure::round(arguments.decisions, &world.requests, |request| decide(engine, world, request).is_ok())
    };
    let mut rounds = [const { Vec::new() }; 3];
    for _ in 0..arguments.rounds {
        let through = decided(component);
        let native = decided(&DefaultEngine);
        // As long as the component's round at most, or a hundred: a scan of 100,000 takes a millisecond.
        let scans = (arguments.decisions / 20).max(100);
        let scanned = measure::round(scans, &world.requests, |request| {
            world.scan.best_match(claim_of(request)).is_some()
        });
        for (rounds, round) in rounds.iter_mut().zip([through, native, scanned]) {
            rounds.push(round);
        }
    }
    rounds.map(|rounds| Figures::of(&rounds))
}

/// One decision, as the controller gets it.
fn decide(engine: &dyn Engine, world: &World, request: &Request) -> Result<Decision> {
    let live = LiveReads::default();
    let claim = claim_of(request);
    let mut session = world
        .store
        .session(&Nothing, &live, DecisionLimits::default())
        .for_claim(claim.key.clone(), claim.uid.clone());
    let mut recorder = Recorder::new(&mut session);
    let decision = engine.decide(request, &mut recorder);
    std::hint::black_box(recorder.into_exchanges());
    Ok(decision?)
}

fn claim_of(request: &Request) -> &Claim {
    match &request.subject {
        Subject::SyncClaim(claim) => claim,
        other => unreachable!("every request of the benchmark syncs a claim, not {other:?}"),
    }
}

/// The volume that a decision takes.
fn picked(decision: &Decision) -> Option<Text> {
    decision.actions().find_map(|action| match action {
        Action::ReserveVolume { volume, .. } => Some(volume.name.clone()),
        _ => None,
    })
}
