//! Decides about the objects of a plan: a binder on a simulated API server, until nothing changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Error, Result, anyhow, bail};
use bindery_controller::{
    Binder, Configuration, DecidedRecord, Journal, OperationError, Parts, PendingOperation, Plugin, Settings,
    SyncError, Synced,
};
use bindery_core::{
    Claim, ClaimKey, Decision, Engine, EngineFault, GuardVerdict, Key, OperationKind, Source, Text,
    VolumePhase,
};
use bindery_kube::plugins::{HostPath, Nfs};
use bindery_kube::{ApiPort, Events, Template, decode, system_clock};
use bindery_policy::{Chain, Said, Unscored};
use bindery_sim::{Clock, RequestLog, Sim, SimOptions};
use bindery_store::{Delivery, Kind as Watched, Store};
use http::header::CONTENT_TYPE;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::load::ManifestObject;
use crate::objects::{self, Resource, Title};

/// Most rounds over all objects. A claim settles within a few: annotations, class, bind, phases.
const ROUNDS_MAX: usize = 32;

/// A simulated cluster and its binder.
pub(crate) struct Planner {
    sim: Sim,
    binder: Binder<ApiPort>,
    decisions: Arc<Decisions>,
    /// The claims as given, by key.
    claims_before: BTreeMap<ClaimKey, Arc<Claim>>,
    /// The objects to decide, in order.
    keys: Vec<Key>,
}

/// The last decisions about each object.
#[derive(Default)]
struct Decisions(Mutex<BTreeMap<Key, Decided>>);

/// The decisions about an object: of its last sync that had one, and of the operations of that sync.
#[derive(Clone, Default)]
pub(crate) struct Decided {
    /// The decisions, in order.
    pub(crate) decisions: Vec<Decision>,
    /// Set if there were more candidates than policies score.
    pub(crate) unscored: Option<Unscored>,
    /// Why the sync failed.
    pub(crate) error: Option<String>,
    /// An operation that needs a cluster, and is left out of the plan.
    pub(crate) left_out: Option<OperationKind>,
}

impl Journal for Decisions {
    fn decided(&self, record: DecidedRecord) {
        if record.guard == GuardVerdict::Passed {
            let mut by_key = self.0.lock();
            let decided = by_key.entry(record.evidence.request.subject.key()).or_default();
            decided.decisions.push(record.evidence.decision);
            decided.unscored = record.policies.and_then(|policies| policies.unscored);
        }
    }
}

impl Planner {
    /// A cluster of these objects, in which `engine` decides.
    pub(crate) async fn new(
        engine: Arc<dyn Engine>,
        policies: Arc<Chain>,
        objects: Vec<ManifestObject>,
    ) -> Result<Self> {
        let sim = Sim::new(SimOptions { clock: Clock::Real, log: RequestLog::Off, ..SimOptions::default() });
        let client = kube::Client::new(sim.service(), "default");
        let keys = keys(&objects);
        fill(&sim, &client, objects).await?;
        let decisions = Arc::<Decisions>::default();
        // Events are read from the decisions.
        let (events, _) = Events::new(client.clone());
        // Known and switched off, as in `serve` with default settings.
        let plugins: [Arc<dyn Plugin<Template>>; 2] =
            [Arc::new(HostPath::new(client.clone(), None, None)), Arc::new(Nfs::new(None))];
        let binder = Binder::new(Parts {
            store: Arc::new(Store::new()),
            port: ApiPort::new(client, system_clock(), events).declaring(policies.declared()),
            engine,
            configuration: Configuration {
                plugins: Arc::new(plugins.into_iter().collect()),
                policies,
                ..Configuration::default()
            },
            settings: Settings::default(),
            journal: Some(Arc::<Decisions>::clone(&decisions)),
        });
        let mut planner = Self { sim, binder, decisions, claims_before: BTreeMap::new(), keys };
        planner.deliver()?;
        let claims = planner.store().claims().into_iter();
        planner.claims_before = claims.map(|claim| (claim.key.clone(), claim)).collect();
        Ok(planner)
    }

    /// Decides every object, round by round, until a round changes nothing.
    pub(crate) async fn settle(&self) -> Result<()> {
        self.settle_keys(self.keys.iter()).await
    }

    /// Decides one object until nothing changes, as if its turn were next. Volumes that have no phase yet are
    /// decided too: no claim gets them before.
    pub(crate) async fn settle_alone(&self, key: &Key) -> Result<()> {
        let is_new = |name: &Text| {
            let volume = self.store().volume(Source::Overlay, name).found();
            volume.is_some_and(|volume| matches!(volume.phase, VolumePhase::Unset | VolumePhase::Pending))
        };
        let counts = |other: &&Key| match other {
            _ if *other == key => true,
            Key::Volume(name) => is_new(name),
            Key::Claim(_) => false,
        };
        let keys: Vec<&Key> = self.keys.iter().filter(counts).collect();
        self.settle_keys(keys.into_iter()).await
    }

    async fn settle_keys<'a>(&self, keys: impl Iterator<Item = &'a Key> + Clone) -> Result<()> {
        for _ in 0..ROUNDS_MAX {
            let revision = self.sim.revision();
            self.deliver()?;
            for key in keys.clone() {
                self.sync(key).await?;
                // Nothing watches, so earlier versions would only take memory.
                self.sim.compact();
            }
            if self.sim.revision() == revision {
                return Ok(());
            }
        }
        bail!("the engine still changes objects after {ROUNDS_MAX} rounds: it never settles")
    }

    /// Deletes a claim, whatever its finalizers wait for.
    pub(crate) async fn delete_claim(&self, key: &ClaimKey) -> Result<()> {
        let client = kube::Client::new(self.sim.service(), "default");
        let path = format!("{}/{}", Resource::Claim.collection(&key.namespace), key.name);
        let without_finalizers = json!({"metadata": {"finalizers": null}}).to_string().into_bytes();
        let patch = http::Request::patch(&path).header(CONTENT_TYPE, "application/merge-patch+json");
        client.request::<Value>(patch.body(without_finalizers)?).await?;
        client.request::<Value>(http::Request::delete(&path).body(Vec::new())?).await?;
        self.deliver()
    }

    /// Whether policies are asked.
    pub(crate) fn has_policies(&self) -> bool {
        self.binder.policies().activities().next().is_some()
    }

    /// The binder's view of the cluster.
    pub(crate) fn store(&self) -> &Store {
        self.binder.store()
    }

    /// The claims as given, in the order of their keys.
    pub(crate) fn claims_before(&self) -> impl Iterator<Item = &Arc<Claim>> {
        self.claims_before.values()
    }

    /// Names of the given volumes.
    pub(crate) fn volumes_before(&self) -> impl Iterator<Item = &Text> {
        self.keys.iter().filter_map(|key| match key {
            Key::Volume(name) => Some(name),
            Key::Claim(_) => None,
        })
    }

    /// A claim as it is now; `None` if it is gone.
    pub(crate) fn claim(&self, key: &ClaimKey) -> Option<Arc<Claim>> {
        self.store().claim(Source::Overlay, key).found()
    }

    /// A volume as JSON; `None` if it is gone.
    pub(crate) fn volume(&self, name: &str) -> Option<Value> {
        self.sim.object("persistentvolumes", None, name)
    }

    /// What the policies of a claim say about a volume. The error is why they give no answer.
    pub(crate) fn said(&self, claim: &Claim, volume: &str) -> Result<Vec<Said>, String> {
        let volume = self.store().volume(Source::Overlay, volume).found();
        volume.map_or_else(|| Ok(Vec::new()), |volume| self.binder.said(claim, &volume))
    }

    /// What was decided about an object.
    pub(crate) fn decided(&self, key: &Key) -> Decided {
        self.decisions.0.lock().get(key).cloned().unwrap_or_default()
    }

    /// The first object whose last sync failed, and why.
    pub(crate) fn first_error(&self) -> Option<(Key, String)> {
        let by_key = self.decisions.0.lock();
        by_key.iter().find_map(|(key, decided)| Some((key.clone(), decided.error.clone()?)))
    }

    async fn sync(&self, key: &Key) -> Result<()> {
        let before = self.decisions.0.lock().remove(key);
        let Synced { result, operations, .. } = self.binder.sync(key).await;
        if let Err(SyncError::Engine(fault)) = result {
            return Err(undecided(key, fault));
        }
        let mut left_out = None;
        for operation in operations {
            left_out = left_out.or(self.perform(key, operation).await?);
        }
        let mut by_key = self.decisions.0.lock();
        let decided = by_key.entry(key.clone()).or_default();
        decided.error = result.err().map(|error| error.to_string());
        decided.left_out = left_out;
        let is_empty =
            decided.error.is_none() && decided.decisions.iter().all(|decision| decision.steps.is_empty());
        // The earlier decision still holds: the object is as decided, or its operation waits.
        if let (true, Some(before)) = (is_empty, before) {
            *decided = before;
        }
        Ok(())
    }

    /// Performs an operation, or returns its kind if it needs a cluster. Failures are in the decisions, as
    /// events.
    async fn perform(&self, key: &Key, operation: PendingOperation) -> Result<Option<OperationKind>> {
        let kind = operation.operation().kind;
        if kind == OperationKind::Recycle {
            return Ok(Some(kind));
        }
        match self.binder.perform(operation).await {
            Err(OperationError::Step(SyncError::Engine(fault))) => return Err(undecided(key, fault)),
            Err(error) => tracing::debug!(%error, ?kind, "an operation failed"),
            Ok(()) => {}
        }
        Ok(None)
    }

    /// Delivers the objects of the API server to the store, as watches would.
    fn deliver(&self) -> Result<()> {
        let (sim, store, declared) = (&self.sim, self.store(), self.binder.intake().declared());
        for (kind, resource) in [
            (Watched::Class, "storageclasses"),
            (Watched::Pod, "pods"),
            (Watched::Node, "nodes"),
            (Watched::Namespace, "namespaces"),
            (Watched::Volume, "persistentvolumes"),
            (Watched::Claim, "persistentvolumeclaims"),
        ] {
            let decoded = sim.map_objects(resource, |object| decode::object(kind, object, &declared));
            store.deliver(Delivery::listed(kind, decoded.into_iter().collect::<Result<Vec<_>, _>>()?, "1"));
        }
        Ok(())
    }
}

/// The error of an engine that has not decided about an object. The fault is its source.
fn undecided(key: &Key, fault: EngineFault) -> Error {
    Error::new(fault).context(format!("{key}: no decision"))
}

/// The objects to decide, in order. Volumes come first, because claims take those that are available. Objects
/// from a cluster come before new ones, the oldest first; new ones keep the order of the manifests.
fn keys(objects: &[ManifestObject]) -> Vec<Key> {
    let key = |object: &ManifestObject| {
        let text = |field: &str| object.value["metadata"][field].as_str().unwrap_or_default();
        let rank = (object.resource, !object.exists(), text("creationTimestamp").to_owned());
        Some((rank, object.key()?))
    };
    let mut keys: Vec<_> = objects.iter().filter_map(key).collect();
    // A stable sort keeps the order of the manifests.
    keys.sort_by(|a, b| a.0.cmp(&b.0));
    keys.into_iter().map(|(_, key)| key).collect()
}

/// Puts objects from a cluster into the simulator as they are, and creates the others.
async fn fill(sim: &Sim, client: &kube::Client, objects: Vec<ManifestObject>) -> Result<()> {
    let namespaces: BTreeSet<&str> =
        objects.iter().filter_map(|object| object.value["metadata"]["namespace"].as_str()).collect();
    let namespace = |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    sim.seed(namespaces.into_iter().map(namespace))?;
    let (existing, new): (Vec<_>, Vec<_>) = objects.into_iter().partition(ManifestObject::exists);
    sim.seed(existing.into_iter().map(|object| object.value))?;
    for ManifestObject { file, resource, value } in new {
        if resource == Resource::Namespace {
            sim.seed([value])?;
        } else {
            objects::create(client, resource, &value)
                .await
                .map_err(|complaint| anyhow!("{file}: {}: {complaint}", Title(&value)))?;
        }
    }
    Ok(())
}
