//! Binders on an API server in memory, and engines by script.

use std::sync::Arc;

use bindery_controller::{Binder, Configuration, Parts, Settings};
use bindery_core::{Claim, ClaimKey, Cluster, Decision, Engine, EngineFault, Request, Volume};
use bindery_kit::InMemoryApi;
pub(crate) use bindery_kit::{VOLUME_PROTECTION as PROTECTION, volume};
use bindery_store::{Kind, Store};

/// The API server of these tests.
pub(crate) type Double = InMemoryApi;

/// An engine that calls a function.
pub(crate) struct Scripted<F>(pub(crate) F);

impl<F> Engine for Scripted<F>
where
    F: Fn(&Request, &mut dyn Cluster) -> Result<Decision, EngineFault> + Send + Sync,
{
    fn decide(&self, request: &Request, cluster: &mut dyn Cluster) -> Result<Decision, EngineFault> {
        self.0(request, cluster)
    }

    fn digest(&self) -> &str {
        "scripted"
    }
}

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

/// A claim for 1 GiB in namespace `ns`.
pub(crate) fn claim(name: &str) -> Claim {
    bindery_kit::claim(ClaimKey::new("ns", name))
}
