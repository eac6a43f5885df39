//! The roles grant the rights that the guide lists, and no others.

use std::collections::BTreeSet;
use std::process::Command;

use bindery_chart::{NAMESPACE, Right, built, granted, offered, read, rendered, run, sets, table};
use serde_json::json;

/// The condition of the right to read Secrets that policies name.
const PULL_SECRETS: &str = "pull secrets of policies in the cluster";

/// The rights that the guide lists for some conditions.
fn documented(conditions: &[&str]) -> BTreeSet<Right> {
    let guide = read("docs/operate.md");
    let mut rights = BTreeSet::new();
    for row in table(&guide, "## What it may do") {
        let [place, resources, verbs, when, _] = &row[..] else { panic!("{row:?}") };
        if !conditions.contains(&when.as_str()) {
            continue;
        }
        let namespace = match place.as_str() {
            "everywhere" => None,
            "the Lease's namespace" => Some("kube-system"),
            "its own namespace" => Some(NAMESPACE),
            "`default`" => Some("default"),
            other => panic!("unknown place {other}"),
        };
        let (resources, is_limited) =
            resources.strip_suffix(", one by name").map_or((resources.as_str(), false), |rest| (rest, true));
        for resource in resources.split(", ") {
            let resource = resource.replace('`', "");
            let name = is_limited.then(|| name_of(&resource, when).to_owned());
            let namespace = namespace.map(str::to_owned);
            rights.extend(verbs.split(", ").map(|verb| Right {
                namespace: namespace.clone(),
                resource: resource.clone(),
                name: name.clone(),
                verb: verb.to_owned(),
            }));
        }
    }
    rights
}

/// The name of the only object of this resource that Bindery may use.
fn name_of(resource: &str, when: &str) -> &'static str {
    match resource {
        "secrets" if when == PULL_SECRETS => "pull",
        "secrets" => "bindery-tls",
        "mutatingwebhookconfigurations (admissionregistration.k8s.io)" => "bindery-steer",
        _ => "bindery",
    }
}

#[test]
fn the_chart_grants_the_rights_of_the_guide() {
    let own_certificates = "certificates of its own";
    let (writes, by_webhook) = ("modes own and steer", "steering by its webhook");
    let reads_namespaces = "policies that read namespaces, policies in the cluster";
    let policy_objects = |mode| json!({"mode": mode, "policies": {"objects": true}});
    for (values, conditions) in [
        (json!({}), vec!["always", own_certificates]),
        (json!({"webhook": {"enabled": false}}), vec!["always"]),
        (json!({"certificates": {"source": "cert-manager"}}), vec!["always"]),
        (json!({"mode": "own"}), vec!["always", "mode own", writes, own_certificates]),
        (json!({"mode": "steer"}), vec!["always", writes, own_certificates, by_webhook]),
        (
            json!({"mode": "steer", "steer": {"admission": "policy"}}),
            vec!["always", writes, own_certificates],
        ),
        (json!({"mode": "steer", "certificates": {"source": "cert-manager"}}), vec!["always", writes]),
        (
            json!({"mode": "own", "recycling": {"enabled": true}}),
            vec!["always", "mode own", writes, "recycling", own_certificates],
        ),
        (json!({"policies": {"readNamespaces": true}}), vec!["always", reads_namespaces, own_certificates]),
        (
            policy_objects("observe"),
            vec!["always", reads_namespaces, "policies in the cluster", own_certificates],
        ),
        (
            json!({"policies": {"objects": true, "registry": {"pullSecrets": ["pull"]}}}),
            vec!["always", reads_namespaces, "policies in the cluster", PULL_SECRETS, own_certificates],
        ),
        (json!({"policies": {"registry": {"pullSecrets": ["pull"]}}}), vec!["always", own_certificates]),
        (
            policy_objects("steer"),
            vec![
                "always",
                reads_namespaces,
                "policies in the cluster",
                "policies in the cluster, modes own and steer",
                writes,
                own_certificates,
                by_webhook,
            ],
        ),
        // In mode observe nothing is recycled.
        (json!({"recycling": {"enabled": true}}), vec!["always", own_certificates]),
        (json!({"rbac": {"create": false}}), vec![]),
    ] {
        assert_eq!(granted(&rendered(&values)), documented(&conditions), "{values}");
    }
}

/// Whether a release with a policy document may list namespaces.
fn reads_namespaces(document: &str) -> bool {
    let rights = granted(&rendered(&json!({"policies": {"documents": {"p": document}}})));
    rights.iter().any(|right| right.resource == "namespaces")
}

#[test]
fn namespaces_are_granted_where_a_document_shows_that_they_are_read() {
    let selects = "match: {namespaceSelector: {matchLabels: {team: a}}}";
    for (documents, reads) in [
        (format!("spec: {{module: own.wasm}}\n---\nspec:\n  module: own.wasm\n  {selects}"), true),
        ("spec: {module: own.wasm, match: {namespaceSelector: {}}}".to_owned(), false),
    ] {
        assert_eq!(reads_namespaces(&documents), reads, "{documents}");
    }
    let folder = offered("BINDERY_POLICIES");
    let mut reading = 0;
    for file in std::fs::read_dir(&folder).unwrap() {
        let file = file.unwrap().file_name().into_string().unwrap();
        let Some(name) = file.strip_suffix(".wasm").filter(|name| !name.contains("engine")) else {
            continue;
        };
        let mut inspect = Command::new(built("bindery"));
        inspect.args(["policy", "inspect", &format!("builtin:{name}"), "--policies"]).arg(&folder);
        let reads = run(&mut inspect, "").unwrap().contains("of its namespace");
        assert_eq!(reads_namespaces(&format!("spec: {{module: \"builtin:{name}\"}}")), reads, "{name}");
        reading += usize::from(reads);
    }
    assert!(reading > 0, "no policy in {} reads namespaces", folder.display());
}

#[test]
fn a_release_in_mode_observe_writes_only_its_certificates() {
    for right in documented(&["always", "policies in the cluster"]) {
        assert!(["get", "list", "watch"].contains(&right.verb.as_str()), "{right:?}");
    }
}

#[test]
fn no_role_has_a_wildcard_and_secrets_are_granted_by_name() {
    for (name, values) in sets() {
        let objects = rendered(&values);
        for role in objects.of("ClusterRole").chain(objects.of("Role")) {
            for rule in role["rules"].as_array().unwrap() {
                assert!(!rule.to_string().contains('*'), "{name}: {rule}");
                let is_secret =
                    rule["resources"].as_array().unwrap().iter().any(|resource| resource == "secrets");
                assert!(!is_secret || rule["resourceNames"].is_array(), "{name}: {rule}");
            }
        }
    }
}
