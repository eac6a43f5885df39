//! Cases against native matchers.

use std::path::PathBuf;

use bindery_core::{ClaimFact, SelectorOperator, VolumeFact};
use bindery_policy::{
    Candidates, ClaimView, Matcher, Metadata, Narrowing, PolicyFault, Reason, Requirement, Verdicts,
};
use bindery_registry::Extra;
use bindery_registry::limits::MODULE_MAX;

use super::cases::{self, File};
use super::judge::Tested;
use super::test::Report;
use super::{carried, module};

const ZONES: &str = "\
# A comment above.
case: a claim with a zone gets the smallest volume of it
settings: {strict: true}
claim: &claim
  kind: PersistentVolumeClaim
  metadata: {name: data, labels: {zone: a}}
  spec: {resources: {requests: {storage: 1Gi}}}
volumes:
- metadata: {name: here, labels: {zone: a}}
  spec: {capacity: {storage: 2Gi}}
- metadata: {name: here-too, labels: {zone: a}}
  spec: {capacity: {storage: 3Gi}}
- metadata: {name: there, labels: {zone: b}}
  spec: {capacity: {storage: 1Gi}}
expect:
  chosen: here
  volumes:
    here: allowed
    here-too: allowed
    there:
      rejected: other-zone
---
case: settings that do not fit are refused
settings: {strict: 1}
claim: {spec: {resources: {requests: {storage: 1Gi}}}}
expect:
  refused: \"settings.strict: found 1; true or false is allowed\"
";

/// Requires the zone of the claim, and judges what is left.
struct SameZone {
    metadata: Metadata,
    judge: fn(&Candidates) -> Verdicts,
}

impl SameZone {
    fn new(judge: fn(&Candidates) -> Verdicts) -> Self {
        let reason = |name: &str| Reason { name: name.into(), text: "".into() };
        let metadata = Metadata {
            name: "same-zone".into(),
            version: "1.0.0".into(),
            description: "".into(),
            claim_facts: vec![ClaimFact::Label("zone".into())],
            columns: vec![VolumeFact::Label("zone".into())],
            spread: None,
            reasons: vec![reason("other-zone"), reason("full")],
            scores: false,
            settings_schema: r#"{"properties": {"strict": {"type": "boolean"}, "other": {}}}"#.to_owned(),
        };
        Self { metadata, judge }
    }

    fn allowing() -> Self {
        Self::new(|rows| Verdicts { reasons: vec![0; rows.whole.len()], scores: Vec::new() })
    }
}

impl Matcher for SameZone {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn digest(&self) -> &str {
        "native"
    }

    fn check(&self, _: &str) -> Result<Result<(), String>, PolicyFault> {
        Ok(Ok(()))
    }

    fn narrow(&self, _: &str, claim: &ClaimView) -> Result<Narrowing, PolicyFault> {
        let values = claim.facts[0].iter().cloned().collect();
        let zone = Requirement { column: 0, operator: SelectorOperator::In, values, reason: 0 };
        Ok(Narrowing { requirements: vec![zone], at_most: None, judge: true })
    }

    fn judge(&self, _: &str, _: &ClaimView, rows: &Candidates) -> Result<Verdicts, PolicyFault> {
        Ok((self.judge)(rows))
    }
}

fn file(text: &str) -> File {
    File::parse(PathBuf::from("f"), text.to_owned()).unwrap()
}

fn report(matcher: &SameZone, text: &str) -> anyhow::Result<Report> {
    Report::new(Tested::Matcher(matcher), &[file(text)])
}

#[test]
fn cases_that_hold_pass_and_what_none_reaches_is_listed() {
    let report = report(&SameZone::allowing(), ZONES).unwrap();
    assert_eq!(
        report.text,
        "ok     f:2: a claim with a zone gets the smallest volume of it\n\
         ok     f:23: settings that do not fit are refused\n\
         no case gives the reason full\n\
         no case sets other\n\
         2 of 2 cases passed\n"
    );
}

#[test]
fn a_case_that_does_not_hold_fails_with_what_differs() {
    let wrong = ZONES.replace("chosen: here", "chosen: there").replace("here-too: allowed", "gone: allowed");
    let report = report(&SameZone::allowing(), &wrong).unwrap();
    assert_eq!(report.failed, 1);
    let told = "failed f:2: a claim with a zone gets the smallest volume of it\n         \
                gone: expected \"allowed\", found no such volume in the case\n         \
                here-too: expected nothing, found \"allowed\"\n         \
                chosen: expected \"there\", found \"here\"\n";
    assert!(report.text.starts_with(told), "{}", report.text);
}

#[test]
fn a_policy_that_breaks_the_contract_is_told_with_the_case() {
    type Judge = fn(&Candidates) -> Verdicts;
    let judges: [(Judge, &str); 4] = [
        (
            |rows| Verdicts {
                reasons: vec![u32::from(rows.whole.len() > 1) * 2; rows.whole.len()],
                scores: vec![],
            },
            "the verdict of here depends on the rows beside it: Rejected(\"full\"), and Allowed when asked \
             one by one",
        ),
        (
            |rows| Verdicts {
                reasons: (0..rows.whole.len()).map(|row| 2 * row as u32 % 4).collect(),
                scores: vec![],
            },
            "depends on the rows beside it",
        ),
        (|_| Verdicts::default(), "judge: its answer is invalid: it has 0 reasons for 2 rows"),
        (
            |rows| Verdicts { reasons: vec![3; rows.whole.len()], scores: vec![] },
            "has reason 3 of the 2 declared",
        ),
    ];
    for (judge, why) in judges {
        let report = report(&SameZone::new(judge), ZONES).unwrap();
        let told = "failed f:2: a claim with a zone gets the smallest volume of it\n         ";
        assert!(report.text.starts_with(told) && report.text.contains(why), "{}", report.text);
        // The other case is told too, and nothing is to be written.
        assert!(report.is_incomplete && report.text.contains("1 of 2 cases passed"), "{}", report.text);
    }
}

#[test]
fn updated_cases_pass_and_keep_what_people_wrote() {
    let matcher = SameZone::allowing();
    let update = |text: &str| {
        let file = file(text);
        file.updated(&Report::new(Tested::Matcher(&matcher), std::slice::from_ref(&file)).unwrap().answers[0])
            .unwrap()
    };
    assert_eq!(update(ZONES), ZONES);
    let (first, second) = ZONES.split_once("expect:").unwrap();
    let (_, second) = second.split_once("---").unwrap();
    let without = format!("{first}---{second}");
    assert_eq!(update(&without), ZONES);
    assert_eq!(update(&ZONES.replace("here: allowed", "here: {rejected: full}")), ZONES);
}

#[test]
fn a_case_that_cannot_be_read_or_asked_is_told_with_its_place() {
    for (from, to, why) in [
        ("case: a", "cases: a", "the case at line 2: cases: unknown field `cases`"),
        ("here: allowed", "here: maybe", "the case at line 2: expect.volumes.here: unknown variant `maybe`"),
        ("---", "class: null\n---", "f: line 22: class follows expect; move expect to the end of its case"),
        ("storage: 2Gi", "storage: 1Mi", "object \"here\" is smaller than the claim requests"),
        ("name: here-too", "name: here", "there are two volumes of name here"),
        (
            "volumes:\n- ",
            "namespace: {metadata: {name: b}}\nvolumes:\n- ",
            "the claim is in namespace a, and the namespace is b",
        ),
        (
            "{storage: 1Gi}}}\nvolumes",
            "{}}}\nvolumes",
            "PersistentVolumeClaim \"a/data\" has no amount of storage",
        ),
    ] {
        let text = ZONES.replace(from, to).replace("name: data,", "name: data, namespace: a,");
        let told = File::parse(PathBuf::from("f"), text)
            .and_then(|file| Report::new(Tested::Matcher(&SameZone::allowing()), &[file]))
            .map_or_else(|error| format!("{error:#}"), |report| report.text);
        assert!(told.contains(why), "{told}");
    }
    assert!(cases::read(&[PathBuf::from("/nowhere")]).is_err());
}

#[test]
fn cases_that_come_with_a_module_hold_or_the_first_difference_is_told() {
    let none = |rows: &Candidates| Verdicts { reasons: vec![2; rows.whole.len()], scores: Vec::new() };
    let hold = |matcher: &SameZone, bytes: &[u8]| {
        let file = |bytes: &[u8]| Extra { name: "zones.yaml".to_owned(), bytes: bytes.to_vec() };
        let held = carried::hold(Tested::Matcher(matcher), &[file(ZONES.as_bytes()), file(bytes)]);
        held.map_err(|error| error.to_string())
    };
    let allowing = SameZone::allowing();
    assert_eq!(hold(&allowing, b""), Ok(()));
    let why = hold(&SameZone::new(none), b"").unwrap_err();
    let first =
        "golden case zones.yaml:2: a claim with a zone gets the smallest volume of it: here: expected ";
    assert!(why.starts_with(first), "{why}");
    let wrong = hold(&allowing, ZONES.replace("chosen: here", "chosen: there").as_bytes()).unwrap_err();
    assert!(wrong.ends_with("chosen: expected \"there\", found \"here\""), "{wrong}");
    for (bytes, told) in [(&b"case: [a"[..], "zones.yaml: "), (b"\xff", "zones.yaml is not UTF-8")] {
        let why = hold(&allowing, bytes).unwrap_err();
        assert!(why.starts_with(&format!("golden cases: {told}")), "{why}");
    }
    let volumes = "- {}\n".repeat(513);
    let why = hold(&allowing, format!("case: many\nvolumes:\n{volumes}").as_bytes()).unwrap_err();
    assert_eq!(why, "golden case zones.yaml:1: many: it has 513 volumes; at most 512 are allowed");
}

#[test]
fn given_a_file_larger_than_any_module_its_size_and_the_limit_are_told() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(MODULE_MAX as u64 + 1).unwrap();
    let why = module::read(file.path()).unwrap_err().to_string();
    let told = format!("the component {} has 67108865 bytes; at most 67108864 are ", file.path().display());
    assert!(why.starts_with(&told), "{why}");
}
