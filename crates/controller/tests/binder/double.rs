//! Binders on an API server in memory, and engines by script.

use std::sync::Arc;

use bindery_controller::{Binder, Facts, Parts, Settings};
use bindery_core::{Claim, ClaimKey, Cluster, Decision, Engine, EngineFault, Request, Volume};
use bindery_kit::{Event, InMemoryApi};
pub(crate) use bindery_kit::{VOLUME_PROTECTION as PROTECTION, volume};
use bindery_store::{Kind, Observed, Store};

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

/// A binder whose caches are complete and hold all objects.
pub(crate) fn binder(double: &Double, engine: impl Engine + 'static) -> Arc<Binder<Double>> {
    synced(unsynced(double, engine))
}

/// A binder of these parts, whose caches are complete and hold all objects.
pub(crate) fn binder_of(parts: Parts<Double>) -> Arc<Binder<Double>> {
    let double = parts.port.clone();
    let binder = Binder::new(parts);
    deliver(&double, &binder);
    synced(Arc::new(binder))
}

fn synced(binder: Arc<Binder<Double>>) -> Arc<Binder<Double>> {
    Kind::ALL.into_iter().for_each(|kind| binder.intake().synced(kind));
    binder
}

/// The parts of a binder.
pub(crate) fn parts(double: &Double, engine: impl Engine + 'static) -> Parts<Double> {
    Parts {
        store: Arc::new(Store::new()),
        port: double.clone(),
        engine: Arc::new(engine),
        facts: Facts::default(),
        settings: Settings::default(),
        journal: Some(Arc::new(double.clone())),
    }
}

/// A binder whose caches hold all objects, before it knows that they are complete.
pub(crate) fn unsynced(double: &Double, engine: impl Engine + 'static) -> Arc<Binder<Double>> {
    let binder = Binder::new(parts(double, engine));
    deliver(double, &binder);
    Arc::new(binder)
}

/// Delivers all objects, as watches do.
pub(crate) fn deliver(double: &Double, binder: &Binder<Double>) {
    let (volumes, claims) = objects(double);
    let volumes = volumes.into_iter().map(|volume| Event::Volume(volume.name.clone(), Some(volume)));
    let claims = claims.into_iter().map(|claim| Event::Claim(claim.key.clone(), Some(claim)));
    volumes.chain(claims).for_each(|event| event.deliver(binder.intake()));
}

/// Delivers all objects of a kind, as a complete list.
pub(crate) fn deliver_list(double: &Double, binder: &Binder<Double>, kind: Kind) {
    let (volumes, claims) = objects(double);
    let intake = binder.intake();
    match kind {
        Kind::Volume => {
            let observed = |volume: Arc<Volume>| (volume.name.clone(), Observed::Readable(volume));
            intake.volumes(volumes.into_iter().map(observed).collect());
        }
        Kind::Claim => {
            let observed = |claim: Arc<Claim>| (claim.key.clone(), Observed::Readable(claim));
            intake.claims(claims.into_iter().map(observed).collect());
        }
        Kind::Class => intake.classes(Vec::new()),
        Kind::Pod => intake.pods(Vec::new()),
        Kind::Node => intake.nodes(Vec::new()),
    }
}

fn objects(double: &Double) -> (Vec<Arc<Volume>>, Vec<Arc<Claim>>) {
    let objects = double.objects();
    (objects.volumes.values().cloned().collect(), objects.claims.values().cloned().collect())
}

/// A claim for 1 GiB in namespace `ns`.
pub(crate) fn claim(name: &str) -> Claim {
    bindery_kit::claim(ClaimKey::new("ns", name))
}
