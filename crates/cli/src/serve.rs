//! `bindery serve`: binds the claims of a real cluster, or observes how upstream does.
//!
//! In modes own and steer every replica watches, so that it can take over at once; the one that holds the
//! Lease decides and writes. The Lease saves duplicate work but is not a fence: two leaders do no harm
//! because every write names the version that was read.

mod admission;
mod binder;
mod clock;
mod components;
mod files;
mod health;
mod journal;
mod lease;
mod metrics;
mod mode;
mod policy_objects;
mod recycler;
mod start;
mod tasks;
mod webhook;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use axum::Router;
use bindery_controller::{Binder, EVENT_REFRESH};
use bindery_kube::watch::{self, WatchLimits};
use bindery_kube::{
    ApiClient, ApiPort, Eligibility, Events, ForeignWriterCheck, Leadership, Wait, system_clock,
};
use bindery_webhook::{AdmissionMetrics, router, serve};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::Uri;
use tokio::net::TcpListener;
use tokio::sync::watch as channel;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::admission::AdmissionArguments;
use self::binder::binder;
use self::clock::ClockWatch;
use self::components::Components;
use self::health::{ReplicaHealth, Startup};
use self::journal::{JournalCounts, report_losses};
use self::lease::LeaseArguments;
use self::mode::ModeArgument;
use self::policy_objects::{ConfiguredObjects, PolicyObjectsArgument};
use self::recycler::RecyclerArguments;
use self::start::Started;
use self::tasks::Tasks;
use self::webhook::{WebhookArguments, WebhookStatistics};
use crate::engine::{CacheArgument, EngineArguments};
use crate::journal::recording::{JournalArguments, Recording};
use crate::journal::sending::{Sending, SendingArguments};
use crate::policies::PolicyArguments;
use crate::stop::StopSignals;
use crate::{logging, settings};

/// How long a replica that ends waits for its last events. The next leader records them again, and a pod that
/// takes longer is killed.
const EVENTS_MAX: Duration = Duration::from_secs(5);

/// Default address of health and metrics.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8080);

/// Bind the claims of a cluster and reclaim its volumes, in place of upstream's
/// persistentvolume-binder-controller.
///
/// That controller must be off: `kube-controller-manager
/// --controllers=*,-persistentvolume-binder-controller`. To see first what Bindery would do, run it with
/// `--mode observe` beside that controller.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A YAML file of settings: names as below without the dashes, such as `lease-duration: 15`. The command
    /// line and the environment override it.
    #[arg(long, value_name = "FILE", env = "BINDERY_CONFIG")]
    config: Option<PathBuf>,
    /// Whether to bind, to observe upstream's controller, or to reserve volumes that it then binds.
    #[arg(long, env = "BINDERY_MODE", default_value = "own")]
    mode: ModeArgument,
    /// Kubeconfig of the cluster. By default the service account of the pod.
    #[arg(long, value_name = "FILE", env = "BINDERY_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Address of `/livez`, `/readyz` and `/metrics`; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", env = "BINDERY_LISTEN", default_value_t = LISTEN,
          value_parser = settings::address)]
    listen: SocketAddr,
    /// Most objects that are decided and written at the same time; in mode steer no more than 16. At most
    /// half of them, rounded up, are claims and volumes that policies may be asked about.
    #[arg(long, value_name = "N", env = "BINDERY_IN_FLIGHT", default_value_t = 256,
          value_parser = settings::whole::<usize>(1..=10_000))]
    in_flight: usize,
    /// Seconds after which the event of a claim or volume that still waits is written again, so that it does
    /// not expire. At most a quarter of the API server's `--event-ttl`.
    #[arg(long, value_name = "SECONDS", env = "BINDERY_EVENT_REFRESH",
          default_value_t = EVENT_REFRESH.as_secs(), value_parser = settings::whole::<u64>(1..=86_400))]
    event_refresh: u64,
    /// Provision and delete hostPath volumes below this folder, an absolute path; for clusters of one node.
    /// Only folders that Bindery has created are deleted. Off by default.
    #[arg(long, value_name = "FOLDER", env = "BINDERY_HOST_PATH", value_parser = settings::absolute)]
    host_path: Option<PathBuf>,
    /// The collector of traces, by OTLP over HTTP: http://HOST:PORT. Off by default.
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_parser = logging::endpoint)]
    pub(crate) otlp_endpoint: Option<Uri>,
    #[command(flatten)]
    journal: JournalArguments,
    #[command(flatten)]
    sending: SendingArguments,
    #[command(flatten)]
    recycler: RecyclerArguments,
    #[command(flatten)]
    lease: LeaseArguments,
    #[command(flatten)]
    webhook: WebhookArguments,
    #[command(flatten)]
    admission: AdmissionArguments,
    #[command(flatten)]
    engine: EngineArguments,
    #[command(flatten)]
    policies: PolicyArguments,
    #[command(flatten)]
    policy_objects: PolicyObjectsArgument,
}

/// Runs `bindery serve` until a signal.
pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(run_until_stopped(&Arc::new(arguments)));
    // A signal does not wait for the end of a compilation.
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}

/// What a replica has from its start to its end.
struct Process {
    stop: StopSignals,
    startup: Startup,
    shutdown: CancellationToken,
    tasks: Tasks,
    statistics: WebhookStatistics,
}

async fn run_until_stopped(arguments: &Arc<Arguments>) -> Result<()> {
    files::raise_limit(arguments.webhook.connections_max())?;
    arguments.journal.check()?;
    arguments.sending.check(arguments.journal.journal.as_deref())?;
    let mut process = Process {
        stop: StopSignals::new()?,
        startup: Startup::default(),
        shutdown: CancellationToken::new(),
        tasks: Tasks::new(),
        statistics: WebhookStatistics::default(),
    };
    let listener = TcpListener::bind(arguments.listen).await;
    let listener =
        listener.with_context(|| format!("--listen {} cannot be listened on", arguments.listen))?;
    let address = listener.local_addr()?;
    let server = serve(listener, process.startup.router(), process.shutdown.clone().cancelled_owned());
    let server = process.tasks.start("the server of health and metrics", server);
    let Process { stop, startup, tasks, statistics, .. } = &mut process;
    let started = Started::new(arguments, startup, tasks, statistics);
    let started = tokio::select! {
        () = stop.signalled() => None,
        started = started => Some(started?),
    };
    let Some(started) = started else {
        tracing::info!("ending before the start was over");
        return Ok(());
    };
    tracing::info!(
        %address,
        engine = arguments.engine.describe(&*started.components.engine),
        policies = started.components.policies.is_loaded().then(|| started.components.policies.digest()),
        config = arguments.config.as_deref().map(tracing::field::debug),
        "serving"
    );
    let failed = run_replica(arguments, started, process).await?;
    server.await.context("the server of health and metrics has failed")?;
    failed.map_or(Ok(()), |task| Err(anyhow!("{task} has ended by itself; the log says why")))
}

/// Runs a replica until a signal, or until one of its tasks ends by itself; returns the name of that task.
async fn run_replica(
    arguments: &Arguments,
    Started { components, client, webhook, objects }: Started,
    process: Process,
) -> Result<Option<&'static str>> {
    let Process { mut stop, startup, shutdown, mut tasks, statistics } = process;
    let refresh = Duration::from_secs(arguments.event_refresh);
    let (events, event_worker) = Events::with_refresh(client.clone(), refresh);
    let identity = arguments.lease.settings().identity;
    let recording = arguments.journal.start(&identity, arguments.mode.name())?;
    let sending = arguments.sending.start(arguments.journal.journal.as_deref())?;
    let journal = counts_of_journal(recording.as_ref(), sending.as_ref());
    let replica = Replica::new(arguments, client, events, components, recording.as_ref())?;
    let admission_metrics = AdmissionMetrics::default();
    let cache = &arguments.engine.cache;
    let health = replica.health_router(objects.as_ref(), &admission_metrics, &statistics, &journal, cache);
    startup.finish(health);

    let sending = sending
        .map(|sending| (sending.ending.clone(), tasks.start("the sender of the journal", sending.ended())));
    let clock = tasks.start("the watch of the clock", replica.clock.clone().run());
    let event_worker = tasks.start("the writer of events", event_worker.run());
    // Reviews continue after the signal to end, and answer from the watched store.
    let reviews_ended = CancellationToken::new();
    let intake = replica.binder.intake().clone();
    let watches = watch::run(replica.client.clone(), intake, WatchLimits::default(), reviews_ended.clone());
    let watches = tasks.start("the watches", watches);
    let webhook = webhook.map(|webhook| {
        let reviewer = Arc::clone(&replica.binder);
        let policies = objects.as_ref().map(ConfiguredObjects::reviewer);
        let router = arguments.admission.router(arguments.mode, reviewer, &admission_metrics, policies);
        let restores = replica.binder.intake().freshness().regressions();
        tasks.start("the webhook", webhook.serve(router, restores, shutdown.clone()))
    });
    let policies = objects.as_ref().map(ConfiguredObjects::catch_up);
    let objects = objects.map(|objects| {
        let (binder, leads) = (Arc::clone(&replica.binder), replica.leads.subscribe());
        tasks.start("the loader of policies", objects.run(binder, leads))
    });
    let events = replica.events.clone();
    let losses = recording.as_ref().filter(|_| arguments.mode != ModeArgument::Observe).map(|recording| {
        let mark = arguments.lease.mark(&replica.client);
        let report = report_losses(recording.appender(), mark, identity, system_clock());
        tasks.start("the reporter of the journal", report)
    });
    let binder = tasks.start("the binder", replica.bind(&arguments.lease, policies, shutdown.clone()));
    let failed = until_ended(&mut stop, &mut tasks).await;

    shutdown.cancel();
    binder.await.context("the binder has failed")?;
    if let Some(webhook) = webhook {
        webhook.await.context("the webhook has failed")?;
    }
    reviews_ended.cancel();
    watches.await.context("the watches have failed")?;
    flush(&events).await;
    event_worker.abort();
    clock.abort();
    for task in [objects, losses].into_iter().flatten() {
        task.abort();
    }
    if let Some(recording) = recording {
        journal::end(recording).await;
    }
    if let Some((ending, ended)) = sending {
        journal::end_sending(&ending, ended).await;
    }
    Ok(failed)
}

fn counts_of_journal(recording: Option<&Recording>, sending: Option<&Sending>) -> JournalCounts {
    JournalCounts { written: recording.map(Recording::appender), sent: sending.map(Sending::counts) }
}

/// Waits for a signal, or for a task that ends by itself; returns the name of that task.
async fn until_ended(stop: &mut StopSignals, tasks: &mut Tasks) -> Option<&'static str> {
    tokio::select! {
        () = stop.signalled() => {
            tracing::info!("ending");
            None
        }
        task = tasks.first_end() => {
            tracing::error!("{task} has ended by itself, and this replica ends with it");
            Some(task)
        }
    }
}

/// Writes the events that wait, while the API server answers.
async fn flush(events: &Events) {
    if timeout(EVENTS_MAX, events.flush()).await.is_err() {
        tracing::warn!("the API server does not answer; events that were not written yet are lost");
    }
}

/// The parts of a replica that has started.
struct Replica {
    client: ApiClient,
    binder: Arc<Binder<ApiPort>>,
    events: Events,
    /// Whether this replica leads.
    leads: channel::Sender<bool>,
    /// `None` in mode observe, which needs no Lease.
    eligibility: Option<Arc<Eligibility>>,
    clock: ClockWatch,
}

impl Replica {
    fn new(
        arguments: &Arguments,
        client: ApiClient,
        events: Events,
        components: Components,
        recording: Option<&Recording>,
    ) -> Result<Self> {
        let binder = Arc::new(binder(arguments, &client, &events, components, recording)?);
        if arguments.mode == ModeArgument::Observe {
            // Before the watches start, so that no object is missed.
            binder.observe();
        }
        let eligibility = (arguments.mode != ModeArgument::Observe).then(|| {
            let lease = arguments.lease.settings();
            let loads_policies = arguments.policy_objects.policy_objects;
            let mode = arguments.mode.into();
            Arc::new(Eligibility::new(client.clone(), &binder, &lease, mode, loads_policies))
        });
        let (leads, clock) = Default::default();
        Ok(Self { client, binder, events, leads, eligibility, clock })
    }

    /// Answers `/livez`, `/readyz` and `/metrics`.
    fn health_router(
        &self,
        objects: Option<&ConfiguredObjects>,
        admission: &AdmissionMetrics,
        webhook: &WebhookStatistics,
        journal: &JournalCounts,
        cache: &CacheArgument,
    ) -> Router {
        let health = ReplicaHealth {
            binder: Arc::clone(&self.binder),
            events: self.events.clone(),
            leads: self.leads.subscribe(),
            eligibility: self.eligibility.clone(),
            objects: objects.map(ConfiguredObjects::readiness).unwrap_or_default(),
            policies: objects.map(ConfiguredObjects::watched),
        };
        let mut registry = metrics::registry(&health, admission, webhook, &self.clock, journal, cache);
        self.client.register(&mut registry);
        router(health, registry)
    }

    /// Binds while this replica leads, or observes in that mode, until `shutdown`.
    fn bind(
        self,
        lease: &LeaseArguments,
        policies: Option<Wait>,
        shutdown: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        let Self { client, binder, events, leads, eligibility, .. } = self;
        let Some(eligibility) = eligibility else { return observe(client, binder, shutdown).boxed() };
        let lease = lease.settings();
        let check = ForeignWriterCheck::new(&client, &binder, &events, system_clock(), &lease);
        let leadership = Leadership {
            client,
            lease,
            eligibility,
            binder,
            foreign_writer_check: check.map(Arc::new),
            clock: system_clock(),
            leads,
            policies,
        };
        leadership.run(shutdown).boxed()
    }
}

/// Observes until `shutdown`.
async fn observe(client: ApiClient, binder: Arc<Binder<ApiPort>>, shutdown: CancellationToken) {
    let newest = watch::ask_for_newest(client, binder.intake().clone());
    let newest = shutdown.clone().run_until_cancelled_owned(newest);
    tokio::join!(binder.run(shutdown), newest);
}
