//! G1 to G3.

use bindery_core::guard::Breach;
use bindery_core::{
    AccessMode, Action, Answer, BindingMode, Claim, ClaimKey, ClaimRef, Lookup, Message, Quantity, Question,
    Requirement, Selector, SelectorOperator, Source, Subject, Volume, VolumeMode, VolumePhase,
};

use crate::case::{Response, Row, TestCase, away, broken, claim, claim_ref, class, found, pair, volume};

/// First write of a bind, as the default engine makes it.
fn reserve(claim: &Claim, volume: &Volume) -> TestCase {
    let mark = !volume.is_bound_to(claim);
    let action = crate::case::reserve(volume, claim, mark);
    TestCase::new(Subject::SyncClaim(claim.clone().into()), [action]).with_claim(claim).with_volume(volume)
}

/// The first three writes.
fn bind(claim: &Claim, volume: &Volume) -> TestCase {
    let (v, c) = (volume.target(), claim.target());
    let set_volume_name = claim.volume_name.is_none();
    let actions = [
        Action::ReserveVolume { volume: v.clone(), claim: c.clone(), mark: !volume.is_bound_to(claim) },
        Action::SetVolumePhase { volume: v.clone(), phase: VolumePhase::Bound, message: Message::Empty },
        Action::BindClaim { claim: c, volume: v, set_volume_name, mark: set_volume_name },
    ];
    TestCase::new(Subject::SyncClaim(claim.clone().into()), actions).with_claim(claim).with_volume(volume)
}

fn with(change: impl FnOnce(&mut Claim, &mut Volume)) -> (Claim, Volume) {
    let (mut claim, mut volume) = (claim(), volume());
    change(&mut claim, &mut volume);
    (claim, volume)
}

fn tier(value: &str) -> Requirement {
    Requirement { key: "tier".into(), operator: SelectorOperator::In, values: vec![value.into()] }
}

type Change = fn(&mut Claim, &mut Volume);

/// One trait each that the claim does not bear, and whether it counts for a volume that is free, named by
/// the claim, reserved for the claim, and pointed at from both sides.
const TRAITS: [(&str, Change, Breach, [bool; 4]); 9] = [
    ("small", |_, v| v.capacity = Some(Quantity::bytes(4)), Breach::TooSmall, [true, true, true, false]),
    ("no capacity", |_, v| v.capacity = None, Breach::TooSmall, [true, true, true, false]),
    (
        "modes",
        |c, _| c.access_modes = vec![AccessMode::ReadWriteMany],
        Breach::AccessModesMissing,
        [true, true, true, false],
    ),
    ("class", |_, v| v.class = "gold".into(), Breach::ClassDiffers, [true, true, false, false]),
    ("mode", |_, v| v.mode = VolumeMode::Block, Breach::VolumeModeDiffers, [true, true, true, false]),
    (
        "attributes",
        |c, _| c.attributes_class = Some("slow".into()),
        Breach::AttributesClassDiffers,
        [true, true, true, false],
    ),
    (
        "labels",
        |c, _| c.selector = Some(Selector::Requirements(vec![tier("a")])),
        Breach::SelectorDiffers,
        [true, false, false, false],
    ),
    ("phase", |_, v| v.phase = VolumePhase::Released, Breach::NotAvailable, [true, false, false, false]),
    ("deleting", |_, v| v.deleting = true, Breach::Deleting, [true, true, true, false]),
];

/// Every trait in every situation: exactly the checks that upstream makes there.
fn situations() -> Vec<Row> {
    let point: [Change; 4] = [
        |_, _| {},
        |c, _| c.volume_name = Some("v".into()),
        |_, v| v.claim_ref = claim_ref(Some("u-c")),
        |c, v| {
            c.volume_name = Some("v".into());
            v.claim_ref = claim_ref(None);
        },
    ];
    let mut rows = Vec::new();
    for (situation, point) in point.into_iter().enumerate() {
        let (claim, volume) = with(point);
        rows.push(bind(&claim, &volume).allowed("a volume that fits is bound"));
        for (name, spoil, breach, counts) in TRAITS {
            let (claim, volume) = with(|claim, volume| {
                point(claim, volume);
                spoil(claim, volume);
            });
            let case = reserve(&claim, &volume);
            rows.push(if counts[situation] { case.refused(name, breach) } else { case.allowed(name) });
        }
    }
    rows
}

fn pointers() -> Vec<Row> {
    let other = |uid: Option<&str>| {
        Some(ClaimRef { namespace: "ns".into(), name: "d".into(), uid: uid.map(Into::into) })
    };
    let row = |name, breach, change: Change| {
        let (claim, volume) = with(change);
        let case = reserve(&claim, &volume);
        match breach {
            Some(breach) => case.refused(name, breach),
            None => case.allowed(name),
        }
    };
    let mut rows = vec![
        row("a namesake's UID", Some(Breach::ClaimRefTaken), |_, v| {
            v.claim_ref = claim_ref(Some("u-former"))
        }),
        row("volumeName is another's", Some(Breach::VolumeNameSet), |c, _| c.volume_name = Some("w".into())),
        row("both pointers meet by UID", None, |c, v| {
            c.volume_name = Some("v".into());
            v.claim_ref = claim_ref(Some("u-c"));
        }),
        row("bound, and the volume has lost its claimRef", None, |c, _| {
            c.volume_name = Some("v".into());
            c.annotations.bind_completed = true;
        }),
        row("bound, and the volume has the UID", None, |c, v| {
            c.volume_name = Some("v".into());
            c.annotations.bind_completed = true;
            v.claim_ref = claim_ref(Some("u-c"));
        }),
        row("bound, and the volume names it without UID", Some(Breach::UidMissing), |c, v| {
            c.volume_name = Some("v".into());
            c.annotations.bind_completed = true;
            v.claim_ref = claim_ref(None);
        }),
        row("bound, and the volume has another UID", Some(Breach::ClaimRefTaken), |c, v| {
            c.volume_name = Some("v".into());
            c.annotations.bind_completed = true;
            v.claim_ref = claim_ref(Some("u-former"));
        }),
        row("bound without volumeName", Some(Breach::ReferenceLost), |c, _| {
            c.annotations.bind_completed = true;
        }),
    ];
    let (claim, volume) = with(|_, v| v.claim_ref = other(None));
    rows.push(reserve(&claim, &volume).refused("reserved by name for another", Breach::ReservedForOther));
    let (claim, volume) = with(|_, v| v.claim_ref = other(Some("u-c")));
    rows.push(
        reserve(&claim, &volume).refused("unbound, its UID under another name", Breach::ReservedForOther),
    );
    let (claim, volume) = with(|c, v| {
        c.volume_name = Some("v".into());
        c.annotations.bind_completed = true;
        v.claim_ref = other(Some("u-c"));
    });
    rows.push(reserve(&claim, &volume).allowed("bound, its UID under another name: healed"));
    rows
}

fn waiting() -> Vec<Row> {
    let (c, v) = with(|c, v| {
        c.class = Some("slow".into());
        v.class = "slow".into();
    });
    let of = |mode| reserve(&c, &v).with_class(class("slow", "p", mode));
    let mut failed = reserve(&c, &v);
    failed.world.classes.insert("slow".into(), away());
    let (named, reserved) = (
        Claim { volume_name: Some("v".into()), ..c.clone() },
        Volume { claim_ref: claim_ref(None), ..v.clone() },
    );
    let waits = class("slow", "p", Some(BindingMode::WaitForFirstConsumer));
    vec![
        of(Some(BindingMode::Immediate)).allowed("the class does not wait"),
        of(Some(BindingMode::WaitForFirstConsumer)).refused("the class waits", Breach::WaitsForConsumer),
        of(None).refused("the class has no binding mode", Breach::ClassUnknown),
        reserve(&c, &v).allowed("there is no such class"),
        failed.refused("the class cannot be read", Breach::ClassUnknown),
        reserve(&named, &v)
            .with_class(waits.clone())
            .allowed("the class waits, but the claim names the volume"),
        reserve(&c, &reserved).with_class(waits).allowed("the class waits, but the volume is reserved"),
    ]
}

fn order() -> Vec<Row> {
    let (c, v) = (claim(), volume());
    let whole = bind(&c, &v);
    let without = |index: usize| {
        let mut case = whole.clone();
        case.decision.steps.remove(index);
        case
    };
    let spoiled = |index: usize, action: Action| {
        let mut case = whole.clone();
        case.decision.steps[index].action = action;
        case
    };
    let reserve = |mark| Action::ReserveVolume { volume: v.target(), claim: c.target(), mark };
    let point = |set_volume_name, mark| {
        let (claim, volume) = (c.target(), v.target());
        Action::BindClaim { claim, volume, set_volume_name, mark }
    };
    let mut regardless = whole.clone();
    regardless.decision.steps[2].follows = bindery_core::Follows::Regardless;
    let mut swapped = whole.clone();
    swapped.decision.steps.swap(1, 2);
    let second = Volume { name: "v2".into(), uid: "u-v2".into(), ..volume() };
    let mut twice = whole.clone().with_volume(&second);
    twice.decision.steps.truncate(1);
    let action = Action::ReserveVolume { volume: second.target(), claim: c.target(), mark: true };
    twice.decision.steps.push(action.into());
    let d = Claim { key: ClaimKey::new("ns", "d"), uid: "u-d".into(), ..claim() };
    let action = Action::ReserveVolume { volume: second.target(), claim: d.target(), mark: true };
    let mut each = whole.clone().with_volume(&second).with_claim(&d);
    each.decision.steps.push(action.into());
    vec![
        without(0).refused("volumeName without claimRef", Breach::VolumePhaseWrong),
        without(1).refused("volumeName before the volume is Bound", Breach::BindOrder),
        swapped.refused("volumeName before the phase", Breach::BindOrder),
        regardless.refused("volumeName though the volume may not be reserved", Breach::BindOrder),
        spoiled(0, reserve(false)).refused("the binder's choice is not marked", Breach::MarkWrong),
        spoiled(2, point(true, false)).refused("the claim's pointer is not marked", Breach::MarkWrong),
        spoiled(2, point(false, false)).refused("volumeName is left out", Breach::BindOrder),
        twice.refused("two volumes for one claim", Breach::BindOrder),
        each.allowed("a volume for each claim"),
    ]
}

/// The claim's write has no precondition on the volume, nor the volume's on the claim.
fn moved() -> Vec<Row> {
    let (c, v) =
        (claim(), Volume { claim_ref: claim_ref(Some("u-c")), phase: VolumePhase::Bound, ..volume() });
    let action =
        Action::BindClaim { claim: c.target(), volume: v.target(), set_volume_name: true, mark: true };
    let point = TestCase::new(Subject::SyncClaim(c.clone().into()), [action]).with_claim(&c).with_volume(&v);
    let found = |volume: &Volume| found(volume.clone());
    let live = |found| point.clone().volume_proven(found);
    let unbound = Volume { claim_ref: None, version: "v2".into(), ..v.clone() };
    let phase =
        Action::SetVolumePhase { volume: v.target(), phase: VolumePhase::Bound, message: Message::Empty };
    let mut written = point.clone();
    written.decision.steps.insert(0, phase.into());
    let mut hardly_written = written.clone();
    hardly_written.decision.steps[0].follows = bindery_core::Follows::Regardless;
    let now = |volume: Volume| {
        let mut case = point.clone();
        case.world.volumes.insert("v".into(), Lookup::Found(volume.into()));
        case
    };
    let mut gone = point.clone();
    gone.world.volumes.clear();
    let mut bound = reserve(&c, &volume());
    bound.world.claims.insert(c.key.clone(), Lookup::Found(pair().0.into()));
    let elsewhere = Claim { volume_name: Some("w".into()), version: "c2".into(), ..c.clone() };
    let mut other = reserve(&c, &volume());
    other.world.claims.insert(c.key.clone(), Lookup::Found(elsewhere.clone().into()));
    let namesake = Claim { uid: "u-again".into(), ..c.clone() };
    vec![
        point.clone().is("the volume is as it was, by the cache alone", Response::ProveVolume),
        live(found(&v)).allowed("the volume is as it was"),
        live(found(&Volume { version: "v2".into(), ..v.clone() })).allowed("another thing of it changed"),
        point
            .clone()
            .told(Question::Volume(Source::Live, "v".into()), Answer::Volume(found(&v)))
            .allowed("the volume is as it was, by the engine's read"),
        live(found(&unbound)).is("the cache has missed that it was unbound", Response::Contradicted),
        live(found(&Volume { uid: "u-again".into(), ..v.clone() }))
            .is("the cache has missed that it was made anew", Response::Contradicted),
        live(found(&Volume { phase: VolumePhase::Released, ..v.clone() }))
            .is("the cache has missed its phase", Response::Contradicted),
        live(found(&Volume { deleting: true, ..v.clone() }))
            .is("the cache has missed that it is being deleted", Response::Contradicted),
        live(Lookup::Absent).is("the cache has missed that it is gone", Response::Contradicted),
        live(away()).is("the live read failed", Response::Unproven),
        live(broken()).refused("the volume cannot be read live", Breach::Unreadable),
        written.allowed("a write of this decision shows what the volume is"),
        hardly_written.is("the write that would show it need not succeed", Response::ProveVolume),
        now(unbound).is("the volume was unbound meanwhile", Response::Stale),
        now(Volume { phase: VolumePhase::Failed, version: "v2".into(), ..v.clone() })
            .is("the volume has another phase", Response::Stale),
        gone.is("the volume is gone", Response::Stale),
        bound.allowed("the claim names the volume meanwhile"),
        other.is("the claim has another volume meanwhile", Response::Stale),
        reserve(&c, &volume()).live(Lookup::Found(c.clone().into())).allowed("read live, as it was"),
        reserve(&c, &volume())
            .live(Lookup::Found(elsewhere.into()))
            .is("the live read shows another volume, and the overlay lags", Response::Stale),
        reserve(&c, &volume())
            .live(Lookup::Absent)
            .is("the live read shows no claim, and the overlay lags", Response::Stale),
        reserve(&c, &volume())
            .live(Lookup::Found(namesake.into()))
            .is("the live read shows a namesake, and the overlay lags", Response::Stale),
        reserve(&c, &volume()).live(away()).allowed("the live read failed, and the overlay has it"),
    ]
}

pub(crate) fn rows() -> Vec<Row> {
    [situations(), pointers(), waiting(), order(), moved()].concat()
}
