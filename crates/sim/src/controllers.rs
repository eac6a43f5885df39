//! The controllers beside the API server: protection finalizers of volumes and claims, the deletion of
//! namespaces, garbage collection, and the claims of StatefulSets. They run within the write that
//! triggers them, so there are no background tasks.

mod garbage;
mod stateful_set;

use std::sync::Arc;

use serde_json::Value;

use crate::clock;
use crate::object;
use crate::registry::{CLAIM, NAMESPACE, POD, RESOURCES, Resource, STATEFUL_SET, VOLUME};
use crate::state::State;
use crate::storage::Key;
use crate::verbs::admission::{CLAIM_PROTECTION, VOLUME_PROTECTION};
use crate::verbs::delete::{Options, delete_object, mark_deleting};

impl State {
    /// Handles all queued changes, and the changes that this makes.
    pub(crate) fn run_controllers(&mut self) {
        if !self.controllers {
            self.dirty.clear();
            return;
        }
        while let Some((kind, object)) = self.dirty.pop_front() {
            let key = Key::of(&object);
            if !key.namespace.is_empty() {
                self.end_namespace(&key.namespace);
            }
            if !self.strategies {
                continue;
            }
            self.collect_garbage(kind, &object);
            match kind {
                STATEFUL_SET => self.make_claims(&key),
                VOLUME => self.protect_volume(&key),
                CLAIM => self.protect_claim(&key),
                // A deleted pod may be the last user of a claim.
                POD => self.protect_claims_of(&key.namespace),
                _ => {}
            }
        }
    }

    /// Upstream's PV protection controller: a deleted volume stays while it is bound.
    fn protect_volume(&mut self, key: &Key) {
        if let Some(volume) = self.store.get(VOLUME, key).cloned() {
            let used = object::text(&volume, "/status/phase") == "Bound";
            self.protect(VOLUME, &volume, VOLUME_PROTECTION, used);
        }
    }

    /// Upstream's PVC protection controller: a deleted claim stays while a scheduled pod uses it.
    fn protect_claim(&mut self, key: &Key) {
        if let Some(claim) = self.store.get(CLAIM, key).cloned() {
            let used = object::is_deleting(&claim)
                && self
                    .store
                    .all(POD)
                    .values()
                    .any(|pod| object::namespace(pod) == key.namespace && pod_uses(pod, &claim));
            self.protect(CLAIM, &claim, CLAIM_PROTECTION, used);
        }
    }

    fn protect_claims_of(&mut self, namespace: &str) {
        let deleted: Vec<Key> = self
            .store
            .all(CLAIM)
            .iter()
            .filter(|(key, claim)| key.namespace == namespace && object::is_deleting(claim))
            .map(|(key, _)| key.clone())
            .collect();
        for key in deleted {
            self.protect_claim(&key);
        }
    }

    fn protect(&mut self, kind: &'static str, object: &Arc<Value>, finalizer: &str, used: bool) {
        let has = object::finalizers(object).contains(&finalizer);
        let mut finalizers: Vec<Value> = object::items(object, "/metadata/finalizers").to_vec();
        if object::is_deleting(object) {
            if !has || used {
                return;
            }
            finalizers.retain(|other| other != finalizer);
        } else {
            if has {
                return;
            }
            finalizers.push(finalizer.into());
        }
        self.set_finalizers(kind, object, finalizers);
    }

    /// Changes the finalizers of an object. A deleted object goes with its last one.
    fn set_finalizers(&mut self, kind: &'static str, object: &Value, finalizers: Vec<Value>) {
        let pending = object::meta_number(object, "deletionGracePeriodSeconds") > 0;
        if finalizers.is_empty() && object::is_deleting(object) && !pending {
            self.remove(kind, &Key::of(object));
            return;
        }
        let mut changed = object.clone();
        let finalizers = Some(finalizers).filter(|finalizers| !finalizers.is_empty());
        object::set(object::meta_mut(&mut changed), "finalizers", finalizers.map(Value::from));
        self.put(kind, changed);
    }

    /// Removes the deleted pods whose grace period is over, as their kubelets would.
    pub(crate) fn end_pods(&mut self) {
        let now = self.clock.now();
        let is_over = |pod: &Value| {
            clock::parse(object::meta_text(pod, "deletionTimestamp")).is_some_and(|end| end <= now)
        };
        let over: Vec<_> = self.store.all(POD).values().filter(|pod| is_over(pod)).cloned().collect();
        for pod in over {
            let mut ended = (*pod).clone();
            object::meta_mut(&mut ended).insert("deletionGracePeriodSeconds".to_owned(), 0.into());
            if object::finalizers(&pod).is_empty() {
                self.remove(POD, &Key::of(&pod));
            } else if ended != *pod {
                self.put(POD, ended);
            }
        }
    }

    /// Removes a namespace that is being deleted and has no objects.
    fn end_namespace(&mut self, name: &str) {
        let key = Key::new("", name);
        let Some(namespace) = self.store.get(NAMESPACE, &key) else {
            return;
        };
        if !object::is_deleting(namespace) || !object::finalizers(namespace).is_empty() {
            return;
        }
        let is_empty =
            |resource: &Resource| self.store.all(resource.kind).keys().all(|key| key.namespace != name);
        if RESOURCES.iter().filter(|resource| resource.namespaced).all(is_empty) {
            self.remove(NAMESPACE, &key);
        }
    }
}

/// Whether a scheduled pod uses a claim, by name or as an ephemeral volume.
fn pod_uses(pod: &Value, claim: &Value) -> bool {
    if object::text(pod, "/spec/nodeName").is_empty() {
        return false;
    }
    let (pod_name, claim_name) = (object::name(pod), object::name(claim));
    let owned = object::items(claim, "/metadata/ownerReferences")
        .iter()
        .any(|owner| owner["controller"] == true && owner["uid"] == object::uid(pod));
    // A pod that has shut down no longer uses its ephemeral volumes.
    let shut_down = object::is_deleting(pod)
        && pod.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64) == Some(0);
    object::items(pod, "/spec/volumes").iter().any(|volume| {
        let ephemeral = volume.get("ephemeral").is_some()
            && format!("{pod_name}-{}", object::text(volume, "/name")) == claim_name;
        object::text(volume, "/persistentVolumeClaim/claimName") == claim_name
            || (ephemeral && owned && !shut_down)
    })
}

/// Deletes a namespace and all objects in it, as far as finalizers permit.
pub(crate) fn delete_namespace(
    state: &mut State,
    key: &Key,
    existing: &Arc<Value>,
    dry_run: bool,
) -> Arc<Value> {
    let mut terminating = (**existing).clone();
    if !object::is_deleting(existing) {
        mark_deleting(&mut terminating, &state.clock, 0);
        object::meta_mut(&mut terminating).remove("deletionGracePeriodSeconds");
    }
    terminating["status"]["phase"] = "Terminating".into();
    if dry_run {
        return Arc::new(terminating);
    }
    let answer =
        if terminating == **existing { Arc::clone(existing) } else { state.put(NAMESPACE, terminating) };
    if !state.controllers {
        return answer;
    }
    for resource in RESOURCES.iter().filter(|resource| resource.namespaced) {
        let objects = state.store.all(resource.kind).keys().filter(|object| object.namespace == key.name);
        let keys: Vec<Key> = objects.cloned().collect();
        for key in keys {
            // The namespace controller sets no grace period; the pod's own counts.
            delete_object(state, resource, &key, &Options::default());
        }
    }
    state.end_namespace(&key.name);
    answer
}
