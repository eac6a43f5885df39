//! Takes the deliveries of watches into the store, and queues the keys that have to be decided again.

mod declared;
mod turns;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use bindery_core::{ClaimKey, Declared, Key, Lookup, Source, Uid, Version, VolumePhase};
use bindery_store::{Change, Delivery, Kind, Object, ObjectChange, Store};
use parking_lot::RwLock;
use tokio::sync::watch;

pub(crate) use self::turns::{Role, Subscriber, Turns};
use crate::deletions::Deletions;
use crate::foreign_writers::ForeignWriters;
use crate::freshness::{Freshness, Regression, Sent};
use crate::operations::OperationMap;
use crate::queue::{Lane, Queue};
use crate::{Metrics, Mode};

/// Takes the deliveries of watches. Cheap to clone; every clone feeds the same binder.
#[derive(Clone)]
pub struct Intake {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<Store>,
    queue: Arc<Queue>,
    turns: Turns,
    operations: Arc<OperationMap>,
    metrics: Arc<Metrics>,
    synced: watch::Sender<bool>,
    /// Whether keys are decided.
    open: watch::Sender<bool>,
    observer: OnceLock<Box<dyn Observer>>,
    foreign_writers: Option<ForeignWriters>,
    freshness: Freshness,
    deletions: Deletions,
    declared: RwLock<Arc<Declared>>,
    /// Whether claims that are gone may lack facts that are declared.
    lacks_claim_facts: AtomicBool,
}

/// Compares another binder's choices with Bindery's as they are delivered. Called on the tasks of the
/// watches, so it must not block.
pub(crate) trait Observer: Send + Sync {
    /// A delivery has come, and the store does not have it yet.
    fn before(&self, delivery: &Delivery);
    /// A claim is gone.
    fn gone(&self, key: &ClaimKey, uid: &Uid);
}

impl Intake {
    pub(crate) fn new(
        mode: Mode,
        store: Arc<Store>,
        queue: Arc<Queue>,
        operations: Arc<OperationMap>,
        metrics: Arc<Metrics>,
        declared: Declared,
    ) -> Self {
        if declared.namespaces {
            store.keep_namespaces();
        }
        if declared.reclaims {
            store.keep_last_claims();
        }
        store.keep_spreads(&declared.spreads);
        let foreign_writers = (mode == Mode::Own).then(|| ForeignWriters::new(Arc::clone(&operations)));
        let inner = Inner {
            synced: watch::Sender::new(store.synced()),
            open: watch::Sender::new(false),
            turns: Turns::new(Arc::clone(&store), Arc::clone(&queue)),
            store,
            queue,
            operations,
            metrics,
            observer: OnceLock::new(),
            foreign_writers,
            freshness: Freshness::default(),
            deletions: Deletions::default(),
            declared: RwLock::new(Arc::new(declared)),
            lacks_claim_facts: AtomicBool::new(false),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The facts that policies declare, which are decoded with each object.
    pub fn declared(&self) -> Arc<Declared> {
        Arc::clone(&self.inner.declared.read())
    }

    /// The kinds that are watched.
    pub fn kinds(&self) -> &'static [Kind] {
        self.inner.store.kinds()
    }

    /// Sets the observer; the first one stays.
    pub(crate) fn set_observer(&self, observer: Box<dyn Observer>) {
        // The error would return the observer that is not needed.
        let _ = self.inner.observer.set(observer);
    }

    /// The known object that equals this one ([`Store::known`]).
    pub fn known(&self, object: &Object) -> Option<Object> {
        self.inner.store.known(object)
    }

    /// Takes a delivery of a watch: the only way by which watches reach the store. Deliveries of one kind
    /// come one after the other, in the watch's order.
    ///
    /// In this order:
    ///
    /// 1. The observer of observe mode. It is the only consumer that comes before the store: it decides on
    ///    the world that the other binder chose from, and the store keeps earlier states only of
    ///    free volumes.
    /// 2. The store. The consumers after it see the [`Change`] and nothing else.
    /// 3. The check whether the list shows that etcd was restored.
    /// 4. The foreign-writer check of mode own: it stops reclaiming before any key is woken.
    /// 5. The clean-up after objects that are gone, or were replaced under their names.
    /// 6. The keys whose last decision asked for facts that changed.
    /// 7. The keys of the objects that changed; after a list also those whose deletion was undone.
    /// 8. How current the kind is. Callers that wait for a version find it in the store.
    pub fn deliver(&self, delivery: Delivery) {
        let inner = &*self.inner;
        if let Some(observer) = inner.observer.get() {
            observer.before(&delivery);
        }
        let kind = delivery.kind();
        let (is_list, version) = match &delivery {
            Delivery::Listed { version, .. } => (true, Some(version.clone())),
            Delivery::Bookmark { version, .. } => (false, Some(version.clone())),
            Delivery::Applied(_) | Delivery::Gone(_) => (false, None),
        };
        let mut change = inner.store.deliver(delivery);
        let regression = change.regression.take();
        self.check(regression.map(|(known, told)| Regression { kind: kind.name(), known, told }));
        if let Some(check) = &inner.foreign_writers {
            change.objects.iter().for_each(|object| check.look_at(object));
        }
        change.objects.iter().for_each(|object| self.forget_gone(object));
        if is_list {
            inner.turns.wake(&change);
            self.queue_in_lanes(changed_keys(&change));
            self.queue_undone_deletions(kind);
        } else {
            self.changed(&change);
        }
        let Some(version) = version else { return };
        if is_list && inner.store.synced() {
            inner.synced.send_replace(true);
        }
        self.check(inner.freshness.reached(kind, &version));
        if is_list {
            inner.freshness.list_complete(kind);
        }
    }

    /// The foreign-writer check; `None` in observe mode, where another binder is expected.
    pub fn foreign_writers(&self) -> Option<&ForeignWriters> {
        self.inner.foreign_writers.as_ref()
    }

    /// How current each kind's watch is, and the lists that are asked of it.
    pub fn freshness(&self) -> &Freshness {
        &self.inner.freshness
    }

    /// A consistent list of the kind is about to be requested.
    pub fn list_begins(&self, kind: Kind) {
        self.inner.store.list_begins(kind);
        self.inner.freshness.list_begins(kind);
    }

    /// Records the version of the Lease from a consistent read or a write. Must be called in the order in
    /// which the versions came.
    pub fn lease_reached(&self, version: &Version) {
        self.check(self.inner.freshness.lease_reached(version));
    }

    /// Takes the version in the answer to a request. [`Freshness::sent`] was called before the request.
    pub fn answered(&self, sent: &Sent, version: &Version) {
        self.check(self.inner.freshness.answered(sent, version));
    }

    /// If versions went back, etcd was restored and the caches may be wrong. Nothing is decided until every
    /// kind was listed anew. The lists override own writes over the cache and accepted deletions.
    fn check(&self, regression: Option<Regression>) {
        let Some(regression) = regression else { return };
        tracing::error!("{regression}; all kinds are listed again before more is decided");
        self.inner.metrics.version_regressions.inc();
        self.inner.store.mark_unsynced();
        self.inner.synced.send_replace(false);
        self.inner.freshness.go_back(regression);
    }

    /// A list or a watch has failed, and is tried again.
    pub fn watch_failed(&self) {
        self.inner.metrics.watch_failures.inc();
    }

    /// The API server has forgotten the version that was watched from. A list of the kind is wanted until it
    /// is complete: a replica whose list keeps failing must not lead with an old cache.
    pub fn watch_expired(&self, kind: Kind) {
        self.inner.metrics.watches_expired.inc();
        self.inner.freshness.want_list(kind);
    }

    /// Has an object decided soon.
    pub fn enqueue(&self, key: Key) {
        self.inner.queue.add(key);
    }

    /// Queues the keys that a change of the store concerns: those of the objects that changed, and those
    /// whose last decision asked for what has changed.
    pub(crate) fn changed(&self, change: &Change) {
        // First, so that a claim takes the volume of this change before the volume is decided; then the
        // volume is decided once, after the bind.
        self.inner.turns.wake(change);
        self.inner.queue.add_all(changed_keys(change));
    }

    /// Queues keys from now on, and first those of all objects in the store.
    pub(crate) fn open(&self) {
        // Before the objects are read from the store, because queuing an object twice is better than missing
        // it.
        self.inner.queue.open();
        self.inner.open.send_replace(true);
        self.queue_all();
    }

    /// Queues the keys of all objects in the store.
    pub(crate) fn queue_all(&self) {
        self.queue_if(|_| true);
    }

    /// Queues the keys of the objects in the store that satisfy a condition.
    pub(crate) fn queue_if(&self, holds: impl Fn(&Key) -> bool) {
        let store = &self.inner.store;
        let (mut volumes, mut claims) = (store.volume_names(), store.claim_keys());
        // In an order that is the same in every run.
        volumes.sort_unstable();
        claims.sort_unstable();
        let volumes = volumes.into_iter().map(Key::Volume);
        self.queue_in_lanes(volumes.chain(claims.into_iter().map(Key::Claim)).filter(holds));
    }

    /// Decisions have ended. Changes wake no key until all objects are decided anew.
    pub(crate) fn close(&self) {
        self.inner.queue.close();
        self.inner.open.send_replace(false);
        self.inner.turns.subscriptions.clear();
    }

    /// Queues the keys that wait for a list of volumes whenever one is complete, for ever.
    pub(crate) async fn queue_after_lists(&self) {
        loop {
            self.inner.queue.until_list_awaited().await;
            self.inner.freshness.until_listed(Kind::Volume).await;
            self.inner.queue.list_complete();
        }
    }

    fn queue_in_lanes(&self, keys: impl Iterator<Item = Key>) {
        // Before the queue is locked: each key may need a look at the store and the policies.
        let keys: Vec<_> = keys
            .map(|key| {
                let lane = self.lane(&key);
                (key, lane)
            })
            .collect();
        self.inner.queue.add_all_to(keys);
    }

    /// The lane of an object in a list. Most of these objects have not changed and need no decision.
    fn lane(&self, key: &Key) -> Lane {
        let store = &self.inner.store;
        let is_urgent = match key {
            Key::Volume(name) => match store.volume(Source::Cache, name) {
                // Claims may wait for this volume, which was not offered yet.
                Lookup::Found(volume) => matches!(volume.phase, VolumePhase::Unset | VolumePhase::Pending),
                _ => true,
            },
            Key::Claim(key) => match store.claim(Source::Cache, key) {
                Lookup::Found(claim) => !claim.annotations.bind_completed,
                _ => true,
            },
        };
        if is_urgent { Lane::Fast } else { Lane::Slow }
    }

    /// Volumes that a list has in spite of an accepted deletion. They are queued although they did not
    /// change.
    fn queue_undone_deletions(&self, kind: Kind) {
        if kind == Kind::Volume {
            let undone = self.inner.deletions.take_undone(&self.inner.store);
            self.inner.queue.add_all(undone.into_iter().map(Key::Volume));
        }
    }

    /// Forgets the state that is kept for an object that is gone.
    fn forget_gone(&self, object: &ObjectChange) {
        let Some(uid) = object.gone() else { return };
        let inner = &*self.inner;
        inner.operations.forget(uid);
        match object {
            ObjectChange::Volume(name, _) => {
                inner.operations.metrics.done(uid);
                inner.deletions.forget(name);
                inner.queue.forget_failures(&Key::Volume(name.clone()));
            }
            ObjectChange::Claim(key, _) => {
                inner.operations.metrics.forget(uid);
                inner.queue.forget_failures(&Key::Claim(key.clone()));
                if let Some(observer) = inner.observer.get() {
                    observer.gone(key, uid);
                }
            }
        }
    }

    pub(crate) fn deletions(&self) -> &Deletions {
        &self.inner.deletions
    }

    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.inner.queue
    }

    pub(crate) fn turns(&self) -> &Turns {
        &self.inner.turns
    }

    /// Ends when all initial lists are complete.
    pub async fn until_synced(&self) {
        let mut synced = self.inner.synced.subscribe();
        // The sender lives as long as this intake, so receiving cannot fail.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// Ends when decisions have begun.
    pub async fn until_open(&self) {
        let _ = self.inner.open.subscribe().wait_for(|open| *open).await;
    }
}

/// The keys of the objects that changed in the overlay.
fn changed_keys(change: &Change) -> impl Iterator<Item = Key> {
    change.objects.iter().filter_map(|object| match object {
        ObjectChange::Volume(name, changed) => changed.overlay.then(|| Key::Volume(name.clone())),
        ObjectChange::Claim(key, changed) => changed.overlay.then(|| Key::Claim(key.clone())),
    })
}

#[cfg(test)]
mod tests {
    use bindery_core::{Operation, OperationKind, OperationState};

    use super::*;

    #[tokio::test]
    async fn an_object_made_again_within_one_list_has_no_past() {
        let (store, queue) = (Arc::<Store>::default(), Arc::<Queue>::default());
        let operations = Arc::new(OperationMap::new(Arc::clone(&queue)));
        let intake = Intake::new(
            Mode::Own,
            Arc::clone(&store),
            Arc::clone(&queue),
            Arc::clone(&operations),
            Arc::default(),
            Declared::default(),
        );
        let volume = bindery_kit::volume("v");
        let claim = bindery_kit::claim(ClaimKey::new("ns", "c"));
        intake.deliver(Delivery::listed(Kind::Volume, [volume.clone()], "1"));
        intake.deliver(Delivery::listed(Kind::Claim, [claim.clone()], "1"));
        let objects = [
            (OperationKind::Delete, &volume.uid, Key::Volume(volume.name.clone())),
            (OperationKind::Provision, &claim.uid, Key::Claim(claim.key.clone())),
        ];
        for (kind, uid, key) in objects.clone() {
            operations.metrics.start(&Operation { kind, plugin: "p".into(), uid: uid.clone() }, None);
            operations.start(kind, uid, key.clone()).expect("it is idle").finish(false);
            queue.failed(&key, None);
        }
        let state = || objects.clone().map(|(kind, uid, _)| operations.state(kind, uid));
        assert_eq!(state(), [OperationState::BackingOff; 2]);
        assert_eq!((queue.failing(), operations.metrics.under_way()), (2, 2));

        let again = bindery_core::Volume { uid: "new".into(), ..volume.clone() };
        intake.deliver(Delivery::listed(Kind::Volume, [again], "2"));
        let again = bindery_core::Claim { uid: "new".into(), ..claim.clone() };
        intake.deliver(Delivery::listed(Kind::Claim, [again], "2"));
        assert_eq!(state(), [OperationState::Idle; 2]);
        assert_eq!((queue.failing(), operations.metrics.under_way()), (0, 0));
    }
}
