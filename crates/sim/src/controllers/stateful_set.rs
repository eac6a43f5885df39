//! The claims of a StatefulSet: those of all replicas at once, since no pod gets ready here.

use serde_json::Value;

use crate::http::route::{Call, Verb};
use crate::object::{self, items};
use crate::registry::{self, CLAIM, STATEFUL_SET};
use crate::state::State;
use crate::storage::Key;
use crate::verbs::create;

/// Most claims of a StatefulSet, and most bytes as JSON of those that one request makes. So a request has a
/// bounded cost.
const CLAIMS_MAX: usize = 100;
const BYTES_MAX: usize = 3 * 1024 * 1024;

impl State {
    pub(super) fn make_claims(&mut self, key: &Key) {
        let Some(set) = self.store.get(STATEFUL_SET, key).cloned() else { return };
        let number = |pointer| object::number(&set, pointer);
        let (start, templates) = (number("/spec/ordinals/start"), items(&set, "/spec/volumeClaimTemplates"));
        let ordinals = (start..start.saturating_add(number("/spec/replicas"))).take(CLAIMS_MAX);
        let wanted = ordinals.flat_map(|ordinal| templates.iter().map(move |template| (ordinal, template)));
        let mut bytes = 0;
        for (ordinal, template) in wanted.take(CLAIMS_MAX) {
            let name = format!("{}-{}-{ordinal}", object::name(template), key.name);
            if self.store.get(CLAIM, &Key::new(&key.namespace, &name)).is_some() {
                continue;
            }
            let claim = claim(&set, template, name);
            bytes += object::json_bytes(&claim);
            if bytes > BYTES_MAX || !self.make_claim(&key.namespace, claim) {
                return;
            }
        }
    }

    /// Makes a claim as a request would, and returns whether it was accepted.
    fn make_claim(&mut self, namespace: &str, claim: Value) -> bool {
        let resource = registry::by_kind("v1", CLAIM).expect("the registry has claims");
        let call = Call::new(Verb::Create, resource, namespace);
        create::insert(self, &call, claim, &mut Vec::new()).is_ok()
    }
}

/// The claim of a template.
fn claim(set: &Value, template: &Value, name: String) -> Value {
    let mut claim = template.clone();
    (claim["apiVersion"], claim["kind"]) = ("v1".into(), CLAIM.into());
    let metadata = object::meta_mut(&mut claim);
    metadata.insert("name".to_owned(), name.into());
    metadata.insert("namespace".to_owned(), object::namespace(set).into());
    let labels = set.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    for (key, value) in labels.into_iter().flatten() {
        object::child_mut(&mut claim["metadata"], "labels").insert(key.clone(), value.clone());
    }
    claim
}
