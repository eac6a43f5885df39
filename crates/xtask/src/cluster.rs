//! `cargo xtask cluster`: a real cluster from packages, on this machine.
//!
//! - `up --control-plane`: etcd and kube-apiserver on loopback, and upstream's controller manager where it is
//!   wanted;
//! - `up --node`: these and a whole node (containerd, kubelet, kube-proxy, scheduler) in namespaces of its
//!   own, so that nothing can leave the machine and nothing outlives it;
//! - `down`: ends it and removes all that is left, however `up` ended;
//! - `load`: gives its node an image, since no registry can be reached from there;
//! - `status`: what there is.
//!
//! A cluster is a folder in the cache. Whatever is started for it carries the folder's path in its
//! environment ([`processes`]): that, and no list that an interrupted run would not have written, tells
//! `down` what to end.

mod cgroups;
mod control_plane;
mod image;
mod namespace;
mod node;
mod place;
mod processes;
mod relay;
mod removal;
mod servers;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Subcommand, ValueEnum};
use rustix::process::Pid;
use serde_json::{Value, json};

use self::place::Place;
use self::servers::Servers;

/// Of what is written down of a node: the process that holds its namespaces.
const HOLDER: &str = "namespace";

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
    /// End a cluster and remove all that is left of it, however `up` ended.
    Down(Named),
    /// Give the node of a cluster an image: an archive, such as `cargo xtask image` makes.
    Load {
        archive: PathBuf,
        #[command(flatten)]
        named: Named,
    },
    /// Say which clusters there are, and what runs in them.
    Status,
    /// Carry connections from the socket that is standard input to an address; started by `up --node`.
    #[command(hide = true)]
    Relay { to: SocketAddr },
}

#[derive(clap::Args)]
struct Named {
    /// Name of the cluster, where one is not enough: lower-case letters, digits and dashes.
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
    /// Stay, and take the cluster down again when standard input ends: for programs, whose end ends the
    /// cluster.
    #[arg(long)]
    attached: bool,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct SizeArguments {
    /// etcd and kube-apiserver on loopback; pods are never run.
    #[arg(long)]
    control_plane: bool,
    /// A control plane and one node that runs pods, in namespaces of its own. Needs root.
    #[arg(long)]
    node: bool,
}

/// Which loops of upstream's controller manager run.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Manager {
    /// All, its persistentvolume-binder-controller included.
    Full,
    /// All but its binder: what a cluster has that runs on Bindery.
    WithoutBinder,
    /// No controller manager. Pods then need no service account, and none gets one.
    None,
}

/// What a cluster is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    has_node: bool,
    manager: Manager,
}

/// Installs what `cargo xtask cluster up --node` starts.
///
/// # Errors
/// When we are not root, or a program cannot be installed.
pub(crate) fn install_node() -> Result<()> {
    let kind = Kind { has_node: true, manager: Manager::WithoutBinder };
    node::Programs::install(&Place::of("default")?)?;
    control_plane::Programs::install(kind)?;
    Ok(())
}

/// Carries out `cargo xtask cluster`.
///
/// # Errors
/// When a program cannot be installed or does not become ready (the error shows the end of its log, and
/// nothing is left behind), when something that needs root is asked for by another user, or when something is
/// left that cannot be removed.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    match &arguments.command {
        Command::Up(arguments) => up(arguments),
        Command::Down(arguments) => down(&Place::of(&arguments.name)?),
        Command::Load { archive, named } => load(&Place::of(&named.name)?, archive),
        Command::Status => status(),
        Command::Relay { to } => relay::run(*to),
    }
}

fn up(arguments: &Up) -> Result<()> {
    let kind = Kind::asked_for(arguments);
    let place = Place::of(&arguments.named.name)?;
    // Minutes on a new machine: nobody else has to wait meanwhile.
    let node = if kind.has_node { Some(node::Programs::install(&place)?) } else { None };
    let control_plane = control_plane::Programs::install(kind)?;
    {
        let _lock = place.lock()?;
        match State::of(&place)? {
            State::Up(found) if found == kind => {}
            State::Up(found) => {
                bail!("cluster {} is up already, as {found}: `{}`", place.name(), place.command("down"))
            }
            State::Incomplete => {
                eprintln!("removing what an earlier run has left of cluster {}", place.name());
                remove(&place)?;
                start(&place, kind, &control_plane, node.as_ref())?;
            }
            State::Absent => start(&place, kind, &control_plane, node.as_ref())?,
        }
    }
    crate::say(format_args!("{}", place.export()));
    if arguments.attached {
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink())
            .context("standard input cannot be read")?;
        return down(&place);
    }
    Ok(())
}

/// Starts a cluster, or leaves nothing of it.
fn start(
    place: &Place,
    kind: Kind,
    control_plane: &control_plane::Programs,
    node: Option<&node::Programs>,
) -> Result<()> {
    place.create()?;
    let mut servers = Servers::new(place);
    let started = match node {
        Some(node) => node::start(&mut servers, kind, control_plane, node),
        None => control_plane::start_alone(&mut servers, kind, control_plane),
    };
    let recorded = started.and_then(|record| place.write_record(&record));
    if recorded.is_err() {
        remove(place).context("what was started cannot be removed")?;
    }
    recorded
}

fn down(place: &Place) -> Result<()> {
    let _lock = place.lock()?;
    if !place.exists() {
        eprintln!("there is no cluster {}", place.name());
        return Ok(());
    }
    remove(place)
}

fn load(place: &Place, archive: &Path) -> Result<()> {
    let _lock = place.lock()?;
    let record = if place.exists() { place.record()? } else { None };
    let Some(holder) = record.and_then(|record| record[HOLDER].as_i64()) else {
        bail!("cluster {} has no node: `{} --node` starts one", place.name(), place.command("up"))
    };
    let holder = Pid::from_raw(holder.try_into()?).context("a process has a number")?;
    node::load(holder, archive)
}

/// Ends everything that was started for a cluster, and removes everything that it wrote.
fn remove(place: &Place) -> Result<()> {
    place.check_owner()?;
    // With its first process a node's namespaces go: its network, its mounts and all that they hold.
    processes::end_all(place.folder())?;
    cgroups::remove(&place.cgroup())?;
    place.remove()
}

fn status() -> Result<()> {
    let places = Place::all()?;
    if places.is_empty() {
        crate::say(format_args!("there is no cluster"));
    }
    for place in places {
        match State::of(&place)? {
            State::Up(kind) => {
                crate::say(format_args!("cluster {}: {kind}\n{}", place.name(), place.export()));
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

/// What became of a cluster.
enum State {
    Absent,
    /// It was never started to the end, or one of its servers has ended.
    Incomplete,
    Up(Kind),
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
        match Kind::recorded(&record) {
            Some(kind) if all_run => Ok(Self::Up(kind)),
            _ => Ok(Self::Incomplete),
        }
    }
}

impl Kind {
    fn asked_for(arguments: &Up) -> Self {
        let has_node = arguments.size.node;
        let manager = if has_node { Manager::WithoutBinder } else { Manager::None };
        Self { has_node, manager: arguments.controller_manager.unwrap_or(manager) }
    }

    /// As it is written down when all runs.
    fn record(self, servers: &Servers<'_>) -> Value {
        json!({"node": self.has_node, "controllerManager": self.manager.name(), "servers": servers.names()})
    }

    fn recorded(record: &Value) -> Option<Self> {
        let manager = Manager::from_str(record["controllerManager"].as_str()?, false).ok()?;
        Some(Self { has_node: record["node"].as_bool()?, manager })
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = if self.has_node { "--node" } else { "--control-plane" };
        write!(f, "{size} --controller-manager={}", self.manager.name())
    }
}

impl Manager {
    fn name(self) -> String {
        // There is no name of a variant with `#[value(skip)]` alone, and none has that.
        let value = self.to_possible_value().expect("no variant may be skipped");
        value.get_name().to_owned()
    }
}
