//! New worlds out of recorded ones: some fields of a world take values that the same fields have in other
//! worlds.
//!
//! New worlds therefore have recorded values, including names that meet, in combinations that no author
//! chose. The recorder says what upstream does with them (`cargo xtask record`).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;

/// Fields of a case that are its world. The other fields are upstream's result.
const WORLD: [&str; 7] = ["call", "classes", "pods", "uncached", "initial", "plugin", "api_errors"];

/// Fields of the world that take values as a whole.
const WHOLES: [&str; 5] = ["/classes", "/pods", "/uncached", "/api_errors", "/plugin"];

/// The lists of objects whose fields take values one by one.
const OBJECTS: [&str; 2] = ["/initial/volumes", "/initial/claims"];

/// Fields of an object that keep their values: they identify objects, or a volume would have two sources.
const KEPT: [&str; 8] = [
    "/metadata/name",
    "/metadata/namespace",
    "/metadata/uid",
    "/metadata/resourceVersion",
    "/spec/csi",
    "/spec/nfs",
    "/spec/hostPath",
    "/spec/gcePersistentDisk",
];

/// Fields that take a value as a whole. The parts of any other object take values one by one.
const ENTIRE: [&str; 4] = ["/spec/claimRef", "/spec/selector", "/spec/capacity", "/spec/resources"];

/// The most changes of a world.
const CHANGES_MAX: usize = 4;

/// By field, its values in recorded worlds; `None` if it is absent.
type Pool = BTreeMap<String, Vec<Option<Value>>>;

/// An endless sequence of worlds, determined by the seed and the recorded worlds.
pub struct Worlds {
    recorded: Vec<Value>,
    wholes: Pool,
    /// In the order of [`OBJECTS`].
    fields: [Pool; 2],
    seed: u64,
    random: StdRng,
    made: u64,
}

impl Worlds {
    /// Varies the worlds of recorded cases, one on each line of JSON. Do not mix cases of single calls with
    /// cases that settle: their fields have different meanings.
    ///
    /// # Errors
    ///
    /// A line is not a case, or the corpus is empty.
    pub fn of<'a>(lines: impl IntoIterator<Item = &'a str>, seed: u64) -> Result<Self> {
        let recorded: Vec<Value> =
            lines.into_iter().filter_map(|line| world(line).transpose()).collect::<Result<_>>()?;
        ensure!(!recorded.is_empty(), "there is no case to vary; give a corpus of JSON lines");
        let wholes = WHOLES.map(|path| (path.to_owned(), values(&recorded, path)));
        let fields = OBJECTS.map(|place| {
            let objects: Vec<&Value> = recorded.iter().flat_map(|world| items(world, place)).collect();
            pool(&objects)
        });
        let random = StdRng::seed_from_u64(seed);
        Ok(Self { recorded, wholes: wholes.into(), fields, seed, random, made: 0 })
    }

    /// Gives one field another value.
    fn change(&mut self, world: &mut Value) -> Option<()> {
        // Mostly a field of an object: objects have the most fields.
        let kind = self.random.random_range(0..5);
        let (target, pool) = match OBJECTS.get(kind / 2) {
            Some(place) => {
                let objects = world.pointer_mut(place)?.as_array_mut()?;
                if objects.is_empty() {
                    return Some(());
                }
                let at = self.random.random_range(0..objects.len());
                (objects.get_mut(at)?, self.fields.get(kind / 2)?)
            }
            None => (world, &self.wholes),
        };
        let at = self.random.random_range(0..pool.len());
        let (path, values) = pool.iter().nth(at)?;
        set(target, path, values.choose(&mut self.random)?.clone());
        Some(())
    }
}

impl Iterator for Worlds {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        let mut world = self.recorded.choose(&mut self.random)?.clone();
        for _ in 0..self.random.random_range(1..=CHANGES_MAX) {
            self.change(&mut world)?;
        }
        make_possible(&mut world);
        self.made += 1;
        world["id"] = format!("varied/{}/{}", self.seed, self.made).into();
        Some(world)
    }
}

/// The world of a case; `None` if it makes more than one call, which the recorder cannot do.
fn world(line: &str) -> Result<Option<Value>> {
    let case: Value = serde_json::from_str(line).context("the line is not a case in JSON")?;
    let fields = case.as_object().context("the line is not a case, which is an object")?;
    if case["then_settle"] == true || !case["changed_before_operation"].is_null() {
        return Ok(None);
    }
    let of_world = fields.iter().filter(|(key, _)| WORLD.contains(&key.as_str()));
    Ok(Some(of_world.map(|(key, value)| (key.clone(), value.clone())).collect()))
}

fn values(worlds: &[Value], path: &str) -> Vec<Option<Value>> {
    worlds.iter().map(|world| world.pointer(path).cloned()).collect()
}

fn items<'a>(world: &'a Value, place: &str) -> &'a [Value] {
    world.pointer(place).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn pool(objects: &[&Value]) -> Pool {
    let mut paths = BTreeSet::new();
    objects.iter().for_each(|object| collect_paths(object, "", &mut paths));
    let of_path = |path: String| {
        let values = objects.iter().map(|object| object.pointer(&path).cloned()).collect();
        (path, values)
    };
    paths.into_iter().map(of_path).collect()
}

fn collect_paths(value: &Value, path: &str, paths: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) if !ENTIRE.contains(&path) => {
            for (key, value) in fields {
                let path = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
                if !KEPT.contains(&path.as_str()) {
                    collect_paths(value, &path, paths);
                }
            }
        }
        _ => {
            paths.insert(path.to_owned());
        }
    }
}

/// Sets or removes the value at a JSON pointer.
fn set(target: &mut Value, path: &str, value: Option<Value>) {
    let (parent, key) = path.rsplit_once('/').unwrap_or(("", path));
    let plain = |part: &str| part.replace("~1", "/").replace("~0", "~");
    let Some(value) = value else {
        if let Some(fields) = target.pointer_mut(parent).and_then(Value::as_object_mut) {
            fields.remove(&plain(key));
        }
        return;
    };
    let parents = parent.split('/').skip(1).map(plain);
    parents.fold(target, |at, part| &mut at[part])[plain(key)] = value;
}

/// Corrects what no API server and no cache can have.
fn make_possible(world: &mut Value) {
    for place in OBJECTS {
        let objects = world.pointer_mut(place).and_then(Value::as_array_mut);
        for object in objects.into_iter().flatten() {
            let is_held = object["metadata"]["finalizers"].as_array().is_some_and(|held| !held.is_empty());
            if !is_held {
                // Without finalizers it would be gone.
                set(object, "/metadata/deletionTimestamp", None);
            }
        }
    }
    let synced = world["call"].as_str().and_then(|call| call.strip_prefix("sync-claim ")).map(str::to_owned);
    if let Some(uncached) = world.get_mut("uncached").and_then(Value::as_array_mut) {
        uncached.retain(|name| name.as_str() != synced.as_deref());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::json;

    use super::*;

    fn recorded() -> Vec<String> {
        let case = |name: &str, phase: &str, class: Value| {
            let volume = json!({
                "metadata": {
                    "name": name, "uid": name, "annotations": {"a/b": phase},
                    "deletionTimestamp": "2026-01-01T00:00:00Z",
                },
                "spec": {"csi": {"driver": name}, "storageClassName": class},
                "status": {"phase": phase},
            });
            let initial = json!({"volumes": [volume], "claims": []});
            json!({
                "id": name, "call": "sync-claim c0", "uncached": ["c0", "c1"],
                "initial": initial, "final": {},
            })
            .to_string()
        };
        vec![case("v0", "Bound", json!("gold")), case("v1", "Released", json!(null))]
    }

    fn worlds(seed: u64) -> Vec<Value> {
        let recorded = recorded();
        Worlds::of(recorded.iter().map(String::as_str), seed).unwrap().take(200).collect()
    }

    #[test]
    fn the_same_seed_makes_the_same_worlds() {
        assert_eq!(worlds(1), worlds(1));
        assert_ne!(worlds(1), worlds(2));
    }

    #[test]
    fn fields_take_recorded_values_and_objects_keep_their_identity() {
        let mut phases = BTreeMap::new();
        for world in worlds(3) {
            let volume = &world["initial"]["volumes"][0];
            let name = volume["metadata"]["name"].as_str().unwrap();
            assert_eq!(
                (&volume["metadata"]["uid"], &volume["spec"]["csi"]["driver"]),
                (&json!(name), &json!(name))
            );
            assert!(world.get("final").is_none(), "upstream's result for another world");
            let phase = volume["status"]["phase"].as_str().unwrap().to_owned();
            *phases.entry((name.to_owned(), phase)).or_insert(0) += 1;
        }
        let every =
            ["v0", "v1"].map(|name| ["Bound", "Released"].map(|phase| (name.to_owned(), phase.to_owned())));
        assert_eq!(phases.into_keys().collect::<Vec<_>>(), every.concat());
    }

    #[test]
    fn every_world_is_possible() {
        for world in worlds(4) {
            assert!(world["initial"]["volumes"][0]["metadata"].get("deletionTimestamp").is_none());
            assert!(!items(&world, "/uncached").contains(&json!("c0")), "the call reads it from the cache");
        }
    }

    #[test]
    fn a_line_that_is_not_a_case_is_an_error() {
        assert!(Worlds::of([], 0).is_err());
        assert!(Worlds::of(["{"], 0).is_err());
        assert!(Worlds::of(["7"], 0).is_err());
    }
}
