//! Label and field selectors.

use serde_json::Value;

use crate::object;
use crate::registry::Resource;
use crate::status::{ApiError, ApiResult};
use crate::validate::{label_value_faults, qualified_faults};

/// One requirement on a label.
#[derive(Clone, Debug)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Missing,
    Greater(i64),
    Less(i64),
}

/// The selection of a list or watch: labels, fields, a namespace, a name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    /// Field, value, and whether it must be equal.
    fields: Vec<(String, String, bool)>,
    namespace: String,
    name: String,
}

impl Selector {
    /// Parses both selectors of a request.
    pub(crate) fn parse(
        resource: &Resource,
        namespace: &str,
        name: &str,
        labels: &str,
        fields: &str,
    ) -> ApiResult<Self> {
        Ok(Selector {
            labels: parse_labels(labels)
                .map_err(|why| ApiError::bad_request(format!("unable to parse requirement: {why}")))?,
            fields: parse_fields(resource, fields)?,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Whether an object is selected.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        (self.namespace.is_empty() || object::namespace(object) == self.namespace)
            && (self.name.is_empty() || object::name(object) == self.name)
            && self.labels.iter().all(|requirement| requirement.matches(object))
            && self.fields.iter().all(|(field, value, equal)| (field_value(object, field) == value) == *equal)
    }
}

impl Requirement {
    /// Refuses keys and values that a label cannot have.
    fn check(&self) -> Result<(), String> {
        let key = &self.key;
        if let Some(fault) = qualified_faults(key).first() {
            return Err(format!("key: Invalid value: {key:?}: {fault}"));
        }
        let (Operator::In(values) | Operator::NotIn(values)) = &self.operator else { return Ok(()) };
        for (index, value) in values.iter().enumerate() {
            if let Some(fault) = label_value_faults(value).first() {
                return Err(format!("values[{index}][{key}]: Invalid value: {value:?}: {fault}"));
            }
        }
        Ok(())
    }

    fn matches(&self, object: &Value) -> bool {
        let labels = object::meta_field(object, "labels");
        let label = labels.and_then(|labels| labels.get(&self.key)).and_then(Value::as_str);
        let number = label.and_then(|label| label.parse::<i64>().ok());
        match &self.operator {
            Operator::In(values) => label.is_some_and(|label| values.iter().any(|value| value == label)),
            Operator::NotIn(values) => label.is_none_or(|label| !values.iter().any(|value| value == label)),
            Operator::Exists => label.is_some(),
            Operator::Missing => label.is_none(),
            Operator::Greater(bound) => number.is_some_and(|label| label > *bound),
            Operator::Less(bound) => number.is_some_and(|label| label < *bound),
        }
    }
}

/// The value of a selectable field, or "". An unset flag is `false`.
fn field_value<'a>(object: &'a Value, field: &str) -> &'a str {
    let field = core_name(field);
    let value = field.split('.').try_fold(object, |value, part| value.get(part));
    match value {
        Some(Value::String(text)) => text,
        Some(Value::Bool(true)) => "true",
        _ if field == "spec.unschedulable" || field == "spec.hostNetwork" => "false",
        _ if field == "reportingComponent" => object::text(object, "/source/component"),
        _ => "",
    }
}

/// The core name of a field of events.k8s.io, as events are stored.
fn core_name(field: &str) -> String {
    match field {
        "reportingController" => "reportingComponent".to_owned(),
        other => other.replacen("regarding.", "involvedObject.", 1),
    }
}

const POD_FIELDS: [&str; 9] = [
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
];

const EVENT_FIELDS: [&str; 11] = [
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

fn is_selectable(resource: &Resource, field: &str) -> bool {
    if field == "metadata.name" {
        return true;
    }
    match (resource.group, resource.plural) {
        ("", "pods") => field == "metadata.namespace" || POD_FIELDS.contains(&field),
        ("", "events") => field == "metadata.namespace" || EVENT_FIELDS.contains(&field),
        ("events.k8s.io", "events") => EVENT_FIELDS.contains(&core_name(field).as_str()),
        ("", "nodes") => field == "spec.unschedulable",
        ("", "namespaces") => matches!(field, "status.phase" | "name"),
        ("", "secrets") => matches!(field, "type" | "metadata.namespace"),
        // Each kind has this field, cluster-scoped kinds too.
        _ => field == "metadata.namespace",
    }
}

fn parse_fields(resource: &Resource, text: &str) -> ApiResult<Vec<(String, String, bool)>> {
    let mut fields = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (field, value, equal) = if let Some((field, value)) = part.split_once("!=") {
            (field, value, false)
        } else if let Some((field, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
            (field, value, true)
        } else {
            return Err(ApiError::bad_request(format!(
                "invalid selector: '{text}'; can't understand '{part}'"
            )));
        };
        if !is_selectable(resource, field) {
            return Err(ApiError::bad_request(unsupported_field(resource, field)));
        }
        fields.push((field.to_owned(), value.to_owned(), equal));
    }
    Ok(fields)
}

/// The message differs for kinds with selectable fields of their own.
fn unsupported_field(resource: &Resource, field: &str) -> String {
    let has_own = matches!(resource.plural, "pods" | "nodes" | "events" | "namespaces" | "secrets");
    if has_own {
        format!("field label not supported: {field}")
    } else {
        format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    }
}

/// Parses a label selector: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`.
fn parse_labels(text: &str) -> Result<Vec<Requirement>, String> {
    let mut requirements = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = end_of_requirement(rest);
        let requirement = parse_requirement(rest[..end].trim())?;
        requirement.check()?;
        requirements.push(requirement);
        rest = rest[end..].strip_prefix(',').unwrap_or("").trim();
    }
    Ok(requirements)
}

/// The end of a requirement: a comma outside of parentheses.
fn end_of_requirement(text: &str) -> usize {
    let mut depth = 0;
    for (index, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth <= 0 => return index,
            _ => {}
        }
    }
    text.len()
}

fn parse_requirement(text: &str) -> Result<Requirement, String> {
    let requirement = |key: &str, operator| Ok(Requirement { key: key.trim().to_owned(), operator });
    if let Some(key) = text.strip_prefix('!') {
        return requirement(key, Operator::Missing);
    }
    for (operator, negated) in [(" notin ", true), (" in ", false), (" notin(", true), (" in(", false)] {
        if let Some(at) = text.find(operator) {
            let values = text[at + operator.trim_end_matches('(').len()..].trim();
            let inner = values.strip_prefix('(').and_then(|values| values.strip_suffix(')'));
            let inner = inner.ok_or_else(|| format!("found '{values}', expected: '('"))?;
            let values = inner.split(',').map(|value| value.trim().to_owned()).collect();
            let operator = if negated { Operator::NotIn(values) } else { Operator::In(values) };
            return requirement(&text[..at], operator);
        }
    }
    let one = |value: &str| vec![value.trim().to_owned()];
    let number = |value: &str| {
        let value = value.trim();
        value.parse::<i64>().map_err(|_| format!("values[0][]: {value:?} is not an integer"))
    };
    if let Some((key, value)) = text.split_once("!=") {
        requirement(key, Operator::NotIn(one(value)))
    } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        requirement(key, Operator::In(one(value)))
    } else if let Some((key, value)) = text.split_once('>') {
        requirement(key, Operator::Greater(number(value)?))
    } else if let Some((key, value)) = text.split_once('<') {
        requirement(key, Operator::Less(number(value)?))
    } else if let Some((_, rest)) = text.split_once([' ', '(', ')']) {
        let found = rest.split_whitespace().next().unwrap_or("");
        Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt"))
    } else {
        requirement(text, Operator::Exists)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry;

    #[track_caller]
    fn check(labels: &str, fields: &str, expected: bool) {
        let pods = registry::by_name("pods").unwrap();
        let pod = json!({
            "metadata": {"name": "p", "namespace": "d", "labels": {"tier": "a", "rank": "3"}},
            "spec": {"nodeName": "n1"}, "status": {"phase": "Running"},
        });
        let selector = Selector::parse(pods, "", "", labels, fields).unwrap();
        assert_eq!(selector.matches(&pod), expected, "{labels} {fields}");
    }

    #[test]
    fn a_label_selector_matches_as_upstream_documents() {
        let matching = ["", "tier=a", "tier==a", "tier", "!zone", "tier in (a, b),rank>2", "rank<4"];
        for labels in matching.into_iter().chain(["zone notin (x)", "zone!=x"]) {
            check(labels, "", true);
        }
        for labels in ["tier=b", "zone", "!tier", "tier notin (a,b)", "tier!=a", "rank>3", "tier in (b)"] {
            check(labels, "", false);
        }
        assert!(parse_labels("a b").is_err());
        assert!(parse_labels("a in b").is_err());
    }

    #[test]
    fn a_field_selector_matches_known_fields_and_refuses_others() {
        check("", "metadata.name=p,spec.nodeName=n1,status.phase!=Failed", true);
        check("", "spec.nodeName=", false);
        let volumes = registry::by_name("persistentvolumes").unwrap();
        assert_eq!(Selector::parse(volumes, "", "", "", "spec.x=1").unwrap_err().code, 400);
    }
}
