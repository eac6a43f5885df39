//! Upstream's garbage collector: deletes or orphans the objects that a deleted object owns.
//!
//! It acts when an owner goes. An object whose owner never existed stays.

use std::sync::Arc;

use serde_json::Value;

use crate::object::{self, items, text};
use crate::registry::{self, Resource};
use crate::state::State;
use crate::storage::Key;
use crate::verbs::delete::{FOREGROUND, ORPHAN, Options, Propagation, delete_object};

impl State {
    /// Handles a stored or removed object.
    pub(super) fn collect_garbage(&mut self, kind: &'static str, object: &Value) {
        let stored = self.store.get(kind, &Key::of(object)).cloned();
        let stored = stored.filter(|stored| object::uid(stored) == object::uid(object));
        match stored {
            Some(stored) => self.continue_deletion(kind, &stored),
            None => {
                for (resource, dependent) in self.dependents_of(object).collect::<Vec<_>>() {
                    self.lose_owner(resource, &dependent, object);
                }
                for reference in items(object, "/metadata/ownerReferences") {
                    if let Some((resource, Some(owner))) = self.owner(object, reference) {
                        self.end_foreground(resource.kind, &owner);
                    }
                }
            }
        }
    }

    /// Handles the finalizers of the two propagation policies.
    fn continue_deletion(&mut self, kind: &'static str, owner: &Arc<Value>) {
        if waits(owner, ORPHAN) {
            for (resource, dependent) in self.dependents_of(owner).collect::<Vec<_>>() {
                self.remove_reference(resource, &dependent, owner);
            }
            self.remove_finalizer(kind, owner, ORPHAN);
        } else if waits(owner, FOREGROUND) {
            let options = Options::of(Propagation::Foreground);
            for (resource, dependent) in self.dependents_of(owner).collect::<Vec<_>>() {
                if !object::is_deleting(&dependent) {
                    delete_object(self, resource, &Key::of(&dependent), &options);
                }
            }
            self.end_foreground(kind, owner);
        }
    }

    /// Ends a foreground deletion when no object blocks it any more.
    fn end_foreground(&mut self, kind: &'static str, owner: &Arc<Value>) {
        let blocks = |dependent: &Value| reference(dependent, owner)["blockOwnerDeletion"] == true;
        if waits(owner, FOREGROUND) && !self.dependents_of(owner).any(|(_, dependent)| blocks(&dependent)) {
            self.remove_finalizer(kind, owner, FOREGROUND);
        }
    }

    fn remove_finalizer(&mut self, kind: &'static str, object: &Value, finalizer: &str) {
        let mut finalizers = items(object, "/metadata/finalizers").to_vec();
        finalizers.retain(|name| name != finalizer);
        self.set_finalizers(kind, object, finalizers);
    }

    /// Deletes an object that has lost its last owner.
    fn lose_owner(&mut self, resource: &'static Resource, dependent: &Arc<Value>, owner: &Value) {
        let others = items(dependent, "/metadata/ownerReferences").iter();
        let mut others = others.filter(|reference| reference["uid"] != object::uid(owner));
        // The owner of a kind that is not served counts as existing.
        if others.any(|reference| !matches!(self.owner(dependent, reference), Some((_, None)))) {
            self.remove_reference(resource, dependent, owner);
        } else {
            delete_object(self, resource, &Key::of(dependent), &Options::default());
        }
    }

    fn remove_reference(&mut self, resource: &'static Resource, dependent: &Value, owner: &Value) {
        let mut changed = dependent.clone();
        let mut references = items(dependent, "/metadata/ownerReferences").to_vec();
        references.retain(|reference| reference["uid"] != object::uid(owner));
        let references = Some(references).filter(|references| !references.is_empty());
        object::set(object::meta_mut(&mut changed), "ownerReferences", references.map(Value::from));
        self.put(resource.kind, changed);
    }

    /// The resource and the object that a reference names; `None` for a kind that is not served.
    fn owner(&self, dependent: &Value, reference: &Value) -> Option<(&'static Resource, Option<Arc<Value>>)> {
        let resource = registry::by_kind(text(reference, "/apiVersion"), text(reference, "/kind"))?;
        let namespace = if resource.namespaced { object::namespace(dependent) } else { "" };
        let owner = self.store.get(resource.kind, &Key::new(namespace, text(reference, "/name")));
        Some((resource, owner.filter(|owner| reference["uid"] == object::uid(owner)).cloned()))
    }

    fn dependents_of(&self, owner: &Value) -> impl Iterator<Item = (&'static Resource, Arc<Value>)> {
        self.dependents(owner).filter_map(|(kind, key)| {
            let resource = registry::RESOURCES.iter().find(|resource| resource.kind == kind)?;
            Some((resource, self.store.get(kind, key)?.clone()))
        })
    }
}

/// Whether the deletion of an object waits for what a finalizer of the garbage collector asks.
fn waits(object: &Value, finalizer: &str) -> bool {
    object::is_deleting(object) && object::finalizers(object).contains(&finalizer)
}

/// The reference of an object to its owner, or null.
fn reference<'a>(dependent: &'a Value, owner: &Value) -> &'a Value {
    let mut references = items(dependent, "/metadata/ownerReferences").iter();
    references.find(|reference| reference["uid"] == object::uid(owner)).unwrap_or(&Value::Null)
}
