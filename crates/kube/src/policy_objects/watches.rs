//! The watches of engines and policies.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::future::join_all;
use kube::Api;
use kube::api::DynamicObject;
use kube::runtime::reflector::store::Writer;
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::time::Instant;

use super::{KindWatch, PolicyObjects};
use crate::rest;

/// The watches of [`PolicyObjects`].
pub struct PolicyWatches {
    pub(super) objects: Arc<PolicyObjects>,
    pub(super) writers: Vec<Writer<DynamicObject>>,
}

impl PolicyWatches {
    /// Keeps the objects current for as long as it is polled.
    pub async fn run(self) {
        let Self { objects, writers } = self;
        let kinds = objects.kinds.iter().zip(writers);
        join_all(kinds.map(|(kind, writer)| objects.keep_current(kind, writer))).await;
    }
}

impl PolicyObjects {
    async fn keep_current(&self, kind: &KindWatch, mut writer: Writer<DynamicObject>) {
        let (mut lists, heard) = (self.lists.subscribe(), Arc::clone(&kind.heard));
        let client = self.client.kube_heard(move || *heard.lock() = Some(Instant::now()));
        let api = Api::<DynamicObject>::all_with(client, &kind.resource);
        let watch = || watcher(api.clone(), watcher::Config::default()).default_backoff().boxed();
        let mut events = watch();
        loop {
            let event = tokio::select! {
                Some(event) = events.next() => event,
                // The sender lives in self.
                _ = lists.changed() => {
                    events = watch();
                    continue;
                }
            };
            let fault = match event {
                Ok(event) => {
                    writer.apply_watcher_event(&event);
                    None
                }
                Err(error) => {
                    if is_denial(&error) {
                        self.client.denied();
                    }
                    let error = rest::with_causes(&error);
                    tracing::warn!(
                        kind = kind.resource.kind,
                        error,
                        "the kind cannot be watched; trying again"
                    );
                    Some(error)
                }
            };
            *kind.fault.lock() = fault;
            self.changed.notify_one();
        }
    }
}

/// Whether the API server has answered 403.
fn is_denial(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(error)
    | watcher::Error::WatchStartFailed(error)
    | watcher::Error::WatchFailed(error)) = error
    else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use bytes::Bytes;
    use futures::stream::{self, BoxStream};
    use http::{Request, Response};
    use http_body::Frame;
    use http_body_util::StreamBody;
    use kube::client::Body;
    use serde_json::json;
    use tokio::time::timeout;

    use super::super::KINDS;
    use super::*;
    use crate::client::ApiClient;

    type Sent = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

    /// An API server. The first watch of each of the dead kinds stops without an error: it is never answered,
    /// or it is open and silent. All other watches send an object.
    struct Server {
        dead: Vec<&'static str>,
        is_answered: bool,
        watches: [AtomicUsize; KINDS.len()],
    }

    impl Server {
        async fn answer(self: Arc<Self>, request: Request<Body>) -> Result<Response<Sent>, Infallible> {
            let of_kind = |(_, plural): &(&str, &str)| request.uri().path().ends_with(plural);
            let at = KINDS.iter().position(of_kind).unwrap();
            let kind = KINDS[at].0;
            let list = json!({
                "kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [],
            });
            if !request.uri().query().is_some_and(|query| query.contains("watch=true")) {
                let sent = stream::iter([Ok(Frame::data(Bytes::from(list.to_string())))]);
                return Ok(Response::new(StreamBody::new(sent.boxed())));
            }
            let is_dead = self.watches[at].fetch_add(1, Ordering::Relaxed) == 0 && self.dead.contains(&kind);
            if is_dead && !self.is_answered {
                return pending().await;
            }
            let metadata = json!({"name": "o", "uid": "u", "resourceVersion": "2"});
            let object =
                json!({"apiVersion": "policy.bindery.dev/v1alpha1", "kind": kind, "metadata": metadata});
            let added = format!("{}\n", json!({"type": "ADDED", "object": object}));
            let sent = (!is_dead).then(|| Ok(Frame::data(Bytes::from(added))));
            Ok(Response::new(StreamBody::new(stream::iter(sent).chain(stream::pending()).boxed())))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_dies_without_a_word_is_opened_again() {
        let kinds = KINDS.map(|(kind, _)| kind);
        let sets = kinds.iter().map(|kind| vec![*kind]).chain([kinds.to_vec()]);
        for (dead, is_answered) in sets.flat_map(|set| [(set.clone(), false), (set, true)]) {
            let tried = format!("{dead:?}, answered: {is_answered}");
            let server = Arc::new(Server { dead, is_answered, watches: Default::default() });
            let service = tower::service_fn(move |request| Arc::clone(&server).answer(request));
            let client = ApiClient::from(kube::Client::new(service, "default"));
            let (objects, watching) = PolicyObjects::new(&client);
            let watching = tokio::spawn(watching.run());
            let heard = async {
                while objects.all().len() < KINDS.len() {
                    objects.changed().await;
                }
            };
            assert!(timeout(Duration::from_secs(100), heard).await.is_ok(), "{tried}");
            let silences: Vec<_> = objects.silences().map(|(_, seconds)| seconds).collect();
            assert!(silences.len() == KINDS.len() && silences.contains(&0), "{tried}: {silences:?}");
            watching.abort();
        }
    }
}
