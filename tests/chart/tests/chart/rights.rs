//! Rights: those of the guide, and no others.

use std::collections::BTreeSet;

use bindery_chart::{NAMESPACE, Objects, read, rendered, sets, table};
use serde_json::{Value, json};

/// One thing that may be done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    /// `None`: everywhere.
    namespace: Option<String>,
    /// With its group, as the guide writes it: `leases (coordination.k8s.io)`.
    resource: String,
    /// Of the one object that it is limited to.
    name: Option<String>,
    verb: String,
}

/// The rights of the guide where these conditions hold.
fn told(conditions: &[&str]) -> BTreeSet<Right> {
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
            other => panic!("where is {other}?"),
        };
        let (resources, is_limited) =
            resources.strip_suffix(", one by name").map_or((resources.as_str(), false), |rest| (rest, true));
        for resource in resources.split(", ") {
            let resource = resource.replace('`', "");
            let name =
                is_limited.then(|| if resource == "secrets" { "bindery-tls" } else { "bindery" }.to_owned());
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

/// What the roles of a release grant, once each is bound to its account and nobody else.
fn granted(objects: &Objects) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for (role, binding) in [("ClusterRole", "ClusterRoleBinding"), ("Role", "RoleBinding")] {
        for role in objects.of(role) {
            let name = role["metadata"]["name"].as_str().unwrap();
            let binding =
                objects.get(&format!("{binding}/{name}")).unwrap_or_else(|| panic!("{name} is not bound"));
            assert_eq!(binding["metadata"]["namespace"], role["metadata"]["namespace"], "{name}");
            assert_eq!(binding["roleRef"]["kind"], role["kind"], "{name}");
            let account = json!([{"kind": "ServiceAccount", "name": "bindery", "namespace": NAMESPACE}]);
            assert_eq!(binding["subjects"], account, "{name}");
            let namespace = role["metadata"]["namespace"].as_str().map(str::to_owned);
            role["rules"].as_array().unwrap().iter().for_each(|rule| grant(rule, &namespace, &mut rights));
        }
    }
    rights
}

fn grant(rule: &Value, namespace: &Option<String>, rights: &mut BTreeSet<Right>) {
    let texts = |field: &str| -> Vec<String> {
        rule[field].as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let names = texts("resourceNames").into_iter().map(Some);
    let names: Vec<_> = if rule["resourceNames"].is_null() { vec![None] } else { names.collect() };
    for group in texts("apiGroups") {
        for resource in texts("resources") {
            let resource = if group.is_empty() { resource } else { format!("{resource} ({group})") };
            for name in &names {
                for verb in texts("verbs") {
                    let right = Right {
                        namespace: namespace.clone(),
                        resource: resource.clone(),
                        name: name.clone(),
                        verb,
                    };
                    assert!(rights.insert(right.clone()), "{right:?} is granted twice");
                }
            }
        }
    }
}

#[test]
fn the_chart_grants_what_the_guide_tells() {
    let own_certificates = "certificates of its own";
    for (values, conditions) in [
        (json!({}), vec!["always", own_certificates]),
        (json!({"webhook": {"enabled": false}}), vec!["always"]),
        (json!({"certificates": {"source": "cert-manager"}}), vec!["always"]),
        (json!({"mode": "own"}), vec!["always", "mode own", own_certificates]),
        (
            json!({"mode": "own", "recycling": {"enabled": true}}),
            vec!["always", "mode own", "recycling", own_certificates],
        ),
        // Who looks on recycles nothing.
        (json!({"recycling": {"enabled": true}}), vec!["always", own_certificates]),
        (json!({"rbac": {"create": false}}), vec![]),
    ] {
        assert_eq!(granted(&rendered(&values)), told(&conditions), "{values}");
    }
}

#[test]
fn who_looks_on_writes_nothing_but_its_certificates() {
    for right in told(&["always"]) {
        assert!(["get", "list", "watch"].contains(&right.verb.as_str()), "{right:?}");
    }
}

/// Nothing is granted by a wildcard, and secrets only by name.
#[test]
fn no_right_is_wider_than_a_word() {
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
