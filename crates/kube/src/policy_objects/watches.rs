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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use futures::stream::{self, BoxStream};
    use http::{Request, Response};
    use http_body::Frame;
    use http_body_util::StreamBody;
    use kube::client::Body;

    use serde_json::json;

    use super::super::KINDS;
    use super::*;
    use crate::client::ApiClient;

    type Sent = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

    /// An API server without objects, whose first watch of each kind dies without a word. Later ones tell of
    /// an engine.
    async fn answer(watches: Arc<AtomicUsize>, request: Request<Body>) -> Result<Response<Sent>, Infallible> {
        let metadata = json!({"name": "e", "uid": "u", "resourceVersion": "2"});
        let engine =
            json!({"apiVersion": "policy.bindery.dev/v1alpha1", "kind": "Engine", "metadata": metadata});
        let list =
            json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []});
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let text = match is_watch {
            false => list.to_string(),
            true if watches.fetch_add(1, Ordering::Relaxed) < KINDS.len() => String::new(),
            true => format!("{}\n", json!({"type": "ADDED", "object": engine})),
        };
        let sent = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from(text)))]);
        let stream = match is_watch {
            false => sent.boxed(),
            true => sent.chain(stream::pending()).boxed(),
        };
        Ok(Response::new(StreamBody::new(stream)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_dies_without_a_word_is_opened_again() {
        let watches = Arc::<AtomicUsize>::default();
        let service = tower::service_fn(move |request| answer(Arc::clone(&watches), request));
        let client = ApiClient::from(kube::Client::new(service, "default"));
        let (objects, watching) = PolicyObjects::new(&client);
        let watching = tokio::spawn(watching.run());
        while objects.all().is_empty() {
            objects.changed().await;
        }
        let silences: Vec<_> = objects.silences().map(|(_, seconds)| seconds).collect();
        assert!(silences.len() == KINDS.len() && silences.contains(&0), "{silences:?}");
        watching.abort();
    }
}
