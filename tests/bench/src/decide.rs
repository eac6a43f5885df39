//! Measures one decision about a claim in three scenarios: a best fit exists, nothing fits, and a selector
//! over many labels matches only the largest volume.
//!
//! Each scenario is decided natively, through the component with a fresh instance for every decision, and by
//! a scan like upstream's, in turns. A decision includes the controller's work for it: open a session on the
//! store, ask questions, record the evidence, decide. All three must agree before they are measured.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use bindery_core::{Action, Claim, Decision, DecisionLimits, Engine, Recorder, Request, Subject, Text};
use bindery_engine::DefaultEngine;
use bindery_host::{Host, Limits, Options};
use bindery_kit::NoEnvironment;
use bindery_store::LiveReads;
use clap::ValueEnum as _;

use crate::measure::{self, Figures};
use crate::scenario::{Scenario, Shape};

/// Measure one decision.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The default engine's component.
    #[arg(long)]
    engine: PathBuf,
    /// Volumes in the index.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000, 100_000])]
    volumes: Vec<u32>,
    /// Decisions of each engine in a round. A round has fewer scans, as they take longer.
    #[arg(long, default_value_t = 2_000)]
    decisions: usize,
    /// Rounds. The table has the median of each figure, and the least of the 99th percentiles.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// The shapes of the claims.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Shape::value_variants().to_vec())]
    shapes: Vec<Shape>,
}

/// Measures and prints the table.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let host = Host::new(&Options::default())?;
    let component = host.load_file(&arguments.engine, Limits::default())?;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "| shape | volumes | component p50 us | p99 (least) | native p50 us | p99 (least) | scan p50 us | \
         p99 (least) | scan : component | scan : native |"
    )?;
    writeln!(out, "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")?;
    for shape in arguments.shapes.iter().copied() {
        for volumes in &arguments.volumes {
            let scenario = Scenario::new(shape, *volumes);
            agree(&scenario, &component).with_context(|| format!("{} of {volumes}", shape.name()))?;
            let [through, native, scan] = measure(&scenario, &component, arguments);
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

/// Checks that the component, the native engine and the scan agree on every claim.
fn agree(scenario: &Scenario, component: &dyn Engine) -> Result<()> {
    for request in &scenario.requests {
        let native = decide(&DefaultEngine, scenario, request)?;
        ensure!(
            decide(component, scenario, request)? == native,
            "the component and the native engine disagree"
        );
        let scanned = scenario.scan.best_match(claim_of(request)).map(|volume| volume.name.clone());
        ensure!(picked(&native) == scanned, "the scan finds {scanned:?}, the engine {:?}", picked(&native));
        ensure!(
            scanned.is_some() == (scenario.shape != Shape::NothingFits),
            "the claims do not have their shape"
        );
    }
    Ok(())
}

/// Times the component, the native engine and the scan, in turns.
fn measure(scenario: &Scenario, component: &dyn Engine, arguments: &Arguments) -> [Figures; 3] {
    let decided = |engine: &dyn Engine| {
        measure::round(arguments.decisions, &scenario.requests, |request| {
            decide(engine, scenario, request).is_ok()
        })
    };
    let mut rounds = [const { Vec::new() }; 3];
    for _ in 0..arguments.rounds {
        let through = decided(component);
        let native = decided(&DefaultEngine);
        // A scan of 100,000 volumes takes a millisecond.
        let scans = (arguments.decisions / 20).max(100);
        let scanned = measure::round(scans, &scenario.requests, |request| {
            scenario.scan.best_match(claim_of(request)).is_some()
        });
        for (rounds, round) in rounds.iter_mut().zip([through, native, scanned]) {
            rounds.push(round);
        }
    }
    rounds.map(|rounds| Figures::of(&rounds))
}

/// One decision, with the work of the controller for it.
fn decide(engine: &dyn Engine, scenario: &Scenario, request: &Request) -> Result<Decision> {
    let live = LiveReads::default();
    let claim = claim_of(request);
    let mut session = scenario
        .store
        .session(&NoEnvironment, &live, DecisionLimits::default())
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

/// The volume that a decision reserves.
pub(crate) fn picked(decision: &Decision) -> Option<Text> {
    decision.actions().find_map(|action| match action {
        Action::ReserveVolume { volume, .. } => Some(volume.name.clone()),
        _ => None,
    })
}
