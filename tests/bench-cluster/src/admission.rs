//! Reviews per second of the webhook, and the time that it adds to the creation of a claim.
//!
//! The webhook is `bindery serve` with an API server that has many volumes. While reviews are counted, it has
//! one core to itself. The clients and the API server, which it reads before it denies a review, share the
//! other cores.

mod client;
mod cores;
mod creation;
mod drive;
mod rate;
mod reviews;
mod webhook;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use bindery_cluster::{ControlPlane, Manager, Programs, Stock};
use clap::builder::RangedU64ValueParser;

use self::cores::{Cores, confine};
use self::reviews::Shape;
use self::webhook::Webhook;

/// One volume of this many is free.
const VOLUMES_PER_FREE: usize = 10;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The program `bindery`.
    #[arg(long, value_name = "FILE", env = "BINDERY_BINDERY")]
    bindery: PathBuf,
    /// Volumes in the store: nine of ten are bound, one is free.
    #[arg(long, default_value_t = 100_000, value_parser = at_least(10))]
    volumes: usize,
    /// Seconds of each measurement of the webhook.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Connections, with one review at a time on each: more than the reviews that wait for live reads at any
    /// time.
    #[arg(long, default_value_t = 128, value_parser = at_least(1).range(..=200))]
    connections: usize,
    /// Claims of each kind to create under each reviewer.
    #[arg(long, default_value_t = 600)]
    creations: usize,
    /// Rounds, in each of which every reviewer takes its turn.
    #[arg(long, default_value_t = 3, value_parser = at_least(1))]
    rounds: usize,
}

fn at_least(least: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(least..)
}

/// Prints each table as it is measured.
pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let cores = Cores::of_this_process()?;
    let mut plane = ControlPlane::start(Programs::from_env()?, Manager::Off).await?;
    let free = arguments.volumes / VOLUMES_PER_FREE;
    let stock = Stock { pairs: arguments.volumes - free, free };
    stock.seed(&mut plane).await?;
    let client = plane.client().await?;
    reviews::create_classes(&client).await?;
    let mut of_shapes = Vec::new();
    for shape in Shape::ALL {
        of_shapes.push(reviews::of_shape(&client, stock, shape).await?);
    }
    let webhook = Arc::new(Webhook::start(&arguments.bindery, &plane, &cores.first).await?);

    let clients = [std::process::id(), plane.api_server().id(), plane.etcd().id()];
    clients.iter().try_for_each(|process| confine(*process, &cores.others))?;
    let arguments = Arc::new(arguments);
    // The connections have runtimes of their own, which must not run within a runtime.
    let (shared, options) = (Arc::clone(&webhook), Arc::clone(&arguments));
    tokio::task::spawn_blocking(move || rate::measure(&shared, &of_shapes, &options)).await??;

    clients.iter().chain(&[webhook.id()]).try_for_each(|process| confine(*process, &cores.all))?;
    creation::measure(client, &webhook, &arguments).await
}
