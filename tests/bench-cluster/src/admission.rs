//! What admission costs: reviews a second at the door, and what the door adds to the creation of a claim.
//!
//! The door is `bindery serve` beside an API server with many volumes. It has one core to itself while
//! reviews are counted; the API server, which is read live before anything is denied, and whoever asks share
//! the others.

mod caller;
mod cores;
mod creation;
mod door;
mod drive;
mod policy;
mod rate;
mod reviews;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use bindery_cluster::{ControlPlane, Manager, Programs};

use self::cores::{Cores, confine};
use self::door::Door;
use self::reviews::Shape;
use crate::seed::Stock;

/// Of so many volumes one is free.
const ONE_IS_FREE_OF: usize = 10;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The program `bindery`.
    #[arg(long, value_name = "FILE", env = "BINDERY_BINDERY")]
    bindery: PathBuf,
    /// Volumes in the store: nine of ten are bound, one is free.
    #[arg(long, default_value_t = 100_000, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(10..))]
    volumes: usize,
    /// Seconds of each measurement of the door.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Connections on which is asked for reviews, one at a time on each: more than wait for live reads at any
    /// time.
    #[arg(long, default_value_t = 128, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=200))]
    connections: usize,
    /// Claims of each kind that are created under each who looks.
    #[arg(long, default_value_t = 600)]
    creations: usize,
    /// In how many rounds, in which those who look take turns.
    #[arg(long, default_value_t = 3, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    rounds: usize,
}

/// Prints tables, each as it is measured.
pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let cores = Cores::of_this_process()?;
    let mut plane = ControlPlane::start(Programs::from_env()?, Manager::Off).await?;
    let free = arguments.volumes / ONE_IS_FREE_OF;
    let stock = Stock { pairs: arguments.volumes - free, free };
    stock.seed(&mut plane).await?;
    let client = plane.client().await?;
    reviews::create_classes(&client).await?;
    let mut of_shapes = Vec::new();
    for shape in Shape::ALL {
        of_shapes.push(reviews::of_shape(&client, stock, shape).await?);
    }
    let door = Arc::new(Door::open(&arguments.bindery, &plane, &cores.first).await?);

    let asking = [std::process::id(), plane.api_server().id(), plane.etcd().id()];
    asking.iter().try_for_each(|process| confine(*process, &cores.others))?;
    let arguments = Arc::new(arguments);
    // Its connections have threads and runtimes of their own, which may not be used in a runtime.
    let (at, with) = (Arc::clone(&door), Arc::clone(&arguments));
    tokio::task::spawn_blocking(move || rate::measure(&at, &of_shapes, &with)).await??;

    asking.iter().chain(&[door.id()]).try_for_each(|process| confine(*process, &cores.all))?;
    creation::measure(client, &door, &arguments).await
}
