//! Time to the next bind after a leader is killed, and after an outage of the API server.

use std::path::PathBuf;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bindery_cluster::{ControlPlane, Manager, Programs, Replica, Stock};
use futures::TryStreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::runtime::watcher::Config;
use kube::runtime::{WatchStreamExt as _, watcher};

use crate::figures::{head, row};
use crate::load::Load;
use crate::usage::pass;

const OUTAGE: Duration = Duration::from_secs(20);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The program `bindery`.
    #[arg(long, value_name = "FILE", env = "BINDERY_BINDERY")]
    bindery: PathBuf,
    /// Rounds of a killed leader and an outage.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Bound pairs of a volume and a claim.
    #[arg(long, default_value_t = 100_000)]
    pairs: usize,
}

/// Prints a table with a row for each round as it ends. All rounds are on one control plane; the leader of a
/// round is the follower of the round before.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let mut plane = ControlPlane::start(Programs::from_env()?, Manager::Off).await?;
    Stock { pairs: arguments.pairs, free: 0 }.seed(&mut plane).await?;
    let replica = async |plane: &ControlPlane, name: usize| {
        let replica = Replica::on(plane, &[&arguments.bindery], &[format!("--identity={name}")]);
        replica.until_ready().await;
        replica
    };
    head("pairs | takeover to first bind s | API server ready to first bind s")?;
    let mut leader = replica(&plane, 0).await;
    until_leading(&plane, 0).await?;
    for round in 1..=arguments.rounds {
        let next = replica(&plane, round).await;
        drop(leader);
        let takeover = takeover(&plane, round).await?;
        let outage = outage(&mut plane, round).await?;
        row(&format!("{} | {takeover:.1} | {outage:.1}", arguments.pairs))?;
        leader = next;
    }
    Ok(())
}

/// Seconds from the moment in which this replica takes the Lease to its first bind.
async fn takeover(plane: &ControlPlane, replica: usize) -> Result<f64> {
    let load = Load::one(&plane.client().await?, 2 * replica).await?;
    let taken = async {
        until_leading(plane, replica).await?;
        anyhow::Ok(Instant::now())
    };
    let (taken, ()) = tokio::try_join!(taken, load.until_claim_is_bound(2 * replica))?;
    Ok(taken.elapsed().as_secs_f64())
}

/// Seconds from the moment in which the API server is ready again to the first bind.
async fn outage(plane: &mut ControlPlane, round: usize) -> Result<f64> {
    plane.api_server().kill()?;
    pass(OUTAGE).await;
    plane.restart_api_server().await?;
    let ready = Instant::now();
    let number = 2 * round + 1;
    Load::one(&plane.client().await?, number).await?.until_claim_is_bound(number).await?;
    Ok(ready.elapsed().as_secs_f64())
}

async fn until_leading(plane: &ControlPlane, replica: usize) -> Result<()> {
    let leases = Api::<Lease>::namespaced(plane.client().await?, "kube-system");
    let only = Config::default().fields("metadata.name=bindery");
    let mut changes = pin!(watcher(leases, only).applied_objects());
    let replica = replica.to_string();
    loop {
        let lease = changes.try_next().await?.context("the watch of the Lease has ended")?;
        if lease.spec.and_then(|spec| spec.holder_identity).as_ref() == Some(&replica) {
            return Ok(());
        }
    }
}
