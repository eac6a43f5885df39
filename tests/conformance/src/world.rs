//! The world of a case: the simulator with its objects, and a binder over a store filled past the watches.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result};
use bindery_controller::{
    Binder, Facts, Key, Migrations, Note, Parts, Plugin, Port, Purpose, Settings, Synced, Write, WriteError,
    Written,
};
use bindery_core::{Claim, ClaimKey, Engine, Lookup, Text, Timestamp, Volume};
use bindery_kube::decode::DecodeError;
use bindery_kube::{ApiPort, decode};
use bindery_sim::{FaultRule, Sim, SimOptions};
use bindery_store::{Kind, Store};
use serde_json::{Value, json};

use crate::case::{Case, Objects};
use crate::mock::{MIGRATED_DRIVER, MockPlugin};

/// Longer than any backoff, so that between two rounds all of them expire.
const BACKOFFS_EXPIRE: Duration = Duration::from_secs(600);
/// Namespace of every claim and pod of a case.
const NAMESPACE: &str = "default";

/// The world of a case.
pub struct World {
    sim: Sim,
    binder: Binder<CasePort>,
    case: Case,
    changed: bool,
}

/// What the world's API server holds and what was told about it.
pub struct End {
    /// The objects.
    pub objects: Objects,
    /// The events, in order, as `TYPE REASON`.
    pub events: Vec<String>,
    /// Every live read, write and event, in order, for a person.
    pub trace: Vec<String>,
}

impl World {
    /// Builds the world of a case; `engine` decides in it.
    ///
    /// # Errors
    ///
    /// An object of the case cannot be seeded.
    pub fn new(case: &Case, engine: Arc<dyn Engine>) -> Result<Self> {
        let sim = Sim::new(SimOptions::bare());
        sim.seed(seeds(case)).context("the world cannot be seeded")?;
        let errors = case.api_errors.iter();
        errors.for_each(|e| sim.faults().add(FaultRule::api_error(&e.verb, &e.resource, &e.message)));
        let plugin = MockPlugin::new(case).map(|plugin| Arc::new(plugin) as Arc<dyn Plugin<Value>>);
        let migrated = case.plugin.as_ref().is_some_and(|plugin| plugin.migrated);
        let client = kube::Client::new(sim.service(), NAMESPACE);
        let binder = Binder::new(Parts {
            store: Arc::new(Store::new()),
            port: CasePort { api: ApiPort::new(client), log: Mutex::default() },
            engine,
            facts: Facts {
                plugins: Arc::new(plugin.into_iter().collect()),
                migrations: if migrated {
                    Migrations::Every(MIGRATED_DRIVER.into())
                } else {
                    Migrations::none()
                },
                dynamic_provisioning: true,
                offer_again: false,
            },
            settings: Settings::default(),
            journal: None,
        });
        let world = Self { sim, binder, case: case.clone(), changed: false };
        world.fill_caches(&case.uncached)?;
        Ok(world)
    }

    /// Carries out the call of the case and what follows it; answers whether the call failed.
    ///
    /// # Errors
    ///
    /// The call is of no known kind.
    pub async fn call(&mut self) -> Result<Option<String>> {
        let call = self.case.call.clone();
        if call == "settle" {
            self.settle().await?;
            return Ok(None);
        }
        let key = match call.split_once(' ') {
            Some(("sync-claim", name)) => Key::Claim(ClaimKey::new(NAMESPACE, name)),
            Some(("sync-volume", name)) => Key::Volume(name.into()),
            _ => anyhow::bail!("call {call:?} is none of: sync-claim NAME, sync-volume NAME, settle"),
        };
        let failure = self.sync(&key).await?;
        if self.case.then_settle {
            self.settle().await?;
        }
        Ok(failure)
    }

    /// What is there at the end.
    pub fn end(&self) -> End {
        let objects = Objects {
            volumes: self.sim.objects("persistentvolumes"),
            claims: self.sim.objects("persistentvolumeclaims"),
        };
        let log = self.binder.port().log();
        End { objects, events: log.events.clone(), trace: log.trace.clone() }
    }

    /// Syncs everything, round by round, until a round makes no write.
    async fn settle(&mut self) -> Result<()> {
        loop {
            tokio::time::advance(BACKOFFS_EXPIRE).await;
            self.sim.take_requests();
            self.fill_caches(&[])?;
            let keys = self.keys();
            for key in &keys {
                self.sync(key).await?;
            }
            if self.sim.requests().iter().all(|request| request.code >= 300) {
                return Ok(());
            }
        }
    }

    /// Syncs one object and runs the operations that this starts; answers the failure of the sync.
    async fn sync(&mut self, key: &Key) -> Result<Option<String>> {
        let Synced { result, operations, .. } = self.binder.sync(key).await;
        for operation in operations {
            self.let_others_act()?;
            if let Err(error) = self.binder.perform(operation).await {
                self.binder.port().trace(format!("the operation failed: {error}"));
            }
        }
        Ok(result.err().map(|error| error.to_string()))
    }

    fn keys(&self) -> Vec<Key> {
        let store = self.binder.store();
        let volumes = store.volume_names().into_iter().map(Key::Volume);
        store.claim_keys().into_iter().map(Key::Claim).chain(volumes).collect()
    }

    /// Lets other actors change the world, once, when it has come as far as they expect: the versions that
    /// the change builds upon count the writes since the beginning.
    fn let_others_act(&mut self) -> Result<()> {
        let Some(change) = self.case.changed_before_operation.clone() else { return Ok(()) };
        if self.changed || !self.has_come_to(&change.api) {
            return Ok(());
        }
        self.changed = true;
        for (resource, objects) in
            [("persistentvolumes", &change.api.volumes), ("persistentvolumeclaims", &change.api.claims)]
        {
            for existing in self.sim.objects(resource) {
                if !objects.iter().any(|object| name(object) == name(&existing)) {
                    self.sim.remove(resource, existing["metadata"]["namespace"].as_str(), name(&existing));
                }
            }
        }
        typed(&change.api).for_each(|object| self.sim.put(object));
        self.fill_caches(&[])?;
        self.keep_in_caches(&change.cache)
    }

    fn has_come_to(&self, objects: &Objects) -> bool {
        let writes = |resource: &str, name: &str| {
            let requests = self.sim.requests();
            requests.iter().filter(|r| r.resource == resource && r.name == name && r.code < 300).count()
        };
        let reached = |resource: &str, object: &Value| {
            let existed = self.case.initial_has(resource, name(object));
            let version =
                object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse::<usize>().ok());
            !existed || version == Some(1 + writes(resource, name(object)))
        };
        objects.volumes.iter().all(|v| reached("persistentvolumes", v))
            && objects.claims.iter().all(|c| reached("persistentvolumeclaims", c))
    }

    /// Fills the caches with what the API server has, but for some claims.
    fn fill_caches(&self, uncached: &[String]) -> Result<()> {
        let store = self.binder.store();
        store.replace_volumes(self.decoded("persistentvolumes", decode::volume, &[])?);
        store.replace_claims(self.decoded("persistentvolumeclaims", decode::claim, uncached)?);
        store.replace_classes(self.decoded("storageclasses", decode::class, &[])?);
        store.replace_pods(self.decoded("pods", decode::pod, &[])?);
        store.replace_nodes(vec!["node1".into()]);
        Kind::ALL.into_iter().for_each(|kind| store.mark_synced(kind));
        Ok(())
    }

    fn decoded<T>(
        &self,
        resource: &str,
        decode: impl Fn(&Value) -> Result<T, DecodeError>,
        uncached: &[String],
    ) -> Result<Vec<T>, DecodeError> {
        let objects = self.sim.objects(resource);
        objects
            .iter()
            .filter(|object| !uncached.iter().any(|missing| missing == name(object)))
            .map(decode)
            .collect()
    }

    /// Lets the caches hold objects that the API server has no more, as a lagging watch does.
    fn keep_in_caches(&self, cache: &Objects) -> Result<()> {
        let store = self.binder.store();
        for volume in typed(&Objects { volumes: cache.volumes.clone(), claims: Vec::new() }) {
            if self.sim.object("persistentvolumes", None, name(&volume)).is_none() {
                let (name, volume) = decode::volume(&volume)?;
                store.apply_volume(name, volume);
            }
        }
        Ok(())
    }
}

impl Case {
    fn initial_has(&self, resource: &str, wanted: &str) -> bool {
        let objects =
            if resource == "persistentvolumes" { &self.initial.volumes } else { &self.initial.claims };
        objects.iter().any(|object| name(object) == wanted)
    }
}

/// The port of a case: that of a cluster, with all that goes through it written down.
pub struct CasePort {
    api: ApiPort,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    events: Vec<String>,
    trace: Vec<String>,
}

impl CasePort {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().expect("no holder of the lock panics")
    }

    fn trace(&self, line: String) {
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
        let claim = self.api.read_claim(key, purpose).await;
        self.trace(format!("{purpose:?} reads claim {key}: {claim:?}"));
        claim
    }

    async fn write(&self, write: &Write<Self::Template>) -> Result<Written, WriteError> {
        let result = self.api.write(write).await;
        let outcome = result.as_ref().map_or_else(ToString::to_string, |_| "done".to_owned());
        self.trace(format!("{} {}: {outcome}; {write:?}", write.name(), write.object()));
        result
    }

    fn record(&self, note: &Note) {
        let event = format!("{} {}", note.event_type.name(), note.reason);
        let mut log = self.log();
        log.trace.push(format!("event {event}: {}", note.message));
        log.events.push(event);
    }

    fn now(&self) -> Timestamp {
        self.api.now()
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Everything that the API server of a case starts with.
fn seeds(case: &Case) -> impl Iterator<Item = Value> {
    let of_kind = |objects: &[Value], api_version: &str, kind: &str| -> Vec<Value> {
        objects.iter().cloned().map(|object| with_kind(object, api_version, kind)).collect()
    };
    let classes = of_kind(&case.classes, "storage.k8s.io/v1", "StorageClass");
    let pods = of_kind(&case.pods, "v1", "Pod");
    classes.into_iter().chain(pods).chain(typed(&case.initial))
}

fn typed(objects: &Objects) -> impl Iterator<Item = Value> {
    let volumes = objects.volumes.clone().into_iter().map(|v| with_kind(v, "v1", "PersistentVolume"));
    let claims = objects.claims.clone().into_iter().map(|c| with_kind(c, "v1", "PersistentVolumeClaim"));
    volumes.chain(claims)
}

fn with_kind(mut object: Value, api_version: &str, kind: &str) -> Value {
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    object
}
