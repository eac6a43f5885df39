//! The rules one by one: each breach beside the twin that is allowed.

mod bind;
mod case;
mod claims;
mod denials;
mod operations;
mod steps;
mod strangers;
mod volumes;
mod whole;

use std::collections::BTreeSet;

use bindery_core::guard::Breach;
use case::{Response, Row};

fn rows() -> Vec<Row> {
    [bind::rows(), volumes::rows(), claims::rows(), operations::rows(), steps::rows(), whole::rows()].concat()
}

#[test]
fn each_rule_allows_and_refuses_as_it_says() {
    let wrong: Vec<String> = rows()
        .into_iter()
        .filter_map(|row| {
            let found = row.case.response();
            (found != row.expected).then(|| format!("{}: {found:?}, not {:?}", row.name, row.expected))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_breach_has_a_row() {
    let met: BTreeSet<Breach> = rows()
        .into_iter()
        .filter_map(|row| match row.expected {
            Response::Refused(breach) => Some(breach),
            _ => None,
        })
        .collect();
    let missing: Vec<_> = Breach::ALL.iter().filter(|breach| !met.contains(breach)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_refusal_says_object_field_and_remedy() {
    for row in rows() {
        if let Response::Refused(breach) = row.expected {
            let text = row.case.check().expect_err("refused").to_string();
            let object = text.starts_with("volume ") || text.starts_with("claim ns/");
            assert!(object && text.contains(breach.remedy()) && text.contains(breach.name()), "{text}");
        }
    }
}
