//! Everything that a request reads or changes, under one lock.

use std::collections::VecDeque;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::clock::Clock;
use crate::object;
use crate::registry::{NAMESPACES, Resource};
use crate::sim::{RequestRecord, SimOptions};
use crate::store::{Key, Store};

/// The letters of generated names: no vowels, nothing that looks like another.
const NAME_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The namespaces that a cluster has from the start.
const SYSTEM_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) protection: bool,
    pub(crate) controllers: bool,
    pub(crate) strategies: bool,
    pub(crate) requests: Vec<RequestRecord>,
    random: StdRng,
    /// What changed since protection last looked.
    pub(crate) dirty: VecDeque<(usize, Key)>,
}

impl State {
    pub(crate) fn new(options: SimOptions) -> Self {
        let mut state = State {
            store: Store::new(options.history_max),
            clock: options.clock,
            protection: options.protection,
            controllers: options.controllers,
            strategies: options.strategies,
            requests: Vec::new(),
            random: StdRng::seed_from_u64(options.seed),
            dirty: VecDeque::new(),
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

    /// A name that starts with `base` and ends in five random letters.
    pub(crate) fn generate_name(&mut self, base: &str) -> String {
        // Names are at most 63 letters long, as upstream's generator has it.
        let mut name: String = base.chars().take(58).collect();
        for _ in 0..5 {
            name.push(char::from(NAME_LETTERS[self.random.random_range(0..NAME_LETTERS.len())]));
        }
        name
    }

    /// Stores an object, and notes that it changed.
    pub(crate) fn put(&mut self, resource: usize, object: Value) -> Arc<Value> {
        let stored = self.store.put(resource, object);
        self.dirty.push_back((resource, Key::of(&stored)));
        stored
    }

    /// Removes an object, and notes that it changed.
    pub(crate) fn remove(&mut self, resource: usize, key: &Key) -> Option<Arc<Value>> {
        let removed = self.store.remove(resource, key)?;
        self.dirty.push_back((resource, key.clone()));
        Some(removed)
    }

    /// Stores an object as it is, with a UID, in a namespace that exists.
    pub(crate) fn put_past_validation(&mut self, resource: &Resource, mut object: Value) {
        let key = Key::of(&object);
        if resource.namespaced && self.store.get(NAMESPACES, &Key::new("", &key.namespace)).is_none() {
            self.make_namespace(&key.namespace);
        }
        if object::uid(&object).is_empty() {
            let existing = self.store.get(resource.stored_as, &key).map(|old| object::uid(old).to_owned());
            let uid = existing.unwrap_or_else(|| self.new_uid());
            object::meta_mut(&mut object).insert("uid".to_owned(), uid.into());
        }
        self.put(resource.stored_as, crate::verbs::to_stored(resource, object));
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
        self.put(NAMESPACES, namespace);
    }
}
