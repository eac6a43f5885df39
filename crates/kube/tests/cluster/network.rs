//! Watches into a binder that decides nothing, over a network that fails.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bindery_controller::{Binder, Configuration, Parts, Settings};
use bindery_core::Version;
use bindery_engine::DefaultEngine;
use bindery_kube::watch::{self, WatchLimits};
use bindery_kube::{ApiClient, ApiPort, Events};
use bindery_sim::{AnswerLost, FaultRule, LoggedRequest, SimService, Verb};
use bindery_store::{Kind, Store};
use bytes::Bytes;
use futures::stream::unfold;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use kube::client::Body;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::simulated::{ApiBinder, Cluster};

/// Virtual time after which an event counts as one that never comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3_600);
pub(crate) const VOLUMES: &str = "persistentvolumes";

/// Watches into a binder that decides nothing.
pub(crate) struct Watching {
    pub(crate) binder: ApiBinder,
    running: JoinHandle<()>,
}

impl Watching {
    pub(crate) fn start(cluster: &Cluster, client: &ApiClient) -> Self {
        let binder = Binder::new(Parts {
            store: Arc::new(Store::new()),
            port: ApiPort::new(client.clone(), cluster.clock(), Events::new(client.clone()).0),
            engine: Arc::new(DefaultEngine),
            configuration: Configuration::default(),
            settings: Settings::default(),
            journal: None,
        });
        let intake = binder.intake().clone();
        let watches = watch::run(client.clone(), intake, WatchLimits::default(), CancellationToken::new());
        Self { binder, running: tokio::spawn(watches) }
    }

    pub(crate) async fn until_reached(&self, kind: Kind, version: &Version) {
        let reached = self.binder.intake().freshness().until_reached(kind, version);
        assert!(timeout(PATIENCE, reached).await.is_ok(), "{kind} does not reach {version:?}");
    }

    /// Starts, and waits until every kind is listed.
    pub(crate) async fn listed(cluster: &Cluster, client: &ApiClient) -> Self {
        let watching = Self::start(cluster, client);
        for kind in Kind::ALWAYS {
            watching.until_reached(kind, &now(cluster)).await;
        }
        watching
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.running.abort();
    }
}

pub(crate) fn now(cluster: &Cluster) -> Version {
    Version::from(cluster.sim.revision().to_string().as_str())
}

/// The network's treatment of the watches of one resource, or of all.
#[derive(Default)]
pub(crate) struct Network {
    /// The resource, such as `persistentvolumes`; empty for all.
    resource: &'static str,
    /// New watches are never answered.
    pub(crate) is_unanswered: AtomicBool,
    /// No bytes come on open watches.
    pub(crate) is_silent: AtomicBool,
    /// Bytes of watches are delayed while this is set.
    pub(crate) is_held: tokio::sync::watch::Sender<bool>,
    pub(crate) is_without_bookmarks: AtomicBool,
    asked: AtomicUsize,
    lost: AtomicUsize,
    /// All requests fail, those for other kinds too, and open watches end.
    pub(crate) is_down: tokio::sync::watch::Sender<bool>,
}

impl Network {
    /// A network that treats watches of this resource, or all watches.
    pub(crate) fn of(resource: &'static str) -> Arc<Self> {
        Arc::new(Self { resource, ..Self::default() })
    }

    pub(crate) fn client(self: &Arc<Self>, cluster: &Cluster) -> ApiClient {
        let (network, sim) = (Arc::clone(self), cluster.sim.service());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (network, sim) = (Arc::clone(&network), sim.clone());
            async move { network.send(request, sim).await }
        });
        kube::Client::new(service, "default").into()
    }

    async fn send(
        self: Arc<Self>,
        mut request: http::Request<Body>,
        sim: SimService,
    ) -> Result<http::Response<UnsyncBoxBody<Bytes, Infallible>>, AnswerLost> {
        let (down, held) = (self.is_down.subscribe(), self.is_held.subscribe());
        if *down.borrow() {
            return Err(AnswerLost);
        }
        let uri = request.uri().to_string();
        let is_treated = uri.contains(&format!("{}?watch=true", self.resource));
        if is_treated {
            self.asked.fetch_add(1, Ordering::Relaxed);
            if self.is_unanswered.load(Ordering::Relaxed) {
                return std::future::pending().await;
            }
            if self.is_without_bookmarks.load(Ordering::Relaxed) {
                *request.uri_mut() = uri.replace("&allowWatchBookmarks=true", "").parse().unwrap();
            }
        }
        Ok(sim.oneshot(request).await?.map(|body| {
            let frames =
                unfold((body, self, down, held), move |(mut body, network, mut down, mut held)| async move {
                    let frame = tokio::select! {
                        biased;
                        _ = down.wait_for(|is_down| *is_down) => return None,
                        frame = body.frame() => frame?,
                    };
                    if is_treated && network.is_silent.load(Ordering::Relaxed) {
                        network.lost.fetch_add(1, Ordering::Relaxed);
                        std::future::pending::<()>().await;
                    }
                    if is_treated {
                        // The sender lives as long as `network`, so this cannot fail.
                        let _ = held.wait_for(|is_held| !is_held).await;
                    }
                    Some((frame, (body, network, down, held)))
                });
            StreamBody::new(Box::pin(frames)).boxed_unsync()
        }))
    }

    pub(crate) fn lost(&self) -> usize {
        self.lost.load(Ordering::Relaxed)
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// Refuses the first request of each kind, as before Kubernetes 1.27.
pub(crate) fn forbid_streamed_lists(cluster: &Cluster) {
    let refused = FaultRule::any().times(Kind::ALWAYS.len());
    cluster.sim.faults().add(refused.fail(422, "Invalid", "sendInitialEvents is forbidden"));
}

/// The resources of all list requests. A streamed list counts as a watch.
pub(crate) fn lists(requests: &[LoggedRequest]) -> Vec<&str> {
    let is_list = |request: &&LoggedRequest| request.verb == Verb::List;
    requests.iter().filter(is_list).map(|request| request.resource.as_str()).collect()
}
