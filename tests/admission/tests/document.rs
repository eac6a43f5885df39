//! `docs/admission.md` lists every rule with its level, and every example gets the answer that it shows.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod examples;

use std::collections::BTreeMap;

use bindery_admission_tests::{Replica, create, update};
use bindery_webhook::{AdmissionRule, AdmissionSettings, Levels};
use serde_json::{Value, json};

use examples::{Example, document, examples};

/// Name and default level in the table of rules.
fn rows(document: &str) -> BTreeMap<String, String> {
    let rows = document.lines().filter_map(|line| line.strip_prefix("| [`")?.split_once("`]"));
    rows.map(|(rule, rest)| {
        let level = rest.split('|').nth(1).unwrap().trim();
        (rule.to_owned(), level.to_owned())
    })
    .collect()
}

/// A manifest with what an API server adds to it.
fn stored(mut object: Value) -> Value {
    let uid = format!("uid-{}", object["metadata"]["name"].as_str().unwrap());
    if object["kind"] == "PersistentVolumeClaim" && object["metadata"]["namespace"].is_null() {
        object["metadata"]["namespace"] = "default".into();
    }
    if object["metadata"]["uid"].is_null() {
        object["metadata"]["uid"] = uid.into();
    }
    object
}

/// A response as the document shows it.
fn told(response: &Value) -> String {
    let mut lines = Vec::new();
    if response["allowed"] == json!(false) {
        let status = &response["status"];
        lines.push(format!(
            "denied, {} {}: {}",
            status["code"],
            status["reason"].as_str().unwrap(),
            status["message"].as_str().unwrap()
        ));
    }
    let warnings = response["warnings"].as_array().cloned().unwrap_or_default();
    lines.extend(warnings.iter().map(|warning| format!("Warning: {}", warning.as_str().unwrap())));
    lines.join("\n")
}

#[test]
fn every_rule_is_in_the_table_with_its_default_level() {
    let rules = AdmissionRule::ALL.map(|rule| (rule.name().to_owned(), rule.default_level().to_string()));
    assert_eq!(rows(&document()), BTreeMap::from(rules));
}

#[tokio::test]
async fn every_example_is_answered_as_the_document_says() {
    let document = document();
    let examples = examples(&document);
    let mut named: Vec<_> = examples.iter().map(|example| example.rule.as_str()).collect();
    named.sort_unstable();
    let mut rules = AdmissionRule::ALL.map(AdmissionRule::name);
    rules.sort_unstable();
    assert_eq!(named, rules, "each rule has one example");

    for Example { rule, cluster, before, request, reply, .. } in examples {
        let cluster: Vec<_> = cluster.into_iter().map(stored).collect();
        let replica = if rule == "volume-rejected" { Replica::with_a_policy() } else { Replica::default() };
        let replica = replica.having(&cluster);
        let [new] = <[Value; 1]>::try_from(request).unwrap_or_else(|_| panic!("{rule}: one object is sent"));
        let new = stored(new);
        let review = match before.first() {
            Some(old) => update(&new, &stored(old.clone())),
            None => create(&new),
        };
        let response = replica.response(&review).await;
        assert_eq!(told(&response), reply, "{rule}");
        assert!(response["auditAnnotations"]["rules"].as_str().unwrap().contains(&rule), "{response}");
        check_causes(&rule, &response);

        // Observe mode only warns.
        let levels = Levels::default().only_warning();
        let replica = replica.with(AdmissionSettings { levels, ..AdmissionSettings::default() });
        let observed = replica.response(&review).await;
        assert_eq!(observed["allowed"], json!(true), "{rule}");
        assert!(!observed["warnings"].as_array().unwrap().is_empty(), "{rule}");

        // A rule that is off says nothing.
        let levels = Levels::new([format!("{rule}=off").parse().unwrap()]);
        let replica = replica.with(AdmissionSettings { levels, ..AdmissionSettings::default() });
        let unseen = replica.response(&review).await;
        assert!(!unseen.to_string().contains(&rule), "{unseen}");
        assert_eq!(replica.effects(), Vec::<String>::new());
    }
}

/// Checks that the causes of a denial say the same.
fn check_causes(rule: &str, response: &Value) {
    let status = &response["status"];
    if status.is_null() {
        return;
    }
    let cause = &status["details"]["causes"][0];
    assert_eq!(cause["reason"], json!(rule));
    let line = format!("{}: {}", cause["field"].as_str().unwrap(), cause["message"].as_str().unwrap());
    assert_eq!(status["message"], json!(line));
}
