//! Upstream's binder beside the replicas: the default engine in own mode, with upstream's caches and resync.

use std::sync::Arc;
use std::time::Duration;

use bindery_controller::{Binder, Configuration, Mode, Parts, Settings};
use bindery_engine::DefaultEngine;
use bindery_kit::upstream::{Plain, plain_object, resync, translated};
use bindery_kube::{ApiClient, ApiPort, Events, decode};
use bindery_store::{Delivered, Delivery, Kind, Object, Store};
use futures::future::select_all;
use futures::{FutureExt as _, StreamExt as _};
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;
use tokio::time::{Instant, interval, timeout};

use crate::delay::{pass, pass_until};
use crate::network::Network;
use crate::replica::clock;
use crate::script::{KINDS, UPSTREAM};
use crate::timeline::Timeline;

/// How often it looks at every object.
const RESYNC: Duration = Duration::from_secs(15);
/// It learns of volumes later than of claims: different workers fill its caches.
const LAGS: [Duration; 2] = [Duration::from_millis(300), Duration::ZERO];
/// Longest time to the headers of an answer to a watch.
const ANSWER: Duration = Duration::from_secs(30);
/// It starts again after this time where a watch has ended.
const RESTART: Duration = Duration::from_secs(1);

/// Keeps it running while the user has it on.
pub(crate) async fn keep(timeline: Arc<Timeline>, began: Instant) {
    let mut is_on = timeline.upstream.subscribe();
    while is_on.wait_for(|is_on| *is_on).await.is_ok() {
        let run = async {
            loop {
                Upstream::new(&timeline, began).run().await;
                pass(RESTART).await;
            }
        };
        tokio::select! {
            _ = is_on.wait_for(|is_on| !is_on) => {}
            () = run => {}
        }
    }
}

/// Upstream's binder, from a start to the end of a watch.
struct Upstream {
    network: Network,
    binder: Binder<Plain<ApiPort>>,
}

impl Upstream {
    fn new(timeline: &Arc<Timeline>, began: Instant) -> Self {
        let (timeline, is_killed) = (Arc::clone(timeline), Arc::default());
        let network = Network { replica: UPSTREAM, mode: Mode::Own, timeline, is_killed };
        let client = ApiClient::from(network.client());
        // Without a worker no event is sent.
        let (events, _) = Events::new(client.clone());
        let binder = Binder::new(Parts {
            store: Arc::new(Store::new()),
            port: Plain(ApiPort::new(client, clock(began), events)),
            engine: Arc::new(DefaultEngine),
            configuration: Configuration::default(),
            settings: Settings::default(),
            journal: None,
        });
        Self { network, binder }
    }

    /// Runs until a watch ends, or a kind has to be listed again.
    async fn run(&self) {
        let revision = self.network.timeline.sim.revision();
        Kind::ALL.into_iter().for_each(|kind| self.list(kind));
        let freshness = self.binder.intake().freshness();
        let kinds = [Kind::Volume, Kind::Claim];
        let follows = kinds.iter().zip(LAGS).enumerate();
        let follows =
            follows.map(|(index, (kind, lag))| self.follow(*kind, KINDS[index], revision, lag).boxed());
        let wanted = kinds.iter().map(|kind| freshness.until_list_wanted(*kind).boxed());
        let resyncs = async {
            let mut ticks = interval(RESYNC);
            loop {
                ticks.tick().await;
                resync(&self.binder).await;
            }
        };
        select_all(follows.chain(wanted).chain([resyncs.boxed()])).await;
    }

    /// Delivers what there is of a kind that decisions of these scenarios depend on.
    fn list(&self, kind: Kind) {
        let resource = match kind {
            Kind::Volume => KINDS[0],
            Kind::Claim => KINDS[1],
            _ => "",
        };
        let objects =
            if resource.is_empty() { Vec::new() } else { self.network.timeline.sim.objects(resource) };
        self.binder.intake().list_begins(kind);
        let listed = objects.iter().map(|object| self.decode(kind, object));
        self.binder.intake().deliver(Delivery::listed(kind, listed, ""));
    }

    fn decode(&self, kind: Kind, object: &Value) -> Object {
        let declared = self.binder.intake().declared();
        plain_object(decode::object(kind, object, &declared).expect("the simulator stores objects"))
    }

    /// Watches a kind, and looks at each object that has changed, until the watch ends.
    async fn follow(&self, kind: Kind, resource: &str, revision: u64, lag: Duration) {
        let uri = format!("/api/v1/{resource}?watch=true&resourceVersion={revision}");
        let request = Request::get(uri).body(Body::empty()).expect("a valid request");
        let Ok(Ok(answer)) = timeout(ANSWER, self.network.clone().send(request)).await else { return };
        if !answer.status().is_success() {
            return;
        }
        let mut frames = answer.into_body().into_data_stream();
        while let Some(Ok(frame)) = frames.next().await {
            let arrived = Instant::now();
            for event in serde_json::Deserializer::from_slice(&frame).into_iter::<Value>() {
                // A proxy may answer instead of the API server.
                let Ok(event) = event else { return };
                pass_until(arrived + lag).await;
                self.learn(kind, &event).await;
            }
        }
    }

    async fn learn(&self, kind: Kind, event: &Value) {
        let object = || self.decode(kind, &event["object"]);
        let delivery = match event["type"].as_str() {
            Some("ADDED" | "MODIFIED") => Delivery::Applied(Delivered { object: object(), authors: None }),
            Some("DELETED") => Delivery::Gone(object().key()),
            _ => return,
        };
        let (delivery, key) = translated(delivery);
        self.binder.intake().deliver(delivery);
        if let Some(key) = key {
            // A failed sync is repeated in the next resync.
            drop(self.binder.sync(&key).await);
        }
    }
}
