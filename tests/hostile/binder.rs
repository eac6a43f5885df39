//! Hostile engines in the real binder: nothing is written, and the fault is counted and told in a sentence.

use std::sync::{Arc, Mutex};

use bindery_controller::{
    Binder, Facts, Key, Note, Parts, Port, Purpose, Settings, SyncError, Write, WriteError, Written,
};
use bindery_core::{Claim, ClaimKey, Engine, Lookup, Text, Timestamp, Volume};
use bindery_host::{Host, Limits, Options};
use bindery_store::{Delivery, Kind, Object, Store};

use super::faulty::built;
use super::{STOPPED, claim, component};

/// An API server that carries nothing out and remembers what it was asked for.
#[derive(Clone, Default)]
struct Wall(Arc<Mutex<Vec<String>>>);

impl Wall {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    fn asked(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Port for Wall {
    type Template = ();

    async fn read_volume(&self, name: &Text, _: Purpose) -> Lookup<Arc<Volume>> {
        self.note(format!("read volume {name}"));
        Lookup::Absent
    }

    async fn read_claim(&self, key: &ClaimKey, _: Purpose) -> Lookup<Arc<Claim>> {
        self.note(format!("read claim {key}"));
        Lookup::Absent
    }

    async fn write(&self, write: &Write<()>) -> Result<Written, WriteError> {
        self.note(write.name().to_owned());
        Err(WriteError::Failed("the wall takes nothing".to_owned()))
    }

    fn emit(&self, note: &Note) {
        self.note(note.reason.to_owned());
    }

    fn now(&self) -> Timestamp {
        1_800_000_000
    }
}

/// A binder with that volume and that claim, which an engine decides.
fn binder(engine: Arc<dyn Engine>) -> (Binder<Wall>, Wall) {
    let store = Store::new();
    for kind in Kind::ALL {
        let objects: Vec<Object> = match kind {
            Kind::Volume => vec![bindery_kit::volume("disk").into()],
            Kind::Claim => vec![claim().into()],
            Kind::Class | Kind::Pod | Kind::Node => Vec::new(),
        };
        store.deliver(Delivery::listed(kind, objects, "1"));
    }
    let wall = Wall::default();
    let binder = Binder::new(Parts {
        store: Arc::new(store),
        port: wall.clone(),
        engine,
        facts: Facts::default(),
        settings: Settings::default(),
        journal: None,
    });
    (binder, wall)
}

#[tokio::test]
async fn a_binder_with_a_hostile_engine_writes_nothing() {
    let host = Host::new(&Options { concurrency: 2, ..Options::default() }).unwrap();
    let load = |bytes: &[u8]| Arc::new(host.load(bytes, Limits::unhurried()).unwrap());
    let key = Key::Claim(claim().key);
    for (name, expected) in STOPPED {
        let (binder, wall) = binder(load(&built(name)));
        let synced = binder.sync(&key).await;
        let error = synced.result.expect_err(name);
        let SyncError::Engine(fault) = &error else { panic!("{name}: {error:?}") };
        assert!(expected(fault), "{name}: {fault:?}");
        assert!(synced.operations.is_empty(), "{name}");
        assert_eq!(wall.asked(), Vec::<String>::new(), "{name}");
        let metrics = binder.metrics();
        assert_eq!((metrics.engine_faults.get(), metrics.sync_errors.get()), (1, 1), "{name}");
        let sentence = error.to_string();
        assert!(sentence.starts_with("no decision: ") && !sentence.contains('\n'), "{name}: {sentence}");
    }
    // There was something to write: the default engine begins to bind.
    let (binder, wall) = binder(load(&component::default_engine()));
    assert!(matches!(binder.sync(&key).await.result, Err(SyncError::Write { .. })));
    assert_eq!(wall.asked(), ["reserve volume"]);
}
