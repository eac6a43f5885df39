//! The execution of a case: an API server with its objects, and a binder whose caches are filled without
//! watches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bindery_controller::{Binder, Configuration, Parts, Plugin, Settings, Synced};
use bindery_core::{ClaimKey, Declared, Engine, Key, Timestamp};
use bindery_kube::{ApiPort, Events, Template, decode};
use bindery_policy::Chain;
use bindery_store::{Delivery, Kind, Object, Store};
use serde_json::Value;

use crate::case::{Case, Objects};
use crate::compare;
use crate::mock::{MockPlugin, migrations};
use crate::port::{CasePort, Log};
use crate::server::Server;

/// Longer than any backoff, so that all expire between two rounds.
const BACKOFFS_EXPIRE: Duration = Duration::from_secs(600);
/// The time of every case, in seconds since the Unix epoch. No decision may depend on it.
const NOW: Timestamp = 1_700_000_000;
/// Namespace of every claim and pod of a case.
pub(crate) const NAMESPACE: &str = "default";

pub(crate) const VOLUMES: &str = "persistentvolumes";
pub(crate) const CLAIMS: &str = "persistentvolumeclaims";

/// A case that is executed.
pub(crate) struct Execution<'a> {
    server: Server<'a>,
    binder: Binder<CasePort>,
    case: Case,
    /// Versions of the objects at the last look.
    seen: BTreeMap<Key, String>,
    changed: bool,
}

/// The result of an execution.
pub(crate) struct End {
    /// The objects.
    pub(crate) objects: Objects,
    /// What the binder read, wrote and told.
    pub(crate) log: Log,
}

impl<'a> Execution<'a> {
    /// Prepares a case on a server that has its objects. `engine` decides, with these policies.
    ///
    /// # Errors
    ///
    /// The server cannot be read.
    pub(crate) async fn new(
        case: &Case,
        engine: Arc<dyn Engine>,
        policies: &Arc<Chain>,
        server: Server<'a>,
    ) -> Result<Self> {
        let client = server.client();
        // The port logs events. None is sent to the API server.
        let (events, _) = Events::new(client.clone());
        let binder = Binder::new(Parts {
            store: Arc::new(Store::new()),
            port: CasePort::new(ApiPort::new(client, Arc::new(|| NOW), events)),
            engine,
            configuration: configuration(case, policies, &server),
            settings: Settings::default(),
            journal: None,
        });
        let seen = versions(&server).await?;
        let execution = Self { server, binder, case: case.clone(), seen, changed: false };
        execution.fill_caches(&case.uncached).await?;
        Ok(execution)
    }

    /// Makes the call of the case and what follows it. Returns why the call failed, if it did.
    ///
    /// # Errors
    ///
    /// The kind of the call is unknown.
    pub(crate) async fn call(&mut self) -> Result<Option<String>> {
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
            self.follow_changes().await?;
            self.settle().await?;
        }
        Ok(failure)
    }

    /// The result so far.
    ///
    /// # Errors
    ///
    /// The server cannot be read.
    pub(crate) async fn end(&self) -> Result<End> {
        let objects = Objects {
            volumes: self.server.objects(VOLUMES).await?,
            claims: self.server.objects(CLAIMS).await?,
        };
        let log = self.binder.port().log().clone();
        Ok(End { objects, log })
    }

    /// Syncs everything, round by round, until a round makes no write.
    async fn settle(&mut self) -> Result<()> {
        loop {
            self.server.advance(BACKOFFS_EXPIRE).await;
            let writes_before = self.writes();
            self.fill_caches(&[]).await?;
            for key in &self.keys() {
                self.sync(key).await?;
            }
            if self.writes() == writes_before {
                return Ok(());
            }
            if self.case.then_settle {
                self.follow_changes().await?;
            }
        }
    }

    /// Syncs each changed object until nothing changes, as with watches.
    async fn follow_changes(&mut self) -> Result<()> {
        loop {
            let changed = self.take_changed().await?;
            if changed.is_empty() {
                return Ok(());
            }
            self.fill_caches(&[]).await?;
            for key in &changed {
                self.sync(key).await?;
            }
        }
    }

    /// The objects whose version has changed since the last call.
    async fn take_changed(&mut self) -> Result<Vec<Key>> {
        let versions = versions(&self.server).await?;
        let is_new = |(key, version): &(&Key, &String)| self.seen.get(key) != Some(version);
        let changed = versions.iter().filter(is_new).map(|(key, _)| key.clone()).collect();
        self.seen = versions;
        Ok(changed)
    }

    /// How many writes have succeeded.
    fn writes(&self) -> usize {
        self.binder.port().log().writes
    }

    /// Syncs one object and runs the operations that it starts. Returns why the sync failed, if it did.
    async fn sync(&mut self, key: &Key) -> Result<Option<String>> {
        let Synced { result, operations, .. } = self.binder.sync(key).await;
        for operation in operations {
            self.let_others_act().await?;
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

    /// Lets other actors change the world once, when it has the versions that their change expects. A version
    /// counts the writes since the beginning.
    async fn let_others_act(&mut self) -> Result<()> {
        let Some(change) = self.case.changed_before_operation.clone() else { return Ok(()) };
        if self.changed || !self.has_come_to(&change.api)? {
            return Ok(());
        }
        self.changed = true;
        let sim = self.server.simulator()?;
        for (resource, objects) in [(VOLUMES, &change.api.volumes), (CLAIMS, &change.api.claims)] {
            for existing in sim.objects(resource) {
                if !objects.iter().any(|object| name(object) == name(&existing)) {
                    sim.remove(resource, existing["metadata"]["namespace"].as_str(), name(&existing));
                }
            }
        }
        // Equal objects keep their versions, as on the recorded API server.
        let held = Objects { volumes: sim.objects(VOLUMES), claims: sim.objects(CLAIMS) };
        let differing = compare::differing(&change.api, &held);
        differing.typed().for_each(|object| sim.put(object));
        self.fill_caches(&[]).await?;
        self.keep_in_caches(&change.cache)
    }

    fn has_come_to(&self, objects: &Objects) -> Result<bool> {
        let requests = self.server.simulator()?.requests();
        let writes = |resource: &str, name: &str| {
            requests.iter().filter(|r| r.resource == resource && r.name == name && r.code < 300).count()
        };
        let reached = |resource: &str, object: &Value| {
            let existed = self.case.initial_has(resource, name(object));
            let version =
                object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse::<usize>().ok());
            !existed || version == Some(1 + writes(resource, name(object)))
        };
        Ok(objects.volumes.iter().all(|v| reached(VOLUMES, v))
            && objects.claims.iter().all(|c| reached(CLAIMS, c)))
    }

    /// Fills the caches with the objects of the API server, except these claims.
    async fn fill_caches(&self, uncached: &[String]) -> Result<()> {
        let store = self.binder.store();
        for (kind, resource, uncached) in [
            (Kind::Volume, VOLUMES, &[][..]),
            (Kind::Claim, CLAIMS, uncached),
            (Kind::Class, "storageclasses", &[]),
            (Kind::Pod, "pods", &[]),
        ] {
            let objects = self.server.objects(resource).await?;
            let cached =
                objects.iter().filter(|object| !uncached.iter().any(|missing| missing == name(object)));
            let decoded: Result<Vec<_>, _> =
                cached.map(|object| decode::object(kind, object, Declared::NONE)).collect();
            store.deliver(Delivery::listed(kind, decoded?, "1"));
        }
        store.deliver(Delivery::listed(Kind::Node, [Object::Node("node1".into())], "1"));
        Ok(())
    }

    /// Keeps objects in the caches that are gone from the API server, as with a lagging watch.
    fn keep_in_caches(&self, cache: &Objects) -> Result<()> {
        let (store, sim) = (self.binder.store(), self.server.simulator()?);
        for volume in (Objects { volumes: cache.volumes.clone(), claims: Vec::new() }).typed() {
            if sim.object(VOLUMES, None, name(&volume)).is_none() {
                store.deliver(Delivery::applied(decode::object(Kind::Volume, &volume, Declared::NONE)?));
            }
        }
        Ok(())
    }
}

impl Case {
    fn initial_has(&self, resource: &str, wanted: &str) -> bool {
        let objects = if resource == VOLUMES { &self.initial.volumes } else { &self.initial.claims };
        objects.iter().any(|object| name(object) == wanted)
    }
}

/// The configuration of the case's binder.
fn configuration(case: &Case, policies: &Arc<Chain>, server: &Server<'_>) -> Configuration<Template> {
    let plugin =
        MockPlugin::new(case, server.disk()).map(|plugin| Arc::new(plugin) as Arc<dyn Plugin<Template>>);
    Configuration {
        plugins: Arc::new(plugin.into_iter().collect()),
        migrations: migrations(case),
        dynamic_provisioning: true,
        offer_again: false,
        policies: Arc::clone(policies),
        shadows: Vec::new(),
    }
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The versions of the volumes and claims of the API server.
async fn versions(server: &Server<'_>) -> Result<BTreeMap<Key, String>> {
    let version = |object: &Value| object["metadata"]["resourceVersion"].to_string();
    let claim = |object: &Value| (Key::Claim(ClaimKey::new(NAMESPACE, name(object))), version(object));
    let volume = |object: &Value| (Key::Volume(name(object).into()), version(object));
    let (claims, volumes) = (server.objects(CLAIMS).await?, server.objects(VOLUMES).await?);
    Ok(claims.iter().map(claim).chain(volumes.iter().map(volume)).collect())
}
