//! Names that look like something else, and names that are long.

use std::fs;

use bindery_chart::{Objects, chart, manifests_of, yaml};
use serde_json::{Value, json};

use crate::sets::conforms;

/// What YAML takes for a number, a truth or nothing, where it is not quoted.
const ODD: [&str; 4] = ["123", "true", "null", "1e3"];

/// Whether a Service may have this name: a label of DNS that begins with a letter.
fn is_service_name(name: &str) -> bool {
    let is_inner = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    name.len() <= 63
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(is_inner)
}

/// All that the chart can make, with a name in the place of each that values give.
fn everything(name: &str) -> Value {
    let mut values = yaml(&fs::read_to_string(chart().join("ci/all-values.yaml")).unwrap());
    values["nameOverride"] = name.into();
    values["priorityClassName"] = name.into();
    values["lease"] = json!({"namespace": name, "name": name});
    values["serviceAccount"]["name"] = name.into();
    values["engine"]["configMap"] = json!({"name": name, "key": name});
    values["webhook"]["clients"]["configMap"] = name.into();
    values["certificates"] = json!({"secretName": name});
    values["commonLabels"]["odd"] = name.into();
    values
}

#[test]
fn a_name_stays_text() {
    for odd in ODD {
        let namespace = if odd == "1e3" { "123" } else { odd };
        let mut values = everything(odd);
        let issued = json!({"source": "cert-manager", "certManager": {"issuerName": odd}});
        for certificates in [values["certificates"].clone(), issued] {
            values["certificates"] = certificates;
            let manifests = manifests_of(odd, namespace, &values).unwrap();
            conforms(&manifests).unwrap_or_else(|why| panic!("{odd}: {why}"));
            // The schemas of others' kinds are not at hand, so that names are looked at here too.
            for (object, content) in Objects::read(&manifests).iter() {
                let labels = content["metadata"]["labels"].as_object().unwrap();
                assert!(labels.values().all(Value::is_string), "{object}: {labels:?}");
                let namespace = &content["metadata"]["namespace"];
                assert!(namespace.is_null() || namespace.is_string(), "{object}: {namespace}");
            }
        }
    }
}

#[test]
fn every_name_is_one_that_kubernetes_takes() {
    let long = "a".repeat(63);
    let (release, dotted) = ("r".repeat(53), format!("{}.b", "a".repeat(57)));
    for (release, values) in [
        ("123", json!({})),
        ("123", json!({"nameOverride": "123"})),
        ("my.release", json!({})),
        (release.as_str(), json!({})),
        ("r", json!({"nameOverride": long})),
        ("r", json!({"nameOverride": dotted})),
        ("r", json!({"nameOverride": "a.b"})),
        ("r", json!({"fullnameOverride": long})),
    ] {
        let manifests = manifests_of(release, "n", &values).unwrap();
        conforms(&manifests).unwrap_or_else(|why| panic!("{release}: {why}"));
        let objects = Objects::read(&manifests);
        let service = objects.of("Service").next().unwrap();
        let name = service["metadata"]["name"].as_str().unwrap();
        assert!(is_service_name(name), "{release}: {name}");
        // The address is found by a variable that a shell can name.
        let variable = format!("{}_SERVICE_HOST", name.to_uppercase().replace('-', "_"));
        let test = objects.of("Pod").next().unwrap();
        let script = test["spec"]["containers"][0]["args"][0].as_str().unwrap();
        assert!(script.contains(&format!("host=${variable}\n")), "{release}: {script}");
        for (object, content) in objects.iter() {
            for (label, value) in content["metadata"]["labels"].as_object().unwrap() {
                let value = value.as_str().unwrap();
                let is_value = value.len() <= 63 && value.ends_with(|last: char| last.is_alphanumeric());
                assert!(is_value, "{release}: {object} has {label}={value}");
            }
        }
    }
}
