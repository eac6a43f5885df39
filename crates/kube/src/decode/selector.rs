//! `metav1.LabelSelector` to requirements (apimachinery's `LabelSelectorAsSelector`).

use std::collections::BTreeMap;

use bindery_core::{Requirement, Selector, SelectorOperator, is_label_value, is_subdomain};
use serde::Deserialize;

use super::fields::nullable;
use super::texts;

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
#[serde(rename_all = "camelCase")]
pub(super) struct LabelSelector {
    #[serde(default, deserialize_with = "nullable")]
    #[prost(btree_map = "string, string", tag = "1")]
    match_labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "2")]
    match_expressions: Vec<Expression>,
}

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
struct Expression {
    #[serde(default)]
    #[prost(string, tag = "1")]
    key: String,
    #[serde(default)]
    #[prost(string, tag = "2")]
    operator: String,
    #[serde(default, deserialize_with = "nullable")]
    #[prost(string, repeated, tag = "3")]
    values: Vec<String>,
}

/// Parses a selector. An invalid one is kept with apimachinery's message, because upstream's matching fails
/// with that message. One that is larger than the limits of a decision is an error.
pub(super) fn decode(selector: LabelSelector) -> Result<Selector, String> {
    let labels = selector.match_labels.into_iter().map(|(key, value)| Requirement {
        key: key.into(),
        operator: SelectorOperator::In,
        values: vec![value.into()],
    });
    let expressions = selector.match_expressions.into_iter().map(|expression| {
        Ok(Requirement {
            operator: operator(&expression.operator)?,
            key: expression.key.into(),
            values: texts(&expression.values),
        })
    });
    let requirements = labels.map(Ok).chain(expressions).map(|requirement| requirement.and_then(check));
    match requirements.collect::<Result<Vec<_>, String>>() {
        Err(error) => Ok(Selector::Invalid(error.into())),
        Ok(requirements) => {
            check_size(Selector::labels(&requirements), Selector::LABELS_MAX, "requirements and values")?;
            check_size(Selector::bytes(&requirements), Selector::BYTES_MAX, "bytes")?;
            Ok(Selector::Requirements(requirements))
        }
    }
}

fn check_size(found: usize, max: usize, what: &str) -> Result<(), String> {
    if found <= max {
        return Ok(());
    }
    Err(format!("spec.selector: {found} {what} are more than the {max} that are compared; ask for fewer"))
}

fn operator(name: &str) -> Result<SelectorOperator, String> {
    match name {
        "In" => Ok(SelectorOperator::In),
        "NotIn" => Ok(SelectorOperator::NotIn),
        "Exists" => Ok(SelectorOperator::Exists),
        "DoesNotExist" => Ok(SelectorOperator::DoesNotExist),
        other => Err(format!("{other:?} is not a valid label selector operator")),
    }
}

/// apimachinery's `labels.NewRequirement`.
fn check(requirement: Requirement) -> Result<Requirement, String> {
    let Requirement { key, operator, values } = &requirement;
    if let Some(fault) = key_fault(key) {
        return Err(format!("key: Invalid value: {key:?}: {fault}"));
    }
    match operator {
        SelectorOperator::In | SelectorOperator::NotIn if values.is_empty() => {
            return Err("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
                .to_owned());
        }
        SelectorOperator::Exists | SelectorOperator::DoesNotExist if !values.is_empty() => {
            return Err(format!(
                "values: Invalid value: {values:?}: values set must be empty for exists and does not exist"
            ));
        }
        _ => {}
    }
    match values.iter().enumerate().find(|(_, value)| !is_label_value(value)) {
        Some((index, value)) => Err(format!(
            "values[{index}][{key}]: Invalid value: {value:?}: a valid label must be an empty string or \
             consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
             alphanumeric character, and be no more than 63 characters"
        )),
        None => Ok(requirement),
    }
}

/// The fault in a qualified name, if there is one (`validation.IsQualifiedName`).
fn key_fault(key: &str) -> Option<&'static str> {
    let name = match key.split_once('/') {
        Some((prefix, _)) if !is_subdomain(prefix) => {
            return Some("prefix part must be a lowercase RFC 1123 subdomain of no more than 253 characters");
        }
        Some((_, name)) => name,
        None => key,
    };
    (name.is_empty() || !is_label_value(name)).then_some(
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
         alphanumeric character, and be no more than 63 characters",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expression(key: &str, values: Vec<String>) -> Expression {
        Expression { key: key.to_owned(), operator: "In".to_owned(), values }
    }

    fn decoded(match_expressions: Vec<Expression>) -> Result<Selector, String> {
        decode(LabelSelector { match_labels: BTreeMap::new(), match_expressions })
    }

    #[test]
    fn a_selector_beyond_the_limits_is_unreadable() {
        let values = |count: usize| (0..count).map(|at| format!("value-{at}")).collect::<Vec<_>>();
        for count in [1, 300, Selector::LABELS_MAX - 1] {
            let read = decoded(vec![expression("zone", values(count))]);
            assert!(matches!(read, Ok(Selector::Requirements(_))), "{count}: {read:?}");
        }
        let error = decoded(vec![expression("zone", values(Selector::LABELS_MAX))]).unwrap_err();
        assert_eq!(
            error,
            "spec.selector: 1025 requirements and values are more than the 1024 that are compared; ask for \
             fewer"
        );
        let key = format!("{}/{}", ["a"; 126].join("."), "n".repeat(60));
        let long = |count: usize| (0..count).map(|_| expression(&key, vec!["v".repeat(63)])).collect();
        let fitting = Selector::BYTES_MAX / (key.len() + 63);
        assert!(decoded(long(fitting)).is_ok());
        let error = decoded(long(fitting + 1)).unwrap_err();
        assert!(error.contains("bytes are more than the 65536 that are compared"), "{error}");
    }
}
