use bindery_kit::{AllowsAll, policy};
use bindery_policy::{Chain, MATCH_POLICY, ObjectStatus, RECLAIM_POLICY};
use serde_json::{Value, json};

use super::*;

fn object(kind: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "policy.bindery.dev/v1alpha1", "kind": kind,
        "metadata": {"name": "keep", "uid": "u", "generation": 3}, "spec": spec,
    })
}

#[test]
fn a_policy_that_is_off_takes_no_name_from_another_kind() {
    let loaded = |mode: &str| -> LoadedObjects {
        let objects = [(MATCH_POLICY, mode), (RECLAIM_POLICY, "enforce")];
        let objects = objects.map(|(kind, mode)| object(kind, json!({"module": "builtin:m", "mode": mode})));
        objects.into_iter().map(|object| (object_name(&object), LoadedObject::new(object))).collect()
    };
    let name = (RECLAIM_POLICY.to_owned(), "keep".to_owned());
    let taken = ["enforce", "shadow", "off"].map(|mode| is_taken(&name, &Chain::default(), &loaded(mode)));
    assert_eq!(taken, [true, false, false]);
}

#[test]
fn given_a_share_in_the_spec_in_effect_its_shadow_has_it() {
    let loaded = |(name, spec): (&str, Value)| {
        let object = object(MATCH_POLICY, json!({"module": "builtin:m"}));
        let spec = spec.as_object().unwrap().clone();
        let last_good = Some(LastGood { generation: 2, digest: "sha256:0".into(), spec });
        let effect = Effect::Match(policy(name, AllowsAll));
        let loaded = LoadedObject { effect, last_good, ..LoadedObject::new(object) };
        ((MATCH_POLICY.to_owned(), name.to_owned()), loaded)
    };
    let quarter = json!({"mode": "shadow", "samplePercent": 25});
    let objects = [("all", json!({"mode": "shadow"})), ("quarter", quarter)].map(loaded);
    let shadows = shadows(&objects.into(), true);
    assert_eq!(shadows.iter().map(|shadow| shadow.sample_percent).collect::<Vec<_>>(), [100, 25]);
}

#[test]
fn an_object_that_is_being_loaded_keeps_its_earlier_generations() {
    let good = |generation| LastGood { generation, digest: "sha256:0".into(), spec: serde_json::Map::new() };
    let rolled_back = RolledBack { generation: 3, digest: "sha256:1".into() };
    let known = ObjectStatus {
        last_good: Some(good(2)),
        history: vec![good(1)],
        rolled_back: Some(rolled_back.clone()),
        ..ObjectStatus::default()
    };
    let awaiting = LoadedObject::awaiting(object(MATCH_POLICY, json!({"module": "builtin:m"})), None, &known);
    assert_eq!((awaiting.last_good, awaiting.history), (None, vec![good(1)]));
    assert_eq!(awaiting.rolled_back, Some(rolled_back));
}
