//! `bindery serve`: binds the claims of a real cluster, one replica of it at a time, or looks on as upstream
//! does.
//!
//! In own mode every replica watches, so that it can take over at once; the one that holds the Lease decides
//! and writes. The Lease keeps replicas from doing the same work twice and is no fence: what keeps two of
//! them from harm is that every write names the version that was read (G5 of the design).

mod clock;
mod door;
mod eligibility;
mod face;
mod files;
mod front;
mod leader;
mod levels;
mod metrics;
mod recycler;
mod tasks;
mod watchman;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Component, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use bindery_controller::{Binder, EVENT_REFRESH, Facts, Mode, Parts, Plugin, Settings};
use bindery_core::Engine;
use bindery_host::Limits;
use bindery_kube::plugins::{HostPath, Nfs, RecyclerSettings};
use bindery_kube::{ApiClient, ApiPort, CredentialsError, Events, Template, system_clock, watch};
use bindery_store::Store;
use bindery_webhook::{AdmissionMetrics, router, serve};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::Uri;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::clock::ClockWatch;
use self::door::{Door, DoorArguments, DoorRecord};
use self::eligibility::Eligibility;
use self::face::Face;
use self::front::Front;
use self::leader::{Leadership, LeaseArguments};
use self::levels::AdmissionArguments;
use self::recycler::RecyclerArguments;
use self::tasks::Tasks;
use self::watchman::Watchman;
use crate::engine::EngineArguments;
use crate::stop::Stop;
use crate::{logging, settings};

/// How long a replica that ends waits for its last events: what they tell is told again by the next one, and
/// who waits longer is killed.
const EVENTS_MAX: Duration = Duration::from_secs(5);

/// Where health and metrics are served unless told otherwise.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8080);

/// Bind the claims of a cluster and reclaim its volumes, in the place of upstream's
/// persistentvolume-binder-controller.
///
/// That controller must be off: `kube-controller-manager
/// --controllers=*,-persistentvolume-binder-controller`. To see first what Bindery would do, run it with
/// `--mode observe` beside that controller.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A YAML file of settings: names as below without the dashes, such as `lease-duration: 15`. What the
    /// command line or the environment says goes before it.
    #[arg(long, value_name = "FILE", env = "BINDERY_CONFIG")]
    config: Option<PathBuf>,
    /// Whether to act, or to look on as upstream's controller acts.
    #[arg(long, env = "BINDERY_MODE", default_value = "own")]
    mode: ModeArgument,
    /// How to reach the cluster. By default as a pod does, by its service account.
    #[arg(long, value_name = "FILE", env = "BINDERY_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Address of `/livez`, `/readyz` and `/metrics`; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", env = "BINDERY_LISTEN", default_value_t = LISTEN,
          value_parser = settings::address)]
    listen: SocketAddr,
    /// Most objects that are decided and written at the same time.
    #[arg(long, value_name = "N", env = "BINDERY_IN_FLIGHT", default_value_t = 256,
          value_parser = settings::whole::<usize>(1..=10_000))]
    in_flight: usize,
    /// Seconds after which the event of a claim or volume that still waits is written again, so that it does
    /// not expire. A quarter of the API server's `--event-ttl` at most.
    #[arg(long, value_name = "SECONDS", env = "BINDERY_EVENT_REFRESH", default_value_t = EVENT_REFRESH.as_secs(),
          value_parser = settings::whole::<u64>(1..=86_400))]
    event_refresh: u64,
    /// Provision and delete hostPath volumes below this folder, an absolute path: for clusters of one node.
    /// Only folders that Bindery has made are deleted. Off unless it is given.
    #[arg(long, value_name = "FOLDER", env = "BINDERY_HOST_PATH", value_parser = absolute)]
    host_path: Option<PathBuf>,
    /// Where traces are sent by OTLP over HTTP: http://HOST:PORT of a collector. Off unless it is given.
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_parser = logging::endpoint)]
    otlp_endpoint: Option<Uri>,
    #[command(flatten)]
    recycler: RecyclerArguments,
    #[command(flatten)]
    lease: LeaseArguments,
    #[command(flatten)]
    door: DoorArguments,
    #[command(flatten)]
    admission: AdmissionArguments,
    #[command(flatten)]
    engine: EngineArguments,
}

impl Arguments {
    /// Whether this replica may compete for the Lease; `None` in mode observe, which needs none.
    fn eligibility(&self, client: &ApiClient, binder: &Binder<ApiPort>) -> Option<Arc<Eligibility>> {
        let (store, intake) = (Arc::clone(binder.store()), binder.intake().clone());
        let eligibility = || Eligibility::new(client.clone(), store, intake, self.lease.rights());
        (self.mode == ModeArgument::Own).then(|| Arc::new(eligibility()))
    }

    /// Where traces go.
    pub(crate) fn collector(&self) -> Option<&Uri> {
        self.otlp_endpoint.as_ref()
    }
}

/// The values of `--mode`.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ModeArgument {
    /// Bind and reclaim; upstream's controller is off.
    Own,
    /// Write nothing; decide everything, and count where upstream's controller decides otherwise. Needs no
    /// Lease: every replica looks on and counts for itself.
    Observe,
}

/// Carries out `bindery serve`: returns when a signal has ended it.
///
/// # Errors
///
/// A setting cannot be used, or the cluster cannot be reached at the start.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let engine = arguments.engine.load(Limits::default())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run_until_stopped(arguments, engine))?;
    Ok(ExitCode::SUCCESS)
}

async fn run_until_stopped(arguments: &Arguments, engine: Arc<dyn Engine>) -> Result<()> {
    files::allow(arguments.door.connections_max())?;
    let mut stop = Stop::new()?;
    let listener = listen(arguments.listen).await?;
    let address = listener.local_addr()?;
    let (shutdown, front, mut tasks) = (CancellationToken::new(), Front::default(), Tasks::new());
    let faced = tasks.start(
        "the server of health and metrics",
        serve(listener, front.router(), shutdown.clone().cancelled_owned()),
    );
    let door_record = DoorRecord::default();
    let started = tokio::select! {
        () = stop.signalled() => None,
        started = start(arguments, &front, &door_record) => Some(started?),
    };
    let Some((client, door)) = started else {
        tracing::info!("ending before the start was over");
        return Ok(());
    };
    tracing::info!(
        %address,
        engine = arguments.engine.describe(&*engine),
        config = arguments.config.as_deref().map(tracing::field::debug),
        "serving"
    );
    let refresh = Duration::from_secs(arguments.event_refresh);
    let (events, event_worker) = Events::with_refresh(client.clone(), refresh);
    let binder = Arc::new(binder(arguments, &client, &events, engine)?);
    let leads = Arc::<AtomicBool>::default();
    let eligibility = arguments.eligibility(&client, &binder);
    let face = Face::new(Arc::clone(&binder), events.clone(), Arc::clone(&leads), eligibility.clone());
    let admission_metrics = AdmissionMetrics::default();
    let clock = ClockWatch::default();
    let mut registry = metrics::registry(&face, &admission_metrics, &door_record, &clock);
    client.register(&mut registry);
    front.started(router(face, registry));
    let decides = match eligibility {
        None => observe(&client, Arc::clone(&binder), shutdown.clone()),
        Some(eligibility) => {
            let watchman = arguments.lease.watchman(&client, &binder, &events);
            let leadership =
                Leadership { client: client.clone(), lease: arguments.lease.settings(), eligibility, leads };
            lead(leadership, Arc::clone(&binder), Arc::new(watchman), shutdown.clone())
        }
    };
    let clock = tasks.start("the watch of the clock", clock.run());
    let event_worker = tasks.start("the writer of events", event_worker.run());
    // Reviews go on for a while after the signal to end, by what is known at that time.
    let reviewed = CancellationToken::new();
    let watches = watch::run(client, binder.intake().clone(), reviewed.clone());
    let watches = tasks.start("the watches", watches);
    let restored = binder.intake().freshness().regressions();
    let reviews = arguments.admission.router(arguments.mode, binder, &admission_metrics);
    let reviews =
        door.map(|door| tasks.start("the webhook", door.serve(reviews, restored, shutdown.clone())));
    let decided = tasks.start("the binder", decides);
    let failed = until_ended(&mut stop, &mut tasks).await;
    shutdown.cancel();
    decided.await.context("the binder has failed")?;
    if let Some(reviews) = reviews {
        reviews.await.context("the webhook has failed")?;
    }
    reviewed.cancel();
    watches.await.context("the watches have failed")?;
    flush(&events).await;
    event_worker.abort();
    clock.abort();
    faced.await.context("the server of health and metrics has failed")?;
    failed.map_or(Ok(()), |part| Err(anyhow!("{part} has ended by itself; the log says why")))
}

/// Waits for a signal, or for a part that ends by itself; answers that part.
async fn until_ended(stop: &mut Stop, tasks: &mut Tasks) -> Option<&'static str> {
    let failed = tokio::select! {
        () = stop.signalled() => None,
        part = tasks.first_end() => Some(part),
    };
    match failed {
        None => tracing::info!("ending"),
        Some(part) => tracing::error!("{part} has ended by itself, and this replica ends with it"),
    }
    failed
}

/// # Errors
///
/// The address is taken, or not this machine's.
async fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("--listen {address} cannot be listened on"))
}

/// Writes the events that wait, as long as the API server answers.
async fn flush(events: &Events) {
    if timeout(EVENTS_MAX, events.flush()).await.is_err() {
        tracing::warn!("the API server does not answer; events that were not written yet are lost");
    }
}

/// What has to be there before the replica can do anything: its client, and its door where one is wanted.
///
/// # Errors
///
/// A setting cannot be used.
async fn start(arguments: &Arguments, front: &Front, door: &DoorRecord) -> Result<(ApiClient, Option<Door>)> {
    front.awaits("the credentials of the kubeconfig or the service account");
    // A credential plugin may take a minute.
    let client = client(arguments).await?;
    front.awaits("the certificate of the webhook");
    let door = arguments.door.open(&client, door).await?;
    Ok((client, door))
}

/// Looks on until `shutdown`.
fn observe(
    client: &ApiClient,
    binder: Arc<Binder<ApiPort>>,
    shutdown: CancellationToken,
) -> BoxFuture<'static, ()> {
    binder.observe();
    let newest = watch::ask_for_newest(client.clone(), binder.intake().clone());
    let asked = shutdown.clone().run_until_cancelled_owned(newest);
    async move { _ = tokio::join!(binder.run(shutdown), asked) }.boxed()
}

/// Decides while this replica leads, and looks for other binders, until `shutdown`.
fn lead(
    leadership: Leadership,
    binder: Arc<Binder<ApiPort>>,
    watchman: Arc<Watchman>,
    shutdown: CancellationToken,
) -> BoxFuture<'static, ()> {
    let term = shutdown.child_token();
    let eligibility = Arc::clone(&leadership.eligibility);
    async move {
        // Where nothing is left to lead, there is nothing left to watch for.
        let led = leadership.run(binder, Arc::clone(&watchman), shutdown).map(|()| term.cancel());
        tokio::join!(watchman.run(term.clone()), term.run_until_cancelled(eligibility.run()), led);
    }
    .boxed()
}

/// The client of the cluster, by which everything here asks it.
///
/// # Errors
///
/// The kubeconfig or the service account cannot be used.
async fn client(arguments: &Arguments) -> Result<ApiClient> {
    let Some(path) = &arguments.kubeconfig else {
        return ApiClient::in_cluster().await.map_err(|error| match error {
            CredentialsError::NotInCluster(_) => anyhow::Error::new(error)
                .context("this is no pod with a service account: give --kubeconfig (BINDERY_KUBECONFIG)"),
            _ => error.into(),
        });
    };
    let client = ApiClient::from_kubeconfig(path).await;
    client.with_context(|| format!("--kubeconfig {} cannot be used", path.display()))
}

/// # Errors
///
/// A plugin cannot be made of the settings.
fn binder(
    arguments: &Arguments,
    client: &ApiClient,
    events: &Events,
    engine: Arc<dyn Engine>,
) -> Result<Binder<ApiPort>> {
    let recycler = |settings| arguments.recycler.recycler(client, events, settings);
    let host_path =
        HostPath::new(client.clone(), arguments.host_path.clone(), recycler(RecyclerSettings::host_path())?);
    let nfs = Nfs::new(client.clone(), recycler(RecyclerSettings::nfs())?);
    let plugins: [Arc<dyn Plugin<Template>>; 2] = [Arc::new(host_path), Arc::new(nfs)];
    let settings = Settings::default();
    Ok(Binder::new(Parts {
        store: Arc::new(Store::new()),
        port: ApiPort::new(client.clone(), system_clock(), events.clone()),
        engine,
        facts: Facts { plugins: Arc::new(plugins.into_iter().collect()), ..Facts::default() },
        settings: Settings {
            mode: arguments.mode.into(),
            in_flight_max: arguments.in_flight,
            shutdown_grace: settings.shutdown_grace.min(arguments.lease.settings().grace()),
            event_refresh: Duration::from_secs(arguments.event_refresh),
            ..settings
        },
        journal: None,
    }))
}

/// A folder that is the same whatever the working directory is.
fn absolute(text: &str) -> Result<PathBuf, &'static str> {
    let path = PathBuf::from(text);
    if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
        return Err("give an absolute path without `..`, such as /var/lib/bindery");
    }
    Ok(path)
}

impl From<ModeArgument> for Mode {
    fn from(argument: ModeArgument) -> Self {
        match argument {
            ModeArgument::Own => Self::Own,
            ModeArgument::Observe => Self::Observe,
        }
    }
}
