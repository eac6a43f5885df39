//! The world of a plan: a simulated API server with the objects, and a binder that decides until nothing
//! changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Result, anyhow, bail};
use bindery_controller::{
    Binder, Facts, Journal, Key, OperationError, Parts, PendingOperation, Plugin, Settings, SyncError,
    Synced, Verdict,
};
use bindery_core::{Claim, ClaimKey, Decision, Engine, Evidence, Lookup, OperationKind, Source, Text};
use bindery_kube::plugins::{HostPath, Nfs};
use bindery_kube::{ApiPort, Events, Template, decode, system_clock};
use bindery_sim::{Sim, SimOptions};
use bindery_store::{Kind as Watched, Store};
use serde_json::{Value, json};

use super::load::Object;
use crate::objects::{self, Title};

/// Rounds over all objects. A claim comes to rest within a few: annotations, class, bind, phases. An engine
/// that goes on longer does not come to rest at all.
const ROUNDS_MAX: usize = 32;

/// A simulated cluster and its binder.
pub(super) struct World {
    sim: Sim,
    binder: Binder<ApiPort>,
    ledger: Arc<Ledger>,
    /// The claims as they were given, by key.
    before: BTreeMap<ClaimKey, Arc<Claim>>,
    /// What is decided, in order.
    keys: Vec<Key>,
}

/// What was last decided about each object.
#[derive(Default)]
struct Ledger(Mutex<BTreeMap<Key, Record>>);

/// What was decided about an object: by its last sync that decided something, and by the operations that it
/// started.
#[derive(Clone, Default)]
pub(super) struct Record {
    /// The decisions, in order.
    pub(super) decisions: Vec<Decision>,
    /// Why the sync failed.
    pub(super) error: Option<String>,
    /// An operation that is not carried out in a plan, because it would take a cluster.
    pub(super) left_out: Option<OperationKind>,
}

impl Journal for Ledger {
    fn decided(&self, key: &Key, evidence: Evidence, verdict: Verdict) {
        if verdict == Verdict::Passed {
            self.records().entry(key.clone()).or_default().decisions.push(evidence.decision);
        }
    }
}

impl Ledger {
    fn records(&self) -> MutexGuard<'_, BTreeMap<Key, Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl World {
    /// A world of these objects, in which `engine` decides.
    ///
    /// # Errors
    ///
    /// The API server refuses an object that is not in a cluster yet.
    pub(super) async fn new(engine: Arc<dyn Engine>, objects: Vec<Object>) -> Result<Self> {
        let sim = Sim::new(SimOptions { clock: bindery_sim::Clock::Real, ..SimOptions::default() });
        let client = kube::Client::new(sim.service(), "default");
        let keys = keys(&objects);
        fill(&sim, &client, objects).await?;
        let ledger = Arc::<Ledger>::default();
        // Nobody reads this world's events but through the ledger.
        let (events, _) = Events::new(client.clone());
        // As a server has them without any configuration: known, and switched off.
        let plugins: [Arc<dyn Plugin<Template>>; 2] =
            [Arc::new(HostPath::new(client.clone(), None, None)), Arc::new(Nfs::new(client.clone(), None))];
        let binder = Binder::new(Parts {
            store: Arc::new(Store::new()),
            port: ApiPort::new(client, system_clock(), events),
            engine,
            facts: Facts { plugins: Arc::new(plugins.into_iter().collect()), ..Facts::default() },
            settings: Settings::default(),
            journal: Some(Arc::<Ledger>::clone(&ledger)),
        });
        let mut world = Self { sim, binder, ledger, before: BTreeMap::new(), keys };
        world.observe()?;
        world.before = world.store().claims().into_iter().map(|claim| (claim.key.clone(), claim)).collect();
        Ok(world)
    }

    /// Decides every object, round by round, until a round changes nothing.
    ///
    /// # Errors
    ///
    /// The engine comes to no decision on an object, or it goes on for ever.
    pub(super) async fn settle(&self) -> Result<()> {
        for _ in 0..ROUNDS_MAX {
            let revision = self.sim.revision();
            self.observe()?;
            for key in &self.keys {
                self.sync(key).await?;
            }
            if self.sim.revision() == revision {
                return Ok(());
            }
        }
        bail!("the engine still changes objects after {ROUNDS_MAX} rounds: it never comes to rest")
    }

    /// What the binder knows.
    pub(super) fn store(&self) -> &Store {
        self.binder.store()
    }

    /// The claims as they were given, in the order of their keys.
    pub(super) fn claims_before(&self) -> impl Iterator<Item = &Arc<Claim>> {
        self.before.values()
    }

    /// Names of the volumes that were given.
    pub(super) fn volumes_before(&self) -> impl Iterator<Item = &Text> {
        self.keys.iter().filter_map(|key| match key {
            Key::Volume(name) => Some(name),
            Key::Claim(_) => None,
        })
    }

    /// A claim as it is now; `None` where it is gone.
    pub(super) fn claim(&self, key: &ClaimKey) -> Option<Arc<Claim>> {
        match self.store().claim(Source::Overlay, key) {
            Lookup::Found(claim) => Some(claim),
            Lookup::Absent | Lookup::Unreadable(_) | Lookup::Failed(_) => None,
        }
    }

    /// A volume as JSON; `None` where it is gone.
    pub(super) fn volume(&self, name: &str) -> Option<Value> {
        self.sim.object("persistentvolumes", None, name)
    }

    /// What was decided about an object.
    pub(super) fn record(&self, key: &Key) -> Record {
        self.ledger.records().get(key).cloned().unwrap_or_default()
    }

    async fn sync(&self, key: &Key) -> Result<()> {
        let before = self.ledger.records().remove(key);
        let Synced { result, operations, .. } = self.binder.sync(key).await;
        if let Err(error @ SyncError::Engine(_)) = result {
            return Err(anyhow!("{key}: {error}"));
        }
        let mut left_out = None;
        for operation in operations {
            left_out = left_out.or(self.perform(key, operation).await?);
        }
        let mut records = self.ledger.records();
        let record = records.entry(key.clone()).or_default();
        record.error = result.err().map(|error| error.to_string());
        record.left_out = left_out;
        let is_silent =
            record.error.is_none() && record.decisions.iter().all(|decision| decision.steps.is_empty());
        // Nothing new was said, so what was said before still holds: the object is as decided, or its
        // operation rests.
        if let (true, Some(before)) = (is_silent, before) {
            *record = before;
        }
        Ok(())
    }

    /// Carries an operation out; answers its kind where that takes a cluster. What fails is in the ledger as
    /// its events.
    ///
    /// # Errors
    ///
    /// The engine comes to no decision on one of its steps.
    async fn perform(&self, key: &Key, operation: PendingOperation) -> Result<Option<OperationKind>> {
        let kind = operation.operation().kind;
        if kind == OperationKind::Recycle {
            return Ok(Some(kind));
        }
        match self.binder.perform(operation).await {
            Err(error @ OperationError::Step(SyncError::Engine(_))) => return Err(anyhow!("{key}: {error}")),
            Err(error) => tracing::debug!(%error, ?kind, "an operation failed"),
            Ok(()) => {}
        }
        Ok(None)
    }

    /// Tells the binder what the API server has, as its watches would.
    fn observe(&self) -> Result<()> {
        let (sim, store) = (&self.sim, self.store());
        let all = |resource: &str| sim.objects(resource);
        store.replace_classes(all("storageclasses").iter().map(decode::class).collect::<Result<_, _>>()?);
        store.replace_pods(all("pods").iter().map(decode::pod).collect::<Result<_, _>>()?);
        store.replace_nodes(all("nodes").iter().map(decode::name).collect::<Result<_, _>>()?);
        store.replace_volumes(all("persistentvolumes").iter().map(decode::volume).collect::<Result<_, _>>()?);
        store.replace_claims(
            all("persistentvolumeclaims").iter().map(decode::claim).collect::<Result<_, _>>()?,
        );
        Watched::ALL.into_iter().for_each(|kind| store.mark_synced(kind));
        Ok(())
    }
}

/// What is decided, in order: volumes first, because claims take those that are available; of each kind what
/// is in a cluster, the oldest first, then what is not, in the order of the manifests.
fn keys(objects: &[Object]) -> Vec<Key> {
    let key = |object: &Object| {
        let text = |field: &str| object.value["metadata"][field].as_str().unwrap_or_default();
        let rank = (object.kind, !object.exists(), text("creationTimestamp").to_owned());
        match object.kind {
            objects::Kind::Volume => Some((rank, Key::Volume(text("name").into()))),
            objects::Kind::Claim => Some((rank, Key::Claim(ClaimKey::new(text("namespace"), text("name"))))),
            _ => None,
        }
    };
    let mut keys: Vec<_> = objects.iter().filter_map(key).collect();
    // Stable, so that what is equal keeps its order.
    keys.sort_by(|a, b| a.0.cmp(&b.0));
    keys.into_iter().map(|(_, key)| key).collect()
}

/// Puts what is in a cluster into the simulator as it is, and creates the rest.
async fn fill(sim: &Sim, client: &kube::Client, objects: Vec<Object>) -> Result<()> {
    let namespaces: BTreeSet<&str> =
        objects.iter().filter_map(|object| object.value["metadata"]["namespace"].as_str()).collect();
    let namespace = |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    sim.seed(namespaces.into_iter().map(namespace))?;
    let (existing, new): (Vec<_>, Vec<_>) = objects.into_iter().partition(Object::exists);
    sim.seed(existing.into_iter().map(|object| object.value))?;
    for Object { file, kind, value } in new {
        if kind == objects::Kind::Namespace {
            sim.seed([value])?;
        } else {
            objects::create(client, kind, &value)
                .await
                .map_err(|complaint| anyhow!("{file}: {}: {complaint}", Title(&value)))?;
        }
    }
    Ok(())
}
