//! Redacted journals: no word that is redacted is in their bytes, and they verify and replay.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/mod.rs"]
mod support;

use std::sync::Arc;

use bindery_core::{
    AccessModes, Action, Answer, CLAIM_FACTS, ClaimFact, ClaimKey, ClaimRef, Cluster, Decision, Engine,
    Event, EventKind, Exchange, Failure, Fate, GuardRead, GuardVerdict, Key, Lookup, MatchVerdict, Operation,
    OperationKind, Outcome, Point, Progress, Quantity, Query, Question, ReclaimPolicy, ReclaimVerdict,
    Regarding, Request, Requirement, Returned, Selector, SelectorOperator, Source, Subject, Uid, VolumeFact,
};
use bindery_journal::{
    Entry, Files, Record, Redacted, Redaction, Redactor, Replayed, Sink as _, What, Wrote, replay,
};
use bindery_kit::Scripted;
use bindery_policy::{
    AskedPolicy, Candidates, ClaimView, Judged, MatcherEvidence, Narrowing, PolicyCall, PolicyFunction,
    ReclaimerEvidence, Released, Wish,
};

use self::support::{folder_writer, record, rotation, volume, with_policies};

const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";
/// The name of a namespace, and the values of an annotation and of a label, which are redacted.
const NAMESPACE: &str = "tenantspace";
const ANNOTATION: &str = "annotationvalue";
const LABEL: &str = "labelvalue";
/// An error that comes from elsewhere.
const FOREIGN: &str = "foreigntext";

fn redactor(namespaces: bool) -> Redactor {
    let [annotations, labels] = ["note", "team"].map(|key| std::iter::once(key.to_owned()).collect());
    Redactor::new(KEY, Redaction { key: String::new(), annotations, labels, namespaces })
}

fn key() -> ClaimKey {
    ClaimKey::new(NAMESPACE, "data")
}

fn claim() -> bindery_core::Claim {
    let needed = |key: &str| Requirement {
        key: key.into(),
        operator: SelectorOperator::In,
        values: vec![LABEL.into()],
    };
    let other = format!("other.{NAMESPACE}.steer.bindery.dev/claim");
    bindery_core::Claim {
        selector: Some(Selector::Requirements(vec![
            needed("team"),
            Requirement { values: Vec::new(), ..needed(&other) },
        ])),
        facts: [
            (ClaimFact::Label("team".into()), LABEL.into()),
            (ClaimFact::Annotation("note".into()), ANNOTATION.into()),
            (ClaimFact::Annotation("open".into()), "stays".into()),
        ]
        .into_iter()
        .collect(),
        ..bindery_kit::claim(key())
    }
}

fn bound() -> bindery_core::Volume {
    let steers = format!("data.{NAMESPACE}.steer.bindery.dev/claim");
    let labels = [("team", LABEL), (&*steers, "uid"), ("zone", "stays")];
    let noted =
        format!(r#""label:team":"{LABEL}","annotation:note":"{ANNOTATION}","namespace":"{NAMESPACE}""#);
    bindery_core::Volume {
        labels: labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect(),
        claim_ref: Some(ClaimRef { namespace: NAMESPACE.into(), name: "data".into(), uid: None }),
        facts: [
            (VolumeFact::Annotation("note".into()), ANNOTATION.into()),
            (VolumeFact::Annotation(CLAIM_FACTS.into()), format!(r#"{{"facts":{{{noted}}}}}"#).into()),
            (VolumeFact::Topology("team".into()), LABEL.into()),
        ]
        .into_iter()
        .collect(),
        ..volume("v")
    }
}

/// A reason that quotes what its policy was shown.
fn quoting() -> String {
    format!("its team is {LABEL}, not that of {NAMESPACE}")
}

fn rejected(policy: &str, reason: String) -> MatchVerdict {
    MatchVerdict::Rejected { policy: policy.into(), reason: reason.into() }
}

fn keeps() -> ReclaimVerdict {
    ReclaimVerdict { fate: Fate::Keep, policy: "p".into(), reason: quoting().into() }
}

/// Every question whose answer may have one of the words.
fn exchanges() -> Vec<Exchange> {
    let query = || Query::of_claim(&claim(), AccessModes::default());
    let failed = || FOREIGN.into();
    let asked = [
        (Question::Claim(Source::Live, key()), Answer::Claim(Lookup::Found(Arc::new(claim())))),
        (Question::Claim(Source::Live, key()), Answer::Claim(Lookup::Unreadable(failed()))),
        (Question::Volume(Source::Live, "v".into()), Answer::Volume(Lookup::Found(Arc::new(bound())))),
        (Question::Node("n".into()), Answer::Node(Lookup::Failed(failed()))),
        (Question::Class("gold".into()), Answer::Class(Lookup::Failed(failed()))),
        (Question::Pods(key()), Answer::Pods(Err(failed()))),
        (Question::DefaultClasses, Answer::DefaultClasses(Err(failed()))),
        (Question::Describe(bindery_core::Handle(0)), Answer::Described(Arc::new(bound()))),
        (Question::Verdict("v".into()), Answer::Verdict(rejected("p", quoting()))),
        (Question::Verdict("w".into()), Answer::Verdict(rejected("open", "an open reason".to_owned()))),
        (Question::Reclaim("v".into()), Answer::Reclaim(keeps())),
        (Question::Candidates { query: query(), after: None, limit: 1 }, Answer::Page(Default::default())),
        (Question::Tallies(query()), Answer::Tallies(Vec::new())),
        (Question::ReservedFor { key: key(), uid: Uid("u".into()) }, Answer::Reserved(Vec::new())),
    ];
    asked.into_iter().map(|(question, answer)| Exchange { question, answer }).collect()
}

fn decision() -> Decision {
    let claim = claim().target();
    let about = |kind| Action::Emit(Event { regarding: Regarding::Claim(claim.clone()), kind });
    let volume = bound().target();
    let actions = [
        Action::ReserveVolume { volume: volume.clone(), claim: claim.clone(), mark: true },
        Action::SetClaimClass { claim: claim.clone(), class: "gold".into() },
        Action::EnqueueClaim(key()),
        about(EventKind::VolumeRejected { volume: "v".into(), policy: "p".into(), reason: quoting().into() }),
        about(EventKind::ReclaimPolicySet {
            to: ReclaimPolicy::Retain,
            policy: "p".into(),
            reason: quoting().into(),
        }),
        about(EventKind::VolumeModeMismatch { claim: key().to_string().into() }),
        about(EventKind::RecycleWaitsForPods(vec![format!("{NAMESPACE}/pod").into()])),
        about(EventKind::ProvisioningFailed(Failure::Plugin(FOREIGN.into()))),
        about(EventKind::Unreadable(format!("claim {NAMESPACE}/data: {FOREIGN}").into())),
    ];
    let failed = Outcome::Failed(Failure::Read(format!("read: {FOREIGN}").into()));
    Decision::new(actions.into_iter().map(Into::into).collect(), failed)
}

fn asked_policy() -> AskedPolicy {
    AskedPolicy {
        name: "p".into(),
        module: "m".to_owned(),
        settings: format!("{{\"only\":[\"{NAMESPACE}\",\"{LABEL}\"]}}"),
        claim_facts: vec![ClaimFact::Namespace, ClaimFact::NamespaceLabel("team".into()), ClaimFact::Name],
        columns: vec![VolumeFact::Label("team".into()), VolumeFact::Label("zone".into())],
        spread: None,
        reasons: Vec::new(),
    }
}

fn matcher() -> MatcherEvidence {
    let required = bindery_policy::Requirement {
        column: 0,
        operator: SelectorOperator::In,
        values: vec![format!("made-of-{LABEL}").into()],
        reason: 0,
    };
    // Both columns have the word; in the second one it is not redacted.
    let rows = Candidates {
        whole: vec![1; 2],
        nanos: vec![0; 2],
        texts: vec![LABEL.into(), "a".into()],
        columns: vec![vec![1, 0], vec![2, 2]],
        spread: Vec::new(),
    };
    MatcherEvidence {
        policy: asked_policy(),
        claim: ClaimView {
            request: Quantity::default(),
            facts: vec![Some(NAMESPACE.into()), Some(LABEL.into()), Some("data".into())],
        },
        narrowing: Narrowing { requirements: vec![required], at_most: None, judge: true },
        volumes: vec!["v".into(), "w".into()],
        rows,
        verdicts: vec![bindery_policy::Verdict::Allowed(0); 2],
    }
}

fn reclaimer() -> ReclaimerEvidence {
    ReclaimerEvidence {
        policy: asked_policy(),
        volume: "v".into(),
        shown: Released {
            capacity: Quantity::default(),
            columns: vec![Some(LABEL.into()), Some("a".into())],
            claim: Some(vec![Some(NAMESPACE.into()), None, None]),
        },
        judged: Judged { wish: Wish::Keep, reason: 0 },
    }
}

/// A record that has the words wherever one can be.
fn of_words(subject: Subject) -> Record {
    let mut record = with_policies("v");
    record.evidence.request.subject = subject;
    record.evidence.exchanges = exchanges();
    record.evidence.decision = decision();
    record.guard = GuardVerdict::Refused(format!("claim {NAMESPACE}/data: {FOREIGN}"));
    let found = [Ok(None), Err(format!("{NAMESPACE}: {FOREIGN}"))];
    record.reads = found.map(|found| GuardRead { key: Key::Claim(key()), found }).into();
    let policies = record.policies.as_mut().unwrap();
    policies.skipped[0].why = FOREIGN.to_owned();
    policies.matchers.push(matcher());
    let reads_nothing = AskedPolicy {
        name: "open".into(),
        settings: "{}".to_owned(),
        claim_facts: Vec::new(),
        columns: Vec::new(),
        ..asked_policy()
    };
    let rows = Candidates::default();
    policies.matchers.push(MatcherEvidence { policy: reads_nothing, rows, ..matcher() });
    let open = policies.matchers.last_mut().unwrap();
    (open.claim.facts, open.narrowing.requirements) = Default::default();
    policies.reclaimers.push(reclaimer());
    let call = |policy: &str, function| PolicyCall { policy: policy.into(), function, fuel: 7 };
    policies.calls =
        vec![call("p", PolicyFunction::Judge(matcher().rows)), call("open", PolicyFunction::Narrow)];
    record
}

fn subjects() -> Vec<Subject> {
    let operation = Operation { kind: OperationKind::Provision, plugin: "p".into(), uid: Uid("u".into()) };
    let failed = Returned::Failed(FOREIGN.into());
    vec![
        Subject::SyncClaim(Arc::new(claim())),
        Subject::SyncVolume(Arc::new(bound())),
        Subject::SyncClaimOperation(Progress {
            operation: operation.clone(),
            object: claim(),
            fresh: Some(bound()),
            point: Point::Start,
            returned: failed.clone(),
        }),
        Subject::SyncVolumeOperation(Progress {
            operation,
            object: bound(),
            fresh: None,
            point: Point::Start,
            returned: failed,
        }),
    ]
}

fn redacted(record: Record, redactor: &Redactor) -> Record {
    let mut what = What::Decision(Box::new(record));
    redactor.redact(&mut what);
    let What::Decision(record) = what else { unreachable!("a decision stays one") };
    *record
}

#[test]
fn a_redacted_journal_has_none_of_the_words_and_verifies() {
    let wrote = Wrote {
        write: "bind claim".to_owned(),
        object: key().to_string(),
        claim: true,
        uid: None,
        version: None,
        result: Err(format!("{FOREIGN}: {NAMESPACE}")),
    };
    let decisions = subjects().into_iter().map(|subject| What::Decision(Box::new(of_words(subject))));
    let (redactor, mut plain) = (redactor(true), Vec::new());
    for mut what in decisions.chain([What::Write(wrote)]) {
        redactor.redact(&mut what);
        plain.extend(Entry { at_ms: 1, what }.encode().unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    let mut writer = folder_writer(folder.path(), rotation(1, 1 << 30));
    writer.write(&plain).unwrap();
    writer.end().unwrap();
    let mut read = Vec::new();
    for entry in Files::open(folder.path()).unwrap() {
        read.extend(entry.unwrap().encode().unwrap());
    }
    assert_eq!(read, plain);
    let text = String::from_utf8_lossy(&plain);
    let found = [NAMESPACE, ANNOTATION, LABEL, FOREIGN].map(|word| text.matches(word).count());
    assert_eq!(found, [0; 4]);
    assert!(text.contains("stays") && text.contains("an open reason"));
}

#[test]
fn equal_values_have_equal_digests_under_one_key() {
    let record = redacted(of_words(subjects().remove(0)), &redactor(true));
    let Subject::SyncClaim(claim) = &record.evidence.request.subject else { unreachable!() };
    // printf tenantspace | openssl dgst -sha256 -hmac 0123456789abcdef0123456789abcdef
    assert_eq!(&*claim.key.namespace, "redacted-b82fd7bc9d8d61d4e762beb4284e04da");
    let policies = record.policies.as_ref().unwrap();
    let [matcher, reclaimer] = [&policies.matchers[0].policy, &policies.reclaimers[0].policy];
    assert_eq!(matcher.settings, reclaimer.settings);
    let facts = &policies.matchers[0].claim.facts;
    assert_eq!(facts[0].as_ref(), Some(&claim.key.namespace));
    assert_eq!(facts[1].as_ref(), claim.facts.get(&ClaimFact::Label("team".into())));
    assert_eq!(facts[2].as_deref(), Some("data"));
    // Calls have what a policy was shown.
    assert_eq!(policies.calls.iter().map(|call| &*call.policy).collect::<Vec<_>>(), ["open"]);
    let other = Redactor::new(b"another", redactor(true).redaction().clone());
    assert_ne!(other.redaction().key, redactor(true).redaction().key);
}

#[test]
fn given_the_label_with_the_name_of_a_namespace_it_is_redacted() {
    let policy = AskedPolicy {
        claim_facts: vec![ClaimFact::NamespaceLabel("kubernetes.io/metadata.name".into())],
        columns: Vec::new(),
        ..asked_policy()
    };
    let claim = ClaimView { request: Quantity::default(), facts: vec![Some(NAMESPACE.into())] };
    let mut record = with_policies("v");
    record.policies.as_mut().unwrap().matchers.push(MatcherEvidence { policy, claim, ..matcher() });
    let matchers = redacted(record, &redactor(true)).policies.unwrap().matchers;
    assert_eq!(matchers[0].claim.facts[0].as_deref(), Some("redacted-b82fd7bc9d8d61d4e762beb4284e04da"));
}

#[test]
fn a_column_that_is_not_redacted_keeps_its_values() {
    let record = redacted(of_words(subjects().remove(0)), &redactor(true));
    let Candidates { texts, columns, .. } = &record.policies.as_ref().unwrap().matchers[0].rows;
    assert_eq!((columns, &*texts[1]), (&vec![vec![1, 0], vec![2, 2]], "a"));
    assert!(texts[0].starts_with("redacted-") && texts.len() == 2, "{texts:?}");
}

#[test]
fn a_name_inside_of_a_longer_word_of_a_sentence_stays() {
    let mut record = record("v");
    let claim = bindery_kit::claim(ClaimKey::new("shop", "data"));
    record.evidence.request.subject = Subject::SyncClaim(Arc::new(claim));
    record.guard = GuardVerdict::Stale("shop/data of (shop) is shopping at myshop, not shop".to_owned());
    let GuardVerdict::Stale(why) = redacted(record, &redactor(true)).guard else { unreachable!() };
    let digest = "redacted-9d3526670e9bc489f394e013e15f532b";
    assert_eq!(why, format!("{digest}/data of ({digest}) is shopping at myshop, not {digest}"));
}

#[test]
fn given_an_error_of_a_read_the_verdict_of_the_guard_does_not_show_it() {
    let mut record = record("v");
    record.guard = GuardVerdict::Unproven(format!("claim {NAMESPACE}/data cannot be read: {FOREIGN}"));
    record.reads = vec![GuardRead { key: Key::Claim(key()), found: Err(FOREIGN.to_owned()) }];
    let GuardVerdict::Unproven(why) = redacted(record, &redactor(true)).guard else { unreachable!() };
    let is_shown = [NAMESPACE, FOREIGN].iter().any(|word| why.contains(word));
    assert!(why.starts_with("claim redacted-") && !is_shown, "{why}");
}

#[test]
fn only_what_engine_and_policies_were_shown_is_marked() {
    let marks = |record, namespaces| redacted(record, &redactor(namespaces)).redacted;
    let marked = |engine, policies| Redacted { engine, policies };
    assert_eq!(marks(of_words(subjects().remove(0)), true), marked(true, true));
    // Engines are shown no labels of volumes.
    let mut labelled = record("v");
    labelled.evidence.request.subject = Subject::SyncVolume(Arc::new(bound()));
    assert_eq!(marks(labelled.clone(), false), marked(false, false));
    assert_eq!(marks(labelled.clone(), true), marked(true, false));
    labelled.policies = of_words(subjects().remove(0)).policies;
    assert_eq!(marks(labelled, false), marked(false, true));
    assert_eq!(marks(with_policies("v"), true), marked(false, false));
}

/// Waits as many milliseconds as the name of the namespace has bytes, if it reads the name.
fn counting(reads: bool) -> impl Engine {
    Scripted(move |request: &Request, _: &mut dyn Cluster| {
        let length = request.subject.synced_namespace().map_or(0, |name| name.len() as u64);
        Ok(Decision { wait_ms: if reads { length } else { 0 }, ..Decision::done() })
    })
}

#[test]
fn a_decision_that_depends_on_what_is_redacted_is_not_replayable() {
    for (reads, namespaces, is_same) in [(true, true, false), (true, false, true), (false, true, true)] {
        let engine = counting(reads);
        let mut record = record("v");
        let claim = bindery_kit::claim(key());
        record.evidence.request.subject = Subject::SyncClaim(Arc::new(claim));
        let nothing = &mut bindery_core::Replayer::new(&[]);
        record.evidence.decision = engine.decide(&record.evidence.request, nothing).unwrap();
        match replay(&redacted(record, &redactor(namespaces)), &engine) {
            (Replayed::Same, _) => assert!(is_same),
            (Replayed::NotReplayable(why), None) => {
                assert_eq!((is_same, why), (false, "depends on what is redacted"));
            }
            replayed => panic!("{replayed:?}"),
        }
    }
}
