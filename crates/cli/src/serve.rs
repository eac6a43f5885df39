//! `bindery serve`: binds the claims of a real cluster, one replica of it at a time.
//!
//! Every replica watches, so that it can take over at once; the one that holds the Lease decides and writes. The Lease
//! keeps replicas from doing the same work twice and is no fence: what keeps two of them from harm is that every write
//! names the version that was read (G5 of the design).

mod face;
mod leader;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use bindery_controller::{Binder, Facts, Parts, Plugin, Settings};
use bindery_core::Engine;
use bindery_kube::plugins::{HostPath, Nfs, Recycler, RecyclerSettings};
use bindery_kube::{ApiPort, Events, Template, system_clock, watch};
use bindery_store::Store;
use bindery_webhook::{router, serve};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::face::Face;
use self::leader::{Leadership, LeaseArguments};
use crate::engine::EngineArguments;
use crate::stop::Stop;

/// Where health and metrics are served unless told otherwise.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8080);

/// Bind the claims of a cluster and reclaim its volumes, in the place of upstream's persistentvolume-binder-controller.
///
/// That controller must be off: `kube-controller-manager --controllers=*,-persistentvolume-binder-controller`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How to reach the cluster. By default as a pod does, by its service account.
    #[arg(long, value_name = "FILE", env = "BINDERY_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Address of `/livez`, `/readyz` and `/metrics`; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", env = "BINDERY_LISTEN", default_value_t = LISTEN)]
    listen: SocketAddr,
    /// Most objects that are decided and written at the same time.
    #[arg(long, value_name = "N", env = "BINDERY_IN_FLIGHT", default_value_t = 64,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    in_flight: usize,
    /// Provision and delete hostPath volumes below this folder, and nothing outside it: for clusters of one node. Off
    /// unless it is given.
    #[arg(long, value_name = "FOLDER", env = "BINDERY_HOST_PATH")]
    host_path: Option<PathBuf>,
    #[command(flatten)]
    lease: LeaseArguments,
    #[command(flatten)]
    engine: EngineArguments,
}

/// Carries out `bindery serve`: returns when a signal has ended it.
///
/// # Errors
///
/// A setting cannot be used, or the cluster cannot be reached at the start.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let engine = arguments.engine.load()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run_until_stopped(arguments, engine))?;
    Ok(ExitCode::SUCCESS)
}

async fn run_until_stopped(arguments: &Arguments, engine: Arc<dyn Engine>) -> Result<()> {
    let mut stop = Stop::new()?;
    let listener = TcpListener::bind(arguments.listen)
        .await
        .with_context(|| format!("--listen {} cannot be listened on", arguments.listen))?;
    let client = client(arguments).await?;
    tracing::info!(
        address = %listener.local_addr()?,
        engine = arguments.engine.describe(&*engine),
        "serving"
    );
    let (events, event_worker) = Events::new(client.clone());
    let binder = Arc::new(binder(arguments, &client, &events, engine));
    let leadership = Leadership::seek(&client, &arguments.lease).await?;
    let face = Face::new(Arc::clone(&binder), leadership.leads());
    let registry = face.registry();
    let shutdown = CancellationToken::new();

    let event_worker = tokio::spawn(event_worker.run());
    let faced = tokio::spawn(serve(listener, router(face, registry), shutdown.clone().cancelled_owned()));
    let watches = tokio::spawn(watch::run(client, binder.intake().clone(), shutdown.clone()));
    let led = tokio::spawn(leadership.run(binder, shutdown.clone()));
    stop.signalled().await;
    tracing::info!("ending");
    shutdown.cancel();
    led.await.context("the binder has failed")?;
    watches.await.context("the watches have failed")?;
    events.flush().await;
    event_worker.abort();
    faced.await.context("the server of health and metrics has failed")?.context("--listen failed")
}

/// A client of the cluster.
///
/// # Errors
///
/// The kubeconfig or the service account cannot be used.
async fn client(arguments: &Arguments) -> Result<kube::Client> {
    let mut config = match &arguments.kubeconfig {
        Some(path) => {
            let why = || format!("--kubeconfig {} cannot be used", path.display());
            let kubeconfig = Kubeconfig::read_from(path).with_context(why)?;
            let options = KubeConfigOptions::default();
            kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.with_context(why)?
        }
        None => kube::Config::incluster()
            .context("this is no pod with a service account: give --kubeconfig (BINDERY_KUBECONFIG)")?,
    };
    // The client would try again by itself what is refused with 429, 503 or 504, for minutes and without a word: then
    // nobody here could hold back, decide anew, or say so.
    config.default_retry = false;
    kube::Client::try_from(config).context("the cluster cannot be reached")
}

fn binder(
    arguments: &Arguments,
    client: &kube::Client,
    events: &Events,
    engine: Arc<dyn Engine>,
) -> Binder<ApiPort> {
    let recycler = |settings| Some(Recycler::new(client.clone(), system_clock(), events.clone(), settings));
    let host_path =
        HostPath::new(client.clone(), arguments.host_path.clone(), recycler(RecyclerSettings::host_path()));
    let nfs = Nfs::new(client.clone(), recycler(RecyclerSettings::nfs()));
    let plugins: [Arc<dyn Plugin<Template>>; 2] = [Arc::new(host_path), Arc::new(nfs)];
    Binder::new(Parts {
        store: Arc::new(Store::new()),
        port: ApiPort::new(client.clone(), system_clock(), events.clone()),
        engine,
        facts: Facts { plugins: Arc::new(plugins.into_iter().collect()), ..Facts::default() },
        settings: Settings { in_flight_max: arguments.in_flight, ..Settings::default() },
        journal: None,
    })
}
