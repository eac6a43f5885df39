//! `bindery playground`: a cluster for stock kubectl in one process, in which a decision engine binds and
//! reclaims.
//!
//! A simulated API server answers on a loopback socket; a binder, its watches and its writes reach the same
//! server without one. All that is left on disk while it runs is a kubeconfig and a folder for the volumes
//! that it provisions; both are gone when it ends, and only a journal that was asked for stays.

mod cluster;
mod journal;
mod kubeconfig;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use bindery_host::Limits;
use tokio::net::TcpListener;

use self::cluster::Cluster;
use self::journal::JournalFile;
use self::kubeconfig::Kubeconfig;
use crate::engine::EngineArguments;
use crate::example::{self, Example};
use crate::output;
use crate::stop::Stop;

/// Where the playground listens unless told otherwise.
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8180);
/// The example that a newcomer is sent to.
const FIRST_EXAMPLE: &str = "static-binding";

/// Start a cluster for kubectl in this process; Ctrl-C ends it.
///
/// It is empty but for a node and the namespaces that every cluster has. There is no kubelet and no
/// scheduler: pods stay where they are. The hostPath provisioner is on and keeps its volumes in a temporary
/// folder of this process.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Loopback address to listen on; port 0 takes a free one. By default 127.0.0.1:8180, or a free port
    /// where that one is taken.
    #[arg(long)]
    address: Option<SocketAddr>,
    /// Where to write the kubeconfig; removed at the end. By default bindery/playground-PORT.kubeconfig in
    /// the user's cache folder (`XDG_CACHE_HOME`, else ~/.cache). A file that no playground wrote is never
    /// overwritten.
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Create the objects of an example at the start; see `bindery example`. May be repeated.
    #[arg(long = "example", value_name = "NAME")]
    examples: Vec<String>,
    /// Write every decision to this new file, with all that it rests on, for `bindery replay`.
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    #[command(flatten)]
    engine: EngineArguments,
}

/// Carries out `bindery playground`: returns when a signal has ended it.
///
/// # Errors
///
/// The engine, an example, the address, the kubeconfig's or the journal's path cannot be used. Nothing is
/// left behind.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let engine = arguments.engine.load(Limits::default())?;
    let mut examples: Vec<&Example> = Vec::new();
    for name in &arguments.examples {
        let example = example::find(name)?;
        if !examples.iter().any(|known| known.name == example.name) {
            examples.push(example);
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        // From here on a signal is heard, so that it cannot end us between making a file and removing it.
        let mut stop = Stop::new()?;
        let listener = listen(arguments.address).await?;
        let address = listener.local_addr()?;
        let volumes = tempfile::Builder::new().prefix("bindery-playground-").tempdir();
        let volumes = volumes.context("no temporary folder for the volumes can be made")?;
        let kubeconfig = Kubeconfig::write(arguments.kubeconfig.as_deref(), address)?;
        let journal = arguments.journal.as_deref().map(JournalFile::create).transpose()?;
        let sink = journal.as_ref().map(JournalFile::sink);
        let cluster = Cluster::start(listener, engine.clone(), volumes.path(), sink).await?;
        let told = async {
            cluster.create(&examples).await?;
            output::print(&welcome(
                address,
                &arguments.engine.describe(&*engine),
                kubeconfig.path(),
                &examples,
            ))
        };
        let ended = tokio::select! {
            Err(error) = async { told.await?; std::future::pending::<Result<()>>().await } => Err(error),
            () = stop.signalled() => Ok(ExitCode::SUCCESS),
        };
        cluster.stop().await?;
        journal.map_or(Ok(()), JournalFile::finish)?;
        ended
    })
}

/// Listens on the address that was given, or on the usual one, or on any free port where that one is taken.
async fn listen(asked: Option<SocketAddr>) -> Result<TcpListener> {
    let address = asked.unwrap_or(ADDRESS);
    if !address.ip().is_loopback() {
        bail!(
            "--address {address} can be reached from other machines, and the playground asks nobody who they are: \
             give a loopback address such as {ADDRESS}"
        );
    }
    match TcpListener::bind(address).await {
        Err(error) if error.kind() == ErrorKind::AddrInUse && asked.is_none() => {
            TcpListener::bind((address.ip(), 0)).await.context("no free port can be listened on")
        }
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            bail!(
                "--address {address} is in use: stop what listens there, or give another port; 0 takes a free one"
            )
        }
        listened => listened.with_context(|| format!("--address {address} cannot be listened on")),
    }
}

/// What a newcomer needs: three commands that work from here.
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

/// This program as a shell finds it, wherever the user is by then.
fn program() -> String {
    let name = std::env::args_os().next().map(PathBuf::from).unwrap_or_else(|| "bindery".into());
    let is_on_path = name.components().count() == 1;
    let path = std::env::current_exe().ok().filter(|_| !is_on_path);
    quoted(&path.unwrap_or(name))
}

/// A path as a shell reads it.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = path.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
    if is_plain { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}
