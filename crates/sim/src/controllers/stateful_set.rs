//! The claims of a StatefulSet: those of all replicas at once, since no pod gets ready here.

use serde_json::Value;

use crate::http::route::{Call, Verb};
use crate::object::{self, items};
use crate::registry::{self, CLAIM, STATEFUL_SET};
use crate::state::State;
use crate::storage::Key;
use crate::verbs::create;

/// The most replicas of a StatefulSet that get claims: each request has a bounded cost.
const REPLICAS_MAX: i64 = 50;

impl State {
    pub(super) fn make_claims(&mut self, key: &Key) {
        let Some(set) = self.store.get(STATEFUL_SET, key).cloned() else { return };
        let number = |pointer| object::number(&set, pointer);
        let start = number("/spec/ordinals/start");
        for ordinal in start..start.saturating_add(number("/spec/replicas").min(REPLICAS_MAX)) {
            for template in items(&set, "/spec/volumeClaimTemplates") {
                let name = format!("{}-{}-{ordinal}", object::name(template), key.name);
                if self.store.get(CLAIM, &Key::new(&key.namespace, &name)).is_none()
                    && !self.make_claim(&set, template, name)
                {
                    return;
                }
            }
        }
    }

    /// Makes a claim as a request would, and returns whether it was accepted.
    fn make_claim(&mut self, set: &Value, template: &Value, name: String) -> bool {
        let resource = registry::by_kind("v1", CLAIM).expect("the registry has claims");
        let mut claim = template.clone();
        (claim["apiVersion"], claim["kind"]) = ("v1".into(), CLAIM.into());
        let metadata = object::meta_mut(&mut claim);
        metadata.insert("name".to_owned(), name.into());
        metadata.insert("namespace".to_owned(), object::namespace(set).into());
        let labels = set.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
        for (key, value) in labels.into_iter().flatten() {
            object::child_mut(&mut claim["metadata"], "labels").insert(key.clone(), value.clone());
        }
        let call = Call::new(Verb::Create, resource, object::namespace(set));
        create::insert(self, &call, claim, &mut Vec::new()).is_ok()
    }
}
