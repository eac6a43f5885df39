//! A replica: watches, events, the election and the binder, as `bindery serve` puts them together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bindery_controller::{Binder, Configuration, Mode, Parts, Plugin, Plugins, Settings};
use bindery_engine::DefaultEngine;
use bindery_kube::plugins::{Nfs, Recycler, RecyclerSettings};
use bindery_kube::watch::{self, WatchLimits};
use bindery_kube::{
    ApiClient, ApiPort, Clock, Eligibility, Events, ForeignWriterCheck, Leadership, LeaseSettings, Template,
};
use bindery_policy::Chain;
use bindery_store::Store;
use parking_lot::Mutex;
use tokio::sync::watch as channel;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

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
/// Times that decisions ask for the time at one instant, at most.
const ASKED_MAX: u32 = 10_000;

/// A running replica.
pub(crate) struct Replica {
    tasks: Vec<JoinHandle<()>>,
    is_killed: Arc<AtomicBool>,
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
        let recycler = network.timeline.scenario.has_recycler().then(|| {
            let settings = RecyclerSettings::nfs();
            let recycler = Recycler::new(client.clone(), clock.clone(), events.clone(), settings);
            recycler.expect("the template has a volume, and names no node")
        });
        let plugins = plugins(assets, recycler);
        let lease = LeaseSettings {
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
            settings: Settings { mode: network.mode, shutdown_grace: lease.grace(), ..Settings::default() },
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
            if network.mode == Mode::Observe {
                tokio::spawn(observe(client, binder))
            } else {
                let leads = channel::Sender::default();
                tokio::spawn(count_terms(leads.subscribe(), Arc::clone(&network.timeline)));
                let check = ForeignWriterCheck::new(&client, &binder, &events, clock.clone(), &lease);
                let eligibility = Eligibility::new(client.clone(), &binder, &lease, network.mode, false);
                let leadership = Leadership {
                    client,
                    lease,
                    eligibility: Arc::new(eligibility),
                    binder,
                    foreign_writer_check: check.map(Arc::new),
                    clock,
                    leads,
                    policies: None,
                };
                tokio::spawn(leadership.run(CancellationToken::new()))
            },
        ];
        Self { tasks, is_killed: Arc::clone(&network.is_killed) }
    }
}

/// The plugins of a replica. Volumes of NFS cannot be scrubbed without a recycler.
fn plugins(assets: &Assets, recycler: Option<Recycler>) -> Plugins<Template> {
    let assets: Arc<dyn Plugin<Template>> = Arc::new(assets.clone());
    let nfs: Arc<dyn Plugin<Template>> = Arc::new(Nfs::new(recycler));
    [assets, nfs].into_iter().collect()
}

impl Drop for Replica {
    /// The replica is killed.
    fn drop(&mut self) {
        self.is_killed.store(true, Ordering::Relaxed);
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

/// Counts the terms for which a replica leads.
async fn count_terms(mut leads: channel::Receiver<bool>, timeline: Arc<Timeline>) {
    // The sender ends with the replica.
    while leads.wait_for(|leads| *leads).await.is_ok() {
        timeline.begins_term();
        if leads.wait_for(|leads| !leads).await.is_err() {
            return;
        }
    }
}
