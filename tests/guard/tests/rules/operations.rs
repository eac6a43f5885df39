//! G9 for operations.

use std::sync::Arc;

use bindery_core::guard::{ATTEMPTS_MAX, Breach};
use bindery_core::{
    Action, Answer, BindingMode, Claim, FinalizerEdit, Follows, Lookup, Message, Migration, Operation,
    OperationKind, Outcome, Plugin, PluginMatch, PluginOperation, Pod, Point, Question, ReclaimPolicy,
    Returned, Source, Subject, Volume, VolumePhase,
};

use crate::case::{
    Response, Row, TestCase, away, claim, class, edit_finalizers, gold, key, on_claim, on_volume, plugin,
    released, start_reclaim,
};

const PLUGIN: &str = "kubernetes.io/p";
const NAME: &str = "pvc-u-c";

fn starts() -> Vec<Row> {
    use OperationKind::{Provision, ProvisionExternal};
    let start = |claim: &Claim, kind, name: &str, provisioner: &str, mode| {
        let operation = Operation { kind, plugin: name.into(), uid: claim.uid.clone() };
        TestCase::new(Subject::SyncClaim(claim.clone().into()), [Action::StartOperation(operation)])
            .with_claim(claim)
            .with_class(class("gold", provisioner, mode))
            .told(Question::DynamicProvisioning, Answer::DynamicProvisioning(true))
    };
    let immediate = Some(BindingMode::Immediate);
    let waits = Some(BindingMode::WaitForFirstConsumer);
    let knows = |case: TestCase, found: Option<Plugin>| {
        case.migration(PLUGIN, Migration::Off).told(Question::Plugin(PLUGIN.into()), Answer::Plugin(found))
    };
    let unable = Plugin { provisions: false, ..plugin(PLUGIN) };
    let vendor = |case: TestCase| case.migration("vendor.example/p", Migration::Off);
    let external = |claim: &Claim| {
        vendor(start(claim, ProvisionExternal, "vendor.example/p", "vendor.example/p", immediate))
    };
    let mut chosen = gold();
    chosen.annotations.selected_node = Some("node".into());
    let off = external(&gold()).told(Question::DynamicProvisioning, Answer::DynamicProvisioning(false));
    let mut unasked = external(&gold());
    unasked.exchanges.retain(|exchange| exchange.question != Question::DynamicProvisioning);
    let wrong = Breach::OperationWrong;
    let mut told = external(&gold()).told(
        Question::Class("gold".into()),
        Answer::Class(Lookup::Found(class("gold", "vendor.example/p", immediate).into())),
    );
    told.world.classes.insert("gold".into(), Lookup::Absent);
    let mut other = external(&gold());
    other.request.subject = Subject::SyncClaim(Claim { uid: "u-other".into(), ..gold() }.into());
    let migrating = |name: &str| {
        start(&gold(), ProvisionExternal, name, PLUGIN, immediate)
            .migration(PLUGIN, Migration::On("driver".into()))
    };
    vec![
        knows(start(&gold(), Provision, PLUGIN, PLUGIN, immediate), Some(plugin(PLUGIN))).allowed("in-tree"),
        knows(start(&gold(), Provision, PLUGIN, PLUGIN, immediate), Some(unable)).refused("unable", wrong),
        knows(start(&gold(), Provision, PLUGIN, PLUGIN, immediate), None).refused("no plugin", wrong),
        start(&gold(), Provision, PLUGIN, PLUGIN, immediate).refused("nothing was asked", wrong),
        knows(start(&gold(), ProvisionExternal, PLUGIN, PLUGIN, immediate), None)
            .refused("no external provisioner has an in-tree name", wrong),
        external(&gold()).allowed("external"),
        told.allowed("external, the class is as it was read"),
        start(&gold(), ProvisionExternal, "vendor.example/p", "vendor.example/p", immediate)
            .refused("external, migration not asked", wrong),
        vendor(start(&gold(), ProvisionExternal, "other", "vendor.example/p", immediate))
            .refused("another provisioner", wrong),
        migrating("driver").allowed("migrated"),
        migrating(PLUGIN).allowed("migrated, by its old name"),
        migrating("other").refused("migrated, another driver", wrong),
        vendor(start(&gold(), ProvisionExternal, "vendor.example/p", "vendor.example/p", waits))
            .refused("the scheduler has not chosen", wrong),
        vendor(start(&chosen, ProvisionExternal, "vendor.example/p", "vendor.example/p", waits))
            .allowed("the scheduler has chosen"),
        vendor(start(&gold(), ProvisionExternal, "vendor.example/p", "vendor.example/p", None))
            .refused("no binding mode", wrong),
        external(&Claim { volume_name: Some("v".into()), ..gold() }).refused("it names a volume", wrong),
        external(&claim()).refused("no class", wrong),
        off.refused("provisioning is off", wrong),
        unasked.refused("whether it is on was not asked", wrong),
        other.refused("for another claim", Breach::OutOfPlace),
    ]
}

fn reclaim_starts() -> Vec<Row> {
    use OperationKind::{Delete, Provision};
    let wrong = Breach::OperationWrong;
    let reclaim = |volume: &Volume, kind| start_reclaim(volume, kind).proven(Lookup::Absent);
    let mut migrated = released(ReclaimPolicy::Delete);
    migrated.annotations.migrated_to = Some("driver".into());
    let bound = Volume { phase: bindery_core::VolumePhase::Bound, ..released(ReclaimPolicy::Delete) };
    vec![
        reclaim(&released(ReclaimPolicy::Delete), Delete).allowed("delete"),
        reclaim(&released(ReclaimPolicy::Retain), Delete).refused("delete what is kept", wrong),
        reclaim(&released(ReclaimPolicy::Delete), OperationKind::Recycle).refused("recycle", wrong),
        reclaim(&bound, Delete).refused("delete what is Bound", wrong),
        reclaim(&migrated, Delete).refused("delete what has migrated", Breach::Migrated),
        reclaim(&released(ReclaimPolicy::Delete), Provision)
            .refused("provision a volume", Breach::OutOfPlace),
    ]
}

fn call(subject: Subject, operation: PluginOperation, next: Point) -> TestCase {
    TestCase::new(subject, [Action::CallPlugin { plugin: PLUGIN.into(), operation }]).continues(next)
}

fn reads(case: TestCase, found: Lookup<Arc<Volume>>, name: &str) -> TestCase {
    case.told(Question::Volume(Source::Live, name.into()), Answer::Volume(found))
}

fn provisioning() -> Vec<Row> {
    let at = |point, returned| on_claim(OperationKind::Provision, PLUGIN, &gold(), point, returned);
    let failed = || Returned::Failed("no".into());
    let provision =
        |point| call(at(point, Returned::Success), PluginOperation::Provision, Point::Provisioned);
    let absent = |case| reads(case, Lookup::Absent, NAME);
    let mut wrong_plugin = absent(provision(Point::Start));
    wrong_plugin.decision.steps[0].action =
        Action::CallPlugin { plugin: "other".into(), operation: PluginOperation::Provision };
    let mut foreign = absent(provision(Point::Start));
    if let Subject::SyncClaimOperation(progress) = &mut foreign.request.subject {
        progress.operation.uid = "u-other".into();
    }
    let retried = |point| absent(call(at(point, failed()), PluginOperation::Provision, Point::Provisioned));
    let handed = on_claim(OperationKind::ProvisionExternal, PLUGIN, &gold(), Point::Start, Returned::Success);
    let handed = absent(call(handed, PluginOperation::Provision, Point::Provisioned));
    let mut not_last = absent(provision(Point::Start));
    not_last.decision.steps.push(Action::EnqueueClaim(key()).into());
    let create = |point, returned, name: &str, class: &str, plugin: &str, next| {
        let claim = gold().target();
        let (name, class, plugin) = (name.into(), class.into(), plugin.into());
        TestCase::new(at(point, returned), [Action::CreateVolume { claim, name, class, plugin }])
            .continues(next)
    };
    let first = Point::Created { attempt: 1 };
    let made =
        |name, class, plugin| create(Point::Provisioned, Returned::Success, name, class, plugin, first);
    let again = |before, after| {
        let (before, after) = (Point::Created { attempt: before }, Point::Created { attempt: after });
        create(before, failed(), NAME, "gold", PLUGIN, after)
    };
    let mut both = again(1, 2);
    both.decision
        .steps
        .push(Action::CallPlugin { plugin: PLUGIN.into(), operation: PluginOperation::Delete }.into());
    let wrong = Breach::PluginCallWrong;
    vec![
        absent(provision(Point::Start)).allowed("provision"),
        absent(provision(Point::Annotated)).allowed("provision, annotated"),
        provision(Point::Start).refused("provision without looking", wrong),
        reads(provision(Point::Start), Lookup::Found(crate::case::volume().into()), NAME)
            .refused("provision again", wrong),
        reads(provision(Point::Start), away(), NAME).refused("the live read failed", wrong),
        absent(provision(Point::Provisioned)).refused("provision twice", Breach::OperationWrong),
        wrong_plugin.refused("another plugin", wrong),
        foreign.refused("provision for another claim", wrong),
        retried(Point::Start).refused("provision after a failure", wrong),
        handed.refused("provision what is handed over", Breach::OperationWrong),
        not_last.refused("a step after the call", wrong),
        made(NAME, "gold", PLUGIN).allowed("create"),
        made("pvc-other", "gold", PLUGIN).refused("another name", Breach::NameNotDerived),
        made(NAME, "silver", PLUGIN).refused("another class", Breach::OperationWrong),
        made(NAME, "gold", "other").refused("by another plugin", Breach::OperationWrong),
        made(NAME, "gold", PLUGIN).outcome(Outcome::Done).refused("not waited for", Breach::OperationWrong),
        create(Point::Provisioned, failed(), NAME, "gold", PLUGIN, first)
            .refused("create what failed", Breach::OutOfPlace),
        again(1, 2).allowed("create again"),
        again(1, 3).refused("skips an attempt", Breach::OperationWrong),
        again(ATTEMPTS_MAX, ATTEMPTS_MAX + 1).refused("for ever", Breach::OperationWrong),
        both.refused("create and clean up at once", Breach::OperationWrong),
    ]
}

/// An operation goes on by what becomes of a step that must succeed.
fn followed() -> Vec<Row> {
    let at = |point| on_claim(OperationKind::Provision, PLUGIN, &gold(), point, Returned::Success);
    let following = |mut case: TestCase, follows| {
        case.decision.steps[0].follows = follows;
        case
    };
    let provision = |follows| {
        let case = call(at(Point::Start), PluginOperation::Provision, Point::Provisioned);
        following(reads(case, Lookup::Absent, NAME), follows)
    };
    let create = |follows| {
        let (name, class, plugin) = (NAME.into(), "gold".into(), PLUGIN.into());
        let action = Action::CreateVolume { claim: gold().target(), name, class, plugin };
        let case = TestCase::new(at(Point::Provisioned), [action]);
        following(case.continues(Point::Created { attempt: 1 }), follows)
    };
    let wrong = Breach::OperationWrong;
    vec![
        provision(Follows::Success).allowed("go on when it is provisioned"),
        provision(Follows::Tolerated).refused("go on as if it were provisioned", wrong),
        provision(Follows::Regardless).refused("provision whatever failed before", wrong),
        create(Follows::Success).allowed("go on when it is created"),
        create(Follows::Tolerated).refused("go on as if it were created", wrong),
        create(Follows::Regardless).refused("create whatever failed before", wrong),
    ]
}

/// The asset of a volume that could not be created is deleted, one counted call after the other.
fn cleaning_up() -> Vec<Row> {
    let at = |point, returned, next, calls| {
        let subject = on_claim(OperationKind::Provision, PLUGIN, &gold(), point, returned);
        let call = Action::CallPlugin { plugin: PLUGIN.into(), operation: PluginOperation::Delete };
        TestCase::new(subject, vec![call; calls]).continues(Point::CleanedUp { attempt: next })
    };
    let absent = |case| reads(case, Lookup::Absent, NAME);
    let found = || Lookup::Found(crate::case::volume().into());
    let failed = || Returned::Failed("no".into());
    let unread = |point, next| at(point, failed(), next, 1);
    let first = |next, calls| absent(at(Point::Created { attempt: 5 }, failed(), next, calls));
    let again = |before, next, calls| absent(at(Point::CleanedUp { attempt: before }, failed(), next, calls));
    let created = absent(at(Point::Created { attempt: 5 }, Returned::Success, 1, 1));
    let mut exists = first(1, 1);
    exists.world.volumes.insert(NAME.into(), found());
    let wrong = Breach::OperationWrong;
    vec![
        unread(Point::Created { attempt: 5 }, 1).refused("clean up without looking", Breach::PluginCallWrong),
        unread(Point::CleanedUp { attempt: 1 }, 2)
            .refused("clean up again without looking", Breach::PluginCallWrong),
        reads(unread(Point::CleanedUp { attempt: 1 }, 2), found(), NAME)
            .refused("clean up again what is there now", Breach::PluginCallWrong),
        first(1, 1).allowed("clean up"),
        first(2, 1).refused("clean up, and count from two", wrong),
        first(1, 0).refused("go on as if cleaned up", wrong),
        created.refused("clean up what was created", Breach::PluginCallWrong),
        exists.is("clean up what a watch has shown since", Response::Stale),
        again(1, 2, 1).allowed("clean up again"),
        again(1, 3, 1).refused("clean up again, and skip an attempt", wrong),
        again(1, 1, 1).refused("clean up again, and do not count", wrong),
        again(1, 2, 0).refused("go on as if cleaned up again", wrong),
        again(ATTEMPTS_MAX - 1, ATTEMPTS_MAX, 1).allowed("clean up for the last time"),
        again(ATTEMPTS_MAX, ATTEMPTS_MAX + 1, 1).refused("clean up for ever", wrong),
    ]
}

/// Between the asset's deletion and the volume's, only the finalizer goes.
fn unprotecting() -> Vec<Row> {
    let gone = Volume {
        finalizers: vec![bindery_core::FINALIZER_IN_TREE.into()],
        ..released(ReclaimPolicy::Delete)
    };
    let remove = edit_finalizers(&gone, FinalizerEdit::Remove, FinalizerEdit::Keep);
    let fail = Action::SetVolumePhase {
        volume: gone.target(),
        phase: VolumePhase::Failed,
        message: Message::DeleteFailed("no".into()),
    };
    let wake = Action::EnqueueClaim(key());
    let after = |actions: &[&Action]| {
        let subject = on_volume(OperationKind::Delete, &gone, Point::Deleted, Returned::Success);
        TestCase::new(subject, actions.iter().map(|&action| action.clone()))
    };
    let removed = Point::FinalizerRemoved;
    vec![
        after(&[&remove, &wake]).continues(removed).allowed("the finalizer goes, and a claim is woken"),
        after(&[&remove, &fail]).allowed("the volume becomes Failed, and that is the end"),
        after(&[&remove, &fail])
            .continues(removed)
            .refused("the volume becomes Failed, and is deleted next", Breach::OperationWrong),
    ]
}

/// The engine was told that this plugin alone supports the source of volume `v`.
fn matched(case: TestCase, found: Plugin) -> TestCase {
    case.told(Question::PluginForVolume("v".into()), Answer::PluginMatch(PluginMatch::One(found)))
}

/// What a plugin may be called for, and which one.
fn calls() -> Vec<Row> {
    use OperationKind::Delete;
    let gone = released(ReclaimPolicy::Delete);
    let call_for = |kind, object: &Volume, point, operation| {
        let case = call(on_volume(kind, object, point, Returned::Success), operation, Point::Deleted);
        reads(matched(case, plugin(PLUGIN)), Lookup::Found(object.clone().into()), "v").proven(Lookup::Absent)
    };
    let mut foreign = call_for(Delete, &gone, Point::Start, PluginOperation::Delete);
    if let Subject::SyncVolumeOperation(progress) = &mut foreign.request.subject {
        progress.operation.uid = "u-other".into();
    }
    let found = |found: Plugin| {
        let mut case = call_for(Delete, &gone, Point::Start, PluginOperation::Delete);
        case.exchanges[0].answer = Answer::PluginMatch(PluginMatch::One(found));
        case
    };
    let wrong = Breach::PluginCallWrong;
    vec![
        foreign.refused("delete another volume's asset", wrong),
        call_for(Delete, &gone, Point::Start, PluginOperation::Recycle)
            .refused("scrub what is deleted", Breach::OperationWrong),
        call_for(Delete, &gone, Point::Start, PluginOperation::Provision)
            .refused("provision a volume", Breach::OperationWrong),
        call_for(Delete, &gone, Point::Deleted, PluginOperation::Delete)
            .refused("delete what is deleted", Breach::OperationWrong),
        found(plugin("other")).refused("another plugin was found", wrong),
        found(Plugin { deletes: false, ..plugin(PLUGIN) }).refused("the plugin cannot delete", wrong),
    ]
}

fn reclaiming() -> Vec<Row> {
    use OperationKind::{Delete, Recycle};
    let delete = |object: &Volume, live: Volume| {
        let subject = on_volume(Delete, object, Point::Start, Returned::Success);
        let case = call(subject, PluginOperation::Delete, Point::Deleted);
        reads(matched(case, plugin(PLUGIN)), Lookup::Found(live.into()), "v")
    };
    let gone = released(ReclaimPolicy::Delete);
    let usual = || delete(&gone, gone.clone());
    let proven = |case: TestCase| case.proven(Lookup::Absent);
    let mut unread = proven(usual());
    unread.exchanges.pop();
    let mut unmatched = proven(usual());
    unmatched.exchanges.remove(0);
    let mut made = gone.clone();
    made.annotations.provisioned_by = Some("other".into());
    let csi = Volume { source: "csi".into(), ..gone.clone() };
    let kept = Volume { policy: ReclaimPolicy::Retain, ..gone.clone() };
    let again = Volume { uid: "u-again".into(), ..gone.clone() };
    let free = Volume { claim_ref: None, ..gone.clone() };
    let later = on_volume(Delete, &gone, Point::Deleted, Returned::Success);
    let scrubbed = released(ReclaimPolicy::Recycle);
    let recycle = |pods: Vec<Pod>| {
        let subject = on_volume(Recycle, &scrubbed, Point::Start, Returned::Success);
        let case = call(subject, PluginOperation::Recycle, Point::Recycled);
        let case = reads(matched(case, plugin(PLUGIN)), Lookup::Found(scrubbed.clone().into()), "v");
        proven(case).told(Question::Pods(key()), Answer::Pods(Ok(pods)))
    };
    let pod = |terminated| Pod { name: "p".into(), scheduled: true, terminated };
    let namesake = Answer::Claim(Lookup::Found(Claim { uid: "u-again".into(), ..claim() }.into()));
    let mut unasked = recycle(vec![]);
    unasked.exchanges.pop();
    let wrong = Breach::PluginCallWrong;
    vec![
        proven(usual()).allowed("delete"),
        usual().is("delete the asset without proof", Response::ProveClaim),
        usual()
            .live(Lookup::Found(crate::case::pair().0.into()))
            .refused("under a claim", Breach::ClaimLives),
        unread.refused("delete without looking", wrong),
        unmatched.refused("no plugin was found", wrong),
        proven(delete(&made, made.clone())).refused("another provisioned it", wrong),
        proven(delete(&csi, csi.clone())).refused("a CSI volume", wrong),
        proven(delete(&gone, kept)).refused("kept meanwhile", Breach::OperationWrong),
        proven(delete(&gone, again)).refused("created again meanwhile", wrong),
        proven(delete(&gone, free)).refused("its claimRef was cleared meanwhile", Breach::VolumePhaseWrong),
        proven(call(later, PluginOperation::Delete, Point::Deleted))
            .refused("delete twice", Breach::OperationWrong),
        proven(usual()).outcome(Outcome::Done).refused("not waited for", Breach::OperationWrong),
        recycle(vec![]).allowed("recycle"),
        recycle(vec![pod(true)]).allowed("recycle under a terminated pod"),
        recycle(vec![pod(false)]).refused("recycle under a pod", wrong),
        recycle(vec![pod(false)])
            .told(Question::Claim(Source::Overlay, key()), namesake)
            .allowed("the pod uses a namesake's volume"),
        unasked.refused("pods were not asked for", wrong),
    ]
}

fn points() -> Vec<Row> {
    use OperationKind::{Delete, Provision, ProvisionExternal, Recycle};
    let gone = released(ReclaimPolicy::Delete);
    let on = |kind, point, returned| TestCase::new(on_volume(kind, &gone, point, returned), []);
    let claim = |kind, point| TestCase::new(on_claim(kind, PLUGIN, &gold(), point, Returned::Success), []);
    let wrong = Breach::OperationWrong;
    let mut waits = on(Delete, Point::Start, Returned::Success);
    waits.decision.wait_ms = 10;
    let mut sync = TestCase::new(Subject::SyncVolume(gone.clone().into()), []);
    sync.decision.wait_ms = 10;
    vec![
        claim(ProvisionExternal, Point::Start).continues(Point::Annotated).allowed("annotated already"),
        claim(Provision, Point::Start).continues(Point::Provisioned).refused("not provisioned", wrong),
        claim(Provision, Point::Provisioned)
            .continues(Point::Created { attempt: 1 })
            .refused("not created", wrong),
        claim(Provision, Point::Annotated).continues(Point::Start).refused("from the start", wrong),
        on(Delete, Point::Start, Returned::Success).continues(Point::Deleted).refused("not deleted", wrong),
        on(Delete, Point::Start, Returned::Success)
            .continues(Point::FinalizerRemoved)
            .refused("skips the asset", wrong),
        on(Delete, Point::Deleted, Returned::Success)
            .continues(Point::FinalizerRemoved)
            .allowed("had no finalizer"),
        on(Delete, Point::Deleted, Returned::Failed("no".into()))
            .continues(Point::FinalizerRemoved)
            .refused("the plugin failed", wrong),
        on(Recycle, Point::Start, Returned::Success)
            .continues(Point::Recycled)
            .refused("not scrubbed", wrong),
        TestCase::new(Subject::SyncVolume(gone.clone().into()), [])
            .continues(Point::Deleted)
            .refused("a sync does not go on", wrong),
        waits.allowed("an operation waits"),
        sync.refused("a sync does not wait", Breach::OutOfPlace),
    ]
}

pub(crate) fn rows() -> Vec<Row> {
    [
        starts(),
        reclaim_starts(),
        provisioning(),
        followed(),
        cleaning_up(),
        unprotecting(),
        calls(),
        reclaiming(),
        points(),
    ]
    .concat()
}
