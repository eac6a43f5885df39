//! `bindery playground`: a cluster for stock kubectl in one process.
//!
//! A simulated API server answers on a loopback socket; the binder reaches it within the process. On disk
//! there are a kubeconfig and a folder for provisioned volumes, both removed at the end, and the journal that
//! `--journal` names.

mod cluster;
mod kubeconfig;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use tokio::net::TcpListener;

use self::cluster::Cluster;
use self::kubeconfig::Kubeconfig;
use crate::engine::EngineArguments;
use crate::example::{self, Example};
use crate::journal::recording::{JournalArguments, Recording};
use crate::output;
use crate::policies::{PolicyArguments, Purpose};
use crate::stop::StopSignals;

/// Default address.
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8180);
/// The name of the replica in its journal.
const REPLICA: &str = "playground";
/// The example that the welcome names.
const FIRST_EXAMPLE: &str = "static-binding";

/// Run a cluster for kubectl in this process, until Ctrl-C.
///
/// The cluster has one node and the namespaces that every cluster has. There is no kubelet and no scheduler:
/// pods stay Pending. The hostPath provisioner keeps its volumes in a temporary folder.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Loopback address to listen on; port 0 takes a free one. By default 127.0.0.1:8180, or a free port if
    /// that one is in use.
    #[arg(long)]
    address: Option<SocketAddr>,
    /// Path of the kubeconfig, which is removed at the end. By default bindery/playground-PORT.kubeconfig in
    /// the user's cache folder (`XDG_CACHE_HOME`, else ~/.cache). Files of other programs are never
    /// overwritten.
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Create the objects of an example at the start; see `bindery example`. Repeat it for several.
    #[arg(long = "example", value_name = "NAME")]
    examples: Vec<String>,
    #[command(flatten)]
    journal: JournalArguments,
    #[command(flatten)]
    engine: EngineArguments,
    #[command(flatten)]
    policies: PolicyArguments,
}

/// Runs `bindery playground` until a signal. No file is left behind after an error.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let engine = arguments.engine.load()?;
    let policies = arguments.policies.load(&arguments.engine.cache, Purpose::Show)?;
    let mut examples: Vec<&Example> = Vec::new();
    for name in &arguments.examples {
        let example = example::find(name)?;
        if !examples.iter().any(|known| known.name == example.name) {
            examples.push(example);
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        // Handled from here on, so that a signal cannot end the process before its files are removed.
        let mut stop = StopSignals::new()?;
        let listener = listen(arguments.address).await?;
        let address = listener.local_addr()?;
        let volumes = tempfile::Builder::new().prefix("bindery-playground-").tempdir();
        let volumes = volumes.context("the temporary folder for volumes cannot be created")?;
        let kubeconfig = Kubeconfig::write(arguments.kubeconfig.as_deref(), address)?;
        let journal = arguments.journal.start(REPLICA, "own")?;
        let sink = journal.as_ref().map(Recording::sink);
        let cluster = Cluster::start(listener, engine.clone(), policies, volumes.path(), sink).await?;
        let begin = async {
            cluster.create(&examples).await?;
            output::print(&welcome(
                address,
                &arguments.engine.describe(&*engine),
                &kubeconfig.path,
                &examples,
            ))
        };
        let ended = tokio::select! {
            Err(error) = async { begin.await?; std::future::pending::<Result<()>>().await } => Err(error),
            () = stop.signalled() => Ok(ExitCode::SUCCESS),
        };
        cluster.stop().await?;
        journal.map_or(Ok(()), Recording::finish)?;
        ended
    })
}

/// Listens on the given address, or by default on [`ADDRESS`] or a free port.
async fn listen(given: Option<SocketAddr>) -> Result<TcpListener> {
    let address = given.unwrap_or(ADDRESS);
    if !address.ip().is_loopback() {
        bail!(
            "--address {address} can be reached from other machines, and the playground has no \
             authentication: give a loopback address such as {ADDRESS}"
        );
    }
    match TcpListener::bind(address).await {
        Err(error) if error.kind() == ErrorKind::AddrInUse && given.is_none() => {
            TcpListener::bind((address.ip(), 0)).await.context("no free port can be listened on")
        }
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            bail!(
                "--address {address} is in use: stop the program that listens there, or give another port; \
                 0 takes a free one"
            )
        }
        listened => listened.with_context(|| format!("--address {address} cannot be listened on")),
    }
}

/// The welcome, with three commands that work in the current folder.
fn welcome(address: SocketAddr, engine: &str, kubeconfig: &Path, examples: &[&Example]) -> String {
    let folder = Path::new("examples").join(FIRST_EXAMPLE);
    let apply = if folder.is_dir() {
        format!("kubectl apply -f {}", folder.display())
    } else {
        format!("{} example {FIRST_EXAMPLE} | kubectl apply -f -", program())
    };
    let mut text = format!("The playground serves Kubernetes at http://{address}; {engine} decides.\n");
    for Example { name, about, .. } in examples {
        text += &format!("It holds the example {name}: {about}.\n");
    }
    text += &format!(
        "\nIn another terminal:\n\n  export KUBECONFIG={}\n  {apply}\n  kubectl get pvc -w\n\n\
         Ctrl-C ends it, and removes the kubeconfig and all volumes.\n",
        quoted(kubeconfig)
    );
    text
}

/// This program as a shell finds it from any folder.
fn program() -> String {
    let name = std::env::args_os().next().map(PathBuf::from).unwrap_or_else(|| "bindery".into());
    let is_on_path = name.components().count() == 1;
    let path = std::env::current_exe().ok().filter(|_| !is_on_path);
    quoted(&path.unwrap_or(name))
}

/// A path, quoted for a shell if it needs that.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = path.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
    if is_plain { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}
