//! Memory, time to the first bind, and idle CPU of a binder with many bound pairs.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bindery_cluster::{ControlPlane, Manager, Programs, Stock};

use crate::Binders;
use crate::binder::{Binder, RunningBinder};
use crate::figures::{head, row};
use crate::load::Load;
use crate::usage::{Usage, pass};

/// How often a binder is asked whether it is ready.
const ASK_EVERY: Duration = Duration::from_millis(50);
const IDLE: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    binders: Binders,
    /// Bound pairs of a volume and a claim.
    #[arg(long, default_value_t = 100_000)]
    pairs: usize,
}

/// Prints a table with a row for each round as it ends. All rounds are on one control plane.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let mut plane = ControlPlane::start(Programs::from_env()?, Manager::Off).await?;
    let stock = Stock { pairs: arguments.pairs, free: 0 };
    stock.seed(&mut plane).await?;
    head(
        "pairs | <binder | ready s | first bind s | binder CPU s | API server CPU s | peak MiB | \
         a minute later MiB | idle CPU %",
    )?;
    let binders = arguments.binders.all();
    for round in 0..arguments.binders.rounds {
        for (turn, binder) in binders.iter().enumerate() {
            let number = 1 + round * binders.len() + turn;
            let figures = measure(&mut plane, binder, number).await?;
            row(&format!("{} | {} | {figures}", arguments.pairs, binder.name()))?;
        }
    }
    Ok(())
}

/// Measures one round, and returns its cells of the table.
async fn measure(plane: &mut ControlPlane, binder: &Binder, number: usize) -> Result<String> {
    let client = plane.client().await?;
    let load = Load::one(&client, number).await?;
    let server = plane.api_server().id();
    let server_before = Usage::of(server)?;
    let began = Instant::now();
    let running = RunningBinder::start(binder, plane).await?;
    let first_bind = async {
        load.until_claim_is_bound(number).await?;
        anyhow::Ok(began.elapsed())
    };
    let (ready, first_bind) = tokio::try_join!(until_ready(&running, plane, began), first_bind)?;
    let id = running.id(plane).context("the binder has no process")?;
    let (binder_at_bind, server_at_bind) = (Usage::of(id)?, Usage::of(server)?);
    let peak = Usage::when_idle(id).await?.peak;
    let before = Usage::of(id)?;
    pass(IDLE).await;
    let after = Usage::of(id)?;
    running.end(plane)?;
    let (ready, first_bind) = (ready.as_secs_f64(), first_bind.as_secs_f64());
    let (binder_cpu, server_cpu) = (binder_at_bind.cpu, server_at_bind.cpu - server_before.cpu);
    let idle_cpu = (after.cpu - before.cpu) / IDLE.as_secs_f64() * 100.0;
    let resident = after.resident;
    Ok(format!(
        "{ready:.1} | {first_bind:.1} | {binder_cpu:.1} | {server_cpu:.1} | {peak:.0} | {resident:.0} | \
         {idle_cpu:.1}"
    ))
}

/// Waits until the binder has all lists, and returns the time since `began`.
async fn until_ready(running: &RunningBinder, plane: &ControlPlane, began: Instant) -> Result<Duration> {
    let mut ticks = tokio::time::interval(ASK_EVERY);
    loop {
        ticks.tick().await;
        if running.is_ready(plane).await? {
            return Ok(began.elapsed());
        }
    }
}
