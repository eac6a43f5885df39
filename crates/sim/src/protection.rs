//! What controllers beside the API server do: the protection finalizers of volumes and claims, and the end of
//! namespaces. It runs within the write that causes it, so that there are no background tasks.

use std::sync::Arc;

use serde_json::Value;

use crate::admission::{CLAIM_PROTECTION, VOLUME_PROTECTION};
use crate::object;
use crate::registry::{CLAIMS, NAMESPACES, PODS, RESOURCES, VOLUMES};
use crate::state::State;
use crate::store::Key;
use crate::verbs::{DeleteOptions, delete_object, mark_deleting};

impl State {
    /// Looks at everything that changed since the last time, and at what that changes, until nothing does.
    pub(crate) fn settle_protection(&mut self) {
        if !self.controllers {
            self.dirty.clear();
            return;
        }
        while let Some((resource, key)) = self.dirty.pop_front() {
            if RESOURCES[resource].namespaced {
                self.end_namespace(&key.namespace);
            }
            if !self.protection {
                continue;
            }
            match resource {
                VOLUMES => self.protect_volume(&key),
                CLAIMS => self.protect_claim(&key),
                // A pod that goes may be the last that used a claim.
                PODS => self.protect_claims_of(&key.namespace),
                _ => {}
            }
        }
    }

    /// Upstream's PV protection controller: a deleted volume goes unless it is bound.
    fn protect_volume(&mut self, key: &Key) {
        if let Some(volume) = self.store.get(VOLUMES, key).cloned() {
            let used = object::text(&volume, "/status/phase") == "Bound";
            self.protect(VOLUMES, &volume, VOLUME_PROTECTION, used);
        }
    }

    /// Upstream's PVC protection controller: a deleted claim goes unless a scheduled pod uses it.
    fn protect_claim(&mut self, key: &Key) {
        if let Some(claim) = self.store.get(CLAIMS, key).cloned() {
            let used = object::is_deleting(&claim)
                && self
                    .store
                    .all(PODS)
                    .values()
                    .any(|pod| object::namespace(pod) == key.namespace && pod_uses(pod, &claim));
            self.protect(CLAIMS, &claim, CLAIM_PROTECTION, used);
        }
    }

    fn protect_claims_of(&mut self, namespace: &str) {
        let deleted: Vec<Key> = self
            .store
            .all(CLAIMS)
            .iter()
            .filter(|(key, claim)| key.namespace == namespace && object::is_deleting(claim))
            .map(|(key, _)| key.clone())
            .collect();
        for key in deleted {
            self.protect_claim(&key);
        }
    }

    fn protect(&mut self, resource: usize, object: &Arc<Value>, finalizer: &str, used: bool) {
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
        if finalizers.is_empty() {
            self.remove(resource, &Key::of(object));
            return;
        }
        let mut changed = (**object).clone();
        object::meta_mut(&mut changed).insert("finalizers".to_owned(), finalizers.into());
        self.put(resource, changed);
    }

    /// Removes a namespace that is being deleted once nothing is left in it.
    fn end_namespace(&mut self, name: &str) {
        let key = Key::new("", name);
        let Some(namespace) = self.store.get(NAMESPACES, &key) else {
            return;
        };
        if !object::is_deleting(namespace) || !object::finalizers(namespace).is_empty() {
            return;
        }
        let empty = RESOURCES
            .iter()
            .enumerate()
            .filter(|(_, resource)| resource.namespaced)
            .all(|(index, _)| self.store.all(index).keys().all(|key| key.namespace != name));
        if empty {
            self.remove(NAMESPACES, &key);
        }
    }
}

/// Whether a scheduled pod refers to a claim, by name or through an ephemeral volume of its own.
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
        && object::meta_field(pod, "deletionGracePeriodSeconds").and_then(Value::as_i64) == Some(0);
    object::items(pod, "/spec/volumes").iter().any(|volume| {
        let ephemeral = volume.get("ephemeral").is_some()
            && format!("{pod_name}-{}", object::text(volume, "/name")) == claim_name;
        object::text(volume, "/persistentVolumeClaim/claimName") == claim_name
            || (ephemeral && owned && !shut_down)
    })
}

/// Begins the end of a namespace: it and all that is in it are deleted as far as finalizers let them.
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
        if terminating == **existing { Arc::clone(existing) } else { state.put(NAMESPACES, terminating) };
    if !state.controllers {
        return answer;
    }
    for (index, _) in RESOURCES.iter().enumerate().filter(|(_, resource)| resource.namespaced) {
        let objects = state.store.all(index).keys().filter(|object| object.namespace == key.name);
        let keys: Vec<Key> = objects.cloned().collect();
        for key in keys {
            // The namespace controller gives pods no grace period of its own; theirs counts.
            delete_object(state, index, &key, &DeleteOptions::default());
        }
    }
    state.end_namespace(&key.name);
    answer
}
