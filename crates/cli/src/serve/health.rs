//! Health of a replica: `/livez` and `/readyz`, while it starts and afterwards.

use std::fmt;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::Request;
use bindery_controller::Binder;
use bindery_kube::{ApiPort, Eligibility, Events, PolicyObjects};
use bindery_store::Kind;
use bindery_webhook::{Check, Health, router};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tower::ServiceExt as _;

use super::policy_objects::Readiness;

/// Health during the start, which may take long: the replica is alive, and `/readyz` names what the start
/// waits for. After the start the replica's own router answers.
#[derive(Clone, Default)]
pub(super) struct Startup {
    waits_for: Arc<Mutex<String>>,
    started: Arc<OnceLock<Router>>,
}

impl Startup {
    /// Sets what the start waits for.
    pub(super) fn waits_for(&self, what: impl Into<String>) {
        *self.waits_for.lock() = what.into();
    }

    /// Ends the start: from now on `router` answers.
    pub(super) fn finish(&self, router: Router) {
        // A replica starts once.
        let _ = self.started.set(router);
    }

    /// A router for the whole life of the replica.
    pub(super) fn router(&self) -> Router {
        let (starting, started) = (router(self.clone(), Registry::default()), Arc::clone(&self.started));
        Router::new().fallback(move |request: Request| {
            let router = started.get().unwrap_or(&starting).clone();
            async move { router.oneshot(request).await }
        })
    }
}

impl Health for Startup {
    fn ready(&self) -> Vec<Check> {
        let awaited = self.waits_for.lock().clone();
        vec![Check { name: "start", result: Err(format!("it waits for {awaited}")) }]
    }
}

/// Health of a replica that has started.
#[derive(Clone)]
pub(super) struct ReplicaHealth {
    pub(super) binder: Arc<Binder<ApiPort>>,
    pub(super) events: Events,
    pub(super) leads: watch::Receiver<bool>,
    /// `None` in mode observe, where no replica leads.
    pub(super) eligibility: Option<Arc<Eligibility>>,
    /// Policies and engines that are cluster objects.
    pub(super) objects: Readiness,
    /// The watches of these objects; `None` if they are not loaded.
    pub(super) policies: Option<Arc<PolicyObjects>>,
}

impl ReplicaHealth {
    /// Whether this replica leads.
    pub(super) fn leads(&self) -> bool {
        *self.leads.borrow()
    }

    /// What keeps this replica from leading.
    pub(super) fn causes(&self) -> Vec<String> {
        self.eligibility.as_ref().map(|eligibility| eligibility.causes()).unwrap_or_default()
    }

    /// Seconds since the last bytes on each kind's watch; only of kinds that have received any.
    pub(super) fn silences(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let freshness = self.binder.intake().freshness();
        let silence = |kind: Kind| Some((kind.name(), freshness.age(kind)?.as_secs()));
        let policies = self.policies.iter().flat_map(|policies| policies.silences());
        Kind::ALL.into_iter().filter_map(silence).chain(policies)
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
        let refusal = self.binder.port().refusal();
        let result = refusal.map_or(Ok(()), |why| Err(format!("the API server refuses them: {why}")));
        Check { name: "credentials", result }
    }
}

impl Health for ReplicaHealth {
    fn ready(&self) -> Vec<Check> {
        let writes =
            self.leads().then(|| Check { name: "writes", result: self.binder.write_health().check() });
        let eligibility = self.eligibility.as_ref();
        let eligibility = eligibility.map(|it| Check { name: "eligibility", result: it.check() });
        [self.lists(), self.credentials()].into_iter().chain(writes).chain(eligibility).collect()
    }

    /// A silent watch is reported but fails no check: otherwise an API server that is silent to all replicas
    /// would remove all endpoints of the webhook at once.
    fn notes(&self) -> Vec<String> {
        let silences: Vec<_> =
            self.silences().map(|(kind, seconds)| format!("{kind} {seconds} s ago")).collect();
        vec![format!("watches last heard: {}", silences.join(", "))]
    }
}

impl fmt::Debug for ReplicaHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaHealth").field("leads", &self.leads()).finish_non_exhaustive()
    }
}
