//! Whole releases: the sets of values in the chart's folder `ci`.

use std::collections::BTreeSet;
use std::process::Command;

use bindery_chart::{KUBERNETES, RELEASE, chart, helm, manifests, offered, read, rendered, run, sets, table};
use serde_json::{Map, Value, json};

/// Kinds that Kubernetes itself does not know.
const FOREIGN: [&str; 4] = ["Certificate", "Issuer", "PrometheusRule", "ServiceMonitor"];

#[test]
fn helm_finds_nothing_to_complain_of() {
    for (name, values) in sets() {
        let mut lint = helm(["lint", "--strict", "--kube-version", KUBERNETES, "--values", "-"]);
        run(lint.arg(chart()), &values.to_string()).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}

/// Holds manifests against the schemas of Kubernetes. Answers the kinds for which there is none.
pub(super) fn conforms(manifests: &str) -> Result<BTreeSet<String>, String> {
    let place = offered("BINDERY_SCHEMAS").join("{{.Group}}_{{.ResourceAPIVersion}}_{{.ResourceKind}}.json");
    let mut kubeconform = Command::new(offered("BINDERY_KUBECONFORM"));
    kubeconform.args([
        "-strict",
        "-verbose",
        "-ignore-missing-schemas",
        "-output",
        "json",
        "-schema-location",
    ]);
    kubeconform.arg(place);
    let told: Value = serde_json::from_str(&run(&mut kubeconform, manifests)?).unwrap();
    let skipped =
        told["resources"].as_array().unwrap().iter().filter(|found| found["status"] == "statusSkipped");
    Ok(skipped.map(|found| found["kind"].as_str().unwrap().to_owned()).collect())
}

#[test]
fn every_object_is_one_that_kubernetes_knows() {
    let mut foreign = BTreeSet::new();
    for (name, values) in sets() {
        let skipped = conforms(&manifests(&values).unwrap());
        foreign.extend(skipped.unwrap_or_else(|why| panic!("{name}: {why}")));
    }
    assert_eq!(foreign, FOREIGN.map(str::to_owned).into());
}

#[test]
fn an_object_with_a_wrong_field_is_found() {
    let manifests = manifests(&json!({})).unwrap();
    for (right, wrong) in [
        ("priorityClassName:", "priorityClass:"),
        ("failurePolicy: Ignore", "failurePolicy: true"),
        ("maxUnavailable: 1\n  # A pod", "maxUnavailable: [1]\n  # A pod"),
        ("sideEffects: None", ""),
    ] {
        assert!(manifests.contains(right), "{right}");
        let told = conforms(&manifests.replacen(right, wrong, 1)).unwrap_err();
        assert!(told.contains("statusInvalid"), "{wrong}: {told}");
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

/// Whoever applies the chart again must not take back what Bindery has written.
#[test]
fn the_chart_owns_nothing_of_what_bindery_fills() {
    let objects = rendered(&json!({"certificates": {"source": "self"}}));
    let configuration = objects.get("ValidatingWebhookConfiguration/bindery").unwrap();
    for webhook in configuration["webhooks"].as_array().unwrap() {
        assert_eq!(webhook["clientConfig"].get("caBundle"), None);
    }
    let secret = objects.get("Secret/bindery-tls").unwrap();
    assert_eq!((secret.get("data"), secret.get("stringData")), (None, None));
    assert_eq!(secret["metadata"].get("annotations"), None);
}

/// Hooks are not deleted with a release.
#[test]
fn nothing_outlives_the_release() {
    for (name, values) in sets() {
        for (object, content) in rendered(&values).iter() {
            let annotations = &content["metadata"]["annotations"];
            assert!(annotations.get("helm.sh/resource-policy").is_none(), "{name}: {object}");
            let hook = annotations.get("helm.sh/hook");
            assert!(hook.is_none_or(|hook| hook == "test"), "{name}: {object}");
            // A test that failed is kept to be looked at, and goes when the next one begins.
            let policy = annotations.get("helm.sh/hook-delete-policy");
            assert_eq!(hook.is_some(), policy.is_some(), "{name}: {object}");
        }
    }
}

fn notes(values: &Value) -> String {
    let mut helm = helm(["install", RELEASE, "--dry-run=client", "--namespace", "n", "--values", "-"]);
    let told = run(helm.arg(chart()), &values.to_string()).unwrap();
    told.split_once("\nNOTES:\n").unwrap().1.to_owned()
}

#[test]
fn the_notes_say_refused_where_a_rule_denies() {
    let rules = table(&read("docs/admission.md"), "## The rules");
    let denying: Vec<_> = rules.iter().filter(|row| row[1] == "deny").map(|row| &row[0]).collect();
    let denying = denying.iter().map(|name| name.split('`').nth(1).unwrap());
    let all_at =
        |level: &str| denying.clone().map(|rule| (rule.to_owned(), json!(level))).collect::<Map<_, _>>();
    let (warning, mut but_one) = (all_at("warn"), all_at("warn"));
    assert!(but_one.remove("breaks-pair").is_some());
    for (rules, refuses) in [(warning.clone(), false), (but_one, true)] {
        let told = notes(&json!({"mode": "own", "webhook": {"rules": rules}}));
        assert_eq!(told.contains("are refused"), refuses, "{told}");
        assert_eq!(told.contains("are warned of"), !refuses, "{told}");
    }
    let told = notes(&json!({"mode": "observe", "webhook": {"rules": warning}}));
    assert!(told.contains("are warned of") && !told.contains("they are refused"), "{told}");
}

#[test]
fn the_notes_tell_the_next_step() {
    let told = notes(&json!({}));
    assert!(
        told.contains("--set mode=own,confirmObserve=false") && told.contains("bindery_observed"),
        "{told}"
    );
    assert!(told.contains("are warned of"), "{told}");
    assert!(told.contains("of the namespaces kube-system, ") && told.contains("are not looked at"), "{told}");
    let told = notes(&json!({"mode": "own", "webhook": {"failurePolicy": "Fail"}, "replicas": 1}));
    assert!(
        told.contains("-persistentvolume-binder-controller") && told.contains("get lease bindery"),
        "{told}"
    );
    assert!(told.contains("kubectl delete validatingwebhookconfiguration bindery"), "{told}");
    assert!(told.contains("With one replica") && told.contains("become Failed"), "{told}");
    for (replicas, is_stopped) in [(json!(0), true), (json!(2), false), (Value::Null, false)] {
        let told = notes(&json!({"replicas": replicas}));
        assert_eq!(told.contains("No replica runs"), is_stopped, "{told}");
        assert!(!told.contains("With one replica"), "{told}");
    }
    let told = notes(&json!({"mode": "own", "recycling": {"enabled": true}, "webhook": {"enabled": false}}));
    assert!(!told.contains("become Failed") && !told.contains("refused"), "{told}");
}
