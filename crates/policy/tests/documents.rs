//! The tables of the documents' fields.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::Path;

use bindery_policy::{EngineDocument, MatchPolicy, MatchPolicySpec, ReclaimPolicy, ReclaimPolicySpec};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The fields of a specification: the error for an unknown field lists them.
fn fields<T: DeserializeOwned + Debug>() -> BTreeSet<String> {
    let error = serde_json::from_value::<T>(json!({"no-field": 0})).unwrap_err().to_string();
    let expected = error.split_once("expected one of ").unwrap().1;
    expected.split('`').skip(1).step_by(2).map(|field| format!("spec.{field}")).collect()
}

/// The fields that a page lists in the first column of its table.
fn documented(page: &str) -> BTreeSet<String> {
    let page = Path::new(env!("BINDERY_CHECKOUT")).join("docs/policies").join(page);
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `spec."));
    rows.map(|row| format!("spec.{}", row.split_once('`').unwrap().0)).collect()
}

#[test]
fn every_field_of_a_document_is_in_its_table() {
    assert_eq!(documented("documents.md"), fields::<MatchPolicySpec>());
    assert_eq!(documented("reclaim.md"), fields::<ReclaimPolicySpec>());
}

/// What is wrong with an object named `large` that has this specification.
fn checked(kind: &str, spec: &Value) -> Result<(), String> {
    let (version, metadata) = ("policy.bindery.dev/v1alpha1", json!({"name": "large"}));
    let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
    match kind {
        "MatchPolicy" => serde_json::from_value::<MatchPolicy>(object).unwrap().check(),
        "ReclaimPolicy" => serde_json::from_value::<ReclaimPolicy>(object).unwrap().check(),
        _ => serde_json::from_value::<EngineDocument>(object).unwrap().check(),
    }
}

#[test]
fn settings_over_256_kib_are_refused_with_object_field_and_size() {
    let checked = |kind: &str, bytes: usize| {
        let settings = json!({"a": "x".repeat(bytes - r#"{"a":""}"#.len())});
        checked(kind, &json!({"module": "builtin:prefer", "settings": settings}))
    };
    for kind in ["MatchPolicy", "ReclaimPolicy"] {
        assert_eq!(checked(kind, 262_144), Ok(()));
        let refused = "spec.settings has 262145 bytes as JSON; at most 262144 are allowed: shorten them, or \
                       build what is large into the module";
        assert_eq!(checked(kind, 262_145), Err(format!("{kind} \"large\": {refused}")));
    }
}

#[test]
fn given_a_share_outside_1_to_100_every_kind_is_refused() {
    for kind in ["MatchPolicy", "ReclaimPolicy", "Engine"] {
        let checked = |percent: u32| checked(kind, &json!({"module": "/m.wasm", "samplePercent": percent}));
        assert_eq!([checked(1), checked(100)], [Ok(()), Ok(())]);
        let refused = |share: u32| Err(format!("spec.samplePercent is {share}; from 1 to 100 is allowed"));
        assert_eq!([checked(0), checked(101)], [refused(0), refused(101)]);
    }
}
