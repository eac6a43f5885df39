//! Watches into a binder that decides nothing, over connections that fail.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bindery_controller::{Binder, Facts, Parts, Settings};
use bindery_core::Version;
use bindery_engine::DefaultEngine;
use bindery_kube::{ApiClient, ApiPort, Events, watch};
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

use crate::world::{ApiBinder, World};

/// How long something may take by the virtual clock before it counts as never.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3_600);
pub(crate) const VOLUMES: &str = "persistentvolumes";

/// Watches into a binder that decides nothing.
pub(crate) struct Watching {
    pub(crate) binder: ApiBinder,
    running: JoinHandle<()>,
}

impl Watching {
    pub(crate) fn start(world: &World, client: &ApiClient) -> Self {
        let binder = Binder::new(Parts {
            store: Arc::new(Store::new()),
            port: ApiPort::new(client.clone(), world.clock(), Events::new(client.clone()).0),
            engine: Arc::new(DefaultEngine),
            facts: Facts::default(),
            settings: Settings::default(),
            journal: None,
        });
        let watches = watch::run(client.clone(), binder.intake().clone(), CancellationToken::new());
        Self { binder, running: tokio::spawn(watches) }
    }

    pub(crate) async fn until_reached(&self, kind: Kind, version: &Version) {
        let reached = self.binder.intake().freshness().until_reached(kind, version);
        assert!(timeout(PATIENCE, reached).await.is_ok(), "{kind} does not reach {version:?}");
    }

    /// Waits until every kind is listed.
    pub(crate) async fn until_listed(&self, world: &World) {
        for kind in Kind::ALL {
            self.until_reached(kind, &now(world)).await;
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// The version of the newest change in the cluster.
pub(crate) fn now(world: &World) -> Version {
    Version::from(world.sim.revision().to_string().as_str())
}

/// How the network treats watches of volumes.
#[derive(Default)]
pub(crate) struct Wire {
    /// Requests of new ones are never answered.
    pub(crate) is_unanswered: AtomicBool,
    /// No bytes come any more on those that are open.
    pub(crate) is_silent: AtomicBool,
    /// The server sends no bookmarks.
    pub(crate) is_without_bookmarks: AtomicBool,
    /// How many were asked for.
    asked: AtomicUsize,
    /// How many frames did not come through.
    lost: AtomicUsize,
    /// Whether all requests fail, those of other kinds too, and open watches end.
    pub(crate) is_down: tokio::sync::watch::Sender<bool>,
}

impl Wire {
    /// A client whose watches of volumes go over this wire.
    pub(crate) fn client(self: &Arc<Self>, world: &World) -> ApiClient {
        let (wire, sim) = (Arc::clone(self), world.sim.service());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (wire, sim) = (Arc::clone(&wire), sim.clone());
            async move { wire.send(request, sim).await }
        });
        kube::Client::new(service, "default").into()
    }

    async fn send(
        self: Arc<Self>,
        mut request: http::Request<Body>,
        sim: SimService,
    ) -> Result<http::Response<UnsyncBoxBody<Bytes, Infallible>>, AnswerLost> {
        let down = self.is_down.subscribe();
        if *down.borrow() {
            return Err(AnswerLost);
        }
        let uri = request.uri().to_string();
        let is_watch_of_volumes = uri.contains("/persistentvolumes?watch=true");
        if is_watch_of_volumes {
            self.asked.fetch_add(1, Ordering::Relaxed);
            if self.is_unanswered.load(Ordering::Relaxed) {
                return std::future::pending().await;
            }
            if self.is_without_bookmarks.load(Ordering::Relaxed) {
                *request.uri_mut() = uri.replace("&allowWatchBookmarks=true", "").parse().unwrap();
            }
        }
        Ok(sim.oneshot(request).await?.map(|body| {
            let frames = unfold((body, self, down), move |(mut body, wire, mut down)| async move {
                let frame = tokio::select! {
                    biased;
                    _ = down.wait_for(|is_down| *is_down) => return None,
                    frame = body.frame() => frame?,
                };
                if is_watch_of_volumes && wire.is_silent.load(Ordering::Relaxed) {
                    wire.lost.fetch_add(1, Ordering::Relaxed);
                    std::future::pending::<()>().await;
                }
                Some((frame, (body, wire, down)))
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

/// As before Kubernetes 1.27: the first request of each kind is refused.
pub(crate) fn forbid_streamed_lists(world: &World) {
    let refused = FaultRule::any().times(Kind::ALL.len());
    world.sim.faults().add(refused.fail(422, "Invalid", "sendInitialEvents is forbidden"));
}

/// The lists among requests to the API server, by resource. A streamed list is a watch here.
pub(crate) fn lists(requests: &[LoggedRequest]) -> Vec<&str> {
    let is_list = |request: &&LoggedRequest| request.verb == Verb::List;
    requests.iter().filter(is_list).map(|request| request.resource.as_str()).collect()
}
