//! What the types do not say, as rules in CEL. `MatchPolicy::check` and `ReclaimPolicy::check` say the same
//! of documents.

use serde_json::{Value, json};

/// The places of a rule, the rule, and an expression for its message: what is there, and what is allowed.
type Rule = (&'static [&'static str], &'static str, &'static str);

const MODULE: &str = "/properties/spec/properties/module";
const SELECTORS: [&str; 2] = [
    "/properties/spec/properties/match/properties/namespaceSelector",
    "/properties/spec/properties/match/properties/claimSelector",
];
const EXPRESSIONS: [&str; 2] = [
    "/properties/spec/properties/match/properties/namespaceSelector/properties/matchExpressions/items",
    "/properties/spec/properties/match/properties/claimSelector/properties/matchExpressions/items",
];

const RULES: [Rule; 8] = [
    (
        &[""],
        "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",
        "'metadata.name is ' + self.metadata.name + '; a DNS label of at most 63 characters is allowed, such \
         as same-zone'",
    ),
    (
        &[MODULE],
        "self.matches('^(builtin:[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?|\
         configmap:[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/[-._a-zA-Z0-9]{1,253}|\
         oci://[-.a-zA-Z0-9]+(:[0-9]+)?(/[a-z0-9][-._a-z0-9]*)+(:[_a-zA-Z0-9][-._a-zA-Z0-9]{0,127})?\
         @sha256:[0-9a-f]{64}|/.+)$')",
        "'spec.module is ' + self + '; builtin:NAME, configmap:NAMESPACE/NAME/KEY, \
         oci://HOST/REPOSITORY@sha256:HEX, or the absolute path of a file is allowed'",
    ),
    (
        &[MODULE],
        "self.startsWith('builtin:') == oldSelf.startsWith('builtin:') && \
         self.startsWith('configmap:') == oldSelf.startsWith('configmap:') && \
         self.startsWith('oci:') == oldSelf.startsWith('oci:')",
        "'spec.module was ' + oldSelf + ' and is ' + self + '; only another module of the same kind \
         (builtin:, configmap:, oci: or a file) is allowed: create another object'",
    ),
    (
        &["/properties/spec"],
        "!has(self.pull) || self.module.startsWith('oci://')",
        "'spec.pull is given, and spec.module is ' + self.module + '; give it only for a module of a \
         registry, oci://HOST/REPOSITORY@sha256:HEX'",
    ),
    (
        &["/properties/spec/properties/pull/properties/secret"],
        "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",
        "'spec.pull.secret is ' + self + '; the name of a Secret is allowed'",
    ),
    (
        &["/properties/spec/properties/pull/properties/ca"],
        "self.contains('-----BEGIN CERTIFICATE-----')",
        "'spec.pull.ca has no certificate; certificate authorities in PEM are allowed'",
    ),
    (
        &EXPRESSIONS,
        "!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)",
        "'the operator ' + self.operator + ' of key ' + self.key + ' needs values'",
    ),
    (
        &EXPRESSIONS,
        "self.operator in ['In', 'NotIn'] || !has(self.values) || size(self.values) == 0",
        "'the operator ' + self.operator + ' of key ' + self.key + ' takes no values; In and NotIn do'",
    ),
];

/// Adds the rules to the schema of an object.
pub(super) fn add(schema: &mut Value) {
    for (places, rule, message) in RULES {
        for place in places {
            // Engines have no selectors.
            let Some(at) = schema.pointer_mut(place) else { continue };
            let rule = json!({"rule": rule, "messageExpression": message});
            match at.get_mut("x-kubernetes-validations") {
                Some(Value::Array(rules)) => rules.push(rule),
                _ => at["x-kubernetes-validations"] = json!([rule]),
            }
        }
    }
    for place in SELECTORS {
        if let Some(selector) = schema.pointer_mut(place) {
            // As in `metav1.LabelSelector`: who applies a part of it owns the whole.
            selector["x-kubernetes-map-type"] = "atomic".into();
        }
    }
}
