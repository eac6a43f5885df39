//! Merging, comparing and pruning of objects by the list and map types in the OpenAPI documents.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::FieldSet;
use crate::http::openapi;
use crate::object;
use crate::registry::Resource;

/// The type of a value: a schema in an OpenAPI document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Type(&'static Value);

/// The type of a value that no schema describes.
const UNKNOWN: Type = Type(&Value::Null);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// A plain value, or a map or list that has one manager.
    Atomic,
    Map,
    Set,
    Keyed,
}

/// A field or an item of a value.
struct Child<'v> {
    key: String,
    value: &'v Value,
    ty: Type,
    /// Whether it counts as a field beside its own children: items of lists and keys of maps do.
    counts: bool,
}

/// The difference of two values.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// The fields that were added or got another value.
    pub(crate) set: FieldSet,
    pub(crate) removed: FieldSet,
}

impl Type {
    pub(crate) fn of(resource: &Resource) -> Type {
        openapi::definition(resource).map_or(UNKNOWN, Type)
    }

    /// The schema itself, or the one that it refers to.
    fn schema(self) -> &'static Value {
        let reference = self.0.pointer("/allOf/0/$ref").or_else(|| self.0.get("$ref"));
        match reference.and_then(Value::as_str) {
            Some(reference) => openapi::referenced(reference).unwrap_or(&Value::Null),
            None => self.0,
        }
    }

    /// An attribute of the schema; one beside a reference takes precedence.
    fn attribute(self, name: &str) -> Option<&'static Value> {
        self.0.get(name).or_else(|| self.schema().get(name))
    }

    fn shape(self) -> Shape {
        let schema = self.schema();
        let word = |name| self.attribute(name).and_then(Value::as_str).unwrap_or("");
        let described = schema.get("properties").or_else(|| schema.get("additionalProperties")).is_some();
        match (word("type"), word("x-kubernetes-list-type"), word("x-kubernetes-map-type")) {
            ("object", _, "" | "granular") if described => Shape::Map,
            ("array", "set", _) => Shape::Set,
            ("array", "map", _) => Shape::Keyed,
            _ => Shape::Atomic,
        }
    }

    fn property(self, name: &str) -> Option<Type> {
        self.schema().get("properties")?.get(name).map(Type)
    }

    fn field(self, name: &str) -> Type {
        let of_map = || self.schema().get("additionalProperties").map(Type);
        self.property(name).or_else(of_map).unwrap_or(UNKNOWN)
    }

    fn item(self) -> Type {
        self.attribute("items").map_or(UNKNOWN, Type)
    }

    /// The key of an item of a list, with the defaults of missing key fields.
    fn item_key(self, item: &Value) -> String {
        if self.shape() == Shape::Set {
            return format!("v:{item}");
        }
        let names = self.attribute("x-kubernetes-list-map-keys").and_then(Value::as_array);
        let key = |name: &str| {
            let default = self.item().property(name).and_then(|ty| ty.attribute("default"));
            (name.to_owned(), item.get(name).or(default).cloned().unwrap_or_default())
        };
        let keys: Map<String, Value> =
            names.into_iter().flatten().filter_map(Value::as_str).map(key).collect();
        format!("k:{}", Value::Object(keys))
    }

    /// The fields or items of a value; `None` if all of it has one manager.
    fn children<'v>(self, value: &'v Value) -> Option<Vec<Child<'v>>> {
        let field = |(name, value): (&String, &'v Value)| {
            let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
            let counts = is_empty || self.property(name).is_none();
            Child { key: format!("f:{name}"), value, ty: self.field(name), counts }
        };
        let item = |value| Child { key: self.item_key(value), value, ty: self.item(), counts: true };
        match (self.shape(), value) {
            (Shape::Map, Value::Object(fields)) => Some(fields.iter().map(field).collect()),
            (Shape::Set | Shape::Keyed, Value::Array(items)) => Some(items.iter().map(item).collect()),
            _ => None,
        }
    }

    /// The fields that a manager owns after it has applied a value.
    pub(crate) fn fields(self, value: &Value) -> FieldSet {
        let Some(children) = self.children(value) else {
            return FieldSet { member: true, ..FieldSet::default() };
        };
        let mut fields = FieldSet::default();
        for child in children {
            let mut inner = child.ty.fields(child.value);
            inner.member |= child.counts;
            fields.add(child.key, inner);
        }
        fields
    }

    /// The changes from one value to another; `None` is an absent one.
    pub(crate) fn changes(self, old: Option<&Value>, new: Option<&Value>) -> Changes {
        let mut changes = Changes::default();
        changes.set.member = old.is_none();
        changes.removed.member = new.is_none();
        let (Some(before), Some(after)) = (self.parts(old), self.parts(new)) else {
            changes.set.member = new.is_some() && old != new;
            return changes;
        };
        let mut pairs: BTreeMap<String, (Type, Option<&Value>, Option<&Value>)> = BTreeMap::new();
        for child in before {
            pairs.insert(child.key, (child.ty, Some(child.value), None));
        }
        for child in after {
            pairs.entry(child.key).or_insert((child.ty, None, None)).2 = Some(child.value);
        }
        for (key, (ty, old, new)) in pairs {
            let inner = ty.changes(old, new);
            changes.set.add(key.clone(), inner.set);
            changes.removed.add(key, inner.removed);
        }
        changes
    }

    /// [`Type::children`]; an absent value and null have none.
    fn parts(self, value: Option<&Value>) -> Option<Vec<Child<'_>>> {
        value.filter(|value| !value.is_null()).map_or_else(|| Some(Vec::new()), |value| self.children(value))
    }

    /// Lays an applied value over the existing one.
    pub(crate) fn merge(self, live: Value, applied: Value) -> Value {
        match (self.shape(), live, applied) {
            (Shape::Map, Value::Object(mut live), Value::Object(applied)) => {
                for (name, value) in applied {
                    let merged = match live.remove(&name) {
                        Some(old) => self.field(&name).merge(old, value),
                        None => value,
                    };
                    live.insert(name, merged);
                }
                Value::Object(live)
            }
            (Shape::Set | Shape::Keyed, Value::Array(live), Value::Array(applied)) => {
                self.merge_items(&live, applied).into()
            }
            (_, _, applied) => applied,
        }
    }

    /// Merges lists. Items that were not applied keep their place among those that were.
    fn merge_items(self, live: &[Value], applied: Vec<Value>) -> Vec<Value> {
        let key = |item: &Value| self.item_key(item);
        let had: BTreeMap<String, &Value> = live.iter().map(|item| (key(item), item)).collect();
        let given: Vec<String> = applied.iter().map(key).collect();
        let in_both: BTreeSet<&String> = given.iter().filter(|key| had.contains_key(*key)).collect();
        let mut shared = given.iter().filter(|key| in_both.contains(key)).peekable();
        let mut rest = live.iter().map(|item| (key(item), item)).peekable();
        let mut merged = Vec::new();
        for (key, item) in given.iter().zip(applied) {
            while let Some((key, old)) = rest.next_if(|(key, _)| Some(&key) != shared.peek()) {
                if !in_both.contains(&key) {
                    merged.push(old.clone());
                }
            }
            merged.push(match had.get(key) {
                Some(old) => self.item().merge((*old).clone(), item),
                None => item,
            });
            shared.next_if(|next| *next == key);
        }
        merged.extend(rest.filter(|(key, _)| !in_both.contains(key)).map(|(_, old)| old.clone()));
        merged
    }

    /// Removes fields with all that is below them. A parent that this empties becomes null.
    pub(crate) fn remove(self, value: &mut Value, gone: &FieldSet) {
        let stays = |key: String, value: &mut Value, ty: Type| {
            let Some(gone) = gone.children.get(&key) else { return true };
            if gone.member {
                return false;
            }
            ty.remove(value, gone);
            if (value.is_object() || value.is_array()) && object::is_empty(Some(value)) {
                *value = Value::Null;
            }
            true
        };
        match value {
            Value::Object(fields) => {
                fields.retain(|name, value| stays(format!("f:{name}"), value, self.field(name)));
            }
            Value::Array(items) => {
                items.retain_mut(|item| stays(self.item_key(item), item, self.item()));
            }
            _ => {}
        }
    }
}
