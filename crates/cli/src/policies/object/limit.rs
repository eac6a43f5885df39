//! Limits on the objects that are loaded. What is left out holds what it matches, at a bounded cost.

use std::collections::{BTreeMap, BTreeSet};

use bindery_policy::{ENGINE, EffectMode, ObjectStatus};
use serde_json::{Value, json};

use super::{
    Cause, Effect, Fault, LoadedObject, LoadedObjects, ObjectName, held as hold, is_in_shadow, mode,
    object_name,
};

/// The most objects that are loaded, of all kinds together. Those that are off do not count. Each object
/// costs the time to compile its module, memory, and a look at each claim: this protects decisions from
/// objects without end.
const OBJECTS_MAX: usize = 256;
/// The most different matches of one kind by which objects over the limit hold claims and volumes. With more
/// they hold everything: each match is looked at in each decision.
const MATCHES_MAX: usize = 64;
/// Why no shadow is loaded, and the remedy.
const ROOM_IS_NEEDED: &str = "the cache has no room for the module of an object that is to be enforced, so \
                              no shadow is loaded: raise engine.cacheSize (--engine-cache-size), or delete \
                              objects or set them to off";

/// Why an object over the limit is not loaded, and the remedy.
pub(crate) fn too_many() -> String {
    format!(
        "more than {OBJECTS_MAX} objects of the kinds MatchPolicy, ReclaimPolicy and Engine are not off, and \
         only the oldest are loaded, shadows last: delete some, or set them to off"
    )
}

/// The objects that are not loaded, each with the reason: those over the limit, and shadows while the cache
/// has no room for what is to be enforced.
pub(crate) fn left_out(all: &[(Value, Value)], loaded: &LoadedObjects) -> BTreeMap<ObjectName, String> {
    let objects = || all.iter().map(|(object, _)| object);
    let lacks_room = loaded.values().any(LoadedObject::lacks_room);
    // An earlier generation that is enforced stays in effect while the newest one cannot be loaded.
    let is_enforced = |object| loaded.get(&object_name(object)).is_some_and(|known| !known.is_shadow());
    let shadows = objects().filter(|object| lacks_room && is_in_shadow(object) && !is_enforced(object));
    let shadows = shadows.map(|object| (object_name(object), ROOM_IS_NEEDED.to_owned()));
    let surplus = surplus(objects()).into_iter().map(|name| (name, too_many()));
    shadows.chain(surplus).collect()
}

/// The objects over the limit. Those to be enforced are within it before shadows, which more users may write;
/// the oldest before others; and of those of one second, the first by kind and name.
pub(crate) fn surplus<'a>(objects: impl Iterator<Item = &'a Value>) -> BTreeSet<ObjectName> {
    let mut by_rank: Vec<_> = objects.filter(|object| counts(object)).map(rank).collect();
    by_rank.sort_unstable();
    by_rank.into_iter().skip(OBJECTS_MAX).map(|(_, _, name)| name).collect()
}

/// Whether an object that is applied over these would be over the limit, or push a loaded one over it. One
/// that is to be enforced may push a shadow.
pub(crate) fn exceeds<'a>(object: &Value, stored: impl Iterator<Item = &'a Value>) -> bool {
    let name = object_name(object);
    let competes = |stored: &&Value| counts(stored) && (is_in_shadow(object) || !is_in_shadow(stored));
    let stored: Vec<_> = stored.filter(competes).collect();
    let others = stored.iter().filter(|stored| object_name(stored) != name).count();
    let is_loaded = others < stored.len() && !surplus(stored.into_iter()).contains(&name);
    counts(object) && others >= OBJECTS_MAX && !is_loaded
}

fn counts(object: &Value) -> bool {
    mode(object) != EffectMode::Off
}

/// What sorts those that are loaded first.
fn rank(object: &Value) -> (bool, String, ObjectName) {
    let created = object["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
    (is_in_shadow(object), created.to_owned(), object_name(object))
}

impl LoadedObject {
    /// An object that is not loaded. It keeps the earlier generations of its status.
    pub(crate) fn left_out(object: Value, known: &ObjectStatus, why: String) -> Self {
        let mut left_out = Self::new(object);
        left_out.remember(None, known);
        left_out.last_good = None;
        Self { fault: Some(Fault { cause: Cause::TooMany, why }), ..left_out }
    }

    /// Whether it is not loaded because of a limit.
    pub(crate) fn is_over_limit(&self) -> bool {
        self.fault.as_ref().is_some_and(|fault| fault.cause == Cause::TooMany)
    }
}

/// The objects over the limit that hold something, with no more of their documents than that takes: the
/// oldest of those that match the same.
pub(crate) fn holders(loaded: &LoadedObjects) -> BTreeMap<ObjectName, Value> {
    let mut by_kind = BTreeMap::<&str, BTreeMap<String, &Value>>::new();
    let over_limit = loaded.values().filter(|object| object.is_over_limit() && !object.wants_shadow());
    for object in over_limit.map(|left_out| &left_out.object) {
        let kind = object["kind"].as_str().unwrap_or_default();
        if kind == ENGINE || object["spec"]["onFailure"] == "Skip" {
            continue;
        }
        let same = by_kind.entry(kind).or_default().entry(object["spec"]["match"].to_string());
        let oldest = same.or_insert(object);
        if rank(object) < rank(oldest) {
            *oldest = object;
        }
    }
    by_kind.into_values().flat_map(of_kind).collect()
}

/// The holders of one kind, by what they match.
fn of_kind(mut by_match: BTreeMap<String, &Value>) -> BTreeMap<ObjectName, Value> {
    let is_all = by_match.len() > MATCHES_MAX;
    if is_all && let Some(oldest) = by_match.values().copied().min_by_key(|object| rank(object)) {
        by_match = [(String::new(), oldest)].into();
    }
    let holder = |object: &Value| {
        let matches = if is_all { json!({}) } else { object["spec"]["match"].clone() };
        let mut spec = json!({"module": ""});
        if !matches.is_null() {
            spec["match"] = matches;
        }
        let metadata = json!({"name": object["metadata"]["name"]});
        json!({
            "apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": metadata, "spec": spec,
        })
    };
    by_match.into_values().map(|object| (object_name(object), holder(object))).collect()
}

/// What objects over the limit put into effect in place of their modules.
pub(super) fn held(loaded: &LoadedObjects) -> BTreeMap<ObjectName, Effect> {
    let why = too_many();
    holders(loaded).into_iter().map(|(name, object)| (name, hold(&object, &why))).collect()
}

#[cfg(test)]
mod tests {
    use bindery_policy::{Chain, LastGood, Matches};

    use super::super::chain;
    use super::*;

    /// An object that was created in this second.
    fn policy(name: &str, second: usize, spec: Value) -> Value {
        json!({
            "apiVersion": "policy.bindery.dev/v1alpha1",
            "kind": "MatchPolicy",
            "metadata": {"name": name, "creationTimestamp": format!("2026-11-26T20:00:{second:02}Z")},
            "spec": spec,
        })
    }

    /// So many objects of one second.
    fn many(count: usize) -> Vec<Value> {
        (0..count)
            .map(|number| policy(&format!("p{number:05}"), 10, json!({"module": "builtin:m"})))
            .collect()
    }

    /// The chain of objects that are all over the limit.
    fn chain_of(objects: impl IntoIterator<Item = Value>) -> Chain {
        let known = ObjectStatus::default();
        let left_out = |object| (object_name(&object), LoadedObject::left_out(object, &known, too_many()));
        chain(&Chain::default(), &objects.into_iter().map(left_out).collect(), true)
    }

    #[test]
    fn the_oldest_objects_are_loaded_and_those_that_are_off_do_not_count() {
        let mut objects = many(OBJECTS_MAX);
        objects.push(policy("off", 1, json!({"module": "builtin:m", "mode": "off"})));
        assert!(surplus(objects.iter()).is_empty());
        objects.push(policy("old", 9, json!({"module": "builtin:m"})));
        objects.push(policy("new", 11, json!({"module": "builtin:m"})));
        let names = |objects: &[Value]| -> Vec<_> {
            surplus(objects.iter()).into_iter().map(|(_, name)| name).collect()
        };
        assert_eq!(names(&objects), ["new", "p00255"]);
        objects.push(policy("older-shadow", 0, json!({"module": "builtin:m", "mode": "shadow"})));
        assert_eq!(names(&objects), ["new", "older-shadow", "p00255"]);
    }

    #[test]
    fn an_object_over_the_limit_is_refused_and_a_loaded_one_can_be_changed() {
        let mut objects = many(OBJECTS_MAX - 1);
        // The clock of the API server is not trusted to make a new object the youngest.
        let one = |second, mode| policy("one", second, json!({"module": "builtin:m", "mode": mode}));
        assert!(!exceeds(&one(9, "enforce"), objects.iter()));
        objects.push(one(9, "off"));
        assert!(!exceeds(&one(9, "enforce"), objects.iter()), "turned on");
        objects.push(policy("two", 11, json!({"module": "builtin:m"})));
        assert!(exceeds(&one(9, "enforce"), objects.iter()), "turned on");
        assert!(exceeds(&one(9, "shadow"), objects.iter()), "turned on");
        assert!(!exceeds(&one(9, "off"), objects.iter()));
        assert!(!exceeds(&many(1)[0], objects.iter()), "a change of a loaded one");
        objects.push(policy("three", 12, json!({"module": "builtin:m"})));
        assert!(exceeds(&objects[objects.len() - 1], objects.iter()), "a change of one over the limit");
        let shadow = |name: &str| policy(name, 9, json!({"module": "builtin:m", "mode": "shadow"}));
        let shadows: Vec<_> = (0..OBJECTS_MAX).map(|number| shadow(&format!("s{number}"))).collect();
        assert!(exceeds(&shadow("t"), shadows.iter()));
        assert!(!exceeds(&one(9, "enforce"), shadows.iter()), "authors of shadows keep no operator from it");
    }

    #[test]
    fn given_no_room_for_what_is_enforced_when_loading_then_shadows_are_out() {
        let in_mode = |mode: &str| (policy(mode, 10, json!({"module": "m", "mode": mode})), Value::Null);
        let all = ["enforce", "shadow"].map(in_mode);
        let full = || Fault {
            cause: Cause::CompilerFailed,
            why: "the compiled components in use are 9 bytes, and 8 is the most".to_owned(),
        };
        let left_out_for = |without_room: &str| -> Vec<String> {
            let load = |(object, _): &(Value, Value)| {
                let name = object_name(object);
                let fault = (name.1 == without_room).then(full);
                (name, LoadedObject { fault, ..LoadedObject::new(object.clone()) })
            };
            left_out(&all, &all.iter().map(load).collect()).into_keys().map(|(_, name)| name).collect()
        };
        assert_eq!(left_out_for("enforce"), ["shadow"]);
        // The earlier generation of the second is enforced, and its newest one cannot be loaded.
        let mut loaded: LoadedObjects = all
            .iter()
            .map(|(object, _)| {
                (
                    object_name(object),
                    LoadedObject { fault: Some(full()), ..LoadedObject::new(object.clone()) },
                )
            })
            .collect();
        let spec = serde_json::from_value(json!({"mode": "enforce"})).unwrap();
        let last_good = Some(LastGood { generation: 1, digest: "sha256:0".into(), spec });
        loaded.get_mut(&object_name(&all[1].0)).unwrap().last_good = last_good;
        assert!(left_out(&all, &loaded).is_empty());
        assert!(left_out_for("shadow").is_empty());
    }

    #[test]
    fn ten_thousand_objects_over_the_limit_hold_what_they_match_by_one_policy() {
        let objects = many(10_000);
        let surplus = surplus(objects.iter());
        assert_eq!(surplus.len(), 10_000 - OBJECTS_MAX);
        let chain = chain_of(objects.into_iter().filter(|object| surplus.contains(&object_name(object))));
        let [policy] = chain.policies() else { panic!("{} policies", chain.policies().len()) };
        assert_eq!((&*policy.name, policy.matcher.as_ref().err()), ("p00256", Some(&too_many())));
    }

    #[test]
    fn objects_over_the_limit_hold_by_each_match_and_shadows_hold_nothing() {
        let of = |name: &str, namespace: &str, more: Value| {
            let names =
                json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}});
            let mut spec = json!({"module": "builtin:m", "match": names});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            policy(name, 10, spec)
        };
        let objects = [
            of("a", "x", json!({})),
            of("b", "x", json!({})),
            of("c", "y", json!({"mode": "shadow"})),
            of("d", "y", json!({"onFailure": "Skip"})),
            of("e", "z", json!({})),
        ];
        let chain = chain_of(objects);
        let names: Vec<_> = chain.policies().iter().map(|policy| &*policy.name).collect();
        assert_eq!(names, ["a", "e"]);
        assert!(chain.policies().iter().all(|policy| policy.matches != Matches::default()));
    }

    #[test]
    fn many_different_matches_over_the_limit_hold_everything_by_one_policy() {
        let labelled =
            |number| json!({"module": "m", "match": {"claimSelector": {"matchLabels": {"n": number}}}});
        let named = |number: usize| policy(&format!("p{number:05}"), 10, labelled(number.to_string()));
        assert_eq!(chain_of((0..MATCHES_MAX).map(named)).policies().len(), MATCHES_MAX);
        let chain = chain_of((0..=MATCHES_MAX).map(named));
        let [policy] = chain.policies() else { panic!("{} policies", chain.policies().len()) };
        assert_eq!(policy.matches, Matches::default());
    }
}
