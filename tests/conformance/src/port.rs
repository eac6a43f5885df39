//! The port of a case: that of a cluster, with a log.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bindery_controller::{Note, Port, Purpose, Write, WriteError, Written};
use bindery_core::{Action, Claim, ClaimKey, Lookup, Text, Timestamp, Volume};
use bindery_kube::ApiPort;

use crate::execution::NAMESPACE;

/// The port of a case: that of a cluster, with a log.
pub(crate) struct CasePort {
    api: ApiPort,
    log: Mutex<Log>,
}

/// The reads, writes and events of a port.
#[derive(Clone, Default)]
pub(crate) struct Log {
    /// The events, in order, as `TYPE REASON`.
    pub(crate) events: Vec<String>,
    /// A line for every live read, write and event, in order.
    pub(crate) trace: Vec<String>,
    /// How many writes succeeded.
    pub(crate) writes: usize,
    /// The messages of writes that the API server found invalid.
    pub(crate) invalid: Vec<String>,
    /// Volumes whose phase was written.
    pub(crate) phased: BTreeSet<Text>,
}

impl CasePort {
    pub(crate) fn new(api: ApiPort) -> Self {
        Self { api, log: Mutex::default() }
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line to the trace.
    pub(crate) fn trace(&self, line: String) {
        self.log().trace.push(line);
    }
}

impl Port for CasePort {
    type Template = <ApiPort as Port>::Template;

    async fn read_volume(&self, name: &Text, purpose: Purpose) -> Lookup<Arc<Volume>> {
        let volume = self.api.read_volume(name, purpose).await;
        self.trace(format!("{purpose:?} reads volume {name}: {volume:?}"));
        volume
    }

    async fn read_claim(&self, key: &ClaimKey, purpose: Purpose) -> Lookup<Arc<Claim>> {
        // The recorded API server found claims by name alone, and all claims of a case are in one namespace.
        // The engine's reads get the same answer as upstream's, under the key that was asked for. The guard's
        // reads get the true one.
        let asked = match purpose {
            Purpose::Engine => &ClaimKey::new(NAMESPACE, &*key.name),
            Purpose::Guard => key,
        };
        let claim = match self.api.read_claim(asked, purpose).await {
            Lookup::Found(claim) if claim.key != *key => {
                Lookup::Found(Arc::new(Claim { key: key.clone(), ..Claim::clone(&claim) }))
            }
            claim => claim,
        };
        self.trace(format!("{purpose:?} reads claim {key}: {claim:?}"));
        claim
    }

    async fn write(&self, write: &Write<Self::Template>) -> Result<Written, WriteError> {
        let result = self.api.write(write).await;
        let outcome = result.as_ref().map_or_else(ToString::to_string, |_| "done".to_owned());
        match (&result, &write.action) {
            (Ok(_), Action::SetVolumePhase { volume, .. }) => {
                self.log().writes += 1;
                self.log().phased.insert(volume.name.clone());
            }
            (Ok(_), _) => self.log().writes += 1,
            (Err(WriteError::Invalid(message)), _) => self.log().invalid.push(message.clone()),
            (Err(_), _) => {}
        }
        self.trace(format!("{} {}: {outcome}; {write:?}", write.name(), write.target().name()));
        result
    }

    fn emit(&self, note: &Note) {
        let event = format!("{} {}", note.event_type.name(), note.reason);
        let mut log = self.log();
        log.trace.push(format!("event {event}: {}", note.message));
        log.events.push(event);
    }

    fn now(&self) -> Timestamp {
        self.api.now()
    }
}
