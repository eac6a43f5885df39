//! The door for what watches deliver: into the store, and on to whoever has to be decided because of it.

use std::sync::Arc;

use bindery_core::{Claim, ClaimKey, Class, Source, Text, Volume};
use bindery_store::{Change, Kind, Observed, PodRecord, Store, Subscriptions, Topic};
use tokio::sync::watch;

use crate::Key;
use crate::operations::OperationMap;
use crate::queue::Queue;

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
    synced: watch::Sender<bool>,
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
    pub(crate) fn new(store: Arc<Store>, queue: Arc<Queue>, operations: Arc<OperationMap>) -> Self {
        let synced = watch::Sender::new(store.synced());
        let subscriptions = Subscriptions::new();
        Self { inner: Arc::new(Inner { store, queue, subscriptions, operations, synced }) }
    }

    /// A volume was added or changed.
    pub fn volume(&self, name: Text, observed: Observed<Volume>) {
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
        let (change, gone) = self.inner.store.replace_volumes(list);
        self.changed(&change);
        gone.iter().for_each(|volume| self.forget_volume(volume));
    }

    /// A claim was added or changed.
    pub fn claim(&self, key: ClaimKey, observed: Observed<Claim>) {
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
        let (change, gone) = self.inner.store.replace_claims(list);
        self.changed(&change);
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

    /// The first complete list of a kind has been delivered. After the last kind decisions begin (G6 of the
    /// design).
    pub fn synced(&self, kind: Kind) {
        self.inner.store.mark_synced(kind);
        if self.inner.store.synced() {
            self.inner.synced.send_replace(true);
        }
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
        let objects = change.topics.iter().filter_map(|topic| match topic {
            Topic::Volume(Source::Overlay, name) => Some(Key::Volume(name.clone())),
            Topic::Claim(Source::Overlay, key) => Some(Key::Claim(key.clone())),
            _ => None,
        });
        self.inner.queue.add_all(objects);
        self.inner.queue.add_all(self.inner.subscriptions.wake(change).into_iter().map(|(key, _)| key));
    }

    /// Takes the end of a claim's reservation to everyone else. The claim itself has bound the volume, or is
    /// tried again after its backoff, which waking it now would undo.
    pub(crate) fn unreserved(&self, change: &Change, by: &ClaimKey) {
        let woken = self.inner.subscriptions.wake(change).into_iter().map(|(key, _)| key);
        self.inner.queue.add_all_unreserved(woken.filter(|key| !matches!(key, Key::Claim(key) if key == by)));
    }

    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.inner.queue
    }

    pub(crate) fn subscriptions(&self) -> &Subscriptions<Subscriber> {
        &self.inner.subscriptions
    }

    /// Ends when all initial lists are complete.
    pub(crate) async fn until_synced(&self) {
        let mut synced = self.inner.synced.subscribe();
        // The sender lives as long as this intake, so there is no error to see.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    fn forget_volume(&self, volume: &Volume) {
        self.inner.operations.forget(&volume.uid);
        if let Some(claim) = &volume.claim_ref {
            self.enqueue(Key::Claim(ClaimKey::new(claim.namespace.clone(), claim.name.clone())));
        }
    }

    fn forget_claim(&self, claim: &Claim) {
        self.inner.operations.forget(&claim.uid);
        if let Some(volume) = &claim.volume_name {
            self.enqueue(Key::Volume(volume.clone()));
        }
    }
}
