//! The chart's alerts and the dashboard's queries, evaluated by the real promtool.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use bindery_chart::{offered, read, rendered, run, yaml};
use serde_json::{Value, json};

/// Grafana's variables, with example values.
const VARIABLES: [(&str, &str); 2] = [("$__rate_interval", "4m"), ("$namespace", ".*")];

fn promtool(arguments: &[&str], folder: &Path) -> Result<String, String> {
    run(Command::new(offered("BINDERY_PROMTOOL")).args(arguments).current_dir(folder), "")
}

/// Writes rules as the operator writes the groups of a PrometheusRule for Prometheus.
fn write_groups(rules: &[Value], file: &Path) {
    let groups = json!({"groups": [{"name": "bindery", "rules": rules}]});
    fs::write(file, groups.to_string()).unwrap();
}

/// The alerts of a mode. Only annotations that are templates are kept.
fn alerts(mode: &str) -> Vec<Value> {
    let objects = rendered(&json!({"mode": mode, "prometheusRule": {"enabled": true}}));
    let rules = objects.at("PrometheusRule/bindery /spec/groups/bindery/rules").unwrap();
    let mut rules = rules.as_array().unwrap().clone();
    for rule in &mut rules {
        rule["annotations"].as_object_mut().unwrap().retain(|_, text| text.as_str().unwrap().contains("{{"));
    }
    rules
}

/// The alerts that a file of unit tests expects to fire, and those that it expects to be silent.
fn expected(file: &Value) -> (BTreeSet<String>, BTreeSet<String>) {
    let tests = file["tests"].as_array().unwrap().iter();
    let looks = tests.flat_map(|test| test["alert_rule_test"].as_array().unwrap());
    let named = |fires: bool| {
        let looks = looks.clone().filter(|look| look["exp_alerts"].is_array() == fires);
        looks.map(|look| look["alertname"].as_str().unwrap().to_owned()).collect()
    };
    (named(true), named(false))
}

#[test]
fn every_alert_fires_after_its_duration_and_not_before() {
    for (mode, files) in [
        ("own", &["both", "acting", "own"][..]),
        ("observe", &["both", "observe"]),
        ("steer", &["both", "acting", "steer"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let alerts = alerts(mode);
        write_groups(&alerts, &folder.path().join("rules.json"));
        promtool(&["check", "rules", "--lint-fatal", "rules.json"], folder.path()).unwrap();

        let (mut firing, mut silent) = (BTreeSet::new(), BTreeSet::new());
        for file in files {
            let mut tests = yaml(&read(&format!("tests/chart/alerts/{file}.yaml")));
            let (fire, stay) = expected(&tests);
            firing.extend(fire);
            silent.extend(stay);
            tests["rule_files"] = json!(["rules.json"]);
            fs::write(folder.path().join("tests.json"), tests.to_string()).unwrap();
            promtool(&["test", "rules", "tests.json"], folder.path())
                .unwrap_or_else(|why| panic!("{mode}, {file}.yaml: {why}"));
        }
        let named = alerts.iter().map(|alert| alert["alert"].as_str().unwrap().to_owned()).collect();
        assert_eq!((&firing, &silent), (&named, &named), "{mode}");
    }
}

/// As recording rules, which promtool can check.
#[test]
fn the_dashboards_queries_are_valid() {
    let dashboard: Value = serde_json::from_str(&read("charts/bindery/files/dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let queries = targets.map(|target| {
        let put = |text: String, (variable, value): &(&str, &str)| text.replace(variable, value);
        VARIABLES.iter().fold(target["expr"].as_str().unwrap().to_owned(), put)
    });
    let rules: Vec<_> = queries
        .enumerate()
        .map(|(at, expr)| json!({"record": format!("query:{at}"), "expr": expr}))
        .collect();
    assert!(!rules.is_empty());
    let folder = tempfile::tempdir().unwrap();
    write_groups(&rules, &folder.path().join("rules.json"));
    promtool(&["check", "rules", "--lint-fatal", "rules.json"], folder.path()).unwrap();
}
