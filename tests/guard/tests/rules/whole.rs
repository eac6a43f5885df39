//! G5 to G8: versions, the initial lists, unreadable objects, sizes.

use bindery_core::guard::{Breach, FINDINGS_MAX, REGARDLESS_MAX, STEPS_MAX, TALLIES_MAX, TEXT_BYTES_MAX};
use bindery_core::{
    Action, Answer, CapacityChange, ClaimKey, ClaimPhase, ClaimTarget, Edit, Event, EventKind, Failure,
    Finding, Follows, Handle, Lookup, Message, NEAREST_MAX, OperationKind, Outcome, PluginFound, Point,
    Question, Reason, ReclaimPolicy, Regarding, Returned, Rule, Source, Step, Subject, Tally, Text, Volume,
    VolumePhase, VolumeTarget,
};

use crate::case::{Response, Row, TestCase, broken, claim, claim_ref, key, on_volume, released, volume};

/// Makes a free volume Available.
fn offer(target: VolumeTarget) -> Action {
    Action::SetVolumePhase { volume: target, phase: VolumePhase::Available, message: Message::Empty }
}

fn free() -> Volume {
    Volume { phase: VolumePhase::Pending, ..volume() }
}

fn case(actions: impl IntoIterator<Item = Action>) -> TestCase {
    TestCase::new(Subject::SyncVolume(free().into()), actions).with_volume(&free())
}

fn versions() -> Vec<Row> {
    let target = free().target();
    let spoiled = |change: fn(&mut VolumeTarget)| {
        let mut target = target.clone();
        change(&mut target);
        case([offer(target)])
    };
    let newer = Volume { version: "v2".into(), ..free() };
    let mut two = case([offer(target.clone()), offer(newer.target())]);
    two = two.told(
        Question::Volume(Source::Live, "v".into()),
        Answer::Volume(Lookup::Found(newer.clone().into())),
    );
    // What is known of this volume is its identity alone.
    let other = Volume { name: "w".into(), uid: "u-w".into(), ..free() };
    let identified = |now: &Volume| {
        let mut case = case([offer(other.target())])
            .told(Question::Identify(Handle(0)), Answer::Identity(other.target()));
        case.world.volumes.insert("w".into(), Lookup::Found(now.clone().into()));
        case
    };
    let mut unasked = case([offer(other.target())]);
    unasked.world.volumes.insert("w".into(), Lookup::Found(other.clone().into()));
    vec![
        case([offer(target.clone())]).allowed("as it was read"),
        spoiled(|target| target.uid = "u-other".into()).refused("another UID", Breach::NotRead),
        spoiled(|target| target.name = "w".into()).refused("another name", Breach::NotRead),
        spoiled(|target| target.version = "v0".into())
            .is("another version than the world's", Response::Stale),
        two.refused("two versions", Breach::TwoVersions),
        case([offer(newer.target())])
            .told(Question::Volume(Source::Live, "v".into()), Answer::Volume(Lookup::Found(newer.into())))
            .allowed("as it was read live"),
        identified(&other).allowed("identified"),
        identified(&Volume { version: "v9".into(), ..other.clone() })
            .is("identified, and moved", Response::Stale),
        identified(&Volume { uid: "u-again".into(), ..other.clone() })
            .refused("identified, and another", Breach::NotRead),
        unasked.refused("the engine was not told of it", Breach::NotRead),
    ]
}

/// An event is about an object that the engine was shown.
fn events() -> Vec<Row> {
    let about = |regarding| case([Action::Emit(Event { regarding, kind: EventKind::VolumeRecycled })]);
    let volume = |change: fn(&mut VolumeTarget)| {
        let mut target = free().target();
        change(&mut target);
        about(Regarding::Volume(target))
    };
    let other = Volume { name: "w".into(), uid: "u-w".into(), ..free() }.target();
    let bystander = || about(Regarding::Claim(claim().target()));
    vec![
        volume(|_| {}).allowed("an event about what it decides"),
        volume(|target| target.uid = "u-other".into()).refused("about another UID", Breach::NotRead),
        volume(|target| target.name = "../w".into()).refused("about another name", Breach::NotRead),
        volume(|target| target.version = "v0".into()).refused("at another version", Breach::NotRead),
        about(Regarding::Volume(other.clone())).refused("about a stranger", Breach::NotRead),
        about(Regarding::Volume(other.clone()))
            .told(Question::Identify(Handle(0)), Answer::Identity(other))
            .allowed("about what was identified"),
        bystander().refused("about a claim that it was not told of", Breach::NotRead),
        bystander().with_claim(&claim()).allowed("about a claim that it was told of"),
    ]
}

/// As [`versions`], for the claim that an action names.
fn versions_of_claims() -> Vec<Row> {
    let c = claim();
    let reserve = |target: ClaimTarget| {
        let action = Action::ReserveVolume { volume: volume().target(), claim: target, mark: true };
        TestCase::new(Subject::SyncVolume(volume().into()), [action]).with_volume(&volume())
    };
    let spoiled = |change: fn(&mut ClaimTarget)| {
        let mut target = c.target();
        change(&mut target);
        reserve(target).with_claim(&c)
    };
    let clear = |target: ClaimTarget| Action::SetClaimStatus {
        claim: target,
        phase: ClaimPhase::Pending,
        access_modes: Edit::Keep,
        capacity: CapacityChange::Keep,
        attributes_class: Edit::Keep,
    };
    let twice = |second: ClaimTarget| {
        TestCase::new(Subject::SyncClaim(c.clone().into()), [clear(c.target()), clear(second)]).with_claim(&c)
    };
    let moved = ClaimTarget { version: "c2".into(), ..c.target() };
    let renamed = ClaimTarget { key: ClaimKey::new("ns", "d"), ..c.target() };
    let mut unasked = reserve(c.target());
    unasked.world.claims.insert(key(), Lookup::Found(c.clone().into()));
    vec![
        reserve(c.target()).with_claim(&c).allowed("a claim as it was read"),
        spoiled(|target| target.version = "v0".into())
            .is("another version of the claim than the world's", Response::Stale),
        spoiled(|target| target.uid = "u-other".into()).refused("another UID of the claim", Breach::NotRead),
        spoiled(|target| {
            target.uid = "u-other".into();
            target.version = "v0".into();
        })
        .refused("another UID and version of the claim", Breach::NotRead),
        unasked.refused("the engine was not told of the claim", Breach::NotRead),
        twice(c.target()).allowed("one claim twice"),
        twice(moved).refused("two versions of the claim", Breach::TwoVersions),
        twice(renamed).refused("two names of the claim", Breach::TwoVersions),
    ]
}

fn readiness() -> Vec<Row> {
    let mut early = case([offer(free().target())]);
    early.world.synced = false;
    let mut idle = case([]);
    idle.world.synced = false;
    let mut unreadable = case([offer(free().target())]);
    unreadable.world.volumes.insert("v".into(), broken());
    let named = Volume { claim_ref: claim_ref(None), ..free() };
    let mut by_name =
        TestCase::new(Subject::SyncVolume(named.clone().into()), [offer(named.target())]).with_volume(&named);
    by_name.world.claims.insert(key(), broken());
    let c = claim();
    let action = Action::ReserveVolume { volume: volume().target(), claim: c.target(), mark: true };
    let reserve =
        TestCase::new(Subject::SyncClaim(c.clone().into()), [action]).with_claim(&c).with_volume(&volume());
    let mut broken_claim = reserve.clone();
    broken_claim.world.claims.insert(key(), broken());
    let told_broken = case([offer(free().target())])
        .told(Question::Volume(Source::Live, "v".into()), Answer::Volume(broken()));
    let told_broken_claim =
        reserve.clone().told(Question::Claim(Source::Live, key()), Answer::Claim(broken()));
    let review = Subject::ReviewVolume { new: free().into(), old: None };
    vec![
        early.refused("before the lists are complete", Breach::NotSynced),
        idle.allowed("nothing to do before the lists are complete"),
        unreadable.refused("a volume that cannot be read any more", Breach::Unreadable),
        told_broken.refused("a volume that could not be read", Breach::Unreadable),
        told_broken_claim.refused("a claim that could not be read", Breach::Unreadable),
        by_name.allowed("offered, though the claim that it is reserved for cannot be read"),
        reserve.allowed("a claim that can be read"),
        broken_claim.refused("a claim that cannot be read", Breach::Unreadable),
        TestCase::new(review.clone(), []).allowed("a review"),
        TestCase::new(review, [Action::EnqueueClaim(key())])
            .refused("a review that acts", Breach::OutOfPlace),
    ]
}

fn sizes() -> Vec<Row> {
    let say = |bytes: usize| {
        let kind = EventKind::Unreadable("x".repeat(bytes).into());
        Action::Emit(Event { regarding: Regarding::Volume(free().target()), kind })
    };
    let many = |steps| case((0..steps).map(|_| Action::EnqueueClaim(key())));
    let large = Breach::TooLarge;
    let tally = |nearest| Tally { reason: Reason::TooSmall, count: 1, nearest: vec!["v".into(); nearest] };
    let tallied = |tallies: usize, nearest| {
        let mut case = case([]);
        case.decision.tallies = vec![tally(nearest); tallies];
        case
    };
    let found = |findings| {
        let mut case = case([]);
        let (volume, found, wanted) = ("v".into(), "".into(), "".into());
        let finding = Finding { rule: Rule::VolumeTooSmall, volume, claim: None, found, wanted };
        case.decision.findings = vec![finding; findings];
        case
    };
    let regardless = |count: usize| {
        let mut case = case([]);
        let step = Step { action: offer(free().target()), follows: Follows::Regardless };
        case.decision.steps = vec![step; count];
        case
    };
    vec![
        many(STEPS_MAX).allowed("many steps"),
        many(STEPS_MAX + 1).refused("too many steps", large),
        case([say(TEXT_BYTES_MAX)]).allowed("a long text"),
        case([say(TEXT_BYTES_MAX + 1)]).refused("too long a text", large),
        case((0..17).map(|_| say(TEXT_BYTES_MAX))).refused("too many long texts", large),
        tallied(TALLIES_MAX, NEAREST_MAX).allowed("tallies"),
        tallied(TALLIES_MAX + 1, 0).refused("too many tallies", large),
        tallied(1, NEAREST_MAX + 1).refused("too many candidates", large),
        found(FINDINGS_MAX).allowed("findings"),
        found(FINDINGS_MAX + 1).refused("too many findings", large),
        regardless(REGARDLESS_MAX).allowed("writes that follow regardless"),
        regardless(REGARDLESS_MAX + 1).refused("too many of them", large),
    ]
}

/// A place for a text of the engine's own, and a decision that has the text there.
type Place = (&'static str, fn(Text) -> TestCase);

/// In each place: as long as a text may be, and longer.
fn texts() -> Vec<Row> {
    fn fail(message: Message) -> TestCase {
        let gone = released(ReclaimPolicy::Delete);
        let action = Action::SetVolumePhase { volume: gone.target(), phase: VolumePhase::Failed, message };
        TestCase::new(on_volume(OperationKind::Delete, &gone, Point::Start, Returned::Success), [action])
    }
    fn say(kind: EventKind) -> TestCase {
        case([Action::Emit(Event { regarding: Regarding::Volume(free().target()), kind })])
    }
    fn several(names: Vec<Text>) -> Message {
        Message::NoDeleter { volume: "v".into(), found: PluginFound::Several(names) }
    }
    let places: [Place; 11] = [
        ("the message of a phase", |text| fail(Message::DeleteFailed(text))),
        ("a plugin in the message of a phase", |text| fail(several(vec!["p".into(), text]))),
        ("an error in the message of a phase", |text| {
            fail(Message::DeleterNotReady { volume: "v".into(), error: text })
        }),
        ("the message of an event", |text| say(EventKind::VolumeFailedDelete(Message::DeleteFailed(text)))),
        ("what failed, in an event", |text| say(EventKind::ProvisioningFailed(Failure::Plugin(text)))),
        ("what failed to be cleaned up, in an event", |text| {
            say(EventKind::ProvisioningCleanupFailed(Failure::Node { name: "n".into(), error: text }))
        }),
        ("a pod in an event", |text| say(EventKind::RecycleWaitsForPods(vec!["ns/p".into(), text]))),
        ("what failed, in the outcome", |text| case([]).outcome(Outcome::Failed(Failure::Plugin(text)))),
        ("the class that failed, in the outcome", |text| {
            case([]).outcome(Outcome::Failed(Failure::Class { name: text, error: "".into() }))
        }),
        ("a candidate in a tally", |text| {
            let mut case = case([]);
            case.decision.tallies = vec![Tally { reason: Reason::TooSmall, count: 1, nearest: vec![text] }];
            case
        }),
        ("a value in a finding", |text| {
            let mut case = case([]);
            let (volume, found) = ("v".into(), "".into());
            let finding = Finding { rule: Rule::VolumeTooSmall, volume, claim: None, found, wanted: text };
            case.decision.findings = vec![finding];
            case
        }),
    ];
    let both = |(name, place): Place| {
        let long = |bytes| place("x".repeat(bytes).into());
        [long(TEXT_BYTES_MAX).allowed(name), long(TEXT_BYTES_MAX + 1).refused(name, Breach::TooLarge)]
    };
    places.into_iter().flat_map(both).collect()
}

pub(crate) fn rows() -> Vec<Row> {
    [versions(), events(), versions_of_claims(), readiness(), sizes(), texts()].concat()
}
