//! Binders on an API server in memory.

use std::sync::{Arc, Barrier};

use bindery_controller::{Binder, Configuration, Parts, Settings, SyncError};
use bindery_core::{Claim, ClaimKey, Engine, Key, Volume};
use bindery_kit::InMemoryApi;
pub(crate) use bindery_kit::{Scripted, VOLUME_PROTECTION as PROTECTION, volume};
use bindery_store::{Kind, Store};
use tokio::task::{JoinHandle, spawn_blocking};

/// The API server of these tests.
pub(crate) type Double = InMemoryApi;

/// An API server with these objects.
pub(crate) fn holding(
    volumes: impl IntoIterator<Item = Volume>,
    claims: impl IntoIterator<Item = Claim>,
) -> Double {
    let double = Double::new();
    volumes.into_iter().for_each(|volume| double.add_volume(&volume));
    claims.into_iter().for_each(|claim| double.add_claim(&claim));
    double
}

/// A binder whose caches are complete and hold all objects.
pub(crate) fn binder(double: &Double, engine: impl Engine + 'static) -> Arc<Binder<Double>> {
    synced(double, unsynced(double, engine))
}

/// A binder of these parts, whose caches are complete and hold all objects.
pub(crate) fn binder_of(parts: Parts<Double>) -> Arc<Binder<Double>> {
    let double = parts.port.clone();
    synced(&double, Arc::new(Binder::new(parts)))
}

fn synced(double: &Double, binder: Arc<Binder<Double>>) -> Arc<Binder<Double>> {
    Kind::ALL.into_iter().for_each(|kind| double.deliver_list(binder.intake(), kind, "1"));
    binder
}

/// The parts of a binder.
pub(crate) fn parts(double: &Double, engine: impl Engine + 'static) -> Parts<Double> {
    Parts {
        store: Arc::new(Store::new()),
        port: double.clone(),
        engine: Arc::new(engine),
        configuration: Configuration::default(),
        settings: Settings::default(),
        journal: Some(Arc::new(double.clone())),
    }
}

/// A binder before its caches are filled.
pub(crate) fn unsynced(double: &Double, engine: impl Engine + 'static) -> Arc<Binder<Double>> {
    Arc::new(Binder::new(parts(double, engine)))
}

/// Begins a sync.
pub(crate) fn begin(binder: &Arc<Binder<Double>>, key: Key) -> JoinHandle<Result<(), SyncError>> {
    let binder = Arc::clone(binder);
    tokio::spawn(async move { binder.sync(&key).await.result })
}

/// Waits at the barrier of a matcher.
pub(crate) async fn meet(barrier: &Arc<Barrier>) {
    let barrier = Arc::clone(barrier);
    spawn_blocking(move || barrier.wait()).await.expect("the other side is there");
}

/// A claim for 1 GiB in namespace `ns`.
pub(crate) fn claim(name: &str) -> Claim {
    bindery_kit::claim(ClaimKey::new("ns", name))
}
