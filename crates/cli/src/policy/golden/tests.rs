//! Cases of records with every kind of fact.

use std::collections::BTreeMap;

use bindery_core::{
    ClaimFact, ClaimKey, ClaimRef, Decision, Evidence, GuardVerdict, Quantity, Request, Spread, Volume,
    VolumeFact,
};
use bindery_kit::{gib, volume};
use bindery_policy::{ClaimView, Judged, Narrowing, PolicyEvidence, Reason, Released};

use super::*;
use crate::policy::cases;

fn metadata() -> Metadata {
    let key = || Text::from("example.com/key");
    Metadata {
        name: "all".into(),
        version: "1.0.0".into(),
        description: "It reads everything.".into(),
        claim_facts: vec![
            ClaimFact::Namespace,
            ClaimFact::Name,
            ClaimFact::Label(key()),
            ClaimFact::Annotation(key()),
            ClaimFact::NamespaceLabel(key()),
            ClaimFact::ClassParameter(key()),
            ClaimFact::OwnerName,
            ClaimFact::OwnerOrdinal,
        ],
        columns: vec![
            VolumeFact::Label(key()),
            VolumeFact::Annotation(key()),
            VolumeFact::Topology(key()),
            VolumeFact::ClassName,
            VolumeFact::Source,
            VolumeFact::Driver,
            VolumeFact::ReclaimPolicy,
        ],
        spread: Some(Spread {
            by: VolumeFact::Topology("zone".into()),
            among: vec![ClaimFact::Label(key())],
        }),
        reasons: vec![Reason { name: "no".into(), text: "no".into() }],
        scores: true,
        settings_schema: "{}".to_owned(),
    }
}

/// The values of all facts of claims and volumes. What YAML 1.1 takes for something else is a text.
fn values() -> (Vec<Option<Text>>, Vec<Option<Text>>) {
    let some = |values: &[&str]| values.iter().map(|value| Some(Text::from(*value))).collect();
    (
        some(&["shop", "data-web-2", "yes", "0x10", "1e3", "a: b", "web", "2"]),
        some(&["010", "multi\nline", "null", "fast", "csi", "disk.example.com", "Retain"]),
    )
}

fn asked(metadata: &Metadata) -> AskedPolicy {
    AskedPolicy {
        name: "all".into(),
        module: "sha256:0".to_owned(),
        settings: r#"{"n":1}"#.to_owned(),
        claim_facts: metadata.claim_facts.clone(),
        columns: metadata.columns.clone(),
        spread: metadata.spread.clone(),
        reasons: vec!["no".into()],
    }
}

fn record(subject: Subject, policies: PolicyEvidence) -> Record {
    let request = Request { now: 0, subject };
    let (engine, decision) = (String::new(), Decision::done());
    let evidence = Evidence { engine, request, exchanges: Vec::new(), decision };
    let (reads, redacted) = Default::default();
    let (guard, policies) = (GuardVerdict::Passed, Some(policies));
    Record { evidence, guard, chain: None, policies, fuel: None, reads, redacted }
}

/// The cases of records, and what was told.
fn written(records: &[Record]) -> (Vec<cases::File>, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut golden = Golden::new(folder.path(), "all").unwrap();
    for record in records {
        golden.add(record, 1_000, &metadata()).unwrap();
    }
    let told = golden.finish().unwrap();
    (cases::read(&[folder.path().to_owned()]).unwrap_or_default(), told)
}

#[test]
fn every_fact_of_a_matcher_is_read_from_the_manifests_of_its_case() {
    let metadata = metadata();
    let (facts, columns) = values();
    let matcher = MatcherEvidence {
        policy: asked(&metadata),
        claim: ClaimView { request: Quantity::bytes(1_500), facts },
        narrowing: Narrowing { judge: true, ..Narrowing::default() },
        volumes: vec!["a".into(), "b".into()],
        rows: Candidates {
            whole: vec![1_500, gib(1).whole],
            nanos: vec![500_000_000, 0],
            texts: columns.into_iter().flatten().collect(),
            columns: (1..=7).map(|place| vec![place, if place == 4 { 4 } else { 0 }]).collect(),
            spread: vec![2, 0],
        },
        verdicts: vec![policy::Verdict::Allowed(7), policy::Verdict::Rejected(0)],
    };
    let claim = Subject::SyncClaim(Arc::new(bindery_kit::claim(ClaimKey::new("shop", "data-web-2"))));
    let narrowed = MatcherEvidence { volumes: Vec::new(), verdicts: Vec::new(), ..matcher.clone() };
    let narrowed = MatcherEvidence { rows: matcher.rows.rows(0..0), ..narrowed };
    let of = |matcher| {
        let policies = PolicyEvidence { matchers: vec![matcher], ..PolicyEvidence::default() };
        record(claim.clone(), policies)
    };
    let (files, told) = written(&[of(matcher.clone()), of(matcher), of(narrowed)]);
    assert!(told.starts_with("1 case is written into 1 file of "), "{told}");
    assert!(told.contains("\n1 answer has no case: "), "{told}");
    let case = &files[0].cases[0].1;
    let title = "persistentvolumeclaim shop/data-web-2 is decided as at 1970-01-01T00:00:01Z";
    assert_eq!((&*case.title, case.siblings.len()), (title, 2));
    let volumes = [("a", CaseVerdict::Score(7)), ("b", CaseVerdict::Rejected("no".to_owned()))];
    let volumes: BTreeMap<String, CaseVerdict> = volumes.map(|(name, it)| (name.to_owned(), it)).into();
    assert_eq!(case.expect, Some(CaseAnswer::Judged { chosen: Some("a".to_owned()), volumes }));
}

#[test]
fn a_reclaimer_has_a_case_with_its_claim_or_without() {
    let metadata = metadata();
    let (facts, columns) = values();
    let reclaimed = |claim: Option<Vec<Option<Text>>>| {
        let claim_ref = ClaimRef { namespace: "shop".into(), name: "data-web-2".into(), uid: None };
        let subject = Volume { claim_ref: Some(claim_ref), ..volume("v") };
        let reclaimer = ReclaimerEvidence {
            policy: asked(&metadata),
            volume: "v".into(),
            shown: Released { capacity: gib(1), columns: columns.clone(), claim },
            judged: Judged { wish: Wish::DeleteAfter(60), reason: 0 },
        };
        let policies = PolicyEvidence { reclaimers: vec![reclaimer], ..PolicyEvidence::default() };
        record(Subject::SyncVolume(Arc::new(subject)), policies)
    };
    let (files, told) = written(&[reclaimed(Some(facts)), reclaimed(None)]);
    assert!(told.starts_with("2 cases are written into 1 file of "), "{told}");
    let fate = CaseAnswer::Reclaimed { fate: Wish::DeleteAfter(60), reason: Some("no".to_owned()) };
    assert!(files[0].cases.iter().all(|(_, case)| case.expect.as_ref() == Some(&fate)));
}

/// The manifest of the claim is in each sibling, so few of them can fill the memory.
#[test]
fn given_a_large_claim_few_siblings_are_too_many_for_a_case() {
    let metadata = metadata();
    let siblings = |count| {
        let mut manifests = Manifests::default();
        let key = ClaimKey::new("shop", "c");
        let facts = [ClaimFact::Annotation("example.com/key".into())];
        manifests.claim(&key, &facts, &[Some("x".repeat(EXTRA_MAX / 4).into())], Some(gib(1)));
        let (columns, spread) = (vec![vec![0]; metadata.columns.len()], vec![count]);
        let rows = Candidates { whole: vec![1], nanos: vec![0], texts: Vec::new(), columns, spread };
        manifests.volumes(&["v".into()], &rows, &asked(&metadata)).map_err(|error| error.to_string())
    };
    assert_eq!(siblings(3), Ok(()));
    assert_eq!(siblings(4), Err("there are too many siblings".to_owned()));
}
