//! G4, and G9 for volumes.

use bindery_core::guard::Breach;
use bindery_core::{
    Action, Claim, Clear, Edit, FINALIZER_EXTERNAL, FINALIZER_IN_TREE, FinalizerEdit, Lookup, Message,
    Migration, OperationKind, Point, ReclaimPolicy, Returned, Subject, Volume, VolumePhase,
};

use crate::case::{
    Response, Row, TestCase, annotate, away, broken, claim, claim_ref, edit_finalizers, elsewhere, found,
    on_volume, pair, released, start_reclaim, sync, volume,
};

fn set(volume: &Volume, phase: VolumePhase) -> Action {
    let message = if phase == VolumePhase::Failed { Message::UnknownReclaimPolicy } else { Message::Empty };
    Action::SetVolumePhase { volume: volume.target(), phase, message }
}

fn phase(volume: &Volume, phase: VolumePhase) -> TestCase {
    sync(volume, [set(volume, phase)])
}

/// A volume bound to the claim `u-c`, before anybody knows what became of that.
fn bound() -> Volume {
    pair().1
}

/// A volume bound to the claim `u-c`, which a provisioner made for it.
fn made_for_claim(policy: ReclaimPolicy) -> Volume {
    let mut volume = Volume { name: "pvc-u-c".into(), policy, ..bound() };
    volume.annotations.provisioned_by = Some("p".into());
    volume
}

/// An operation of that kind starts on a released volume of that policy.
fn start(policy: ReclaimPolicy, kind: OperationKind) -> TestCase {
    start_reclaim(&released(policy), kind)
}

/// A volume that was provisioned for another claim, and chosen for its own.
fn chosen() -> Volume {
    Volume { name: "pvc-u-former".into(), ..made_for_claim(ReclaimPolicy::Delete) }
}

fn proofs() -> Vec<Row> {
    let release = || phase(&bound(), VolumePhase::Released);
    let delete = || start(ReclaimPolicy::Delete, OperationKind::Delete);
    let namesake = || Claim { uid: "u-again".into(), ..claim() };
    let surplus = |policy| phase(&made_for_claim(policy), VolumePhase::Released).live(elsewhere());
    vec![
        release().is("release without proof", Response::ProveClaim),
        release().live(Lookup::Absent).allowed("the claim is gone"),
        release().proven(Lookup::Absent).allowed("the claim is gone, by the guard's read"),
        release().live(found(namesake())).allowed("a namesake has come"),
        release().live(found(pair().0)).refused("the claim is there", Breach::ClaimLives),
        release().live(found(claim())).refused("the claim points nowhere yet", Breach::ClaimLives),
        release()
            .proven(found(pair().0))
            .is("the claim is there, and no cache has shown it", Response::Stale),
        release().live(away()).is("the engine's read failed", Response::Unproven),
        release().live(away()).proven(Lookup::Absent).is("the engine's read counts", Response::Unproven),
        release().proven(away()).is("the guard's read failed", Response::Unproven),
        release().live(broken()).refused("the claim cannot be read", Breach::Unreadable),
        release().proven(broken()).refused("the claim cannot be read live", Breach::Unreadable),
        surplus(ReclaimPolicy::Delete).allowed("a surplus volume, provisioned to be deleted"),
        surplus(ReclaimPolicy::Retain).refused("the claim has another volume", Breach::VolumePhaseWrong),
        phase(&chosen(), VolumePhase::Released)
            .live(elsewhere())
            .refused("provisioned for an earlier claim, and chosen for this one", Breach::VolumePhaseWrong),
        delete().is("delete without proof", Response::ProveClaim),
        delete().proven(Lookup::Absent).allowed("delete with proof"),
        delete().live(found(pair().0)).refused("delete under a claim", Breach::ClaimLives),
        delete().proven(found(pair().0)).is("delete under a claim that no cache has shown", Response::Stale),
        start(ReclaimPolicy::Recycle, OperationKind::Recycle).proven(Lookup::Absent).allowed("recycle"),
        start(ReclaimPolicy::Recycle, OperationKind::Recycle)
            .live(found(pair().0))
            .refused("recycle under a claim", Breach::ClaimLives),
        start(ReclaimPolicy::Recycle, OperationKind::Recycle)
            .proven(found(pair().0))
            .is("recycle under a claim that no cache has shown", Response::Stale),
    ]
}

/// What is released already is reclaimed by what the cache says; no claim uses it either way.
fn reclaiming() -> Vec<Row> {
    let delete = || start(ReclaimPolicy::Delete, OperationKind::Delete);
    let with_phase =
        |phase| start_reclaim(&Volume { phase, ..released(ReclaimPolicy::Recycle) }, OperationKind::Recycle);
    let delete_of = |volume: Volume| {
        start_reclaim(&Volume { phase: VolumePhase::Released, ..volume }, OperationKind::Delete)
    };
    vec![
        start(ReclaimPolicy::Recycle, OperationKind::Recycle)
            .proven(elsewhere())
            .allowed("recycle, its claim is not cached and has another volume"),
        start(ReclaimPolicy::Recycle, OperationKind::Recycle)
            .live(elsewhere())
            .allowed("recycle, the engine has read that its claim has another volume"),
        delete_of(made_for_claim(ReclaimPolicy::Delete))
            .proven(elsewhere())
            .allowed("delete what is surplus, its claim is not cached"),
        delete_of(chosen())
            .proven(elsewhere())
            .is("delete what was chosen, its claim is not cached", Response::Stale),
        delete_of(chosen())
            .live(elsewhere())
            .refused("delete what was chosen, and the claim was read", Breach::OperationWrong),
        delete().live(found(claim())).refused("delete, its claim points nowhere yet", Breach::ClaimLives),
        delete()
            .proven(found(claim()))
            .is("delete, a claim that no cache has shown points nowhere", Response::Stale),
        with_phase(VolumePhase::Failed).proven(elsewhere()).allowed("recycle again what is Failed"),
        with_phase(VolumePhase::Bound)
            .proven(elsewhere())
            .refused("recycle what is not released yet", Breach::OperationWrong),
    ]
}

fn phases() -> Vec<Row> {
    let free = Volume { phase: VolumePhase::Pending, ..volume() };
    let named = Volume { claim_ref: claim_ref(None), ..free.clone() };
    let (c, v) = pair();
    let crashed = Volume { phase: VolumePhase::Available, ..v.clone() };
    let unbound = Claim { volume_name: None, ..claim() };
    let mut loud = phase(&free, VolumePhase::Available);
    loud.decision.steps[0].action = Action::SetVolumePhase {
        volume: free.target(),
        phase: VolumePhase::Available,
        message: Message::NoRecycler,
    };
    let was_failed = Volume { phase: VolumePhase::Failed, ..v.clone() };
    let unknown = released(ReclaimPolicy::Unknown);
    let mut migrated = unknown.clone();
    migrated.annotations.migrated_to = Some("driver".into());
    let failed = |volume: &Volume| phase(volume, VolumePhase::Failed);
    let twice = [set(&v, VolumePhase::Released), set(&v, VolumePhase::Failed)];
    let v_unknown = Volume { policy: ReclaimPolicy::Unknown, ..v.clone() };
    vec![
        phase(&free, VolumePhase::Available).allowed("free: Available"),
        phase(&named, VolumePhase::Available).allowed("reserved by name: Available"),
        phase(&v, VolumePhase::Available)
            .with_claim(&c)
            .refused("of a pair: Available", Breach::VolumePhaseWrong),
        phase(&v, VolumePhase::Available).refused("claim gone: Available", Breach::VolumePhaseWrong),
        loud.refused("Available with a message of failure", Breach::VolumePhaseWrong),
        phase(&crashed, VolumePhase::Bound).with_claim(&c).allowed("the claim points back: Bound"),
        phase(&crashed, VolumePhase::Bound).with_claim(&unbound).allowed("reserved and fits: Bound"),
        phase(&crashed, VolumePhase::Bound)
            .with_claim(&Claim { request: bindery_core::Quantity::bytes(9), ..unbound })
            .refused("reserved and too small: Bound", Breach::TooSmall),
        phase(&crashed, VolumePhase::Bound).refused("no claim: Bound", Breach::VolumePhaseWrong),
        phase(&free, VolumePhase::Bound)
            .with_claim(&c)
            .refused("no claimRef: Bound", Breach::VolumePhaseWrong),
        phase(&crashed, VolumePhase::Bound)
            .live(found(c.clone()))
            .allowed("the overlay has no claim yet: Bound"),
        phase(&free, VolumePhase::Pending).refused("Pending", Breach::VolumePhaseWrong),
        phase(&free, VolumePhase::Unset).refused("unset", Breach::VolumePhaseWrong),
        phase(&was_failed, VolumePhase::Released)
            .live(Lookup::Absent)
            .refused("Released over Failed", Breach::VolumePhaseWrong),
        phase(&named, VolumePhase::Released).refused("no UID: Released", Breach::VolumePhaseWrong),
        failed(&unknown).allowed("unknown policy: Failed"),
        failed(&unknown).with_claim(&c).refused("claim points at it: Failed", Breach::PairBroken),
        failed(&migrated).refused("unknown policy, migrated: Failed", Breach::VolumePhaseWrong),
        failed(&released(ReclaimPolicy::Retain)).refused("Retain: Failed", Breach::VolumePhaseWrong),
        failed(&v_unknown).refused("not Released: Failed", Breach::VolumePhaseWrong),
        sync(&v_unknown, twice.clone()).live(Lookup::Absent).allowed("Released, then Failed"),
        sync(&v_unknown, twice).is("Released, then Failed, without proof", Response::ProveClaim),
    ]
}

/// An operation that reclaims a volume speaks for that volume alone.
fn failures() -> Vec<Row> {
    let gone = released(ReclaimPolicy::Delete);
    let scrubbed = released(ReclaimPolicy::Recycle);
    let other = Volume { name: "v2".into(), uid: "u-v2".into(), ..gone.clone() };
    let fail = |kind, own: &Volume, failed: &Volume| {
        let subject = on_volume(kind, own, Point::Start, Returned::Success);
        TestCase::new(subject, [set(failed, VolumePhase::Failed)]).with_volume(failed)
    };
    let wrong = Breach::VolumePhaseWrong;
    vec![
        fail(OperationKind::Delete, &gone, &gone).allowed("no deleter: Failed"),
        fail(OperationKind::Delete, &gone, &other).refused("no deleter of another volume: Failed", wrong),
        fail(OperationKind::Recycle, &scrubbed, &scrubbed).allowed("no recycler: Failed"),
        fail(OperationKind::Recycle, &scrubbed, &other)
            .refused("no recycler of another volume: Failed", wrong),
    ]
}

fn unbinding() -> Vec<Row> {
    let unbind = |mark: bool, clear| {
        let mut volume = bound();
        volume.annotations.bound_by_controller = mark;
        let set = Action::SetVolumePhase {
            volume: volume.target(),
            phase: VolumePhase::Available,
            message: Message::Empty,
        };
        sync(&volume, [Action::UnbindVolume { volume: volume.target(), clear }, set])
    };
    let clear = |volume: Volume| {
        let action = Action::UnbindVolume { volume: volume.target(), clear: Clear::Uid };
        sync(&volume, [action]).live(elsewhere())
    };
    let surplus = made_for_claim(ReclaimPolicy::Delete);
    let chosen = Volume { name: "pvc-u-former".into(), ..surplus.clone() };
    let kept = released(ReclaimPolicy::Retain);
    let offer = |volume: &Volume, allowed| {
        let action = Action::UnbindVolume { volume: volume.target(), clear: Clear::Uid };
        let mut case = sync(volume, [action]).live(Lookup::Absent);
        case.world.offers_again = allowed;
        case
    };
    let scrubbed = |returned| {
        let volume = released(ReclaimPolicy::Recycle);
        let action = Action::UnbindVolume { volume: volume.target(), clear: Clear::Uid };
        let subject = on_volume(OperationKind::Recycle, &volume, Point::Recycled, returned);
        TestCase::new(subject, [action]).proven(Lookup::Absent)
    };
    vec![
        unbind(true, Clear::Whole).live(elsewhere()).allowed("the binder's choice is taken back"),
        unbind(false, Clear::Uid).live(elsewhere()).allowed("the user's reservation stays"),
        unbind(true, Clear::Uid)
            .live(elsewhere())
            .refused("half of the binder's choice", Breach::UnbindWrong),
        unbind(false, Clear::Whole).live(elsewhere()).refused("the user's reservation", Breach::UnbindWrong),
        unbind(true, Clear::Whole).is("unbind without proof", Response::ProveClaim),
        unbind(true, Clear::Whole).live(found(pair().0)).refused("unbind a pair", Breach::ClaimLives),
        clear(surplus).refused("unbind what is to be deleted", Breach::UnbindWrong),
        clear(chosen).allowed("unbind what was provisioned for an earlier claim"),
        unbind(true, Clear::Whole).live(Lookup::Absent).refused("offer with data", Breach::OfferedAgain),
        offer(&kept, true).allowed("offer again, as the operator allows"),
        offer(&kept, false).refused("offer again", Breach::OfferedAgain),
        offer(&Volume { deleting: true, ..kept.clone() }, true)
            .refused("offer what is being deleted", Breach::OfferedAgain),
        offer(&bound(), true).refused("offer what was not released", Breach::OfferedAgain),
        scrubbed(Returned::Success).allowed("scrubbed"),
        scrubbed(Returned::Failed("dirty".into())).refused("not scrubbed", Breach::OfferedAgain),
    ]
}

fn made_by(plugin: &str, policy: ReclaimPolicy, finalizers: &[&str]) -> Volume {
    let mut volume = Volume { policy, ..volume() };
    volume.annotations.provisioned_by = Some(plugin.into());
    volume.finalizers = finalizers.iter().map(|&name| name.into()).collect();
    volume
}

fn finalizers() -> Vec<Row> {
    use FinalizerEdit::{Add, Keep, Remove};
    use ReclaimPolicy::{Delete, Retain, Unknown};
    const IN_TREE: &str = "kubernetes.io/p";
    let annotate = |volume: &Volume, migrated_to, in_tree, external| {
        sync(volume, [annotate(volume, migrated_to, in_tree, external)])
    };
    let tree = |volume: &Volume, edit| annotate(volume, Edit::Keep, edit, Keep);
    let off = |case: TestCase| case.migration(IN_TREE, Migration::Off);
    let on = |case: TestCase| case.migration(IN_TREE, Migration::On("driver".into()));
    let bare = made_by(IN_TREE, Delete, &[]);
    let held = made_by(IN_TREE, Delete, &[FINALIZER_IN_TREE]);
    let wrong = Breach::FinalizerWrong;
    let operation = |volume: &Volume, point, returned| {
        let action = edit_finalizers(volume, Remove, Keep);
        let subject = on_volume(OperationKind::Delete, volume, point, returned);
        TestCase::new(subject, [action]).continues(Point::FinalizerRemoved)
    };
    let static_held = Volume { finalizers: vec![FINALIZER_IN_TREE.into()], ..released(Delete) };
    vec![
        off(tree(&bare, Add)).allowed("protects what is to be deleted"),
        off(tree(&Volume { deleting: true, ..bare.clone() }, Add))
            .allowed("adds while deleting, as upstream"),
        tree(&bare, Add).refused("adds without knowing of the migration", wrong),
        on(tree(&bare, Add)).refused("adds to what has migrated", wrong),
        off(tree(&held, Add)).refused("adds twice", wrong),
        off(tree(&made_by(IN_TREE, Retain, &[]), Add)).refused("adds to what is kept", wrong),
        tree(&volume(), Add).refused("adds to a static volume", wrong),
        tree(&made_by("vendor.example/p", Delete, &[]), Add)
            .migration("vendor.example/p", Migration::Off)
            .refused("adds to what others provision", wrong),
        off(tree(&held, Remove)).refused("removes while the asset is there", wrong),
        on(tree(&held, Remove)).allowed("removes from what has migrated"),
        off(tree(&made_by(IN_TREE, Retain, &[FINALIZER_IN_TREE]), Remove))
            .allowed("removes from what is kept"),
        off(tree(&made_by(IN_TREE, Unknown, &[FINALIZER_IN_TREE]), Remove))
            .allowed("removes, unknown policy"),
        off(tree(&made_by(IN_TREE, Retain, &[]), Remove)).refused("removes what is not there", wrong),
        operation(&static_held, Point::Deleted, Returned::Success).allowed("removes when the asset is gone"),
        operation(&static_held, Point::Deleted, Returned::Failed("in use".into()))
            .refused("removes though the asset is there", Breach::OperationWrong),
        off(annotate(&made_by(IN_TREE, Retain, &[FINALIZER_EXTERNAL]), Edit::Keep, Keep, Remove))
            .allowed("removes the provisioner's after a rollback"),
        on(annotate(&made_by(IN_TREE, Retain, &[FINALIZER_EXTERNAL]), Edit::Keep, Keep, Remove))
            .refused("removes the provisioner's", wrong),
        annotate(&volume(), Edit::Keep, Keep, Add).refused("adds the provisioner's", wrong),
        on(annotate(&bare, Edit::Set("driver".into()), Keep, Keep)).allowed("migrated"),
        on(annotate(&bare, Edit::Set("other".into()), Keep, Keep))
            .refused("migrated to another driver", Breach::AnnotationWrong),
        off(annotate(&bare, Edit::Set("driver".into()), Keep, Keep))
            .refused("not migrated", Breach::AnnotationWrong),
        annotate(&volume(), Edit::Set("driver".into()), Keep, Keep)
            .refused("static and migrated", Breach::AnnotationWrong),
        off(annotate(&bare, Edit::Remove, Keep, Keep))
            .refused("nothing to roll back", Breach::AnnotationWrong),
    ]
}

fn deletion() -> Vec<Row> {
    let gone = released(ReclaimPolicy::Delete);
    let delete =
        |volume: &Volume, subject| TestCase::new(subject, [Action::DeleteVolume { volume: volume.target() }]);
    let at = |point, returned| {
        delete(&gone, on_volume(OperationKind::Delete, &gone, point, returned)).proven(Lookup::Absent)
    };
    let other = Volume { name: "v2".into(), uid: "u-v2".into(), ..gone.clone() };
    let subject = on_volume(OperationKind::Delete, &gone, Point::Deleted, Returned::Success);
    let freed = Volume { claim_ref: None, ..gone.clone() };
    vec![
        at(Point::Deleted, Returned::Success).allowed("the asset is gone"),
        at(Point::FinalizerRemoved, Returned::Success).allowed("asset and finalizer are gone"),
        at(Point::Start, Returned::Success).refused("the asset is there", Breach::OutOfPlace),
        at(Point::Deleted, Returned::Failed("no".into())).refused("the plugin failed", Breach::OutOfPlace),
        at(Point::Deleted, Returned::InUse("yes".into())).refused("it is in use", Breach::OutOfPlace),
        delete(&gone, subject.clone()).is("delete the object without proof", Response::ProveClaim),
        delete(&gone, subject.clone())
            .live(found(pair().0))
            .refused("delete the object under a claim", Breach::ClaimLives),
        delete(&gone, subject.clone())
            .proven(found(pair().0))
            .is("delete the object under a claim that no cache has shown", Response::Stale),
        delete(&other, subject)
            .with_volume(&other)
            .proven(Lookup::Absent)
            .refused("delete another volume", Breach::OutOfPlace),
        delete(&gone, Subject::SyncVolume(gone.clone().into())).refused("in a sync", Breach::OutOfPlace),
        delete(&freed, on_volume(OperationKind::Delete, &freed, Point::Deleted, Returned::Success))
            .allowed("no claim has it"),
    ]
}

pub(crate) fn rows() -> Vec<Row> {
    [proofs(), reclaiming(), phases(), failures(), unbinding(), finalizers(), deletion()].concat()
}
