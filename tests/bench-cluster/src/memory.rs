//! What a binder costs where many pairs are bound and nothing is to be done.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bindery_cluster::{ControlPlane, Manager, Programs};

use crate::Contest;
use crate::contestant::{Contestant, Running};
use crate::load::Load;
use crate::seed::Stock;
use crate::usage::Usage;

/// How often a binder is asked whether it is ready.
const ASKED_EVERY: Duration = Duration::from_millis(50);
/// How often it is looked at whether a binder still works off what it found at its start.
const LOOKED_EVERY: Duration = Duration::from_secs(2);
/// CPU seconds between two looks under which a binder counts as idle: upstream never comes to rest, so it is
/// that it does not work more than the look before.
const IDLE_CPU: f64 = 0.1;
/// Looks after which a binder that does not come to rest is measured all the same.
const LOOKS_MAX: usize = 30;
/// How long an idle binder is measured.
const IDLE: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    contest: Contest,
    /// Bound pairs of a volume and a claim.
    #[arg(long, default_value_t = 100_000)]
    pairs: usize,
}

/// What a round came to.
struct Figures {
    /// Seconds from the start until the binder says that all lists are complete.
    ready: f64,
    /// Seconds from the start until a claim that had waited is Bound.
    first_bind: f64,
    /// Seconds of CPU of the binder until then.
    binder_cpu: f64,
    /// Seconds of CPU of the API server in the same time.
    server_cpu: f64,
    /// Most memory until then and while what was found at the start was worked off, in MiB.
    peak: f64,
    /// Memory after a minute without work, in MiB.
    resident: f64,
    /// CPU in that minute, in percent of a core.
    idle_cpu: f64,
}

/// Prints a table, a row for each round as it ends. All rounds are on one control plane.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let mut plane = ControlPlane::start(Programs::from_env()?, Manager::Off).await?;
    let stock = Stock { pairs: arguments.pairs, free: 0 };
    stock.seed(&mut plane).await?;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "| pairs | who | ready s | first bind s | binder CPU s | API server CPU s | peak MiB | a minute later MiB | idle CPU % |"
    )?;
    writeln!(out, "|--:|---|--:|--:|--:|--:|--:|--:|--:|")?;
    let binders = arguments.contest.binders();
    for round in 0..arguments.contest.rounds {
        for (turn, contestant) in binders.iter().enumerate() {
            let number = 1 + round * binders.len() + turn;
            let Figures { ready, first_bind, binder_cpu, server_cpu, peak, resident, idle_cpu } =
                measure(&mut plane, contestant, number).await?;
            let (pairs, who) = (arguments.pairs, contestant.name());
            writeln!(
                out,
                "| {pairs} | {who} | {ready:.1} | {first_bind:.1} | {binder_cpu:.1} | {server_cpu:.1} | {peak:.0} | {resident:.0} | {idle_cpu:.1} |"
            )?;
        }
    }
    Ok(())
}

async fn measure(plane: &mut ControlPlane, contestant: &Contestant, number: usize) -> Result<Figures> {
    let client = plane.client().await?;
    let load = Load::one(&client, number).await?;
    let server = plane.api_server().id();
    let server_before = Usage::of(server)?;
    let began = Instant::now();
    let running = Running::start(contestant, plane)?;
    let first_bind = async {
        load.until_claim_is_bound(number).await?;
        anyhow::Ok(began.elapsed())
    };
    let (ready, first_bind) = tokio::try_join!(until_ready(&running, plane, began), first_bind)?;
    let id = running.id(plane).context("nobody binds")?;
    let (binder_at_bind, server_at_bind) = (Usage::of(id)?, Usage::of(server)?);
    let peak = until_idle(id).await?.peak;
    let before = Usage::of(id)?;
    pass(IDLE).await;
    let after = Usage::of(id)?;
    running.end(plane)?;
    Ok(Figures {
        ready: ready.as_secs_f64(),
        first_bind: first_bind.as_secs_f64(),
        binder_cpu: binder_at_bind.cpu,
        server_cpu: server_at_bind.cpu - server_before.cpu,
        peak,
        resident: after.resident,
        idle_cpu: (after.cpu - before.cpu) / IDLE.as_secs_f64() * 100.0,
    })
}

/// When the binder says that it has all lists.
async fn until_ready(running: &Running, plane: &ControlPlane, began: Instant) -> Result<Duration> {
    let mut ticks = tokio::time::interval(ASKED_EVERY);
    loop {
        ticks.tick().await;
        if running.is_ready(plane).await? {
            return Ok(began.elapsed());
        }
    }
}

/// Ends when the binder has worked off what it found.
async fn until_idle(id: u32) -> Result<Usage> {
    let mut before = Usage::of(id)?;
    for _ in 0..LOOKS_MAX {
        pass(LOOKED_EVERY).await;
        let now = Usage::of(id)?;
        if now.cpu - before.cpu < IDLE_CPU {
            return Ok(now);
        }
        before = now;
    }
    Ok(before)
}

/// Lets time pass: it is what is measured.
async fn pass(time: Duration) {
    tokio::time::interval_at(tokio::time::Instant::now() + time, time).tick().await;
}
