//! Kubernetes events (core/v1), aggregated so that a stuck claim does not flood the API server.
//!
//! Recording never waits: a note goes into a bounded queue, and [`EventWorker::run`] writes it. When the
//! queue is full the note is dropped and counted, as upstream's broadcaster does.

mod correlate;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bindery_controller::{Note, WriteError};
use bindery_core::{EventType, Regarding, Timestamp};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tracing::{Instrument as _, Span};

use self::correlate::{Correlator, Verdict};
use crate::client::ApiClient;
use crate::request;
use crate::rest::{self, Fault};

/// Source component of every event; upstream's, because tools filter by it.
pub const COMPONENT: &str = "persistentvolume-controller";
/// Most notes that wait to be written (client-go's broadcaster queues as many).
const QUEUE_MAX: usize = 1_000;
/// Most attempts to write one event.
const ATTEMPTS_MAX: u32 = 3;
/// Pause between two of them.
const RETRY: Duration = Duration::from_secs(1);
/// Longest message that the API server takes (events.k8s.io).
const MESSAGE_BYTES_MAX: usize = 1_024;

/// Records events. Cheap to clone.
#[derive(Clone)]
pub struct Events {
    queue: mpsc::Sender<Message>,
    dropped: Arc<AtomicU64>,
}

/// Writes what [`Events`] records.
pub struct EventWorker {
    client: ApiClient,
    queue: mpsc::Receiver<Message>,
    correlator: Correlator,
    dropped: Arc<AtomicU64>,
}

enum Message {
    Note(Entry, Timestamp),
    Flush(oneshot::Sender<()>),
}

/// What is to be told about an object.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) regarding: Regarding,
    pub(crate) event_type: EventType,
    pub(crate) reason: Cow<'static, str>,
    pub(crate) message: String,
}

impl Events {
    /// A recorder, and the worker that has to run for anything to be written.
    pub fn new(client: impl Into<ApiClient>) -> (Self, EventWorker) {
        let (sender, queue) = mpsc::channel(QUEUE_MAX);
        let (client, dropped) = (client.into(), Arc::<AtomicU64>::default());
        let worker =
            EventWorker { client, queue, correlator: Correlator::default(), dropped: Arc::clone(&dropped) };
        (Self { queue: sender, dropped }, worker)
    }

    /// Records a note, at this time.
    pub fn record(&self, note: &Note, now: Timestamp) {
        let entry = Entry {
            regarding: note.regarding.clone(),
            event_type: note.event_type,
            reason: Cow::Borrowed(note.reason),
            message: note.message.clone(),
        };
        self.submit(entry, now);
    }

    pub(crate) fn submit(&self, entry: Entry, now: Timestamp) {
        if let Err(error) = self.queue.try_send(Message::Note(entry, now)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%error, "an event is dropped");
        }
    }

    /// How many notes were dropped because the queue was full or its worker gone, or because they are about what cannot be
    /// an object.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Ends when everything recorded so far has been written or given up; at once where no worker runs.
    pub async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if self.queue.send(Message::Flush(done)).await.is_ok() {
            // An error means that the worker is gone, and with it everything that could be waited for.
            let _ = written.await;
        }
    }
}

impl EventWorker {
    /// Writes events until every [`Events`] is dropped.
    pub async fn run(mut self) {
        while let Some(message) = self.queue.recv().await {
            match message {
                Message::Note(entry, now) => {
                    let span = entry.span();
                    self.write(&entry, now).instrument(span).await;
                }
                // Nobody waits any more where that fails.
                Message::Flush(done) => drop(done.send(())),
            }
        }
    }

    async fn write(&mut self, entry: &Entry, now: Timestamp) {
        let folder = match folder(&entry.regarding) {
            Ok(folder) => folder,
            Err(error) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%error, reason = %entry.reason, "an event is dropped");
                return;
            }
        };
        match self.correlator.correlate(entry, now) {
            Verdict::Suppress => tracing::debug!(?entry, "an event is suppressed: too many of its object"),
            Verdict::Create(record) => {
                if let Err(fault) = self.create(&folder, entry, &record).await {
                    tracing::warn!(%fault, reason = %entry.reason, "an event cannot be created");
                    self.correlator.forget(&record);
                }
            }
            Verdict::Repeat(record) => match self.patch(&folder, &record).await {
                // It has expired on the API server: events live for an hour.
                Err(Fault::Refused { code: 404, .. }) => {
                    if let Err(fault) = self.create(&folder, entry, &record).await {
                        tracing::warn!(%fault, reason = %entry.reason, "an event cannot be created");
                    }
                }
                Err(fault) => tracing::warn!(%fault, reason = %entry.reason, "an event cannot be counted"),
                Ok(()) => {}
            },
        }
    }

    async fn create(&self, folder: &str, entry: &Entry, record: &correlate::Record) -> Result<(), Fault> {
        self.send(http::Method::POST, folder, "application/json", &event(entry, record)).await
    }

    async fn patch(&self, folder: &str, record: &correlate::Record) -> Result<(), Fault> {
        // It begins with the name of the object, which was looked at, and ends in digits.
        let path = format!("{folder}/{}", rest::encode(&record.name));
        let change = json!({
            "count": record.count,
            "lastTimestamp": time(record.last),
            "message": message(&record.message),
        });
        self.send(http::Method::PATCH, &path, "application/merge-patch+json", &change).await
    }

    async fn send(
        &self,
        method: http::Method,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<(), Fault> {
        let mut attempt = 1;
        loop {
            let request = http::Request::builder()
                .method(&method)
                .uri(path)
                .header(http::header::CONTENT_TYPE, content_type)
                .body(Body::from(body.to_string().into_bytes()))
                .map_err(|error| Fault::NoAnswer(error.to_string()))?;
            match rest::send(&self.client, request).await {
                Ok(_) => return Ok(()),
                Err(fault) if attempt == ATTEMPTS_MAX || is_final(&fault) => return Err(fault),
                Err(_) => tokio::time::sleep(RETRY).await,
            }
            attempt += 1;
        }
    }
}

impl Entry {
    /// What is logged meanwhile has the object and its UID.
    fn span(&self) -> Span {
        tracing::error_span!("event", object = self.regarding.to_string(), uid = &*self.regarding.uid().0)
    }
}

/// Whether another attempt would be answered alike.
fn is_final(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused { code: 400..=428, .. })
}

fn event(entry: &Entry, record: &correlate::Record) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": record.name, "namespace": namespace(&entry.regarding)},
        "involvedObject": involved(&entry.regarding),
        "type": entry.event_type.name(),
        "reason": entry.reason,
        "message": message(&record.message),
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": "",
        "firstTimestamp": time(record.first),
        "lastTimestamp": time(record.last),
        "count": record.count,
    })
}

/// Where the events of an object are.
///
/// # Errors
///
/// Its names, which an engine may have given, cannot be those of an object.
fn folder(regarding: &Regarding) -> Result<String, WriteError> {
    let name = match regarding {
        Regarding::Claim(claim) => &claim.key.name,
        Regarding::Volume(volume) => &volume.name,
    };
    request::segment(name)?;
    Ok(format!("/api/v1/namespaces/{}/events", request::segment(namespace(regarding))?))
}

/// Events of claims go where the claim is; volumes have no namespace, so theirs go to `default`.
fn namespace(regarding: &Regarding) -> &str {
    match regarding {
        Regarding::Claim(claim) => &claim.key.namespace,
        Regarding::Volume(_) => "default",
    }
}

fn involved(regarding: &Regarding) -> Value {
    match regarding {
        Regarding::Claim(claim) => json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": *claim.key.namespace,
            "name": *claim.key.name,
            "uid": *claim.uid.0,
            "resourceVersion": *claim.version.0,
        }),
        Regarding::Volume(volume) => json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "name": *volume.name,
            "uid": *volume.uid.0,
            "resourceVersion": *volume.version.0,
        }),
    }
}

pub(crate) fn time(seconds: Timestamp) -> String {
    jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}

fn message(text: &str) -> &str {
    let mut end = text.len().min(MESSAGE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
