//! Sets of fields, in which managers of an object are told apart (`sigs.k8s.io/structured-merge-diff`).

mod owners;
mod typed;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub(crate) use owners::{after_update, apply};
use typed::Type;

/// The key of a set's own membership in `FieldsV1`.
const SELF: &str = ".";

/// A tree of fields. A child is named as in `FieldsV1`: `f:NAME` is a field or the key of a map, `k:{..}` an
/// item of a list with keys, `v:VALUE` an item of a set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(from = "Map<String, Value>", into = "Value")]
pub(crate) struct FieldSet {
    /// Whether the field itself is in the set.
    pub(crate) member: bool,
    pub(crate) children: BTreeMap<String, FieldSet>,
}

impl FieldSet {
    pub(crate) fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    /// Adds a child, unless it is empty.
    pub(crate) fn add(&mut self, key: String, child: FieldSet) {
        if !child.is_empty() {
            self.children.insert(key, child);
        }
    }

    pub(crate) fn union(&self, other: &FieldSet) -> FieldSet {
        self.combine(other, |left, right| left || right)
    }

    pub(crate) fn difference(&self, other: &FieldSet) -> FieldSet {
        self.combine(other, |left, right| left && !right)
    }

    pub(crate) fn intersection(&self, other: &FieldSet) -> FieldSet {
        self.combine(other, |left, right| left && right)
    }

    fn combine(&self, other: &FieldSet, keep: fn(bool, bool) -> bool) -> FieldSet {
        let none = FieldSet::default();
        let mut combined = FieldSet { member: keep(self.member, other.member), ..FieldSet::default() };
        for key in self.children.keys().chain(other.children.keys()).collect::<BTreeSet<_>>() {
            let [left, right] = [self, other].map(|set| set.children.get(key).unwrap_or(&none));
            combined.add(key.clone(), left.combine(right, keep));
        }
        combined
    }

    /// The set with each field that has members below it (`EnsureNamedFieldsAreMembers`).
    pub(crate) fn with_parents(&self) -> FieldSet {
        let with_parents = |(key, child): (&String, &FieldSet)| {
            let mut child = child.with_parents();
            child.member |= key.starts_with("f:");
            (key.clone(), child)
        };
        FieldSet { member: self.member, children: self.children.iter().map(with_parents).collect() }
    }

    /// The members as paths, as messages show them: `.spec.ports[port=80,protocol="TCP"].name`.
    pub(crate) fn paths(&self) -> Vec<String> {
        let named = || self.children.iter().map(|(key, child)| (path_element(key), child));
        let mut paths: Vec<String> =
            named().filter(|(_, child)| child.member).map(|(element, _)| element).collect();
        for (element, child) in named() {
            paths.extend(child.paths().into_iter().map(|path| format!("{element}{path}")));
        }
        paths
    }
}

fn path_element(key: &str) -> String {
    if let Some(name) = key.strip_prefix("f:") {
        return format!(".{name}");
    }
    if let Some(value) = key.strip_prefix("v:") {
        return format!("[={value}]");
    }
    let keys: Map<String, Value> =
        key.strip_prefix("k:").and_then(|keys| serde_json::from_str(keys).ok()).unwrap_or_default();
    let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("[{}]", keys.join(","))
}

impl From<Map<String, Value>> for FieldSet {
    fn from(mut fields: Map<String, Value>) -> Self {
        let member = fields.remove(SELF).is_some() || fields.is_empty();
        let child = |(key, value)| (key, FieldSet::from(as_map(value)));
        FieldSet { member, children: fields.into_iter().map(child).collect() }
    }
}

fn as_map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

impl From<FieldSet> for Value {
    fn from(set: FieldSet) -> Value {
        let has_both = set.member && !set.children.is_empty();
        let mut fields: Map<String, Value> =
            set.children.into_iter().map(|(key, child)| (key, child.into())).collect();
        if has_both {
            fields.insert(SELF.to_owned(), json!({}));
        }
        Value::Object(fields)
    }
}
