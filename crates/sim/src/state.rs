//! All state of the simulator, under one lock.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::clock::Clock;
use crate::object;
use crate::registry::{NAMESPACE, RESOURCES, Resource};
use crate::sim::{LoggedRequest, SimOptions};
use crate::storage::{HistoryMax, Key, Snapshot, Store};
use crate::verbs::events::to_stored;

/// The characters of generated names: no vowels, and none that looks like another.
const NAME_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The namespaces of a new cluster.
const SYSTEM_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) controllers: bool,
    pub(crate) strategies: bool,
    pub(crate) requests: Vec<LoggedRequest>,
    random: StdRng,
    /// The stored and removed objects that the controllers have not seen yet.
    pub(crate) dirty: VecDeque<(&'static str, Arc<Value>)>,
    /// The UID of each owner, with the kind and the key of an object that names it.
    dependents: BTreeSet<(String, &'static str, Key)>,
}

impl State {
    pub(crate) fn new(options: SimOptions, history_max: HistoryMax) -> Self {
        let mut state = State {
            store: Store::new(history_max),
            clock: options.clock,
            controllers: options.controllers,
            strategies: options.strategies,
            requests: Vec::new(),
            random: StdRng::seed_from_u64(options.seed),
            dirty: VecDeque::new(),
            dependents: BTreeSet::new(),
        };
        for name in SYSTEM_NAMESPACES {
            state.make_namespace(name);
        }
        state.dirty.clear();
        state
    }

    /// A random UID, in the form of a version 4 UUID.
    pub(crate) fn new_uid(&mut self) -> String {
        let bits: u128 = self.random.random();
        let bits = (bits & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// `base` with five random characters.
    pub(crate) fn generate_name(&mut self, base: &str) -> String {
        // Upstream's generator limits names to 63 characters.
        let mut name: String = base.chars().take(58).collect();
        for _ in 0..5 {
            name.push(char::from(NAME_LETTERS[self.random.random_range(0..NAME_LETTERS.len())]));
        }
        name
    }

    /// Stores an object and queues it for the controllers.
    pub(crate) fn put(&mut self, kind: &'static str, object: Value) -> Arc<Value> {
        if let Some(previous) = self.store.get(kind, &Key::of(&object)).cloned() {
            self.forget_owners(kind, &previous);
        }
        let stored = self.store.put(kind, object);
        self.dependents.extend(owners(kind, &stored));
        self.dirty.push_back((kind, Arc::clone(&stored)));
        stored
    }

    /// Removes an object and queues it for the controllers.
    pub(crate) fn remove(&mut self, kind: &'static str, key: &Key) -> Option<Arc<Value>> {
        let removed = self.store.remove(kind, key)?;
        self.forget_owners(kind, &removed);
        self.dirty.push_back((kind, Arc::clone(&removed)));
        Some(removed)
    }

    /// Stores what was stored at an earlier moment.
    pub(crate) fn restore(&mut self, snapshot: &Snapshot) {
        self.store.restore(snapshot);
        self.dependents.clear();
        for resource in &RESOURCES {
            let objects = self.store.all(resource.kind).values();
            self.dependents.extend(objects.flat_map(|object| owners(resource.kind, object)));
        }
    }

    fn forget_owners(&mut self, kind: &'static str, object: &Value) {
        for owner in owners(kind, object) {
            self.dependents.remove(&owner);
        }
    }

    /// The kinds and keys of the objects that an object owns.
    pub(crate) fn dependents(&self, owner: &Value) -> impl Iterator<Item = (&'static str, &Key)> {
        let uid = object::uid(owner);
        let first = (uid.to_owned(), "", Key::new("", ""));
        let all = self.dependents.range(first..).take_while(move |(owner, ..)| owner == uid);
        all.map(|(_, kind, key)| (*kind, key))
    }

    /// Stores an object without validation. Adds a missing UID and a missing namespace.
    pub(crate) fn put_past_validation(&mut self, resource: &Resource, mut object: Value) {
        let key = Key::of(&object);
        if resource.namespaced && self.store.get(NAMESPACE, &Key::new("", &key.namespace)).is_none() {
            self.make_namespace(&key.namespace);
        }
        if object::uid(&object).is_empty() {
            let existing = self.store.get(resource.kind, &key).map(|old| object::uid(old).to_owned());
            let uid = existing.unwrap_or_else(|| self.new_uid());
            object::meta_mut(&mut object).insert("uid".to_owned(), uid.into());
        }
        self.put(resource.kind, to_stored(resource, object));
    }

    fn make_namespace(&mut self, name: &str) {
        let uid = self.new_uid();
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": name,
                "uid": uid,
                "creationTimestamp": self.clock.now_text(),
                "labels": {"kubernetes.io/metadata.name": name},
            },
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        });
        self.put(NAMESPACE, namespace);
    }
}

/// The entries of [`State::dependents`] for an object.
fn owners(kind: &'static str, object: &Value) -> impl Iterator<Item = (String, &'static str, Key)> {
    let references = object::items(object, "/metadata/ownerReferences").iter();
    references.map(move |owner| (object::text(owner, "/uid").to_owned(), kind, Key::of(object)))
}
