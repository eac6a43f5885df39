//! G9 for claims.

use bindery_core::guard::Breach;
use bindery_core::{
    Action, Answer, CapacityChange, Claim, ClaimPhase, Class, Edit, Handle, Lookup, Migration, OperationKind,
    Point, Quantity, Question, Returned, Source, Subject, Text, Volume, VolumePhase,
};

use crate::case::{
    Response, Row, TestCase, away, broken, claim, claim_ref, class, found, gold, on_claim, pair,
};

/// A status write.
#[derive(Clone)]
struct Status(ClaimPhase, Edit<Vec<bindery_core::AccessMode>>, CapacityChange, Edit<Text>);

fn status(claim: &Claim, Status(phase, access_modes, capacity, attributes_class): Status) -> TestCase {
    let action =
        Action::SetClaimStatus { claim: claim.target(), phase, access_modes, capacity, attributes_class };
    TestCase::new(Subject::SyncClaim(claim.clone().into()), [action]).with_claim(claim)
}

fn plain(claim: &Claim, phase: ClaimPhase) -> TestCase {
    status(claim, Status(phase, Edit::Keep, CapacityChange::Keep, Edit::Keep))
}

/// A claim is written Lost whose volume the store has so.
fn lost(claim: &Claim, now: Option<Volume>) -> TestCase {
    let case = plain(claim, ClaimPhase::Lost);
    match now {
        Some(volume) => case.with_volume(&volume),
        None => case,
    }
}

/// A claim is written Lost only after its volume was read live.
fn losses() -> Vec<Row> {
    let (bound, volume) = pair();
    let lost = |now| lost(&bound, now);
    let foreign = Volume { claim_ref: claim_ref(Some("u-former")), ..volume.clone() };
    let by_name = Volume { claim_ref: claim_ref(None), ..volume.clone() };
    let free = Volume { claim_ref: None, ..volume.clone() };
    let found = |volume: &Volume| found(volume.clone());
    vec![
        lost(None).is("Lost, no volume, by the cache alone", Response::ProveVolume),
        lost(None).volume_proven(Lookup::Absent).allowed("Lost, no volume"),
        lost(None).volume_proven(found(&foreign)).allowed("Lost, the volume is another's meanwhile"),
        lost(None)
            .volume_proven(found(&volume))
            .is("Lost, but the cache has missed its volume", Response::Contradicted),
        lost(None)
            .volume_proven(found(&free))
            .is("Lost, but the cache has missed that the volume is free", Response::Contradicted),
        lost(None).volume_proven(away()).is("Lost, but the live read failed", Response::Unproven),
        lost(None)
            .volume_proven(broken())
            .refused("Lost, but the volume cannot be read live", Breach::Unreadable),
        lost(Some(foreign.clone())).is("Lost, another's volume, by the cache alone", Response::ProveVolume),
        lost(Some(foreign.clone())).volume_proven(found(&foreign)).allowed("Lost, another's volume"),
        lost(Some(foreign))
            .volume_proven(found(&volume))
            .is("Lost, but the volume is its own again", Response::Contradicted),
        lost(Some(by_name.clone()))
            .volume_proven(found(&by_name))
            .allowed("Lost, the volume has it without UID, as upstream"),
    ]
}

fn statuses() -> Vec<Row> {
    let (bound, volume) = pair();
    let full = || {
        let mut claim = claim();
        claim.status.access_modes = claim.access_modes.clone();
        (claim.status.has_capacity, claim.status.capacity) = (true, Some(Quantity::bytes(5)));
        claim.status.attributes_class = Some("slow".into());
        claim
    };
    let cleared = |phase| Status(phase, Edit::Remove, CapacityChange::Remove, Edit::Remove);
    let dangling = Claim { volume_name: None, ..bound.clone() };
    let lost = |now| lost(&bound, now);
    let foreign = Volume { claim_ref: claim_ref(Some("u-former")), ..volume.clone() };
    let free = Volume { claim_ref: None, ..volume.clone() };
    let mut back = lost(Some(foreign.clone()));
    back.world.volumes.insert("v".into(), Lookup::Found(volume.clone().into()));
    let told = |case: TestCase, answer| {
        case.told(Question::Volume(Source::Live, "v".into()), Answer::Volume(answer))
    };
    let looked = |answer| told(lost(None), answer);
    let mut denied = looked(Lookup::Absent);
    denied.world.volumes.insert("v".into(), Lookup::Found(volume.clone().into()));
    let described =
        looked(Lookup::Absent).told(Question::Describe(Handle(0)), Answer::Described(volume.clone().into()));
    let mut unreadable = lost(None);
    unreadable.world.volumes.insert("v".into(), broken());
    let mut named = plain(&Claim { volume_name: Some("v".into()), ..claim() }, ClaimPhase::Pending);
    let absent = named.clone();
    named.world.volumes.insert("v".into(), broken());
    vec![
        status(&full(), cleared(ClaimPhase::Pending)).allowed("Pending, all cleared"),
        plain(&claim(), ClaimPhase::Pending).allowed("Pending, nothing to clear"),
        plain(&full(), ClaimPhase::Pending).refused("Pending with capacity", Breach::StatusWrong),
        plain(&bound, ClaimPhase::Pending).refused("Pending though bound", Breach::ClaimPhaseWrong),
        absent.allowed("Pending, its volume is not there"),
        named.refused("Pending, its volume cannot be read", Breach::Unreadable),
        plain(&claim(), ClaimPhase::Unset).refused("unset", Breach::ClaimPhaseWrong),
        plain(&dangling, ClaimPhase::Lost).allowed("Lost, no volumeName"),
        looked(Lookup::Absent).allowed("Lost, no volume, by the engine's read"),
        lost(Some(free)).refused("Lost, but the volume is free", Breach::PairBroken),
        lost(Some(volume)).refused("Lost, but it has its volume", Breach::PairBroken),
        back.is("Lost, but its volume is back", Response::Stale),
        denied.is("Lost, it was read that its volume is gone, and it is not", Response::Stale),
        looked(away()).refused("Lost, but the read failed", Breach::ClaimPhaseWrong),
        described.refused("Lost, but its volume was seen last", Breach::PairBroken),
        unreadable.refused("Lost, but the volume cannot be read", Breach::Unreadable),
        plain(&claim(), ClaimPhase::Lost).refused("Lost though never bound", Breach::ClaimPhaseWrong),
    ]
}

fn bound_status() -> Vec<Row> {
    let (pair_claim, v) = pair();
    let bound = pair_claim.clone();
    let pending = Claim { status: claim().status, ..pair_claim };
    let modes = || Edit::Set(v.access_modes.clone());
    let whole = |bytes| CapacityChange::Whole(Quantity::bytes(bytes));
    let right = || Status(ClaimPhase::Bound, modes(), whole(5), Edit::Keep);
    let on = |volume: &Volume, write: Status| status(&pending, write).with_volume(volume);
    let mut resizing = Volume { capacity: Some(Quantity::bytes(9)), ..v.clone() };
    resizing.annotations.pre_resize_capacity = Some(Quantity::bytes(5));
    let fast = Volume { attributes_class: Some("fast".into()), ..v.clone() };
    let with = |edit| Status(ClaimPhase::Bound, modes(), whole(5), edit);
    let lost = Claim {
        status: bindery_core::ClaimStatus { phase: ClaimPhase::Lost, ..pending.status.clone() },
        ..pending.clone()
    };
    let mut unbound = right_case(&Claim { volume_name: None, ..pending.clone() }, &v, right());
    unbound.world.volumes.insert("v".into(), Lookup::Found(v.clone().into()));
    let incomplete = Claim { annotations: bindery_core::ClaimAnnotations::default(), ..pending.clone() };
    let bytes = Quantity::bytes;
    let wrong = Breach::StatusWrong;
    vec![
        on(&v, right()).allowed("the volume's status"),
        on(&v, Status(ClaimPhase::Bound, Edit::Keep, whole(5), Edit::Keep)).refused("no modes", wrong),
        on(&v, Status(ClaimPhase::Bound, modes(), whole(9), Edit::Keep)).refused("more capacity", wrong),
        on(&v, Status(ClaimPhase::Bound, modes(), CapacityChange::Keep, Edit::Keep)).refused("none", wrong),
        on(&v, Status(ClaimPhase::Bound, modes(), CapacityChange::Storage(bytes(5)), Edit::Keep))
            .refused("other keys of capacity stay", wrong),
        on(&resizing, Status(ClaimPhase::Bound, modes(), CapacityChange::Storage(bytes(5)), Edit::Keep))
            .allowed("the capacity before the resize"),
        on(&resizing, Status(ClaimPhase::Bound, modes(), whole(9), Edit::Keep)).refused("after it", wrong),
        on(&fast, with(Edit::Set("fast".into()))).allowed("the volume's attributes class"),
        on(&fast, with(Edit::Keep)).refused("no attributes class", wrong),
        right_case(&lost, &fast, with(Edit::Keep)).allowed("the resizer's attributes class stays"),
        right_case(&lost, &fast, with(Edit::Set("fast".into()))).refused("takes it over", wrong),
        right_case(&bound, &v, Status(ClaimPhase::Bound, modes(), CapacityChange::Keep, Edit::Keep))
            .allowed("Bound already: only the modes"),
        right_case(&bound, &v, right()).refused("Bound already: the capacity too", wrong),
        on(&Volume { phase: VolumePhase::Available, ..v.clone() }, right())
            .refused("the volume is not Bound", Breach::BindOrder),
        on(&Volume { claim_ref: None, ..v.clone() }, right()).refused("no claimRef", Breach::BindOrder),
        unbound.refused("no volumeName", Breach::BindOrder),
        right_case(&incomplete, &v, right()).refused("no bind-completed", Breach::BindOrder),
        status(&pending, right()).refused("no volume", Breach::BindOrder),
        on(
            &Volume { capacity: None, ..v.clone() },
            Status(ClaimPhase::Bound, modes(), CapacityChange::Keep, Edit::Keep),
        )
        .refused("the volume has no capacity", wrong),
    ]
}

fn right_case(claim: &Claim, volume: &Volume, write: Status) -> TestCase {
    status(claim, write).with_volume(volume)
}

fn classes() -> Vec<Row> {
    let give = |claim: &Claim, default: bool| {
        let action = Action::SetClaimClass { claim: claim.target(), class: "gold".into() };
        TestCase::new(Subject::SyncClaim(claim.clone().into()), [action])
            .with_claim(claim)
            .with_class(Class { default, ..class("gold", "p", None) })
    };
    let none = Claim { class: None, ..claim() };
    let told = |case: TestCase| {
        let answer = Answer::DefaultClasses(Ok(vec!["gold".into()]));
        case.told(Question::DefaultClasses, answer)
    };
    let read = |case: TestCase| {
        let class = Class { default: true, ..class("gold", "p", None) };
        case.told(Question::Class("gold".into()), Answer::Class(Lookup::Found(class.into())))
    };
    let mut gone = give(&none, true);
    gone.world.classes.clear();
    let named = Claim { volume_name: Some("v".into()), ..none.clone() };
    let mut bound = none.clone();
    bound.annotations.bind_completed = true;
    vec![
        give(&none, true).allowed("the default class"),
        give(&none, false).refused("no default class", Breach::ClassNotDefault),
        told(give(&none, false)).is("no default class any more", Response::Stale),
        read(give(&none, false)).is("no default class any more, by itself", Response::Stale),
        gone.refused("no class of that name", Breach::ClassNotDefault),
        give(&claim(), true).refused("it wants none", Breach::ClassNotDefault),
        give(&named, true).refused("it names a volume", Breach::ClassNotDefault),
        give(&bound, true).refused("it was bound", Breach::ClassNotDefault),
    ]
}

fn annotations() -> Vec<Row> {
    use OperationKind::{Provision, ProvisionExternal};
    let gold = gold();
    let hand = |kind, point, provisioner: &str, migrated_to| {
        let action = Action::AnnotateClaim {
            claim: gold.target(),
            provisioner: Some(provisioner.into()),
            migrated_to,
        };
        TestCase::new(on_claim(kind, "kubernetes.io/p", &gold, point, Returned::Success), [action])
            .with_class(class("gold", "kubernetes.io/p", None))
            .continues(Point::Annotated)
    };
    let start = |provisioner| hand(ProvisionExternal, Point::Start, provisioner, Edit::Keep);
    let on = |case: TestCase| case.migration("kubernetes.io/p", Migration::On("driver".into()));
    let off = |case: TestCase| case.migration("kubernetes.io/p", Migration::Off);
    let migrate = |edit: Edit<Text>| {
        let mut claim = claim();
        claim.annotations.storage_provisioner = Some("kubernetes.io/p".into());
        claim.annotations.migrated_to = Some("old".into());
        let action = Action::AnnotateClaim { claim: claim.target(), provisioner: None, migrated_to: edit };
        TestCase::new(Subject::SyncClaim(claim.clone().into()), [action]).with_claim(&claim)
    };
    let in_sync = TestCase::new(
        Subject::SyncClaim(gold.clone().into()),
        [Action::AnnotateClaim {
            claim: gold.target(),
            provisioner: Some("kubernetes.io/p".into()),
            migrated_to: Edit::Keep,
        }],
    )
    .with_class(class("gold", "kubernetes.io/p", None));
    let node = |point, returned, has: bool| {
        let mut claim = gold.clone();
        claim.annotations.selected_node = has.then(|| "node".into());
        let action = Action::RemoveSelectedNode { claim: claim.target() };
        TestCase::new(on_claim(Provision, "kubernetes.io/p", &claim, point, returned), [action])
    };
    let failed = || Returned::Failed("no room".into());
    let wrong = Breach::AnnotationWrong;
    vec![
        off(start("kubernetes.io/p")).allowed("the class's provisioner"),
        start("someone.else").refused("another provisioner", wrong),
        on(start("driver")).allowed("the driver that it migrates to"),
        on(start("kubernetes.io/p")).refused("its name before the migration", wrong),
        on(start("someone.else")).refused("another driver", wrong),
        hand(Provision, Point::Start, "kubernetes.io/p", Edit::Keep).allowed("in-tree"),
        hand(ProvisionExternal, Point::Annotated, "kubernetes.io/p", Edit::Keep)
            .outcome(bindery_core::Outcome::Done)
            .refused("too late", Breach::OutOfPlace),
        in_sync.refused("in a sync", Breach::OutOfPlace),
        on(migrate(Edit::Set("driver".into()))).allowed("migrated"),
        on(migrate(Edit::Set("other".into()))).refused("migrated to another driver", wrong),
        migrate(Edit::Set("driver".into())).refused("migrated, by no answer", wrong),
        off(migrate(Edit::Remove)).allowed("rolled back"),
        on(migrate(Edit::Remove)).refused("rolled back though migrated", wrong),
        node(Point::Provisioned, failed(), true).allowed("another node may be chosen"),
        node(Point::Provisioned, Returned::Success, true).refused("the node was right", Breach::OutOfPlace),
        node(Point::Start, Returned::Success, true).refused("not tried yet", Breach::OutOfPlace),
        node(Point::Provisioned, failed(), false).refused("no node was chosen", Breach::OutOfPlace),
    ]
}

pub(crate) fn rows() -> Vec<Row> {
    [losses(), statuses(), bound_status(), classes(), annotations()].concat()
}
