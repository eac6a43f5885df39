//! A step is judged by what the steps before it make of the objects.

use bindery_core::guard::Breach;
use bindery_core::{
    Action, Answer, BindingMode, CapacityChange, Claim, ClaimPhase, Class, Edit, FINALIZER_EXTERNAL,
    FINALIZER_IN_TREE, FinalizerEdit, Lookup, Migration, Operation, OperationKind, Point, Quantity, Question,
    ReclaimPolicy, Returned, Subject, Volume,
};

use crate::case::{
    Row, TestCase, claim, claim_ref, class, edit_finalizers, gold, on_claim, on_volume, pair, sync, volume,
};

const IN_TREE: &str = "kubernetes.io/p";

/// A claim without class is given the default one, and provisioned for by the same sync, as upstream does.
fn classes() -> Vec<Row> {
    let provisioner = "vendor.example/p";
    let none = Claim { class: None, ..claim() };
    let give = Action::SetClaimClass { claim: none.target(), class: "gold".into() };
    let start = Action::StartOperation(Operation {
        kind: OperationKind::ProvisionExternal,
        plugin: provisioner.into(),
        uid: none.uid.clone(),
    });
    let sync = |actions: &[&Action]| {
        TestCase::new(Subject::SyncClaim(none.clone().into()), actions.iter().map(|&action| action.clone()))
            .with_claim(&none)
            .with_class(Class { default: true, ..class("gold", provisioner, Some(BindingMode::Immediate)) })
            .migration(provisioner, Migration::Off)
            .told(Question::DynamicProvisioning, Answer::DynamicProvisioning(true))
    };
    vec![
        sync(&[&give, &start]).allowed("given a class, and provisioned for by it"),
        sync(&[&start]).refused("provisioned for by a class that it was not given", Breach::OperationWrong),
        sync(&[&give, &give]).refused("given a class twice", Breach::ClassNotDefault),
    ]
}

fn annotations_of_claims() -> Vec<Row> {
    let mut migrated = gold();
    migrated.annotations.migrated_to = Some("old".into());
    let hand_over = Action::AnnotateClaim {
        claim: migrated.target(),
        provisioner: Some(IN_TREE.into()),
        migrated_to: Edit::Keep,
    };
    let roll_back =
        Action::AnnotateClaim { claim: migrated.target(), provisioner: None, migrated_to: Edit::Remove };
    let start = |actions: &[&Action]| {
        let subject = on_claim(OperationKind::Provision, IN_TREE, &migrated, Point::Start, Returned::Success);
        TestCase::new(subject, actions.iter().map(|&action| action.clone()))
            .with_class(class("gold", IN_TREE, None))
            .migration(IN_TREE, Migration::Off)
    };
    let mut chosen = gold();
    chosen.annotations.selected_node = Some("node".into());
    let again = |times| {
        let returned = Returned::Failed("no room".into());
        let subject = on_claim(OperationKind::Provision, IN_TREE, &chosen, Point::Provisioned, returned);
        TestCase::new(subject, vec![Action::RemoveSelectedNode { claim: chosen.target() }; times])
    };
    let wrong = Breach::AnnotationWrong;
    vec![
        start(&[&hand_over, &roll_back]).allowed("rolled back, by the provisioner that it was handed to"),
        start(&[&roll_back, &hand_over]).refused("rolled back before it was handed to anybody", wrong),
        start(&[&hand_over, &roll_back, &roll_back]).refused("rolled back twice", wrong),
        again(1).allowed("the scheduler may choose again"),
        again(2).refused("it may choose again, and once more", Breach::OutOfPlace),
    ]
}

/// The binder's mark stays, so a write that is repeated may repeat it; what the user has chosen is never
/// marked.
fn marks() -> Vec<Row> {
    let (c, free) = (claim(), volume());
    let reserve = |volume: &Volume, first| {
        let steps = [first, true].map(|mark| crate::case::reserve(volume, &c, mark));
        TestCase::new(Subject::SyncClaim(c.clone().into()), steps).with_claim(&c).with_volume(volume)
    };
    let reserved = Volume { claim_ref: claim_ref(None), ..free.clone() };
    let taken = pair().1;
    let bind = |claim: &Claim, first| {
        let steps = [(first, first), (false, true)].map(|(set_volume_name, mark)| Action::BindClaim {
            claim: claim.target(),
            volume: taken.target(),
            set_volume_name,
            mark,
        });
        TestCase::new(Subject::SyncClaim(claim.clone().into()), steps)
            .with_claim(claim)
            .with_volume(&taken)
            .volume_proven(Lookup::Found(taken.clone().into()))
    };
    let named = Claim { volume_name: Some("v".into()), ..c.clone() };
    vec![
        reserve(&free, true).allowed("chosen and marked, twice"),
        reserve(&reserved, false).refused("reserved by the user, then marked", Breach::MarkWrong),
        bind(&c, true).allowed("pointed and marked, twice"),
        bind(&named, false).refused("named by the user, then marked", Breach::MarkWrong),
    ]
}

fn finalizers() -> Vec<Row> {
    use FinalizerEdit::{Add, Keep, Remove};
    let annotate = |policy, finalizers: &[&str], edits: &[(FinalizerEdit, FinalizerEdit)]| {
        let mut volume = Volume { policy, ..volume() };
        volume.annotations.provisioned_by = Some(IN_TREE.into());
        volume.finalizers = finalizers.iter().map(|&name| name.into()).collect();
        let steps = edits.iter().map(|&(in_tree, external)| edit_finalizers(&volume, in_tree, external));
        sync(&volume, steps).migration(IN_TREE, Migration::Off)
    };
    let kept = |edits| annotate(ReclaimPolicy::Retain, &[FINALIZER_IN_TREE, FINALIZER_EXTERNAL], edits);
    let wrong = Breach::FinalizerWrong;
    vec![
        annotate(ReclaimPolicy::Delete, &[], &[(Add, Keep)]).allowed("a finalizer is added"),
        annotate(ReclaimPolicy::Delete, &[], &[(Add, Keep), (Add, Keep)])
            .refused("one finalizer is added twice", wrong),
        kept(&[(Remove, Keep), (Keep, Remove)]).allowed("each finalizer is removed by a write of its own"),
        kept(&[(Keep, Remove), (Remove, Keep)]).allowed("and the other way round"),
        kept(&[(Remove, Keep), (Remove, Keep)]).refused("one finalizer is removed twice", wrong),
        kept(&[(Keep, Remove), (Keep, Remove)]).refused("the provisioner's is removed twice", wrong),
    ]
}

/// Its claim is gone by a live read, and the cache still has it: nothing becomes Bound to what is deleted.
fn deletion() -> Vec<Row> {
    let (bound, taken) = pair();
    let (c, v) =
        (Claim { status: claim().status, ..bound }, Volume { policy: ReclaimPolicy::Delete, ..taken });
    let delete = Action::DeleteVolume { volume: v.target() };
    let become_bound = Action::SetClaimStatus {
        claim: c.target(),
        phase: ClaimPhase::Bound,
        access_modes: Edit::Set(v.access_modes.clone()),
        capacity: CapacityChange::Whole(Quantity::bytes(5)),
        attributes_class: Edit::Keep,
    };
    let decided = |actions: &[&Action]| {
        let subject = on_volume(OperationKind::Delete, &v, Point::Deleted, Returned::Success);
        TestCase::new(subject, actions.iter().map(|&action| action.clone()))
            .with_claim(&c)
            .with_volume(&v)
            .proven(Lookup::Absent)
    };
    vec![
        decided(&[&delete]).allowed("the volume of a claim that is gone is deleted"),
        decided(&[&become_bound]).allowed("its claim, as it was read, becomes Bound"),
        decided(&[&delete, &become_bound])
            .refused("its claim becomes Bound to a volume that is deleted", Breach::BindOrder),
    ]
}

pub(crate) fn rows() -> Vec<Row> {
    [classes(), annotations_of_claims(), marks(), finalizers(), deletion()].concat()
}
