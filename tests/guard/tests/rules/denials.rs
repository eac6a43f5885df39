//! Findings of a review that may deny: each true finding beside false ones.

use std::sync::Arc;

use bindery_core::guard::confirms;
use bindery_core::{
    AccessMode, Answer, BindingMode, Claim, ClaimKey, ClaimRef, Class, Exchange, Finding, Lookup, Migration,
    Quantity, Question, ReclaimPolicy, Rule, Source, Subject, Text, Volume, VolumeMode, VolumePhase,
};

use crate::case::{claim, claim_ref, key, pair, volume};

type Change = fn(&mut Volume);

/// The ways in which a volume may not be what a claim asks for, each with a volume that is so.
const DIFFERENCES: [(Rule, Change); 6] = [
    (Rule::VolumeTooSmall, |volume| volume.capacity = Some(Quantity::bytes(4))),
    (Rule::VolumeTooSmall, |volume| volume.capacity = None),
    (Rule::ClassDiffers, |volume| volume.class = "gold".into()),
    (Rule::AttributesClassDiffers, |volume| volume.attributes_class = Some("fast".into())),
    (Rule::VolumeModeDiffers, |volume| volume.mode = VolumeMode::Block),
    (Rule::AccessModesMissing, |volume| volume.access_modes = vec![AccessMode::ReadOnlyMany]),
];

fn differing(change: Change) -> Volume {
    let mut volume = volume();
    change(&mut volume);
    volume
}

fn told_volume(found: Lookup<Arc<Volume>>) -> Exchange {
    told_of("v", found)
}

fn told_of(name: &str, found: Lookup<Arc<Volume>>) -> Exchange {
    Exchange { question: Question::Volume(Source::Live, name.into()), answer: Answer::Volume(found) }
}

fn told_claim(claim: &Claim) -> Exchange {
    let question = Question::Claim(Source::Live, claim.key.clone());
    Exchange { question, answer: Answer::Claim(Lookup::Found(Arc::new(claim.clone()))) }
}

fn finding(rule: Rule, claim: Option<ClaimKey>) -> Finding {
    Finding { rule, volume: "v".into(), claim, found: "".into(), wanted: "".into() }
}

/// Whether it holds of a claim that is written, where the volume and these claims are there.
fn of_claim(rule: Rule, new: &Claim, old: Option<&Claim>, volume: &Volume, claims: &[&Claim]) -> bool {
    let subject = Subject::ReviewClaim { new: new.clone().into(), old: old.map(|old| old.clone().into()) };
    let mut told = vec![told_volume(Lookup::Found(Arc::new(volume.clone())))];
    told.extend(claims.iter().map(|claim| told_claim(claim)));
    confirms(&finding(rule, None), &subject, &told)
}

/// Whether it holds of a volume that is written, where the claim is there.
fn of_volume(rule: Rule, new: &Volume, old: Option<&Volume>, claim: &Claim) -> bool {
    let subject = Subject::ReviewVolume { new: new.clone().into(), old: old.map(|old| old.clone().into()) };
    confirms(&finding(rule, Some(key())), &subject, &[told_claim(claim)])
}

/// The claim of these tests, which names the volume.
fn naming() -> Claim {
    Claim { volume_name: Some("v".into()), ..claim() }
}

#[test]
fn a_named_volume_denies_by_what_differs_alone() {
    for (rule, change) in DIFFERENCES {
        let differs = differing(change);
        assert!(of_claim(rule, &naming(), None, &differs, &[]), "{rule:?}");
        for (other, _) in DIFFERENCES.iter().filter(|(other, _)| *other != rule) {
            assert!(!of_claim(*other, &naming(), None, &differs, &[]), "{other:?} of {rule:?}");
        }
        assert!(!of_claim(rule, &naming(), None, &volume(), &[]), "{rule:?}, and nothing differs");

        assert!(!of_claim(rule, &claim(), None, &differs, &[]), "{rule:?}, of a claim that names none");
        let elsewhere = Claim { volume_name: Some("w".into()), ..claim() };
        assert!(!of_claim(rule, &elsewhere, None, &differs, &[]), "{rule:?}, of another's volume");
        let mut completed = naming();
        completed.annotations.bind_completed = true;
        assert!(!of_claim(rule, &completed, None, &differs, &[]), "{rule:?}, of a claim that was bound");
        let reserved = Volume { claim_ref: claim_ref(None), ..differs };
        assert!(!of_claim(rule, &naming(), None, &reserved, &[]), "{rule:?}, of two pointers that meet");
    }
    let classless = Claim { class: None, ..naming() };
    assert!(!of_claim(Rule::ClassDiffers, &classless, None, &volume(), &[]));
}

#[test]
fn a_volume_that_was_not_read_denies_nothing() {
    let small = differing(|volume| volume.capacity = None);
    let subject = Subject::ReviewClaim { new: naming().into(), old: None };
    let renamed = Volume { name: "w".into(), ..small };
    let whys = [Lookup::Absent, Lookup::Unreadable("".into()), Lookup::Found(Arc::new(renamed))];
    for told in whys {
        assert!(!confirms(&finding(Rule::VolumeTooSmall, None), &subject, &[told_volume(told)]));
    }
    assert!(!confirms(&finding(Rule::VolumeTooSmall, None), &subject, &[]));
}

/// A finding is held against the objects that it is about, whatever else the review has read, and when.
#[test]
fn answers_about_other_objects_neither_deny_nor_excuse() {
    let holds_among = |finding: &Finding, subject: &Subject, own: &Exchange, other: Exchange| {
        let own = own.clone();
        let [first, last] = [[other.clone(), own.clone()], [own, other]];
        let found = confirms(finding, subject, &first);
        assert_eq!(found, confirms(finding, subject, &last), "{finding:?}");
        found
    };
    let small = differing(|volume| volume.capacity = None);
    let too_small = finding(Rule::VolumeTooSmall, Some(key()));

    let subject = Subject::ReviewClaim { new: naming().into(), old: None };
    for (own, other, is_so) in [(small.clone(), volume(), true), (volume(), small.clone(), false)] {
        let own = told_volume(Lookup::Found(own.into()));
        let other = Volume { name: "w".into(), uid: "u-w".into(), ..other };
        let other = told_of("w", Lookup::Found(other.into()));
        assert_eq!(holds_among(&too_small, &subject, &own, other), is_so);
    }

    let reserved = Volume { claim_ref: claim_ref(None), ..volume() };
    let subject = Subject::ReviewVolume { new: reserved.into(), old: None };
    let greedy = || Claim { request: Quantity::bytes(9), ..claim() };
    for (own, other, is_so) in [(greedy(), claim(), true), (claim(), greedy(), false)] {
        let other = Claim { key: ClaimKey::new("ns", "d"), uid: "u-d".into(), ..other };
        assert_eq!(holds_among(&too_small, &subject, &told_claim(&own), told_claim(&other)), is_so);
    }
}

#[test]
fn a_volume_is_another_s_only_as_half_of_a_complete_pair() {
    let mut owner = Claim { key: ClaimKey::new("ns", "d"), uid: "u-d".into(), ..naming() };
    owner.annotations.bind_completed = true;
    let reference = ClaimRef { namespace: "ns".into(), name: "d".into(), uid: Some("u-d".into()) };
    let taken = Volume { claim_ref: Some(reference), ..volume() };
    let is_other = |new: &Claim, volume: &Volume, owner: &Claim| {
        of_claim(Rule::VolumeOfOther, new, None, volume, &[owner])
    };
    assert!(is_other(&naming(), &taken, &owner));
    assert!(!of_claim(Rule::VolumeTooSmall, &naming(), None, &taken, &[&owner]));
    assert!(!of_claim(Rule::VolumeOfOther, &naming(), None, &taken, &[]));
    assert!(!is_other(&naming(), &volume(), &owner));
    assert!(!is_other(&naming(), &taken, &Claim { uid: "u-again".into(), ..owner.clone() }));
    assert!(!is_other(&naming(), &taken, &Claim { volume_name: Some("w".into()), ..owner.clone() }));
    let mut unbound = owner.clone();
    unbound.annotations.bind_completed = false;
    assert!(!is_other(&naming(), &taken, &unbound));
    // A claim's predecessor of the same name is not another claim.
    let successor = Claim { key: owner.key.clone(), uid: "u-next".into(), ..naming() };
    assert!(!is_other(&successor, &taken, &owner));
}

#[test]
fn a_pair_is_broken_only_where_it_was_whole() {
    let (bound, taken) = pair();
    let breaks =
        |new: &Claim, old: Option<&Claim>, volume: &Volume| of_claim(Rule::BreaksPair, new, old, volume, &[]);
    let moved = Claim { volume_name: Some("w".into()), ..bound.clone() };
    let mut unmarked = bound.clone();
    unmarked.annotations.bind_completed = false;
    let half = Volume { claim_ref: claim_ref(Some("u-again")), ..taken.clone() };
    assert!(breaks(&moved, Some(&bound), &taken));
    assert!(!breaks(&moved, None, &taken));
    assert!(!breaks(&moved, Some(&unmarked), &taken));
    assert!(!breaks(&moved, Some(&bound), &half));
    assert!(!breaks(&bound, Some(&bound), &taken));
    // Both still point at each other, and are bound again.
    assert!(!breaks(&unmarked, Some(&bound), &taken));

    let breaks =
        |new: &Volume, old: Option<&Volume>, claim: &Claim| of_volume(Rule::BreaksPair, new, old, claim);
    let stolen = Volume { claim_ref: claim_ref(Some("u-thief")), ..taken.clone() };
    for new in [&volume(), &stolen] {
        assert!(breaks(new, Some(&taken), &bound));
        assert!(!breaks(new, None, &bound));
        assert!(!breaks(new, Some(&taken), &unmarked));
    }
    assert!(!breaks(&taken, Some(&taken), &bound));
}

#[test]
fn a_reserved_volume_denies_by_what_its_waiting_claim_asks_for() {
    for (rule, change) in DIFFERENCES {
        let reserved = Volume { claim_ref: claim_ref(None), ..differing(change) };
        // The class of a volume that is reserved does not count.
        assert_eq!(of_volume(rule, &reserved, None, &claim()), rule != Rule::ClassDiffers, "{rule:?}");
        let fits = Volume { claim_ref: claim_ref(None), ..volume() };
        assert!(!of_volume(rule, &fits, None, &claim()), "{rule:?}, and nothing differs");
        assert!(!of_volume(rule, &differing(change), None, &claim()), "{rule:?}, not reserved");
        let other = Volume { claim_ref: claim_ref(Some("u-again")), ..reserved.clone() };
        assert!(!of_volume(rule, &other, None, &claim()), "{rule:?}, reserved for a former one");

        let mut completed = claim();
        completed.annotations.bind_completed = true;
        let deleting = Claim { deleting: true, ..claim() };
        for (what, claim) in [("bound", completed), ("decided", naming()), ("going", deleting)] {
            assert!(!of_volume(rule, &reserved, None, &claim), "{rule:?}, for a claim that is {what}");
        }
        let subject = Subject::ReviewVolume { new: reserved.into(), old: None };
        let stranger = Claim { key: ClaimKey::new("ns", "d"), ..claim() };
        for (of, told) in [(None, told_claim(&claim())), (Some(key()), told_claim(&stranger))] {
            assert!(!confirms(&finding(rule, of), &subject, &[told]), "{rule:?}, and its claim was not read");
        }
    }
}

#[test]
fn only_reviews_deny_and_only_by_rules_that_do() {
    let small = differing(|volume| volume.capacity = None);
    let told = [told_volume(Lookup::Found(small.into()))];
    let sync = Subject::SyncClaim(naming().into());
    assert!(!confirms(&finding(Rule::VolumeTooSmall, None), &sync, &told));
    assert!(confirms(&finding(Rule::PairMismatch, None), &sync, &[]));
}

/// Rules that warn unless an operator has them deny.
#[test]
fn a_finding_about_a_named_volume_must_be_true() {
    let reserved_for = |name: &str| {
        let claim_ref = ClaimRef { namespace: "ns".into(), name: name.into(), uid: None };
        Volume { claim_ref: Some(claim_ref), ..volume() }
    };
    let released = |volume| Volume { phase: VolumePhase::Released, ..volume };
    let deleting = |volume| Volume { deleting: true, ..volume };
    let own = || reserved_for(&key().name);
    // And whether it is so of a claim that is marked as bound too, which does not wait for a volume.
    let cases: [(Rule, Volume, Volume, bool); 9] = [
        (Rule::VolumeReserved, reserved_for("d"), own(), true),
        (Rule::VolumeReserved, reserved_for("d"), volume(), true),
        (Rule::VolumeLeaving, deleting(volume()), volume(), false),
        (Rule::VolumeLeaving, deleting(reserved_for("d")), deleting(own()), true),
        (Rule::VolumeLeaving, released(reserved_for("d")), reserved_for("d"), true),
        // What is free, or the claim's own, is bound at once, whatever its phase.
        (Rule::VolumeLeaving, released(reserved_for("d")), released(volume()), true),
        (Rule::VolumeLeaving, released(reserved_for("d")), released(own()), true),
        (
            Rule::VolumeOversized,
            differing(|volume| volume.capacity = Some(Quantity::bytes(1 << 40))),
            volume(),
            false,
        ),
        (Rule::NameDefeatsAffinity, Volume { node_affinity: true, ..volume() }, volume(), false),
    ];
    let exact = Claim { request: volume().capacity.unwrap(), ..naming() };
    let completed = {
        let mut completed = exact.clone();
        completed.annotations.bind_completed = true;
        completed
    };
    for (rule, is_so, is_not, of_marked) in &cases {
        assert!(of_claim(*rule, &exact, None, is_so, &[]), "{rule:?}");
        assert!(!of_claim(*rule, &exact, None, is_not, &[]), "{rule:?}, of what is not so");
        let marked = of_claim(*rule, &completed, None, is_so, &[]);
        assert_eq!(marked, *of_marked, "{rule:?}, of a claim that is marked as bound");
        assert!(!of_claim(*rule, &completed, Some(&completed), is_so, &[]), "{rule:?}, and it was so before");
        assert!(!of_claim(*rule, &claim(), None, is_so, &[]), "{rule:?}, of a claim that names none");
    }
    // By its name alone a volume is not that of a claim which was bound before; by its UID it is.
    let by_uid = Volume { claim_ref: claim_ref(Some("u-c")), ..volume() };
    assert!(of_claim(Rule::VolumeReserved, &completed, None, &own(), &[]));
    assert!(!of_claim(Rule::VolumeReserved, &completed, None, &by_uid, &[]));
    let subject = Subject::ReviewClaim { new: naming().into(), old: None };
    let missing = |told: &[Exchange]| confirms(&finding(Rule::VolumeMissing, None), &subject, told);
    assert!(missing(&[told_volume(Lookup::Absent)]));
    assert!(!missing(&[told_of("w", Lookup::Absent)]));
    assert!(!missing(&[told_volume(Lookup::Found(Arc::new(volume())))]));
    assert!(!missing(&[told_volume(Lookup::Failed("".into()))]));
    assert!(!missing(&[]));
}

#[test]
fn a_finding_about_a_class_must_be_true() {
    let class = |provisioner: &str, mode| bindery_kit::class("c", provisioner, Some(mode));
    let holds_with = |rule: Rule, volume_name: Option<&str>, class: Lookup<Class>| {
        let volume_name = volume_name.map(Text::from);
        let new = Claim { class: Some("c".into()), volume_name, ..claim() };
        let class = match class {
            Lookup::Found(class) => Lookup::Found(Arc::new(class)),
            _ => Lookup::Absent,
        };
        let told = [
            (Question::Class("c".into()), Answer::Class(class)),
            (Question::Plugin("kubernetes.io/gone".into()), Answer::Plugin(None)),
            (Question::Migration("kubernetes.io/gone".into()), Answer::Migration(Migration::Off)),
            (Question::AccessSets(new.access_modes.iter().collect()), Answer::AccessSets(Vec::new())),
        ];
        let told = told.map(|(question, answer)| Exchange { question, answer });
        let subject = Subject::ReviewClaim { new: new.into(), old: None };
        // A finding rests on what was asked; the first answer alone does not show that the class matters.
        let is_so = confirms(&finding(rule, None), &subject, &told);
        let needs_all = rule != Rule::NameDefeatsWait;
        assert!(!(needs_all && confirms(&finding(rule, None), &subject, &told[..1])), "{rule:?}");
        is_so
    };
    let in_tree = || Lookup::Found(class("kubernetes.io/gone", BindingMode::Immediate));
    let waits = || Lookup::Found(class("example.com/disk", BindingMode::WaitForFirstConsumer));
    assert!(holds_with(Rule::ClassMissing, None, Lookup::Absent));
    assert!(!holds_with(Rule::ClassMissing, Some("v"), Lookup::Absent));
    assert!(!holds_with(Rule::ClassMissing, None, in_tree()));
    assert!(holds_with(Rule::ProvisionerUnknown, None, in_tree()));
    assert!(!holds_with(Rule::ProvisionerUnknown, None, waits()));
    assert!(!holds_with(Rule::ProvisionerUnknown, None, Lookup::Absent));
    assert!(holds_with(Rule::NameDefeatsWait, Some("v"), waits()));
    assert!(!holds_with(Rule::NameDefeatsWait, Some("w"), waits()), "of another volume");
    assert!(!holds_with(Rule::NameDefeatsWait, None, waits()));
    assert!(!holds_with(Rule::NameDefeatsWait, Some("v"), in_tree()));
    let subject = Subject::ReviewClaim { new: claim().into(), old: None };
    assert!(!confirms(&finding(Rule::ClassMissing, None), &subject, &[]), "nothing was asked");
}

#[test]
fn a_finding_about_a_policy_must_be_true() {
    let of = |policy| {
        let new = Volume { policy, ..volume() };
        let subject = Subject::ReviewVolume { new: new.into(), old: None };
        confirms(&finding(Rule::PolicyRecycle, None), &subject, &[])
    };
    assert!(of(ReclaimPolicy::Recycle));
    assert!(!of(ReclaimPolicy::Retain));
}
