//! The rights that roles grant.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{NAMESPACE, Objects};

/// A verb on a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// `None` means everywhere.
    pub namespace: Option<String>,
    /// The resource with its group, as in the guide: `leases (coordination.k8s.io)`.
    pub resource: String,
    /// The only object that it applies to.
    pub name: Option<String>,
    /// The verb.
    pub verb: String,
}

/// The rights that the roles of a release grant to Bindery's account. Aggregated roles are for users.
pub fn granted(objects: &Objects) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for (role, binding) in [("ClusterRole", "ClusterRoleBinding"), ("Role", "RoleBinding")] {
        let is_aggregated = |role: &Value| role["metadata"]["labels"].to_string().contains("aggregate-to-");
        for role in objects.of(role).filter(|role| !is_aggregated(role)) {
            let name = role["metadata"]["name"].as_str().expect("manifests have the form of their kind");
            let binding =
                objects.get(&format!("{binding}/{name}")).unwrap_or_else(|| panic!("{name} is not bound"));
            assert_eq!(binding["metadata"]["namespace"], role["metadata"]["namespace"], "{name}");
            assert_eq!(binding["roleRef"]["kind"], role["kind"], "{name}");
            let account = json!([{"kind": "ServiceAccount", "name": "bindery", "namespace": NAMESPACE}]);
            assert_eq!(binding["subjects"], account, "{name}");
            let namespace = role["metadata"]["namespace"].as_str().map(str::to_owned);
            role["rules"]
                .as_array()
                .expect("manifests have the form of their kind")
                .iter()
                .for_each(|rule| grant(rule, &namespace, &mut rights));
        }
    }
    rights
}

fn grant(rule: &Value, namespace: &Option<String>, rights: &mut BTreeSet<Right>) {
    let texts = |field: &str| -> Vec<String> {
        rule[field]
            .as_array()
            .into_iter()
            .flatten()
            .map(|text| text.as_str().expect("manifests have the form of their kind").to_owned())
            .collect()
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
