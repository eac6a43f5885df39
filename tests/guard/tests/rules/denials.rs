//! Findings of a review that may deny: where each holds, and where it does not.

use bindery_core::guard::confirms;
use bindery_core::{Answer, Claim, ClaimKey, Exchange, Finding, Lookup, Question, Rule, Source, Subject};

use crate::case::{TestCase, volume};
use crate::table;

fn finding(rule: Rule, claim: Option<ClaimKey>) -> Finding {
    Finding { rule, volume: "v".into(), claim, found: "".into(), wanted: "".into() }
}

/// Whether the finding is true in the case: about volume `v`, and where a volume is reviewed about claim `c`.
fn is_true(rule: Rule, case: &TestCase) -> bool {
    let is_of_volume = matches!(case.request.subject, Subject::ReviewVolume { .. });
    confirms(&finding(rule, is_of_volume.then(|| table::key("c"))), &case.request.subject, &case.exchanges)
}

#[test]
fn a_finding_holds_exactly_where_the_table_says() {
    for row in table::rows(include_str!("denials.txt")) {
        // A pair that does not match is never denied.
        let rules = Rule::ALL.into_iter().filter(|rule| *rule != Rule::PairMismatch);
        let held: Vec<_> =
            rules.filter(|rule| is_true(*rule, &row.case)).map(|rule| format!("{rule:?}")).collect();
        let mut expected: Vec<_> = row.expected.split(", ").filter(|rule| *rule != "-").collect();
        expected.sort_by_key(|rule| held.iter().position(|held| held == rule));
        assert_eq!(held, expected, "{}", row.name);
    }
}

#[test]
fn only_reviews_deny_and_only_by_rules_that_do() {
    let sync = table::case("sync claim c volume_name=v; unread; live volume v -capacity", "");
    assert!(!is_true(Rule::VolumeTooSmall, &sync));
    assert!(is_true(Rule::PairMismatch, &sync));
}

#[test]
fn a_finding_about_a_reserved_volume_names_its_claim() {
    let TestCase { request, exchanges, .. } =
        table::case("review volume v claim_ref=c -capacity policy=Recycle; live claim c", "");
    let holds_of_no_claim = |rule| confirms(&finding(rule, None), &request.subject, &exchanges);
    assert!(!holds_of_no_claim(Rule::VolumeTooSmall));
    assert!(holds_of_no_claim(Rule::PolicyRecycle));
}

#[test]
fn a_volume_that_was_read_under_another_name_denies_nothing() {
    let new = Claim { volume_name: Some("v".into()), ..crate::case::claim("c") };
    let subject = Subject::ReviewClaim { new: new.into(), old: None };
    let renamed = bindery_core::Volume { name: "w".into(), capacity: None, ..volume("v") };
    let question = Question::Volume(Source::Live, "v".into());
    let told = Exchange { question, answer: Answer::Volume(Lookup::Found(renamed.into())) };
    assert!(!confirms(&finding(Rule::VolumeTooSmall, None), &subject, &[told]));
}
