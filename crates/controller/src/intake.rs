//! The door for what watches deliver: into the store, and on to whoever has to be decided because of it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bindery_core::{Claim, ClaimKey, Class, Lookup, Source, Text, Version, Volume, VolumePhase};
use bindery_store::{Change, Dispatcher, Kind, Observed, Offer, PodRecord, Store, Subscriptions, Topic};
use tokio::sync::{Notify, watch};

use crate::deletions::Deletions;
use crate::freshness::{Freshness, ListTicket, Regression, Sent};
use crate::observe::Seen;
use crate::operations::OperationMap;
use crate::queue::{Lane, Queue};
use crate::vigil::Vigil;
use crate::{Key, Metrics, Mode};

/// Takes what watches deliver. Cheap to clone; every clone feeds the same binder.
#[derive(Clone)]
pub struct Intake {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<Store>,
    queue: Arc<Queue>,
    subscriptions: Subscriptions<Subscriber>,
    operations: Arc<OperationMap>,
    metrics: Arc<Metrics>,
    synced: watch::Sender<bool>,
    onlooker: OnceLock<Box<dyn Onlooker>>,
    vigil: Option<Vigil>,
    freshness: Freshness,
    awaiting_list: Mutex<HashSet<Key>>,
    awaits_list: Notify,
    deletions: Deletions,
}

/// Looks on as watches deliver, each time before the store takes it. Called on the tasks of the watches, so
/// it must not block; what it is told of changed under the same UID.
pub(crate) trait Onlooker: Send + Sync {
    /// A volume has changed.
    fn volume(&self, before: &Arc<Volume>, after: &Arc<Volume>, seen: Seen);
    /// A claim has changed.
    fn claim(&self, before: &Arc<Claim>, after: &Arc<Claim>, seen: Seen);
    /// A claim is gone.
    fn claim_gone(&self, claim: &Claim);
}

/// Who depends on facts: the last sync of an object, or the last step of its operation. A step asks less than
/// the sync that started it, so it must not take that one's place.
pub(crate) type Subscriber = (Key, Role);

/// What of an object depends on facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Its last sync.
    Sync,
    /// Its last operation.
    Operation,
}

impl Intake {
    pub(crate) fn new(
        mode: Mode,
        store: Arc<Store>,
        queue: Arc<Queue>,
        operations: Arc<OperationMap>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let synced = watch::Sender::new(store.synced());
        let subscriptions = Subscriptions::new();
        let onlooker = OnceLock::new();
        let vigil = (mode == Mode::Own).then(|| Vigil::new(Arc::clone(&store), Arc::clone(&operations)));
        let inner = Inner {
            store,
            queue,
            subscriptions,
            operations,
            metrics,
            synced,
            onlooker,
            vigil,
            freshness: Freshness::new(),
            deletions: Deletions::default(),
            awaiting_list: Mutex::default(),
            awaits_list: Notify::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Has somebody look on; whoever does so already stays.
    pub(crate) fn set_onlooker(&self, onlooker: Box<dyn Onlooker>) {
        // An error hands back the one that is not needed.
        let _ = self.inner.onlooker.set(onlooker);
    }

    /// A volume was added or changed.
    pub fn volume(&self, name: Text, observed: Observed<Volume>) {
        self.show_volume(&name, &observed, Seen::Watched);
        self.changed(&self.inner.store.apply_volume(name, observed));
    }

    /// A volume is gone. Its claim is decided, so that it becomes Lost without delay.
    pub fn volume_gone(&self, name: &str) {
        let (change, volume) = self.inner.store.remove_volume(name);
        self.changed(&change);
        volume.iter().for_each(|volume| self.forget_volume(volume));
    }

    /// All volumes, as a complete list says.
    pub fn volumes(&self, list: Vec<(Text, Observed<Volume>)>) {
        list.iter().for_each(|(name, observed)| self.show_volume(name, observed, Seen::Listed));
        self.check_objects(Kind::Volume, self.inner.store.regressed_volume(&list));
        let begun = self.inner.store.lists_begun(Kind::Volume);
        let undone = self.inner.deletions.take_undone(&list, begun);
        let (change, gone) = self.inner.store.replace_volumes(list);
        self.listed(&change);
        // Nothing of them has changed, for all that the store knows.
        undone.into_iter().for_each(|name| self.enqueue(Key::Volume(name)));
        gone.iter().for_each(|volume| self.forget_volume(volume));
    }

    /// A claim was added or changed.
    pub fn claim(&self, key: ClaimKey, observed: Observed<Claim>) {
        self.show_claim(&key, &observed, Seen::Watched);
        self.changed(&self.inner.store.apply_claim(key, observed));
    }

    /// A claim is gone. Its volume is decided, so that it is released without delay.
    pub fn claim_gone(&self, key: &ClaimKey) {
        let (change, claim) = self.inner.store.remove_claim(key);
        self.changed(&change);
        claim.iter().for_each(|claim| self.forget_claim(claim));
    }

    /// All claims, as a complete list says.
    pub fn claims(&self, list: Vec<(ClaimKey, Observed<Claim>)>) {
        list.iter().for_each(|(key, observed)| self.show_claim(key, observed, Seen::Listed));
        self.check_objects(Kind::Claim, self.inner.store.regressed_claim(&list));
        let (change, gone) = self.inner.store.replace_claims(list);
        self.listed(&change);
        gone.iter().for_each(|claim| self.forget_claim(claim));
    }

    /// A class was added or changed.
    pub fn class(&self, name: Text, observed: Observed<Class>) {
        self.changed(&self.inner.store.apply_class(name, observed));
    }

    /// A class is gone.
    pub fn class_gone(&self, name: &str) {
        self.changed(&self.inner.store.remove_class(name));
    }

    /// All classes, as a complete list says.
    pub fn classes(&self, list: Vec<(Text, Observed<Class>)>) {
        self.changed(&self.inner.store.replace_classes(list));
    }

    /// A pod was added or changed.
    pub fn pod(&self, pod: PodRecord) {
        self.changed(&self.inner.store.apply_pod(pod));
    }

    /// A pod is gone.
    pub fn pod_gone(&self, namespace: &str, name: &str) {
        self.changed(&self.inner.store.remove_pod(namespace, name));
    }

    /// All pods, as a complete list says.
    pub fn pods(&self, list: Vec<PodRecord>) {
        self.changed(&self.inner.store.replace_pods(list));
    }

    /// A node was added or changed.
    pub fn node(&self, name: Text) {
        self.changed(&self.inner.store.apply_node(name));
    }

    /// A node is gone.
    pub fn node_gone(&self, name: &str) {
        self.changed(&self.inner.store.remove_node(name));
    }

    /// All nodes, as a complete list says.
    pub fn nodes(&self, list: Vec<Text>) {
        self.changed(&self.inner.store.replace_nodes(list));
    }

    /// The first complete list of a kind has been delivered, or the first since versions went back. After the
    /// last kind decisions begin (G6 of the design).
    pub fn synced(&self, kind: Kind) {
        self.inner.store.mark_synced(kind);
        if self.inner.store.synced() {
            self.inner.synced.send_replace(true);
        }
    }

    /// Who looks at what is delivered for signs of another binder; to be asked before the delivery is made.
    /// Nobody in observe mode, where another binder is expected.
    pub fn vigil(&self) -> Option<&Vigil> {
        self.inner.vigil.as_ref()
    }

    /// How current each kind's watch is, and the lists that are asked of it.
    pub fn freshness(&self) -> &Freshness {
        &self.inner.freshness
    }

    /// A consistent list of the kind is about to be requested.
    pub fn list_begins(&self, kind: Kind) -> ListTicket {
        self.inner.store.list_begins(kind);
        self.inner.freshness.list_begins(kind)
    }

    /// The cache of the kind has advanced to a version, as an event has told.
    pub fn advanced(&self, kind: Kind, version: &Version) {
        self.inner.freshness.advanced(kind, version);
    }

    /// The cache of the kind has reached a version: a bookmark or a complete list has told it. To be told in
    /// the order in which the versions came.
    pub fn reached(&self, kind: Kind, version: &Version) {
        self.check(self.inner.freshness.reached(kind, version));
    }

    /// The Lease has that version: a consistent read or a write of it has told so. To be told in the order in
    /// which the versions came.
    pub fn lease_reached(&self, version: &Version) {
        self.check(self.inner.freshness.lease_reached(version));
    }

    /// A request about the kind is about to be sent whose answer tells a version that is new by then: that of
    /// a consistent list, or of an object as the request leaves it.
    pub fn sent(&self, kind: Kind) -> Sent {
        self.inner.freshness.sent(kind)
    }

    /// The request was answered with that version.
    pub fn answered(&self, sent: &Sent, version: &Version) {
        self.check(self.inner.freshness.answered(sent, version));
    }

    /// Where an object of a list went back, as it does with bumped revisions too. Before the list is taken: a
    /// decision on it and on caches of before the restore could give a volume to a claim that is no more. The
    /// lists that follow show nothing new: what is known is of before the restore until they are complete.
    fn check_objects(&self, kind: Kind, versions: Option<(Version, Version)>) {
        let versions = versions.filter(|_| self.inner.store.synced());
        self.check(versions.map(|(known, told)| Regression { kind: kind.name(), known, told }));
    }

    /// Where versions went back, etcd was restored: nothing that is known may be so any more. Nothing is
    /// decided until every kind was listed anew. The lists end what was assumed of own writes and of accepted
    /// deletions.
    fn check(&self, regression: Option<Regression>) {
        let Some(regression) = regression else { return };
        tracing::error!("{regression}; all kinds are listed again before more is decided");
        self.inner.metrics.version_regressions.count();
        self.inner.store.mark_unsynced();
        self.inner.synced.send_replace(false);
        self.inner.freshness.go_back(regression);
    }

    /// A list or a watch has failed, and is tried again.
    pub fn watch_failed(&self) {
        self.inner.metrics.watch_failures.count();
    }

    /// The API server has forgotten the version that was watched from: all is listed again.
    pub fn watch_expired(&self) {
        self.inner.metrics.watches_expired.count();
    }

    /// Has an object decided soon.
    pub fn enqueue(&self, key: Key) {
        self.inner.queue.add(key);
    }

    /// Takes a change of the store to everyone whom it concerns: the objects that changed, and those whose
    /// last decision asked for what has changed.
    pub(crate) fn changed(&self, change: &Change) {
        if change.is_empty() {
            return;
        }
        // First: a claim that takes the volume of this change leaves its volume one decision, after the bind.
        self.wake(change);
        self.inner.queue.add_all(changed_objects(change));
    }

    /// As [`Intake::changed`], for a list: most of what it brings is as it should be.
    fn listed(&self, change: &Change) {
        self.queue_in_lanes(changed_objects(change));
        self.wake(change);
    }

    /// From now on whoever is to be decided is queued, and first of all every object that there is.
    pub(crate) fn open(&self) {
        let (queue, store) = (&self.inner.queue, &self.inner.store);
        // Before they are listed: what changes meanwhile is rather queued twice than not at all.
        queue.open();
        let (mut volumes, mut claims) = (store.volume_names(), store.claim_keys());
        // In an order that is the same in every run.
        volumes.sort_unstable();
        claims.sort_unstable();
        self.queue_in_lanes(volumes.into_iter().map(Key::Volume));
        self.queue_in_lanes(claims.into_iter().map(Key::Claim));
    }

    /// Nobody decides any more: what changes wakes nobody, until all is decided anew.
    pub(crate) fn close(&self) {
        self.inner.queue.close();
        self.inner.subscriptions.clear();
        self.awaiting_list().clear();
    }

    /// Has an object decided again when no list of volumes is wanted any more.
    pub(crate) fn enqueue_after_list(&self, key: Key) {
        self.awaiting_list().insert(key);
        self.inner.awaits_list.notify_one();
    }

    /// Queues what waits for a list of volumes whenever one is complete, for ever.
    pub(crate) async fn wake_after_lists(&self) {
        loop {
            self.inner.awaits_list.notified().await;
            self.inner.freshness.until_listed(Kind::Volume).await;
            let keys = std::mem::take(&mut *self.awaiting_list());
            self.inner.queue.add_all(keys);
        }
    }

    fn awaiting_list(&self) -> MutexGuard<'_, HashSet<Key>> {
        // A panic leaves a set that is whole.
        self.inner.awaiting_list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue_in_lanes(&self, keys: impl Iterator<Item = Key>) {
        let keys = keys.map(|key| {
            let lane = self.lane(&key);
            (key, lane)
        });
        self.inner.queue.add_all_to(keys);
    }

    /// The lane of an object that need not have changed.
    fn lane(&self, key: &Key) -> Lane {
        let store = &self.inner.store;
        let is_urgent = match key {
            Key::Volume(name) => match store.volume(Source::Cache, name) {
                // Not offered yet, and perhaps waited for.
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

    fn wake(&self, change: &Change) {
        self.wake_but(change, Offer::New, None);
    }

    /// Takes the end of a claim's reservation to others. The claim itself has bound the volume, or is
    /// tried again after its backoff, which waking it now would undo.
    pub(crate) fn unreserved(&self, change: &Change, by: &ClaimKey) {
        self.wake_but(change, Offer::Returned, Some(by));
    }

    fn wake_but(&self, change: &Change, offer: Offer, except: Option<&ClaimKey>) {
        let turns = Turns { inner: &self.inner, except };
        let woken = self.inner.subscriptions.wake(change, offer, &turns, is_once);
        self.inner.queue.add_all(woken.into_iter().map(|(key, _)| key));
    }

    /// A sync has been decided, or could not be: a volume that its object was asked about, and that is free
    /// still, is offered to the next one.
    pub(crate) fn pass_on(&self, subscriber: &Subscriber) {
        self.inner.subscriptions.pass_on(subscriber, &Turns { inner: &self.inner, except: None });
    }

    pub(crate) fn deletions(&self) -> &Deletions {
        &self.inner.deletions
    }

    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.inner.queue
    }

    pub(crate) fn subscriptions(&self) -> &Subscriptions<Subscriber> {
        &self.inner.subscriptions
    }

    /// Ends when all initial lists are complete.
    pub async fn until_synced(&self) {
        let mut synced = self.inner.synced.subscribe();
        // The sender lives as long as this intake, so there is no error to see.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    fn show_volume(&self, name: &str, observed: &Observed<Volume>, seen: Seen) {
        if let (Some(onlooker), Observed::Readable(after)) = (self.inner.onlooker.get(), observed)
            && let Lookup::Found(before) = self.inner.store.volume(Source::Cache, name)
            && before.uid == after.uid
        {
            onlooker.volume(&before, after, seen);
        }
    }

    fn show_claim(&self, key: &ClaimKey, observed: &Observed<Claim>, seen: Seen) {
        if let (Some(onlooker), Observed::Readable(after)) = (self.inner.onlooker.get(), observed)
            && let Lookup::Found(before) = self.inner.store.claim(Source::Cache, key)
            && before.uid == after.uid
        {
            onlooker.claim(&before, after, seen);
        }
    }

    fn forget_volume(&self, volume: &Volume) {
        self.inner.operations.forget(&volume.uid);
        self.inner.operations.metrics.done(&volume.uid);
        if let Some(claim) = &volume.claim_ref {
            self.enqueue(Key::Claim(ClaimKey::new(claim.namespace.clone(), claim.name.clone())));
        }
    }

    fn forget_claim(&self, claim: &Claim) {
        self.inner.operations.forget(&claim.uid);
        self.inner.operations.metrics.forget(&claim.uid);
        if let Some(onlooker) = self.inner.onlooker.get() {
            onlooker.claim_gone(claim);
        }
        if let Some(volume) = &claim.volume_name {
            self.enqueue(Key::Volume(volume.clone()));
        }
    }
}

/// Gives turns to those that wait for a free volume.
struct Turns<'a> {
    inner: &'a Inner,
    /// Gets none.
    except: Option<&'a ClaimKey>,
}

impl Dispatcher<Subscriber> for Turns<'_> {
    fn free(&self, volume: &str) -> Option<Arc<Volume>> {
        self.inner.store.free_volume(volume)
    }

    fn ask(&self, (key, role): &Subscriber, offer: Offer) -> bool {
        if matches!((key, self.except), (Key::Claim(key), Some(except)) if key == except) {
            return false;
        }
        // The turn is the object's: of its operation nobody would tell that it has decided.
        self.inner.queue.offer(key, offer) && *role == Role::Sync
    }
}

/// Whether a subscriber that is queued need not be woken again until its turn, which subscribes it anew. A
/// turn that fails has another one. The turn of an object need not start its operation again, so what that
/// depends on is kept.
fn is_once((_, role): &Subscriber) -> bool {
    *role == Role::Sync
}

/// The objects that have changed themselves.
fn changed_objects(change: &Change) -> impl Iterator<Item = Key> {
    change.topics.iter().filter_map(|topic| match topic {
        Topic::Volume(Source::Overlay, name) => Some(Key::Volume(name.clone())),
        Topic::Claim(Source::Overlay, key) => Some(Key::Claim(key.clone())),
        _ => None,
    })
}
