//! Kubernetes events (core/v1), aggregated and limited so that stuck claims do not flood the API server.
//!
//! Recording never waits: a note waits in memory until [`EventWorker::run`] writes it, and at most one note
//! waits for each event. All events of a process together are limited as client-go limits all requests of
//! kube-controller-manager. First events of an object and reason are written before all others, so that every
//! stuck claim is explained before any explanation is repeated.

mod correlate;
mod loss;
mod object;
mod pending;
mod rate;
mod recent;

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bindery_controller::{EVENT_REFRESH, Note};
use bindery_core::{EventType, Regarding, Timestamp};
use kube::client::Body;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tracing::{Instrument as _, Span};

use self::correlate::{Correlated, Correlator};
pub use self::loss::EventLoss;
use self::loss::Losses;
pub(crate) use self::object::time;
use self::pending::{Pending, PendingNote};
use self::rate::Rate;
use crate::client::ApiClient;
use crate::rest::{self, Fault};

/// Source component of every event; upstream's, because tools filter by it.
pub const COMPONENT: &str = "persistentvolume-controller";
/// Most attempts to write one event.
const ATTEMPTS_MAX: u32 = 3;
/// Pause between two of them.
const RETRY: Duration = Duration::from_secs(1);

/// Records events. Cheap to clone.
#[derive(Clone)]
pub struct Events {
    shared: Arc<Shared>,
    wake: mpsc::Sender<()>,
}

/// Writes what [`Events`] records.
pub struct EventWorker {
    client: ApiClient,
    shared: Arc<Shared>,
    /// Correlated when a note waits.
    woken: mpsc::Receiver<()>,
    rate: Rate,
}

struct Shared {
    state: Mutex<State>,
    losses: Losses,
    /// Whether everything that was recorded is written or given up.
    idle: watch::Sender<bool>,
}

struct State {
    correlator: Correlator,
    pending: Pending,
}

/// An event to be recorded for an object.
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
        Self::with_refresh(client, EVENT_REFRESH)
    }

    /// The same, for a binder that records the event of a waiting object again each time `refresh` has
    /// passed. The limit for a single object admits one event in each `refresh`.
    pub fn with_refresh(client: impl Into<ApiClient>, refresh: Duration) -> (Self, EventWorker) {
        let (wake, woken) = mpsc::channel(1);
        let refresh = Timestamp::try_from(refresh.as_secs()).unwrap_or(Timestamp::MAX);
        let correlator = Correlator::new(refresh.clamp(1, correlate::REFILL));
        let state = Mutex::new(State { correlator, pending: Pending::default() });
        let shared = Arc::new(Shared { state, losses: Losses::default(), idle: watch::Sender::new(true) });
        let worker =
            EventWorker { client: client.into(), shared: Arc::clone(&shared), woken, rate: Rate::new() };
        (Self { shared, wake }, worker)
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

    /// Records an entry, or drops it if the worker has ended.
    pub(crate) fn submit(&self, entry: Entry, now: Timestamp) {
        if self.wake.is_closed() {
            return;
        }
        if let Err(error) = object::folder(&entry.regarding) {
            self.shared.losses.count(EventLoss::NoObject);
            tracing::warn!(%error, reason = %entry.reason, "an event is dropped");
            return;
        }
        self.shared.submit(entry, now);
        // An error means that the worker is already woken, or has ended.
        let _ = self.wake.try_send(());
    }

    /// How many events were not written because of this.
    pub fn dropped(&self, cause: EventLoss) -> u64 {
        self.shared.losses.get(cause)
    }

    /// Ends when everything that was recorded has been written or given up; at once where no worker is left.
    pub async fn flush(&self) {
        let mut idle = self.shared.idle.subscribe();
        tokio::select! {
            // This value holds the sender too, so the wait cannot fail.
            _ = idle.wait_for(|idle| *idle) => {}
            () = self.wake.closed() => {}
        }
    }
}

impl Shared {
    fn submit(&self, entry: Entry, now: Timestamp) {
        let mut state = self.state();
        let State { correlator, pending } = &mut *state;
        let correlated = correlator.observe(&entry, now);
        // A note that takes the place of one that waits makes no further write.
        if !pending.has(correlated.id) && !correlator.take_token(&entry, now) {
            tracing::debug!(?entry, "an event is suppressed: too many of its object");
            return;
        }
        if let Some(surplus) = pending.put(PendingNote { entry, correlated }) {
            correlator.forget(&surplus.entry);
            self.losses.count(EventLoss::QueueFull);
            tracing::debug!(entry = ?surplus.entry, "an event is dropped: too many wait");
        }
        self.idle.send_replace(false);
    }

    /// Whether nothing is left to be written.
    fn is_done(&self) -> bool {
        let state = self.state();
        let is_done = state.pending.is_empty();
        if is_done {
            self.idle.send_replace(true);
        }
        is_done
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventWorker {
    /// Writes events until every [`Events`] is dropped.
    pub async fn run(mut self) {
        while self.woken.recv().await.is_some() {
            while !self.shared.is_done() {
                // Before a note is taken: a first one may come meanwhile.
                self.rate.ready().await;
                let note = self.shared.state().pending.pop();
                let Some(PendingNote { entry, correlated }) = note else { continue };
                let span = entry.span();
                self.write(&entry, &correlated).instrument(span).await;
            }
        }
    }

    async fn write(&mut self, entry: &Entry, correlated: &Correlated) {
        // It was looked at when the note was recorded.
        let Ok(folder) = object::folder(&entry.regarding) else { return };
        if !correlated.is_new {
            match self.count(&folder, entry, correlated).await {
                Ok(()) => return,
                // It has expired on the API server.
                Err(Fault::Refused { code: 404, .. }) => {}
                Err(fault) => return self.lose(entry, &fault),
            }
        }
        if let Err(fault) = self.create(&folder, entry, correlated).await {
            self.lose(entry, &fault);
            self.shared.state().correlator.forget(entry);
        }
    }

    fn lose(&self, entry: &Entry, fault: &Fault) {
        self.shared.losses.count(EventLoss::of(fault));
        tracing::warn!(%fault, reason = %entry.reason, "an event cannot be written");
    }

    /// Writes a new event.
    async fn create(&mut self, folder: &str, entry: &Entry, correlated: &Correlated) -> Result<(), Fault> {
        let event = object::event(entry, correlated);
        match self.send(http::Method::POST, folder, "application/json", &event).await {
            // An attempt before this one has made it, though no answer came.
            Err(Fault::Refused { reason, .. }) if reason == "AlreadyExists" => Ok(()),
            sent => sent,
        }
    }

    /// Counts a note in the event that was written.
    async fn count(&mut self, folder: &str, entry: &Entry, correlated: &Correlated) -> Result<(), Fault> {
        let path = format!("{folder}/{}", rest::encode(&object::event_name(entry, correlated)));
        let patch = object::patch(correlated);
        self.send(http::Method::PATCH, &path, "application/merge-patch+json", &patch).await
    }

    async fn send(
        &mut self,
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
            self.rate.take().await;
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
