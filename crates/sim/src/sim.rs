//! The simulator as its users hold it.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::faults::Faults;
use crate::registry::{self, Resource};
use crate::request::Verb;
use crate::service::SimService;
use crate::state::State;
use crate::store::Key;
use crate::{object, serve};

/// Settings of a simulator.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Where random choice (UIDs, generated names) starts.
    pub seed: u64,
    /// Where time comes from.
    pub clock: Clock,
    /// Whether volumes and claims are protected while in use, as by `StorageObjectInUseProtection` and the
    /// two protection controllers: finalizers added at creation, removed when a deleted object is no longer
    /// used.
    pub protection: bool,
    /// Whether what controllers beside the API server do is done: the two protection controllers, where
    /// `protection` is on, and the end of namespaces that are being deleted. Without, it is an API server
    /// alone.
    pub controllers: bool,
    /// Whether the strategies of the real server apply: defaults, admission, validation, a status that nobody
    /// can create, finalizers that hold a deletion back. Without them only versions and UIDs are checked, as
    /// by the API server that upstream's unit tests use and that recorded cases come from.
    pub strategies: bool,
    /// How many changes are remembered for watches and pages; older ones expire.
    pub history_max: usize,
    /// Whether [`Sim::requests`] holds reads too.
    pub log_reads: bool,
}

impl Default for SimOptions {
    fn default() -> Self {
        SimOptions {
            seed: 0,
            clock: Clock::default(),
            protection: true,
            controllers: true,
            strategies: true,
            // A busy test makes a few thousand changes; a change is a few hundred bytes.
            history_max: 20_000,
            log_reads: false,
        }
    }
}

impl SimOptions {
    /// An API server that checks versions and UIDs and nothing else; see [`SimOptions::strategies`].
    pub fn bare() -> Self {
        SimOptions { protection: false, strategies: false, ..SimOptions::default() }
    }
}

/// One request that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// The verb.
    pub verb: Verb,
    /// The resource's plural.
    pub resource: String,
    /// The subresource; empty for the main resource.
    pub subresource: String,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The name; empty for collections. For creations the name that was given or generated, where there was
    /// one.
    pub name: String,
    /// The HTTP status code of the answer, also when the answer was lost.
    pub code: u16,
    /// Whether it was a read for a safety check (see [`crate::GUARD_HEADER`]).
    pub live_read: bool,
}

/// An object that cannot be seeded.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// The kind is none that the simulator serves.
    #[error(
        "object {name:?} has apiVersion {api_version:?} and kind {kind:?}, which the simulator does not serve"
    )]
    UnknownKind {
        /// The object's name.
        name: String,
        /// The object's apiVersion.
        api_version: String,
        /// The object's kind.
        kind: String,
    },
    /// The object has no name.
    #[error("a {kind} has no metadata.name: give it one")]
    NoName {
        /// The object's kind.
        kind: String,
    },
    /// A namespaced object has no namespace.
    #[error("{kind} {name:?} has no metadata.namespace: give it one")]
    NoNamespace {
        /// The object's kind.
        kind: String,
        /// The object's name.
        name: String,
    },
}

pub(crate) struct Inner {
    pub(crate) state: Mutex<State>,
    pub(crate) faults: Faults,
    pub(crate) log_reads: bool,
    pub(crate) clock: Clock,
    /// The newest revision; watches wait for it to change.
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
    /// A cluster with its four system namespaces and nothing else.
    pub fn new(options: SimOptions) -> Sim {
        let (log_reads, clock) = (options.log_reads, options.clock.clone());
        let state = State::new(options);
        let revisions = watch::Sender::new(state.store.revision());
        let state = Mutex::new(state);
        Sim { inner: Arc::new(Inner { state, faults: Faults::default(), log_reads, clock, revisions }) }
    }

    /// The API as a tower service, for `kube::Client::new`.
    pub fn service(&self) -> SimService {
        SimService::new(self.clone(), None)
    }

    /// Serves HTTP/1.1 and HTTP/2 (without TLS) until `stop`; then watches end, running requests are
    /// answered, and connections are closed.
    ///
    /// # Errors
    ///
    /// Where the listener fails for good.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<()> {
        serve::serve(self, listener, stop).await
    }

    /// Adds objects past validation, defaulting and admission. A UID is kept where given, else made; the
    /// resourceVersion is assigned; status is kept. Missing namespaces are made.
    ///
    /// # Errors
    ///
    /// At the first object whose kind is unknown or that lacks a name or namespace; those before it are in,
    /// as if they had been all.
    pub fn seed(&self, objects: impl IntoIterator<Item = Value>) -> Result<(), SeedError> {
        let mut state = self.state();
        let seeded = objects.into_iter().try_for_each(|object| {
            let resource = check(&object)?;
            state.put_past_validation(resource, object);
            Ok(())
        });
        state.settle_protection();
        self.announce(&state);
        seeded
    }

    /// All objects of a resource (`persistentvolumes`, `storageclasses`), sorted by namespace and name. Empty
    /// for a resource that is not served.
    pub fn objects(&self, resource: &str) -> Vec<Value> {
        let Some(resource) = registry::by_name(resource) else {
            return Vec::new();
        };
        self.state().store.all(resource.stored_as).values().map(|object| (**object).clone()).collect()
    }

    /// One object.
    pub fn object(&self, resource: &str, namespace: Option<&str>, name: &str) -> Option<Value> {
        let resource = registry::by_name(resource)?;
        let key = Key::new(namespace.unwrap_or(""), name);
        self.state().store.get(resource.stored_as, &key).map(|object| (**object).clone())
    }

    /// Writes an object as another actor would who may do anything: past validation, conflicts and faults.
    /// Watches see it. The UID of an existing object is kept unless one is given.
    ///
    /// # Panics
    ///
    /// Where the object could not be seeded: a test that puts such an object is wrong.
    pub fn put(&self, object: Value) {
        if let Err(why) = self.seed([object]) {
            panic!("{why}");
        }
    }

    /// Removes an object as another actor would who may do anything: finalizers and faults do not count. Does
    /// nothing where there is none.
    pub fn remove(&self, resource: &str, namespace: Option<&str>, name: &str) {
        if let Some(resource) = registry::by_name(resource) {
            let mut state = self.state();
            state.remove(resource.stored_as, &Key::new(namespace.unwrap_or(""), name));
            state.settle_protection();
            self.announce(&state);
        }
    }

    /// The faults to come.
    pub fn faults(&self) -> &Faults {
        &self.inner.faults
    }

    /// The requests answered so far, in order: writes, and reads where [`SimOptions::log_reads`] says so.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.state().requests.clone()
    }

    /// Like [`Sim::requests`], and forgets them.
    pub fn take_requests(&self) -> Vec<RequestRecord> {
        std::mem::take(&mut self.state().requests)
    }

    /// The resourceVersion of the newest change.
    pub fn revision(&self) -> u64 {
        self.state().store.revision()
    }

    /// Expires the history: watches and pages that start from older versions get 410.
    pub fn compact(&self) {
        self.state().store.compact();
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held is a test's panic; the state is still whole between changes.
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
    let name = object::name(object).to_owned();
    let resource = registry::by_kind(api_version, kind).ok_or_else(|| SeedError::UnknownKind {
        name: name.clone(),
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
    })?;
    if name.is_empty() {
        return Err(SeedError::NoName { kind: kind.to_owned() });
    }
    if resource.namespaced && object::namespace(object).is_empty() {
        return Err(SeedError::NoNamespace { kind: kind.to_owned(), name });
    }
    Ok(resource)
}
