//! The rules one by one, as tables of cases ([`table`]): each refusal beside the twin that is allowed.

mod actions;
mod case;
mod denials;
mod oracle;
mod sizes;
mod steering;
mod strangers;
mod table;

use std::collections::BTreeSet;

use bindery_core::guard::Breach;
use table::Row;

/// G1 to G7, G9 to G11.
const TABLES: [&str; 8] = [
    include_str!("bind.txt"),
    include_str!("volumes.txt"),
    include_str!("claims.txt"),
    include_str!("operations.txt"),
    include_str!("policies.txt"),
    include_str!("reclaim.txt"),
    include_str!("steps.txt"),
    include_str!("whole.txt"),
];

fn rows() -> Vec<Row> {
    TABLES.into_iter().flat_map(table::rows).chain(sizes::rows()).collect()
}

#[test]
fn each_rule_allows_and_refuses_as_it_says() {
    let wrong = rows().into_iter().filter_map(|Row { name, case, expected }| {
        let found = case.response();
        (found != expected).then(|| format!("{name}: {found}, not {expected}: {:?}", case.decision.steps))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_breach_has_a_row() {
    let met = rows().into_iter().map(|row| row.expected);
    let met: BTreeSet<_> = met.chain(steering::expected()).collect();
    let missing: Vec<_> = Breach::ALL.iter().filter(|breach| !met.contains(breach.name())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_refusal_says_object_field_and_remedy() {
    for row in rows() {
        if let Some(breach) = Breach::ALL.iter().find(|breach| breach.name() == row.expected) {
            let text = row.case.check().expect_err("refused").to_string();
            let object =
                text.starts_with("persistentvolume ") || text.starts_with("persistentvolumeclaim ns/");
            assert!(object && text.contains(breach.remedy()) && text.contains(breach.name()), "{text}");
        }
    }
}
