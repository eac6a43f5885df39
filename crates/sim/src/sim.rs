//! The simulator and its options.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::clock::Clock;
use crate::faults::Faults;
use crate::http::SimService;
use crate::http::route::Verb;
use crate::http::{receive, socket};
use crate::object;
use crate::registry::{self, Resource};
use crate::state::State;
use crate::storage::{HistoryMax, Key, Snapshot};

/// The changes that watches and pages can read; older ones expire. A busy test makes a few thousand changes
/// of a few hundred bytes.
const HISTORY_MAX: HistoryMax = HistoryMax { changes: 20_000, bytes: 64 * 1024 * 1024 };

/// Settings of a simulator.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// The seed of UIDs and generated names.
    pub seed: u64,
    /// The source of time.
    pub clock: Clock,
    /// Whether controllers beside the API server run: the two protection controllers, the deletion of
    /// namespaces, garbage collection, and the claims of StatefulSets.
    pub controllers: bool,
    /// Whether the strategies of the real server apply: defaults, admission, validation, a status that a
    /// creation cannot set, finalizers that delay a deletion. Without them the simulator checks versions and
    /// UIDs only, as the API server of upstream's unit tests does.
    pub strategies: bool,
    /// The requests that [`Sim::requests`] returns.
    pub log: RequestLog,
}

impl Default for SimOptions {
    fn default() -> Self {
        SimOptions {
            seed: 0,
            clock: Clock::default(),
            controllers: true,
            strategies: true,
            log: RequestLog::Writes,
        }
    }
}

/// Which requests are logged. The log grows until it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestLog {
    /// None.
    Off,
    /// Writes.
    Writes,
    /// Writes and reads.
    All,
}

impl RequestLog {
    pub(crate) fn has(self, verb: Verb) -> bool {
        self == RequestLog::All || (self == RequestLog::Writes && verb.is_write())
    }
}

impl SimOptions {
    /// An API server that checks versions and UIDs only; see [`SimOptions::strategies`].
    pub fn bare() -> Self {
        SimOptions { strategies: false, ..SimOptions::default() }
    }
}

/// One answered request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedRequest {
    /// The verb.
    pub verb: Verb,
    /// The resource's plural.
    pub resource: String,
    /// The subresource; empty for the main resource.
    pub subresource: String,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The name; empty for collections. For creations the given or generated name, if there was one.
    pub name: String,
    /// The HTTP status code of the answer, even if the answer was lost.
    pub code: u16,
    /// Whether it was a read for a safety check (see [`crate::GUARD_HEADER`]).
    pub live_read: bool,
}

/// An object that cannot be seeded. The text names the object and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SeedError(String);

pub(crate) struct Inner {
    pub(crate) state: Mutex<State>,
    pub(crate) faults: Faults,
    pub(crate) log: RequestLog,
    pub(crate) room_for_bodies: Arc<Semaphore>,
    pub(crate) clock: Clock,
    /// The current revision; watches wait for its changes.
    pub(crate) revisions: watch::Sender<u64>,
}

/// An in-process Kubernetes API server. Clones share one state.
#[derive(Clone)]
pub struct Sim {
    pub(crate) inner: Arc<Inner>,
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim").field("revision", &self.state().store.revision()).finish_non_exhaustive()
    }
}

impl Sim {
    /// A cluster with the four system namespaces and no other objects.
    pub fn new(options: SimOptions) -> Sim {
        let (log, clock) = (options.log, options.clock.clone());
        let state = State::new(options, HISTORY_MAX);
        let revisions = watch::Sender::new(state.store.revision());
        let state = Mutex::new(state);
        let (faults, room_for_bodies) = (Faults::default(), receive::room());
        Sim { inner: Arc::new(Inner { state, faults, log, clock, revisions, room_for_bodies }) }
    }

    /// The API as a tower service, for `kube::Client::new`.
    pub fn service(&self) -> SimService {
        SimService::new(self.clone(), None)
    }

    /// Serves HTTP/1.1 and HTTP/2 (without TLS) until `stop`. Then watches end, running requests are
    /// answered, and connections are closed. Deleted pods go when their grace period is over. Requests
    /// for another host than the listener's address, and those of web pages, are refused.
    ///
    /// # Errors
    ///
    /// When the listener fails permanently.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<()> {
        socket::serve(self, listener, stop).await
    }

    /// Adds objects without validation, defaults and admission. A missing UID and missing namespaces are
    /// added, the resourceVersion is assigned, and the status is kept.
    ///
    /// # Errors
    ///
    /// At the first object with an unknown kind or without a name or namespace. The objects before it are
    /// added.
    pub fn seed(&self, objects: impl IntoIterator<Item = Value>) -> Result<(), SeedError> {
        let mut state = self.state();
        let seeded = objects.into_iter().try_for_each(|object| {
            let resource = check(&object)?;
            state.put_past_validation(resource, object);
            Ok(())
        });
        state.run_controllers();
        self.announce(&state);
        seeded
    }

    /// All objects of a resource (`persistentvolumes`, `storageclasses`), sorted by namespace and name. Empty
    /// for a resource that is not served.
    pub fn objects(&self, resource: &str) -> Vec<Value> {
        self.map_objects(resource, Value::clone)
    }

    /// What `map` makes of each object of a resource; see [`Sim::objects`]. Nothing is copied.
    pub fn map_objects<T>(&self, resource: &str, map: impl FnMut(&Value) -> T) -> Vec<T> {
        let Some(resource) = registry::by_name(resource) else { return Vec::new() };
        self.state().store.all(resource.kind).values().map(Arc::as_ref).map(map).collect()
    }

    /// One object.
    pub fn object(&self, resource: &str, namespace: Option<&str>, name: &str) -> Option<Value> {
        let resource = registry::by_name(resource)?;
        let key = Key::new(namespace.unwrap_or(""), name);
        self.state().store.get(resource.kind, &key).map(|object| (**object).clone())
    }

    /// Writes an object without validation, conflicts and faults, as another actor with all rights. Watches
    /// see it. An existing object keeps its UID unless a new one is given.
    ///
    /// # Panics
    ///
    /// When [`Sim::seed`] refuses the object, which is a mistake in the test.
    pub fn put(&self, object: Value) {
        if let Err(why) = self.seed([object]) {
            panic!("{why}");
        }
    }

    /// Removes an object regardless of finalizers and faults, as another actor with all rights. Does nothing
    /// if there is no such object.
    pub fn remove(&self, resource: &str, namespace: Option<&str>, name: &str) {
        if let Some(resource) = registry::by_name(resource) {
            let mut state = self.state();
            state.remove(resource.kind, &Key::new(namespace.unwrap_or(""), name));
            state.run_controllers();
            self.announce(&state);
        }
    }

    /// The injected faults.
    pub fn faults(&self) -> &Faults {
        &self.inner.faults
    }

    /// The answered requests in order, as far as [`SimOptions::log`] says.
    pub fn requests(&self) -> Vec<LoggedRequest> {
        self.state().requests.clone()
    }

    /// Takes the requests of [`Sim::requests`] out of the log.
    pub fn take_requests(&self) -> Vec<LoggedRequest> {
        std::mem::take(&mut self.state().requests)
    }

    /// The resourceVersion of the newest change.
    pub fn revision(&self) -> u64 {
        self.state().store.revision()
    }

    /// Drops the history: watches and pages from older versions get 410.
    pub fn compact(&self) {
        self.state().store.compact();
    }

    /// What is stored now.
    pub fn snapshot(&self) -> Snapshot {
        self.state().store.snapshot()
    }

    /// Stores what was stored at an earlier moment, as a restore of etcd does. Resource versions go back, and
    /// are given again. An API server is restarted after a restore, so the caller ends the open watches.
    pub fn restore(&self, snapshot: &Snapshot) {
        let mut state = self.state();
        state.restore(snapshot);
        self.announce(&state);
    }

    /// Removes the deleted pods whose grace period is over.
    pub(crate) fn end_pods(&self) {
        let mut state = self.state();
        state.end_pods();
        state.run_controllers();
        self.announce(&state);
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A panic under the lock is the panic of a test; the state is consistent between changes.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the watches.
    pub(crate) fn announce(&self, state: &State) {
        let revision = state.store.revision();
        self.inner.revisions.send_if_modified(|known| std::mem::replace(known, revision) != revision);
    }
}

fn check(object: &Value) -> Result<&'static Resource, SeedError> {
    let (api_version, kind) = (object::text(object, "/apiVersion"), object::text(object, "/kind"));
    let name = object::name(object);
    let why = match registry::by_kind(api_version, kind) {
        None => format!(
            "object {name:?} has apiVersion {api_version:?} and kind {kind:?}, which the simulator \
             does not serve"
        ),
        Some(_) if name.is_empty() => format!("a {kind} has no metadata.name: give it one"),
        Some(resource) if resource.namespaced && object::namespace(object).is_empty() => {
            format!("{kind} {name:?} has no metadata.namespace: give it one")
        }
        Some(resource) => return Ok(resource),
    };
    Err(SeedError(why))
}
