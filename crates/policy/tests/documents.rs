//! The tables of the documents' fields.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::Path;

use bindery_policy::{MatchPolicy, MatchPolicySpec, ReclaimPolicy, ReclaimPolicySpec};
use serde::de::DeserializeOwned;
use serde_json::json;

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

#[test]
fn settings_over_256_kib_are_refused_with_object_field_and_size() {
    let checked = |kind: &str, bytes: usize| {
        let settings = json!({"a": "x".repeat(bytes - r#"{"a":""}"#.len())});
        let (version, metadata) = ("policy.bindery.dev/v1alpha1", json!({"name": "large"}));
        let spec = json!({"module": "builtin:prefer", "settings": settings});
        let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
        match kind {
            "MatchPolicy" => serde_json::from_value::<MatchPolicy>(object).unwrap().check(),
            _ => serde_json::from_value::<ReclaimPolicy>(object).unwrap().check(),
        }
    };
    for kind in ["MatchPolicy", "ReclaimPolicy"] {
        assert_eq!(checked(kind, 262_144), Ok(()));
        let refused = "spec.settings has 262145 bytes as JSON; at most 262144 are allowed: shorten them, or \
                       build what is large into the module";
        assert_eq!(checked(kind, 262_145), Err(format!("{kind} \"large\": {refused}")));
    }
}
