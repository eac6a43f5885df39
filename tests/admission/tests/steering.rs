//! What `/mutate` makes of claims.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bindery_admission_tests::{Replica, claim, create, update, warnings};
use bindery_engine::DefaultEngine;
use bindery_kit::json as kit;
use bindery_webhook::AdmissionSettings;
use serde_json::{Value, json};

/// The key of claim `c`.
const KEY: &str = "c.ns.steer.bindery.dev/claim";
const OTHERS: &str = "d.ns.steer.bindery.dev/claim";

fn settings() -> AdmissionSettings {
    let listed = [
        "local",
        "waits",
        "csi",
        "gone",
        "manual=static",
        "csi-static=static",
        "waits-static=static",
        "\"\"",
    ];
    AdmissionSettings {
        steered: listed.map(|class| class.parse().unwrap()).to_vec(),
        ..AdmissionSettings::default()
    }
}

fn replica() -> Replica {
    let class = |name: &str, provisioner: &str, mode: &str| {
        kit::class(name, provisioner, json!({"volumeBindingMode": mode}))
    };
    let none = "kubernetes.io/no-provisioner";
    Replica::new(Arc::new(DefaultEngine), settings()).having(&[
        class("local", none, "Immediate"),
        class("other", none, "Immediate"),
        class("waits", none, "WaitForFirstConsumer"),
        class("csi", "csi.example.com", "Immediate"),
        class("csi-static", "csi.example.com", "Immediate"),
        class("waits-static", "csi.example.com", "WaitForFirstConsumer"),
    ])
}

/// Claim `c` of class `local`, with these fields of its spec.
fn local(spec: Value) -> Value {
    claim("c", "1Gi", kit::merged(json!({"storageClassName": "local"}), spec))
}

fn requirement(key: &str, operator: &str) -> Value {
    json!({"key": key, "operator": operator})
}

fn steered(claim: Value) -> Value {
    let selector = json!({"selector": {"matchExpressions": [requirement(KEY, "Exists")]}});
    kit::merged(claim, json!({"spec": selector}))
}

/// The selector that an answer sets; `None` if it changes nothing.
fn patched(response: &Value) -> Option<Value> {
    assert_eq!(response["allowed"], true, "{response}");
    let patch = BASE64_STANDARD.decode(response["patch"].as_str()?).unwrap();
    assert_eq!(response["patchType"], "JSONPatch");
    let patch: Value = serde_json::from_slice(&patch).unwrap();
    let [operation] = &patch.as_array().unwrap()[..] else { panic!("{patch}") };
    assert_eq!((&operation["op"], &operation["path"]), (&json!("add"), &json!("/spec/selector")));
    Some(operation["value"].clone())
}

#[tokio::test]
async fn a_new_claim_is_steered_if_its_class_is_listed_and_can_be() {
    let replica = replica();
    for (spec, is_steered) in [
        (json!({"storageClassName": "local"}), true),
        (json!({"storageClassName": "other"}), false),
        (json!({"storageClassName": "waits"}), true),
        (json!({"storageClassName": "waits-static"}), false),
        // A provisioner refuses selectors.
        (json!({"storageClassName": "csi"}), false),
        (json!({"storageClassName": "csi-static"}), true),
        // A class that is not there may turn out to have a provisioner.
        (json!({"storageClassName": "gone"}), false),
        (json!({"storageClassName": "manual"}), true),
        (json!({"storageClassName": ""}), true),
        // Without a class, a default class may come later.
        (json!({}), false),
        (json!({"storageClassName": "local", "volumeName": "v"}), false),
        (json!({"storageClassName": "local", "volumeName": ""}), true),
        (json!({"storageClassName": "local", "dataSource": {"kind": "VolumeSnapshot", "name": "s"}}), false),
        (json!({"storageClassName": "local", "dataSourceRef": {"kind": "Other", "name": "s"}}), false),
    ] {
        let mut object = claim("c", "1Gi", spec.clone());
        if spec["storageClassName"].is_null() {
            object["spec"].as_object_mut().unwrap().remove("storageClassName");
        }
        let response = replica.mutation(&create(&object)).await;
        let expected = is_steered.then(|| json!({"matchExpressions": [requirement(KEY, "Exists")]}));
        assert_eq!(patched(&response), expected, "{spec}");
    }
    // The annotation takes precedence.
    for (beta, is_steered) in [("local", true), ("other", false)] {
        let annotations = json!({"volume.beta.kubernetes.io/storage-class": beta});
        let other = if is_steered { "other" } else { "local" };
        let object = claim("c", "1Gi", json!({"storageClassName": other}));
        let object = kit::merged(object, json!({"metadata": {"annotations": annotations}}));
        assert_eq!(patched(&replica.mutation(&create(&object)).await).is_some(), is_steered, "{beta}");
    }
    assert_eq!(replica.effects(), [""; 0]);
}

#[tokio::test]
async fn the_requirement_joins_a_selector_and_the_rest_of_it_stays() {
    let replica = replica();
    let zone = json!({"key": "zone", "operator": "In", "values": ["a", "b"]});
    for (selector, expressions) in [
        (json!({}), json!([])),
        (json!({"matchLabels": {"disk": "ssd"}}), json!([])),
        (json!({"matchExpressions": null}), json!([])),
        (json!({"matchLabels": {"disk": "ssd"}, "matchExpressions": [zone]}), json!([zone])),
    ] {
        let response = replica.mutation(&create(&local(json!({"selector": selector})))).await;
        let mut expected = selector.clone();
        expected["matchExpressions"] = expressions;
        expected["matchExpressions"].as_array_mut().unwrap().push(requirement(KEY, "Exists"));
        assert_eq!(patched(&response), Some(expected), "{selector}");
    }
    let response = replica.mutation(&create(&steered(local(json!({}))))).await;
    assert_eq!(patched(&response), None, "it has the requirement");
}

#[tokio::test]
async fn an_update_gets_the_requirement_back_and_never_newly() {
    let replica = replica();
    let plain = local(json!({}));
    let labels = local(json!({"selector": {"matchLabels": {"disk": "ssd"}}}));
    let named = kit::merged(plain.clone(), json!({"spec": {"volumeName": "v", "storageClassName": "other"}}));
    let going =
        kit::merged(plain.clone(), json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    let exists = json!([requirement(KEY, "Exists")]);
    for (new, old, expected) in [
        (&plain, steered(plain.clone()), Some(json!({"matchExpressions": exists}))),
        (
            &labels,
            steered(labels.clone()),
            Some(json!({"matchLabels": {"disk": "ssd"}, "matchExpressions": exists})),
        ),
        // Class and volume do not matter: the selector of a claim cannot change.
        (&named, steered(plain.clone()), Some(json!({"matchExpressions": exists}))),
        (&steered(plain.clone()), steered(plain.clone()), None),
        (&plain, plain.clone(), None),
        (&going, steered(plain.clone()), None),
    ] {
        let response = replica.mutation(&update(new, &old)).await;
        assert_eq!(patched(&response), expected, "{new} over {old}");
    }
}

#[tokio::test]
async fn a_key_that_contradicts_the_name_is_denied() {
    let replica = replica();
    let with =
        |selector: Value| claim("c", "1Gi", json!({"storageClassName": "other", "selector": selector}));
    let expressions = |requirements: Value| with(json!({"matchExpressions": requirements}));
    for (object, key) in [
        (expressions(json!([requirement(OTHERS, "Exists")])), OTHERS),
        (expressions(json!([requirement(KEY, "Exists"), requirement(OTHERS, "DoesNotExist")])), OTHERS),
        (expressions(json!([requirement(KEY, "DoesNotExist")])), KEY),
        (expressions(json!([{"key": KEY, "operator": "In", "values": ["uid"]}])), KEY),
        (with(json!({"matchLabels": {KEY: "uid"}})), KEY),
    ] {
        let response = replica.mutation(&create(&object)).await;
        assert_eq!((&response["allowed"], &response["status"]["code"]), (&json!(false), &json!(422)));
        let cause = &response["status"]["details"]["causes"][0];
        assert_eq!(cause["field"], "spec.selector");
        assert!(cause["message"].as_str().unwrap().starts_with(key), "{response}");
        // A claim that has it already is not blocked.
        let response = replica.mutation(&update(&object, &object)).await;
        assert_eq!(response["allowed"], true, "{object}");
    }
    // Nobody's keys, and those of another namespace's claim with dots in its name.
    let fine = json!([requirement("steer.bindery.dev/claim", "Exists"), requirement("team", "DoesNotExist")]);
    assert_eq!(replica.mutation(&create(&expressions(fine))).await["allowed"], true);
    let dotted = json!([requirement("c.d.ns.steer.bindery.dev/claim", "Exists")]);
    assert_eq!(replica.mutation(&create(&expressions(dotted))).await["allowed"], false);
    assert!(replica.scrape().contains("bindery_admission_steering_total{outcome=\"denied\"} 6\n"));
}

#[tokio::test]
async fn a_name_without_a_key_is_counted_and_warned_of_in_scope_only() {
    let replica = replica();
    let mut long = local(json!({}));
    long["metadata"]["name"] = "a".repeat(233).into();
    let mut generated = local(json!({}));
    generated["metadata"] = json!({"generateName": "c-", "namespace": "ns"});
    for (object, said) in [(long, "too long for a label key"), (generated, "its name is generated later")] {
        let response = replica.mutation(&create(&object)).await;
        assert_eq!(patched(&response), None);
        let told = warnings(&response);
        assert!(told.len() == 1 && told[0].contains(said) && told[0].len() <= 120, "{told:?}");
        let out_of_scope = kit::merged(object, json!({"spec": {"storageClassName": "other"}}));
        assert_eq!(warnings(&replica.mutation(&create(&out_of_scope)).await), [""; 0]);
    }
    // One character less fits.
    let mut fits = local(json!({}));
    fits["metadata"]["name"] = "a".repeat(232).into();
    assert!(patched(&replica.mutation(&create(&fits)).await).is_some());
    assert!(replica.scrape().contains("bindery_admission_steering_total{outcome=\"unfit\"} 2\n"));
}

#[tokio::test]
async fn a_claim_that_cannot_be_judged_passes_with_a_warning() {
    let starting = Replica::starting(Arc::new(DefaultEngine), settings());
    let mut unreadable = local(json!({}));
    unreadable["spec"]["selector"] = json!({"matchExpressions": "all"});
    let mut large = local(json!({}));
    large["metadata"]["annotations"] = json!({"a": ",".repeat(100_001)});
    for (object, said) in [
        (local(json!({})), "its class cannot be read: Bindery is starting"),
        (unreadable, "Bindery cannot read this object"),
        (large, "more than 100000 fields"),
    ] {
        let response = starting.mutation(&create(&object)).await;
        assert_eq!(patched(&response), None);
        assert!(warnings(&response)[0].contains(said), "{response}");
    }
    assert!(starting.scrape().contains("bindery_admission_steering_total{outcome=\"unread\"} 3\n"));
    // Other kinds are left alone, and requests that neither create nor update a claim.
    let mut deleted = create(&local(json!({})));
    deleted["request"]["operation"] = "DELETE".into();
    let mut status = create(&local(json!({})));
    status["request"]["subResource"] = "status".into();
    let volume = create(&bindery_admission_tests::volume("v", "1Gi", json!({})));
    for review in [deleted, status, volume] {
        let response = replica().mutation(&review).await;
        assert_eq!((patched(&response), warnings(&response)), (None, vec![]), "{review}");
    }
}
