//! Which rules of the guard the adversary's worlds can reach.
//!
//! `cargo xtask soak rules` applies `rules.patch`, with which the guard does not refuse the breach that
//! `BINDERY_TAKEN_OUT` names, and has the adversary search once for each.

use std::path::Path;
use std::process::Command;

use bindery_core::guard::Breach;

/// What the line about a broken law begins with.
pub(crate) const BROKEN: &str = "broken after ";

/// Rules without which the adversary breaks a law.
const FOUND: [Breach; 29] = [
    Breach::ClaimRefTaken,
    Breach::VolumeNameSet,
    Breach::ReservedForOther,
    Breach::UidMissing,
    Breach::ReferenceLost,
    Breach::TooSmall,
    Breach::AccessModesMissing,
    Breach::ClassDiffers,
    Breach::VolumeModeDiffers,
    Breach::AttributesClassDiffers,
    Breach::SelectorDiffers,
    Breach::NotAvailable,
    Breach::Deleting,
    Breach::ClaimLives,
    Breach::OutOfPlace,
    Breach::BindOrder,
    Breach::MarkWrong,
    Breach::VolumePhaseWrong,
    Breach::ClaimPhaseWrong,
    Breach::StatusWrong,
    Breach::ClassNotDefault,
    Breach::AnnotationWrong,
    Breach::FinalizerWrong,
    Breach::UnbindWrong,
    Breach::OfferedAgain,
    Breach::Migrated,
    Breach::OperationWrong,
    Breach::PluginCallWrong,
    Breach::ReclaimPolicyWrong,
];

/// The other rules: why the worlds cannot reach them, and the file of `tests/guard/tests/rules` whose rows
/// need them: its test `each_rule_allows_and_refuses_as_it_says` fails without the rule, and for mode steer
/// `each_rule_of_mode_steer_allows_and_refuses_as_it_says`.
const OTHERS: [(Breach, &str, &str); 15] = [
    (Breach::PairBroken, "Lost contradicts cache and live read, too; Failed follows Released", "claims.txt"),
    (Breach::WaitsForConsumer, "there are no classes", "bind.txt"),
    (Breach::ClassUnknown, "there are no classes", "bind.txt"),
    (Breach::NotRead, "what was not read cannot be looked at, so the rule cannot be taken out", "whole.txt"),
    (Breach::TwoVersions, "the API server refuses the older version", "whole.txt"),
    (Breach::NameNotDerived, "nothing is provisioned", "operations.txt"),
    (Breach::NotSynced, "replicas begin with whole lists", "whole.txt"),
    (Breach::Unreadable, "every object can be read", "bind.txt"),
    (Breach::TooLarge, "a long decision breaks no law", "sizes.rs"),
    (Breach::PolicyRejects, "there are no policies", "policies.txt"),
    (Breach::VolumeKept, "there are no reclaimers", "reclaim.txt"),
    (Breach::SteerWrong, "no replica steers", "steer.txt"),
    (Breach::ReservationForeign, "no replica steers", "steer.txt"),
    (Breach::ReservationWrong, "no replica steers", "steer.txt"),
    (Breach::LabelWrong, "no replica steers", "steer.txt"),
];

#[test]
fn each_rule_is_listed_once_and_has_a_test() {
    let mut listed: Vec<_> = FOUND.into_iter().chain(OTHERS.map(|(breach, ..)| breach)).collect();
    listed.sort_unstable();
    assert_eq!(listed, Breach::ALL);
    for (breach, _, file) in OTHERS {
        let path = Path::new(env!("BINDERY_CHECKOUT")).join("tests/guard/tests/rules").join(file);
        let text = std::fs::read_to_string(path).expect("the file of the rule's rows");
        assert!(text.contains(breach.name()), "{file} has no row for {}", breach.name());
    }
}

#[test]
fn each_rule_that_is_taken_out_is_found_as_listed() {
    if std::env::var("BINDERY_MODEL").is_ok_and(|model| model == "rules") {
        let wrong = Breach::ALL.iter().filter(|breach| is_found(breach) != FOUND.contains(breach));
        let wrong: Vec<_> = wrong.collect();
        assert!(wrong.is_empty(), "not as listed: {wrong:?}");
    }
}

/// Whether the adversary breaks a law where the guard lacks a rule. Prints the shortest way.
fn is_found(breach: &Breach) -> bool {
    let mut search = Command::new(std::env::current_exe().expect("the path of this program"));
    search.args(["--exact", "no_engine_gets_a_broken_law_past_the_guard", "--nocapture"]);
    search.env("BINDERY_TAKEN_OUT", breach.name()).env("RUST_BACKTRACE", "0");
    let output = search.output().expect("this program starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    let broken = printed.lines().find_map(|line| line.strip_prefix(BROKEN));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.success(), broken.is_none(), "{errors}");
    let why = OTHERS.iter().find(|(other, ..)| other == breach).map_or("", |(_, why, _)| why);
    let found = broken.map_or(format!("not found: {why}"), |it| format!("found after {it}\n{errors}"));
    println!("{}: {found}", breach.name());
    broken.is_some()
}
