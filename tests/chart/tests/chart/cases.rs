//! The effect of each value: the cases of `cases.yaml`.

use std::collections::{BTreeMap, BTreeSet};

use bindery_chart::{Objects, read, rendered, table};
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    value: String,
    to: Value,
    /// Further values, set before and after.
    #[serde(default)]
    with: Map<String, Value>,
    then: Vec<Expectation>,
}

/// A condition on the rendered objects. Exactly one field is set beside `at`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectation {
    at: String,
    /// `null` is a value too.
    #[serde(default, deserialize_with = "present")]
    is: Option<Value>,
    includes: Option<Value>,
    #[serde(default)]
    gone: bool,
    #[serde(default)]
    has: bool,
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Expectation {
    fn holds(&self, objects: &Objects) -> bool {
        let found = objects.at(&self.at);
        match (&self.is, &self.includes, self.gone, self.has) {
            (Some(is), None, false, false) => found == Some(is),
            (None, Some(item), false, false) => found.is_some_and(|found| includes(found, item)),
            (None, None, true, false) => found.is_none(),
            (None, None, false, true) => found.is_some(),
            _ => panic!("one condition is needed: {self:?}"),
        }
    }
}

fn includes(found: &Value, item: &Value) -> bool {
    match (found, item) {
        (Value::Array(items), item) => items.contains(item),
        (Value::String(text), Value::String(piece)) => text.contains(piece.as_str()),
        _ => false,
    }
}

fn cases() -> Vec<Case> {
    serde_saphyr::from_str(&read("tests/chart/cases.yaml")).unwrap()
}

/// Values that matter only for an upgrade; tests/cluster/release.rs has their case.
const OF_UPGRADES: [&str; 1] = ["confirmObserve"];

/// Values in which the one at a path is replaced.
fn set(values: &Map<String, Value>, path: &str, to: &Value) -> Value {
    let mut values = Value::Object(values.clone());
    let mut at = &mut values;
    for key in path.split('.') {
        if !at.is_object() {
            *at = json!({});
        }
        at = at.as_object_mut().unwrap().entry(key).or_insert(Value::Null);
    }
    *at = to.clone();
    values
}

#[test]
fn each_value_has_the_effect_that_its_case_describes() {
    let mut before: BTreeMap<String, Objects> = BTreeMap::new();
    for Case { value, to, with, then } in cases() {
        let key = Value::Object(with.clone()).to_string();
        let before = before.entry(key).or_insert_with(|| rendered(&Value::Object(with.clone())));
        let after = rendered(&set(&with, &value, &to));
        assert!(!then.is_empty(), "{value} changes nothing");
        for expected in then {
            assert!(!expected.holds(before), "{value}: holds already before: {expected:?}");
            let found = after.at(&expected.at);
            assert!(expected.holds(&after), "{value}={to}: {expected:?}, found {found:?}");
        }
    }
}

#[test]
fn every_value_has_a_case_and_a_row_in_the_readme() {
    let readme = read("charts/bindery/README.md");
    let listed = table(&readme, "## Values").into_iter().map(|row| row[0].trim_matches('`').to_owned());
    let listed: BTreeSet<_> = listed.collect();
    let tried = cases().into_iter().map(|case| case.value).chain(OF_UPGRADES.map(str::to_owned));
    let tried: BTreeSet<_> = tried.collect();
    assert_eq!(listed, tried);

    let mut leaves = Vec::new();
    gather(&bindery_chart::yaml(&read("charts/bindery/values.yaml")), "", &mut leaves);
    for leaf in &leaves {
        let is_listed = |row: &String| leaf == row || leaf.starts_with(&format!("{row}."));
        assert!(listed.iter().any(is_listed), "{leaf} is in values.yaml but not in the README");
    }
    for row in &listed {
        let is_there = |leaf: &String| leaf == row || leaf.starts_with(&format!("{row}."));
        assert!(leaves.iter().any(is_there), "{row} is in the README but not in values.yaml");
    }
}

/// Adds the paths of all values but non-empty maps.
fn gather(values: &Value, path: &str, leaves: &mut Vec<String>) {
    match values {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                gather(value, &path, leaves);
            }
        }
        _ => leaves.push(path.to_owned()),
    }
}
