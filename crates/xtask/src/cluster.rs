//! `cargo xtask cluster`: a real cluster from packages, on this machine.
//!
//! - `up --control-plane` starts etcd and kube-apiserver on loopback, and upstream's controller manager on
//!   request;
//! - `up --node` starts these and a whole node (containerd, kubelet, kube-proxy, scheduler) in namespaces of
//!   its own: it cannot reach beyond the machine, and nothing of it outlives the namespaces;
//! - `down` ends a cluster and removes everything of it, however `up` ended;
//! - `load` gives the node an image, since it reaches no registry;
//! - `status` lists the clusters.
//!
//! A cluster is a folder in the cache. All its processes carry the folder's path in their environment
//! ([`processes`]). By that `down` finds them; an interrupted run would not have written a list.

mod cgroups;
mod control_plane;
mod image;
mod namespace;
mod node;
mod place;
mod processes;
mod servers;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::{Subcommand, ValueEnum};
use rustix::process::Pid;
use serde_json::{Value, json};

use self::place::Place;
use self::servers::Servers;

/// The field of a node's record with the process that holds its namespaces.
const HOLDER: &str = "namespace";
/// The time that a removal may be retried, and the pause between two tries.
const BUSY_MAX: Duration = Duration::from_secs(10);
const BUSY_EVERY: Duration = Duration::from_millis(20);

/// Run a real Kubernetes cluster on this machine.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a cluster and print the line that makes kubectl use it.
    Up(Up),
    /// End a cluster and remove everything of it, however `up` ended.
    Down(Named),
    /// Give the node of a cluster an image: an archive, such as `cargo xtask image` makes.
    Load {
        archive: PathBuf,
        #[command(flatten)]
        named: Named,
    },
    /// List the clusters and their processes.
    Status,
}

#[derive(clap::Args)]
struct Named {
    /// Name of the cluster, if one cluster is not enough: lower-case letters, digits and dashes.
    #[arg(long, default_value = "default", value_parser = place::name)]
    name: String,
}

#[derive(clap::Args)]
struct Up {
    #[command(flatten)]
    size: SizeArguments,
    /// Upstream's controller manager. By default a node has one `without-binder`, and a control plane none.
    #[arg(long, value_enum)]
    controller_manager: Option<Manager>,
    #[command(flatten)]
    named: Named,
    /// Stay, and take the cluster down when standard input ends, as it does when the calling program ends.
    #[arg(long)]
    attached: bool,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct SizeArguments {
    /// etcd and kube-apiserver on loopback; pods never run.
    #[arg(long)]
    control_plane: bool,
    /// A control plane and one node that runs pods, in namespaces of its own. Needs root.
    #[arg(long)]
    node: bool,
}

/// The loops of upstream's controller manager that run.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Manager {
    /// All, including its persistentvolume-binder-controller.
    Full,
    /// All but its binder, as in a cluster that uses Bindery.
    WithoutBinder,
    /// No controller manager. Pods then need no service account, and get none.
    None,
}

/// The composition of a cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Composition {
    has_node: bool,
    manager: Manager,
}

/// Installs what `cargo xtask cluster up --node` starts. Needs root.
pub(crate) fn install_node() -> Result<()> {
    node::Programs::install(&Place::of("default")?)?;
    control_plane::Programs::install(Composition { has_node: true, manager: Manager::WithoutBinder })?;
    Ok(())
}

/// Carries out `cargo xtask cluster`. If a program does not become ready, the error shows the end of its log,
/// and nothing is left behind.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    match &arguments.command {
        Command::Up(arguments) => up(arguments),
        Command::Down(arguments) => down(&Place::of(&arguments.name)?),
        Command::Load { archive, named } => load(&Place::of(&named.name)?, archive),
        Command::Status => status(),
    }
}

fn up(arguments: &Up) -> Result<()> {
    let composition = Composition::requested(arguments);
    let place = Place::of(&arguments.named.name)?;
    // Before the lock is taken: this takes minutes on a new machine.
    let node = if composition.has_node { Some(node::Programs::install(&place)?) } else { None };
    let control_plane = control_plane::Programs::install(composition)?;
    {
        let _lock = Place::lock()?;
        match State::of(&place)? {
            State::Up(found) if found == composition => {}
            State::Up(found) => {
                bail!("cluster {} is up already, as {found}: `{}`", place.name(), place.command("down"))
            }
            State::Incomplete => {
                eprintln!("removing what an earlier run has left of cluster {}", place.name());
                remove(&place)?;
                start(&place, &control_plane, node.as_ref())?;
            }
            State::Absent => start(&place, &control_plane, node.as_ref())?,
        }
    }
    crate::say(format_args!("{}", place.export()));
    if arguments.attached {
        io::copy(&mut io::stdin(), &mut io::sink()).context("cannot read standard input")?;
        return down(&place);
    }
    Ok(())
}

/// Starts a whole cluster, or leaves nothing of it.
fn start(
    place: &Place,
    control_plane: &control_plane::Programs,
    node: Option<&node::Programs>,
) -> Result<()> {
    place.create()?;
    let mut servers = Servers::new(place);
    let started = match node {
        Some(node) => node::start(&mut servers, control_plane, node),
        None => control_plane::start_alone(&mut servers, control_plane),
    };
    let recorded = started.and_then(|record| place.write_record(&record));
    if recorded.is_err() {
        remove(place).context("cannot remove what was started")?;
    }
    recorded
}

fn down(place: &Place) -> Result<()> {
    let _lock = Place::lock()?;
    if !place.exists() {
        eprintln!("there is no cluster {}", place.name());
        return Ok(());
    }
    remove(place)
}

fn load(place: &Place, archive: &Path) -> Result<()> {
    let _lock = Place::lock()?;
    let Some(holder) = place.record()?.and_then(|record| record[HOLDER].as_i64()) else {
        bail!("cluster {} has no node: `{} --node` starts one", place.name(), place.command("up"))
    };
    let holder = Pid::from_raw(holder.try_into()?).context("the record names no process")?;
    node::load(holder, archive)
}

/// Ends all processes of a cluster, and removes its files.
fn remove(place: &Place) -> Result<()> {
    place.check_owner()?;
    // The end of a node's first process ends its namespaces: its network, its mounts and their content.
    processes::end_all(place.folder())?;
    cgroups::remove(&place.cgroup())?;
    place.remove()
}

/// Retries a removal while processes that were just killed are still in its way.
fn retry_while(in_the_way: ErrorKind, remove: impl Fn() -> io::Result<()>) -> io::Result<()> {
    let deadline = Instant::now() + BUSY_MAX;
    loop {
        match remove() {
            Err(error) if error.kind() == in_the_way && Instant::now() < deadline => {
                std::thread::sleep(BUSY_EVERY);
            }
            removed => return removed,
        }
    }
}

fn status() -> Result<()> {
    let places = Place::all()?;
    if places.is_empty() {
        crate::say(format_args!("there is no cluster"));
    }
    for place in places {
        match State::of(&place)? {
            State::Up(composition) => {
                crate::say(format_args!("cluster {}: {composition}\n{}", place.name(), place.export()));
                if let Some(holder) = place.record()?.and_then(|record| record[HOLDER].as_u64()) {
                    crate::say(format_args!(
                        "nsenter --target {holder} --net --mount --pid  # a shell on the node"
                    ));
                }
            }
            _ => {
                let down = place.command("down");
                crate::say(format_args!("cluster {}: incomplete; `{down}` removes it", place.name()));
            }
        }
        for found in processes::marked(place.folder())? {
            crate::say(format_args!("{:>8} {}", found.pid, found.server));
        }
    }
    Ok(())
}

/// The state of a cluster.
enum State {
    Absent,
    /// Its start was interrupted, or one of its servers has ended.
    Incomplete,
    Up(Composition),
}

impl State {
    fn of(place: &Place) -> Result<Self> {
        if !place.exists() {
            return Ok(Self::Absent);
        }
        let Some(record) = place.record()? else { return Ok(Self::Incomplete) };
        let running = processes::marked(place.folder())?;
        let runs = |server: &Value| running.iter().any(|found| server == found.server.as_str());
        let all_run = record["servers"].as_array().is_some_and(|servers| servers.iter().all(runs));
        match Composition::recorded(&record) {
            Some(composition) if all_run => Ok(Self::Up(composition)),
            _ => Ok(Self::Incomplete),
        }
    }
}

impl Composition {
    fn requested(arguments: &Up) -> Self {
        let has_node = arguments.size.node;
        let manager = if has_node { Manager::WithoutBinder } else { Manager::None };
        Self { has_node, manager: arguments.controller_manager.unwrap_or(manager) }
    }

    /// The record of a cluster that is up.
    fn record(self, servers: &Servers<'_>) -> Value {
        json!({"node": self.has_node, "controllerManager": self.manager.name(), "servers": servers.names()})
    }

    fn recorded(record: &Value) -> Option<Self> {
        let manager = Manager::from_str(record["controllerManager"].as_str()?, false).ok()?;
        Some(Self { has_node: record["node"].as_bool()?, manager })
    }
}

impl std::fmt::Display for Composition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = if self.has_node { "--node" } else { "--control-plane" };
        write!(f, "{size} --controller-manager={}", self.manager.name())
    }
}

impl Manager {
    fn name(self) -> String {
        let value = self.to_possible_value().expect("no variant is hidden from the command line");
        value.get_name().to_owned()
    }
}
