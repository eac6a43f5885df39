//! Releases with each set of values in the chart's folder `ci`, and the notes that Helm prints.

use bindery_chart::{KUBERNETES, RELEASE, chart, helm, manifests, read, rendered, run, sets, table, yaml};
use serde_json::{Map, Value, json};

#[test]
fn helm_lint_accepts_every_set_of_values() {
    for (name, values) in sets() {
        let mut lint = helm(["lint", "--strict", "--kube-version", KUBERNETES, "--values", "-"]);
        run(lint.arg(chart()), &values.to_string()).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}

#[test]
fn every_object_has_the_labels_of_its_release() {
    for (name, values) in sets() {
        for (object, content) in rendered(&values).iter() {
            let labels = &content["metadata"]["labels"];
            assert_eq!(labels["app.kubernetes.io/instance"], RELEASE, "{name}: {object}");
            if let Some(team) = values["commonLabels"]["team"].as_str() {
                assert_eq!(labels["team"], team, "{name}: {object}");
            }
        }
    }
}

/// A second `helm install` or a GitOps tool must not revert what Bindery has written.
#[test]
fn the_chart_sets_no_field_that_bindery_writes() {
    let objects = rendered(&json!({"certificates": {"source": "self"}}));
    let configuration = objects.get("ValidatingWebhookConfiguration/bindery").unwrap();
    let steered = rendered(&json!({"mode": "steer", "steer": {"admission": "webhook"}}));
    let steering = steered.get("MutatingWebhookConfiguration/bindery-steer").unwrap();
    for configuration in [configuration, steering] {
        for webhook in configuration["webhooks"].as_array().unwrap() {
            assert_eq!(webhook["clientConfig"].get("caBundle"), None);
        }
    }
    let secret = objects.get("Secret/bindery-tls").unwrap();
    assert_eq!((secret.get("data"), secret.get("stringData")), (None, None));
    assert_eq!(secret["metadata"].get("annotations"), None);
}

/// Helm does not delete hooks with a release, nor objects with a resource policy. With a kind the API server
/// would delete its objects.
#[test]
fn no_object_but_the_kinds_of_policies_outlives_the_release() {
    for (name, values) in sets() {
        for (object, content) in rendered(&values).iter() {
            let annotations = &content["metadata"]["annotations"];
            let is_kind = content["kind"] == "CustomResourceDefinition";
            let is_kept = annotations.get("helm.sh/resource-policy").is_some();
            assert_eq!(is_kept, is_kind && values["crds"]["keep"] != false, "{name}: {object}");
            let hook = annotations.get("helm.sh/hook");
            assert!(hook.is_none_or(|hook| hook == "test"), "{name}: {object}");
            // A failed test is kept for inspection, until the next test begins.
            let policy = annotations.get("helm.sh/hook-delete-policy");
            assert_eq!(hook.is_some(), policy.is_some(), "{name}: {object}");
        }
    }
}

fn notes(values: &Value) -> String {
    let mut helm = helm(["install", RELEASE, "--dry-run=client", "--namespace", "n", "--values", "-"]);
    let printed = run(helm.arg(chart()), &values.to_string()).unwrap();
    printed.split_once("\nNOTES:\n").unwrap().1.to_owned()
}

/// Values with `to` in place of each list of the default ones.
fn with_lists(defaults: &Value, to: &Value) -> Value {
    let replaced = |(key, value): (&String, &Value)| match value {
        Value::Array(_) => Some((key.clone(), to.clone())),
        // It is copied as it is.
        Value::Object(_) if key != "securityContext" => Some((key.clone(), with_lists(value, to))),
        _ => None,
    };
    defaults.as_object().into_iter().flatten().filter_map(replaced).collect()
}

#[test]
fn given_null_for_a_list_when_rendered_then_it_is_an_empty_one() {
    let defaults = yaml(&read("charts/bindery/values.yaml"));
    for (mode, admission) in [("own", "auto"), ("steer", "policy"), ("steer", "webhook")] {
        let printed = |to: Value| {
            let mut values = with_lists(&defaults, &to);
            values["mode"] = mode.into();
            values["steer"]["admission"] = admission.into();
            (manifests(&values).unwrap(), notes(&values))
        };
        assert_eq!(printed(Value::Null), printed(json!([])), "{mode}, {admission}");
    }
}

#[test]
fn the_notes_say_refused_only_if_a_rule_denies() {
    let rules = table(&read("docs/admission.md"), "## The rules");
    let denying: Vec<_> = rules.iter().filter(|row| row[1] == "deny").map(|row| &row[0]).collect();
    let denying = denying.iter().map(|name| name.split('`').nth(1).unwrap());
    let warning: Map<_, _> = denying.map(|rule| (rule.to_owned(), json!("warn"))).collect();
    let mut but_one = warning.clone();
    assert!(but_one.remove("breaks-pair").is_some());
    for (rules, refuses) in [(warning.clone(), false), (but_one, true)] {
        let notes = notes(&json!({"mode": "own", "webhook": {"rules": rules}}));
        assert_eq!(notes.contains("are denied"), refuses, "{notes}");
        assert_eq!(notes.contains("are warned"), !refuses, "{notes}");
    }
    let notes = notes(&json!({"mode": "observe", "webhook": {"rules": warning}}));
    assert!(notes.contains("are warned") && !notes.contains("requests are denied"), "{notes}");
}

#[test]
fn the_notes_name_the_label_by_which_namespaces_opt_in() {
    for (label, command) in [
        ("bindery.dev/steer=true", "`bindery steer release --all`"),
        ("bindery.dev/steer=yes", "`bindery steer release --all`"),
        ("team=storage", "`bindery steer release --all --namespace-label team`"),
    ] {
        for mode in ["steer", "own"] {
            let steer = json!({"classes": ["local"], "admission": "policy", "namespaceLabel": label});
            let notes = notes(&json!({"mode": mode, "steer": steer}));
            assert!(notes.contains(command), "{mode}: no {command} in {notes}");
        }
    }
}

#[test]
fn the_notes_name_the_next_step() {
    for (values, included, excluded) in [
        (
            json!({}),
            &[
                "--set mode=own,confirmObserve=false",
                "bindery_observed",
                "are warned",
                "of the namespaces kube-system, ",
                "are not reviewed",
            ][..],
            &["No replica runs", "With one replica"][..],
        ),
        (
            json!({"mode": "own", "webhook": {"failurePolicy": "Fail"}, "replicas": 1}),
            &[
                "-persistentvolume-binder-controller",
                "get lease bindery",
                "kubectl delete validatingwebhookconfiguration bindery",
                "With one replica",
                "become Failed",
            ],
            &[],
        ),
        (
            json!({"mode": "steer", "steer": {"classes": ["", "local"], "admission": "policy"}}),
            &[
                "upstream's binder binds them",
                "by\na MutatingAdmissionPolicy of the API server, in namespaces",
                "with the label bindery.dev/steer=true",
                "of the classes \"\", local.",
                "before `helm uninstall` which claims wait",
                "get pvc --all-namespaces",
            ],
            &["No class is listed", "must be off", "Recycle"],
        ),
        (
            json!({"mode": "steer", "steer": {"admission": "webhook"}}),
            &["No class is listed", "Bindery's webhook"],
            &["of the classes"],
        ),
        (json!({"replicas": 0}), &["No replica runs"], &["With one replica"]),
        (json!({}), &["`helm uninstall` keeps the kinds"], &["deletes the kinds"]),
        (json!({"crds": {"keep": false}}), &["`helm uninstall` deletes the kinds"], &["keeps the kinds"]),
        (json!({"crds": {"install": false}}), &[], &["the kinds"]),
        (json!({"journal": {"enabled": true}}), &["journal is in an emptyDir: each rollout"], &[]),
        (json!({"journal": {"enabled": true, "existingClaim": "j"}}), &[], &["journal"]),
        (json!({"replicas": Value::Null}), &[], &["No replica runs", "With one replica"]),
        (
            json!({"mode": "own", "steer": {"classes": ["local"], "admission": "policy"}}),
            &["Of the classes local claims are steered", "bindery steer release --all"],
            &["No class is listed"],
        ),
        (
            json!({"mode": "own", "recycling": {"enabled": true}, "webhook": {"enabled": false}}),
            &[],
            &["become Failed", "refused"],
        ),
    ] {
        let notes = notes(&values);
        for text in included {
            assert!(notes.contains(text), "{values}: no {text:?} in {notes}");
        }
        for text in excluded {
            assert!(!notes.contains(text), "{values}: {text:?} in {notes}");
        }
    }
}
