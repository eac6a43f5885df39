//! Health of a replica.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bindery_controller::Binder;
use bindery_kube::{ApiPort, Events};
use bindery_store::Kind;
use bindery_webhook::{Check, Health};

use super::eligibility::Eligibility;

/// What a replica shows of itself.
#[derive(Clone)]
pub(super) struct Face {
    binder: Arc<Binder<ApiPort>>,
    events: Events,
    leads: Arc<AtomicBool>,
    /// Nothing in observe mode, where no replica leads.
    eligibility: Option<Arc<Eligibility>>,
}

impl Face {
    /// The face of the replica with this binder.
    pub(super) fn new(
        binder: Arc<Binder<ApiPort>>,
        events: Events,
        leads: Arc<AtomicBool>,
        eligibility: Option<Arc<Eligibility>>,
    ) -> Self {
        Self { binder, events, leads, eligibility }
    }

    pub(super) fn binder(&self) -> &Binder<ApiPort> {
        &self.binder
    }

    pub(super) fn events(&self) -> &Events {
        &self.events
    }

    /// Whether it leads.
    pub(super) fn leads(&self) -> bool {
        self.leads.load(Ordering::Relaxed)
    }

    /// What keeps it from leading.
    pub(super) fn causes(&self) -> Vec<String> {
        self.eligibility.as_ref().map(|eligibility| eligibility.causes()).unwrap_or_default()
    }

    fn lists(&self) -> Check {
        let awaited: Vec<_> = self.binder.store().awaited().into_iter().map(|kind| kind.name()).collect();
        let result = if awaited.is_empty() {
            Ok(())
        } else {
            Err(format!("the first list is not complete of: {}", awaited.join(", ")))
        };
        Check { name: "lists", result }
    }

    fn credentials(&self) -> Check {
        let refused = self.binder.port().refusal();
        let result = refused.map_or(Ok(()), |why| Err(format!("the API server refuses them: {why}")));
        Check { name: "credentials", result }
    }

    /// How long nothing has been heard on the watch of each kind, in whole seconds; of kinds of which
    /// anything has been.
    pub(super) fn silences(&self) -> impl Iterator<Item = (Kind, u64)> {
        let freshness = self.binder.intake().freshness();
        Kind::ALL.into_iter().filter_map(|kind| Some((kind, freshness.age(kind)?.as_secs())))
    }
}

impl Health for Face {
    fn live(&self) -> Vec<Check> {
        Vec::new()
    }

    fn ready(&self) -> Vec<Check> {
        let writes = self.leads().then(|| Check { name: "writes", result: self.binder.passage().check() });
        let candidate = self.eligibility.as_ref();
        let candidate = candidate.map(|candidate| Check { name: "candidate", result: candidate.check() });
        [self.lists(), self.credentials()].into_iter().chain(writes).chain(candidate).collect()
    }

    /// A silent watch is told and fails nothing: where the API server is silent to all replicas, the webhook
    /// would lose all its endpoints at once.
    fn notes(&self) -> Vec<String> {
        let silences: Vec<_> =
            self.silences().map(|(kind, seconds)| format!("{kind} {seconds} s ago")).collect();
        vec![format!("watches last heard: {}", silences.join(", "))]
    }
}

impl fmt::Debug for Face {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Face").field("leads", &self.leads()).finish_non_exhaustive()
    }
}
