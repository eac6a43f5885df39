//! Hostile engines in the real binder: it writes nothing, counts the fault, and says in a sentence what it
//! was.

use std::sync::Arc;

use bindery_controller::{Binder, Configuration, Parts, Settings, SyncError, WriteError};
use bindery_core::{Engine, Key};
use bindery_host::{Host, Limits, Options};
use bindery_kit::InMemoryApi;
use bindery_store::{Delivery, Kind, Object, Store};

use super::faulty::built;
use super::{STOPPED, claim, component};

/// A binder with a volume and a claim that fit, for which an engine decides.
fn binder(engine: Arc<dyn Engine>) -> (Binder<InMemoryApi>, InMemoryApi) {
    let store = Store::new();
    for kind in Kind::ALL {
        let objects: Vec<Object> = match kind {
            Kind::Volume => vec![bindery_kit::volume("disk").into()],
            Kind::Claim => vec![claim().into()],
            Kind::Class | Kind::Pod | Kind::Node | Kind::Namespace => Vec::new(),
        };
        store.deliver(Delivery::listed(kind, objects, "1"));
    }
    let api = InMemoryApi::new();
    let binder = Binder::new(Parts {
        store: Arc::new(store),
        port: api.clone(),
        engine,
        configuration: Configuration::default(),
        settings: Settings::default(),
        journal: None,
    });
    (binder, api)
}

#[tokio::test]
async fn a_binder_with_a_hostile_engine_writes_nothing() {
    let host = Host::new(&Options { concurrency: 2, ..Options::default() }).unwrap();
    let load = |bytes: &[u8]| Arc::new(host.load(bytes, Limits::default()).unwrap());
    let key = Key::Claim(claim().key);
    for (name, expected) in STOPPED {
        let (binder, api) = binder(load(&built(name)));
        let synced = binder.sync(&key).await;
        let error = synced.result.expect_err(name);
        let SyncError::Engine(fault) = &error else { panic!("{name}: {error:?}") };
        assert!(expected(fault), "{name}: {fault:?}");
        assert!(synced.operations.is_empty(), "{name}");
        assert_eq!((api.reads().len(), api.writes().len(), api.reasons().len()), (0, 0, 0), "{name}");
        let metrics = binder.metrics();
        assert_eq!((metrics.engine_faults.get(), metrics.sync_errors.get()), (1, 1), "{name}");
        let sentence = error.to_string();
        assert!(sentence.starts_with("no decision: ") && !sentence.contains('\n'), "{name}: {sentence}");
    }
    // The default engine begins to bind, so there was something to write.
    let (binder, api) = binder(load(&component::default_engine()));
    api.fail_write(1, WriteError::Failed("no answer".to_owned()));
    assert!(matches!(binder.sync(&key).await.result, Err(SyncError::Write { .. })));
    assert_eq!((api.reads().len(), api.reasons().len(), api.write_names()), (0, 0, vec!["reserve volume"]));
}
