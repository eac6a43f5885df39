//! Prints the definitions of the kinds of cluster objects: one JSON object with a definition for each file.
//! `cargo xtask crds` writes the files.

mod rules;
mod structural;

use std::io::{self, Write as _};

use bindery_policy::{
    API_VERSION, ENGINE, EngineSpec, MATCH_POLICY, MatchPolicySpec, ObjectStatus, RECLAIM_POLICY,
    ReclaimPolicySpec,
};
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

/// What is particular to a kind.
struct KindDefinition {
    kind: &'static str,
    plural: &'static str,
    short: &'static str,
    description: &'static str,
    spec: Value,
}

fn kinds() -> [KindDefinition; 3] {
    [
        KindDefinition {
            kind: ENGINE,
            plural: "engines",
            short: "bengine",
            description: "The component that decides which volume a claim gets, and what becomes of released \
                          volumes.",
            spec: schema_of::<EngineSpec>(),
        },
        KindDefinition {
            kind: MATCH_POLICY,
            plural: "matchpolicies",
            short: "mpol",
            description: "A component that rejects and scores the free volumes that a claim may get.",
            spec: schema_of::<MatchPolicySpec>(),
        },
        KindDefinition {
            kind: RECLAIM_POLICY,
            plural: "reclaimpolicies",
            short: "rpol",
            description: "A component that decides what becomes of volumes whose claims are gone.",
            spec: schema_of::<ReclaimPolicySpec>(),
        },
    ]
}

fn main() -> io::Result<()> {
    let files: Map<_, _> =
        kinds().iter().map(|kind| (format!("{}.json", kind.plural), definition(kind))).collect();
    writeln!(io::stdout(), "{}", Value::Object(files))
}

/// The schema of a type, in the form that Kubernetes takes.
fn schema_of<T: JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::draft07().with(|it| it.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    structural::make(&mut schema);
    schema
}

fn definition(kind: &KindDefinition) -> Value {
    let (group, version) = API_VERSION.split_once('/').expect("an API version has a group");
    let mut schema = json!({
        "description": kind.description,
        "type": "object",
        "properties": {"spec": kind.spec, "status": schema_of::<ObjectStatus>()},
        "required": ["spec"],
    });
    rules::add(&mut schema);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{group}", kind.plural)},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {
                "kind": kind.kind,
                "listKind": format!("{}List", kind.kind),
                "plural": kind.plural,
                "singular": kind.kind.to_lowercase(),
                "shortNames": [kind.short],
                "categories": ["bindery"],
            },
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "selectableFields": [{"jsonPath": ".spec.mode"}, {"jsonPath": ".spec.module"}],
                "additionalPrinterColumns": columns(kind),
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

/// What `kubectl get` prints. Columns with a priority need `--output wide`.
fn columns(kind: &KindDefinition) -> Vec<Value> {
    let ready = r#".status.conditions[?(@.type=="Ready")].status"#;
    [
        ("Mode", "string", ".spec.mode", 0),
        ("Order", "integer", ".spec.order", 0),
        ("Ready", "string", ready, 0),
        ("Module", "string", ".spec.module", 0),
        ("Age", "date", ".metadata.creationTimestamp", 0),
        ("Digest", "string", ".status.digest", 1),
        ("Calls", "integer", ".status.calls", 1),
        ("Faults", "integer", ".status.faults", 1),
    ]
    .into_iter()
    // Engines have no order.
    .filter(|(name, ..)| *name != "Order" || kind.spec["properties"].get("order").is_some())
    .map(|(name, of, path, priority)| {
        json!({"name": name, "type": of, "jsonPath": path, "priority": priority})
    })
    .collect()
}
