//! Kubernetes events (core/v1), correlated and limited so that stuck claims do not flood the API server.
//!
//! Emitting an event never waits: the note is queued until [`EventWorker::run`] writes it, and at most one
//! note is queued for each event. All events of a process share one rate limit, which is that of all
//! requests of kube-controller-manager. The first event of an object and reason is written before any
//! repetition, so every stuck claim is explained before an explanation is repeated.

mod correlate;
mod loss;
mod object;
mod queue;
mod rate;

use std::sync::Arc;
use std::time::Duration;

use bindery_controller::{EVENT_REFRESH, Note};
use bindery_core::Timestamp;
use http::Method;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tracing::Instrument as _;

use self::correlate::{Correlated, Correlator};
pub use self::loss::EventLoss;
pub(crate) use self::object::{body, time};
use self::queue::{Queue, Queued};
pub(crate) use self::rate::Rate;
use crate::client::ApiClient;
use crate::rest::{self, Fault};

/// Source component of every event. It is upstream's, because tools filter by it.
pub const COMPONENT: &str = "persistentvolume-controller";
/// Most attempts to write one event.
const ATTEMPTS_MAX: u32 = 3;
/// Pause between two attempts.
const RETRY: Duration = Duration::from_secs(1);

/// Emits events. Cheap to clone.
#[derive(Clone)]
pub struct Events {
    shared: Arc<Shared>,
    wake: mpsc::Sender<()>,
}

/// Writes the events that [`Events`] emits.
pub struct EventWorker {
    client: ApiClient,
    shared: Arc<Shared>,
    /// Receives when a note is queued.
    woken: mpsc::Receiver<()>,
}

struct Shared {
    state: Mutex<State>,
    /// Number of events that were not written, by cause.
    losses: [Counter; EventLoss::ALL.len()],
    /// Whether every note has been written or given up.
    idle: watch::Sender<bool>,
}

struct State {
    correlator: Correlator,
    queue: Queue,
}

impl Events {
    /// A sender of events, and the worker that writes them.
    pub fn new(client: impl Into<ApiClient>) -> (Self, EventWorker) {
        Self::with_refresh(client, EVENT_REFRESH)
    }

    /// The same, for a binder that emits the event of a waiting object again each `refresh`. The limit for
    /// one object then admits one event in each `refresh`.
    pub fn with_refresh(client: impl Into<ApiClient>, refresh: Duration) -> (Self, EventWorker) {
        let (wake, woken) = mpsc::channel(1);
        let refresh = Timestamp::try_from(refresh.as_secs()).unwrap_or(Timestamp::MAX);
        let correlator = Correlator::new(refresh.clamp(1, correlate::REFILL));
        let state = Mutex::new(State { correlator, queue: Queue::default() });
        let shared = Arc::new(Shared { state, losses: Default::default(), idle: watch::Sender::new(true) });
        let worker = EventWorker { client: client.into(), shared: Arc::clone(&shared), woken };
        (Self { shared, wake }, worker)
    }

    /// Queues a note, or drops it if the worker has ended.
    pub fn emit(&self, note: &Note, now: Timestamp) {
        if self.wake.is_closed() {
            return;
        }
        if let Err(error) = object::folder(&note.regarding) {
            self.shared.losses[EventLoss::NoObject as usize].inc();
            tracing::warn!(%error, reason = note.reason, "an event is dropped");
            return;
        }
        self.shared.queue(note, now);
        // An error means that the worker will wake anyway, or has ended.
        let _ = self.wake.try_send(());
    }

    /// Number of events that were not written for this cause.
    pub fn dropped(&self, cause: EventLoss) -> u64 {
        self.shared.losses[cause as usize].get()
    }

    /// Waits until every note has been written or given up. Returns at once if the worker has ended.
    pub async fn flush(&self) {
        let mut idle = self.shared.idle.subscribe();
        tokio::select! {
            // `self` holds the sender, so this cannot fail.
            _ = idle.wait_for(|idle| *idle) => {}
            () = self.wake.closed() => {}
        }
    }
}

impl Shared {
    fn queue(&self, note: &Note, now: Timestamp) {
        let mut state = self.state.lock();
        let State { correlator, queue } = &mut *state;
        let correlated = correlator.observe(note, now);
        // A note that replaces a queued one causes no further write.
        if !queue.has(correlated.id) && !correlator.take_token(note, now) {
            tracing::debug!(?note, "an event is suppressed: too many of its object");
            return;
        }
        if let Some(surplus) = queue.put(Queued { note: note.clone(), correlated }) {
            correlator.forget(&surplus.note);
            self.losses[EventLoss::QueueFull as usize].inc();
            tracing::debug!(note = ?surplus.note, "an event is dropped: the queue is full");
        }
        self.idle.send_replace(false);
    }

    /// Whether the queue is empty; if so, wakes those that wait in [`Events::flush`].
    fn is_done(&self) -> bool {
        let state = self.state.lock();
        let is_done = state.queue.is_empty();
        if is_done {
            self.idle.send_replace(true);
        }
        is_done
    }
}

impl EventWorker {
    /// Writes events until all [`Events`] are dropped.
    pub async fn run(mut self) {
        while self.woken.recv().await.is_some() {
            while !self.shared.is_done() {
                // This waits before it takes a note, because a first one may be queued meanwhile.
                self.client.event_rate().ready().await;
                let next = self.shared.state.lock().queue.pop();
                let Some(Queued { note, correlated }) = next else { continue };
                let (object, uid) = (note.regarding.to_string(), &*note.regarding.uid().0);
                let span = tracing::error_span!("event", object, uid);
                self.write(&note, &correlated).instrument(span).await;
            }
        }
    }

    async fn write(&mut self, note: &Note, correlated: &Correlated) {
        // `emit` has dropped notes without a folder.
        let Ok(folder) = object::folder(&note.regarding) else { return };
        if !correlated.is_new {
            match self.count(&folder, note, correlated).await {
                Ok(()) => return,
                // The event has expired on the API server.
                Err(Fault::Refused { code: 404, .. }) => {}
                Err(fault) => return self.lose(note, &fault),
            }
        }
        if let Err(fault) = self.create(&folder, note, correlated).await {
            self.lose(note, &fault);
            self.shared.state.lock().correlator.forget(note);
        }
    }

    fn lose(&self, note: &Note, fault: &Fault) {
        self.shared.losses[EventLoss::of(fault) as usize].inc();
        tracing::warn!(%fault, reason = note.reason, "an event cannot be written");
    }

    /// Creates a new event.
    async fn create(&mut self, folder: &str, note: &Note, correlated: &Correlated) -> Result<(), Fault> {
        let event = object::event(note, correlated);
        match self.send(Method::POST, folder, event).await {
            // An earlier attempt without an answer has created it.
            Err(Fault::Refused { reason, .. }) if reason == "AlreadyExists" => Ok(()),
            sent => sent,
        }
    }

    /// Counts a note in an event that exists.
    async fn count(&mut self, folder: &str, note: &Note, correlated: &Correlated) -> Result<(), Fault> {
        let path = format!("{folder}/{}", rest::encode(&object::event_name(note, correlated)));
        self.send(Method::PATCH, &path, object::patch(correlated)).await
    }

    async fn send(&mut self, method: Method, path: &str, body: Value) -> Result<(), Fault> {
        let mut attempt = 1;
        loop {
            match send(&self.client, method.clone(), path, &body).await {
                Ok(()) => return Ok(()),
                Err(fault) if attempt == ATTEMPTS_MAX || is_final(&fault) => return Err(fault),
                Err(_) => tokio::time::sleep(RETRY).await,
            }
            attempt += 1;
        }
    }
}

/// Sends a request for an event as soon as the rate limit admits it.
pub(crate) async fn send(client: &ApiClient, method: Method, path: &str, body: &Value) -> Result<(), Fault> {
    client.event_rate().take().await;
    rest::json(client, method, path, Some(body)).await.map(drop)
}

/// Whether another attempt would get the same answer.
fn is_final(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused { code: 400..=428, .. })
}
