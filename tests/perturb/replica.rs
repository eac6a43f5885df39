//! A replica: watches, events, the election and the binder, as `bindery serve` puts them together.

use std::sync::Arc;
use std::time::Duration;

use bindery_controller::{Binder, Configuration, Mode, Parts, Plugin, Plugins, Settings};
use bindery_core::Version;
use bindery_engine::DefaultEngine;
use bindery_kube::watch::{self, WatchLimits};
use bindery_kube::{ApiClient, ApiPort, Clock, Elector, Events, ForeignWriterMark, LeaseSettings, Template};
use bindery_policy::Chain;
use bindery_store::{Kind, Store};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch as channel};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::foreign_writer::ForeignWriterCheck;
use crate::network::Network;
use crate::plugin::Assets;
use crate::timeline::Timeline;

/// The namespace of the Lease.
pub(crate) const LEASE_NAMESPACE: &str = "kube-system";
/// The name of the Lease.
pub(crate) const LEASE_NAME: &str = "bindery";
/// The duration of the Lease.
const LEASE: Duration = Duration::from_secs(60);
/// The time at the start of a run, in seconds since 1970.
const START: i64 = 1_767_225_600;
/// Every version is higher.
const LOWEST: &str = "1";
/// Times that decisions ask for the time at one instant, at most.
const ASKED_MAX: u32 = 10_000;

/// A running replica.
pub(crate) struct Replica {
    tasks: Vec<JoinHandle<()>>,
}

impl Replica {
    /// Starts a replica. Each start has an identity of its own.
    pub(crate) fn start(
        network: &Network,
        assets: &Assets,
        policies: &Arc<Chain>,
        identity: String,
        began: Instant,
    ) -> Self {
        let client = ApiClient::from(network.client());
        let (events, worker) = Events::new(client.clone());
        let clock = clock(began);
        let plugin: Arc<dyn Plugin<Template>> = Arc::new(assets.clone());
        let plugins: Plugins<Template> = [plugin].into_iter().collect();
        let settings = LeaseSettings {
            namespace: LEASE_NAMESPACE.to_owned(),
            name: LEASE_NAME.to_owned(),
            identity,
            duration: LEASE,
        };
        let binder = Arc::new(Binder::new(Parts {
            store: Arc::new(Store::new()),
            port: ApiPort::new(client.clone(), clock.clone(), events.clone()).declaring(policies.declared()),
            engine: Arc::new(DefaultEngine),
            configuration: Configuration {
                plugins: Arc::new(plugins),
                policies: Arc::clone(policies),
                ..Configuration::default()
            },
            settings: Settings {
                mode: network.mode,
                shutdown_grace: settings.grace(),
                ..Settings::default()
            },
            journal: None,
        }));
        if network.mode == Mode::Observe {
            // Before the watches start, so that no object is missed.
            binder.observe();
        }
        let watches = watch::run(
            client.clone(),
            binder.intake().clone(),
            WatchLimits::default(),
            CancellationToken::new(),
        );
        let tasks = vec![
            tokio::spawn(worker.run()),
            tokio::spawn(watches),
            match network.mode {
                Mode::Own | Mode::Steer => {
                    // In mode steer upstream's binder writes too.
                    let check = (network.mode == Mode::Own).then(|| ForeignWriterCheck {
                        binder: Arc::clone(&binder),
                        mark: ForeignWriterMark::new(client.clone(), LEASE_NAMESPACE, LEASE_NAME),
                        events,
                        clock,
                        lease: format!("{LEASE_NAMESPACE}/{LEASE_NAME}"),
                        found: Notify::new(),
                    });
                    let timeline = Arc::clone(&network.timeline);
                    tokio::spawn(compete(client, binder, settings, check, timeline))
                }
                Mode::Observe => tokio::spawn(observe(client, binder)),
            },
        ];
        Self { tasks }
    }
}

impl Drop for Replica {
    /// The replica is killed.
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The time in a run that began then. The virtual clock stands still while a task has something to do, so a
/// run whose decisions repeat without a pause would never end: the decision that asks too often panics.
pub(crate) fn clock(began: Instant) -> Clock {
    let asked = Mutex::new((Duration::ZERO, 0));
    Arc::new(move || {
        let elapsed = began.elapsed();
        let mut asked = asked.lock();
        let times = if asked.0 == elapsed { asked.1 + 1 } else { 1 };
        *asked = (elapsed, times);
        assert!(times <= ASKED_MAX, "decisions repeat without a pause");
        START + i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX - START)
    })
}

/// Observes another binder.
async fn observe(client: ApiClient, binder: Arc<Binder<ApiPort>>) {
    let newest = watch::ask_for_newest(client, binder.intake().clone());
    tokio::join!(binder.run(CancellationToken::new()), newest);
}

/// Competes for the Lease once every kind is listed, binds while this replica leads, and checks for other
/// binders.
async fn compete(
    client: ApiClient,
    binder: Arc<Binder<ApiPort>>,
    settings: LeaseSettings,
    check: Option<ForeignWriterCheck>,
    timeline: Arc<Timeline>,
) {
    for kind in Kind::ALWAYS {
        binder.intake().freshness().until_reached(kind, &Version::from(LOWEST)).await;
    }
    let elector = Elector::new(client.clone(), settings, channel::Sender::new(None));
    let (sender, holds) = channel::channel(false);
    let elector = elector.tells(binder.intake().clone()).run(sender);
    let leading = lead(client, binder, check.as_ref(), holds, &timeline);
    let checking = async {
        if let Some(check) = &check {
            check.run(CancellationToken::new()).await;
        }
    };
    let (_, (), ()) = tokio::join!(elector, leading, checking);
}

async fn lead(
    client: ApiClient,
    binder: Arc<Binder<ApiPort>>,
    check: Option<&ForeignWriterCheck>,
    mut holds: channel::Receiver<bool>,
    timeline: &Timeline,
) {
    while holds.wait_for(|holds| *holds).await.is_ok() {
        timeline.begins_term();
        let term = CancellationToken::new();
        let bind = async {
            let current = watch::until_current(client.clone(), binder.intake());
            let check_writers = async {
                if let Some(check) = check {
                    check.catch_up().await;
                }
            };
            let caught_up = async { tokio::join!(check_writers, current) };
            if term.run_until_cancelled(caught_up).await.is_some() {
                Arc::clone(&binder).run(term.clone()).await;
            }
        };
        let lost = async {
            // The elector runs as long as this.
            let _ = holds.wait_for(|holds| !holds).await;
            term.cancel();
        };
        tokio::join!(bind, lost);
    }
}
