//! Sizes (G8): as large as a decision may be, and larger.

use bindery_core::guard::{FINDINGS_MAX, REGARDLESS_MAX, STEPS_MAX, TALLIES_MAX, TEXT_BYTES_MAX};
use bindery_core::{
    Action, Decision, Event, EventKind, Failure, Finding, Message, NEAREST_MAX, Outcome, PluginFound, Reason,
    Regarding, Rule, Step, Subject, Tally, Text, VolumePhase,
};

use crate::table::{self, Row};

const LARGE: &str = "too-large";

/// The row of a sync of volume `v` that decides this.
fn row(name: &'static str, expected: &'static str, decision: Decision) -> Row {
    Row {
        name,
        case: crate::case::TestCase { decision, ..table::case("sync volume v phase=Pending", "") },
        expected,
    }
}

fn acts(actions: impl IntoIterator<Item = Action>) -> Decision {
    Decision::new(actions.into_iter().map(Step::from).collect(), Outcome::Done)
}

fn say(kind: EventKind) -> Action {
    Action::Emit(Event { regarding: Regarding::Volume(crate::case::volume("v").target()), kind })
}

fn long(bytes: usize) -> Text {
    "x".repeat(bytes).into()
}

fn finding(wanted: Text) -> Finding {
    Finding { rule: Rule::VolumeTooSmall, volume: "v".into(), claim: None, found: "".into(), wanted }
}

fn tally(nearest: Vec<Text>) -> Tally {
    Tally { reason: Reason::TooSmall, count: 1, nearest }
}

fn counts() -> Vec<Row> {
    let many = |steps| acts((0..steps).map(|_| Action::EnqueueClaim(table::key("c"))));
    let told = |times: usize, bytes| acts(vec![say(EventKind::Unreadable(long(bytes))); times]);
    let tallied = |tallies, nearest| {
        let tallies = vec![tally(vec!["v".into(); nearest]); tallies];
        Decision { tallies, ..Decision::done() }
    };
    let found = |count| Decision { findings: vec![finding("".into()); count], ..Decision::done() };
    let regardless = |count| {
        let decision = table::case("sync volume v phase=Pending", "volume v Available!").decision;
        Decision { steps: vec![decision.steps[0].clone(); count], ..decision }
    };
    vec![
        row("many steps", "allowed", many(STEPS_MAX)),
        row("too many steps", LARGE, many(STEPS_MAX + 1)),
        row("too many long texts", LARGE, told(17, TEXT_BYTES_MAX)),
        row("tallies", "allowed", tallied(TALLIES_MAX, NEAREST_MAX)),
        row("too many tallies", LARGE, tallied(TALLIES_MAX + 1, 0)),
        row("too many candidates", LARGE, tallied(1, NEAREST_MAX + 1)),
        row("findings", "allowed", found(FINDINGS_MAX)),
        row("too many findings", LARGE, found(FINDINGS_MAX + 1)),
        row("writes that follow regardless", "allowed", regardless(REGARDLESS_MAX)),
        row("too many of them", LARGE, regardless(REGARDLESS_MAX + 1)),
    ]
}

/// A place for a text of the engine's own, and what has the text there.
type Place<T> = (&'static str, fn(Text) -> T);

const PLACES: [Place<Decision>; 9] = [
    ("a text of an event", |text| acts([say(EventKind::Unreadable(text))])),
    ("the message of an event", |text| {
        acts([say(EventKind::VolumeFailedDelete(Message::DeleteFailed(text)))])
    }),
    ("a failure in an event", |text| acts([say(EventKind::ProvisioningFailed(Failure::Plugin(text)))])),
    ("a failed cleanup in an event", |text| {
        let failure = Failure::Node { name: "n".into(), error: text };
        acts([say(EventKind::ProvisioningCleanupFailed(failure))])
    }),
    ("a pod in an event", |text| acts([say(EventKind::RecycleWaitsForPods(vec!["ns/p".into(), text]))])),
    ("the failure of the outcome", |text| Decision::new(vec![], Outcome::Failed(Failure::Plugin(text)))),
    ("the class in the failure", |text| {
        Decision::new(vec![], Outcome::Failed(Failure::Class { name: text, error: "".into() }))
    }),
    ("a candidate in a tally", |text| Decision { tallies: vec![tally(vec![text])], ..Decision::done() }),
    ("a value in a finding", |text| Decision { findings: vec![finding(text)], ..Decision::done() }),
];

/// Messages of a volume that could not be deleted.
const MESSAGES: [Place<Message>; 3] = [
    ("the message of a phase", Message::DeleteFailed),
    ("a plugin in the message of a phase", |text| Message::NoDeleter {
        volume: "v".into(),
        found: PluginFound::Several(vec!["p".into(), text]),
    }),
    ("an error in the message of a phase", |text| Message::DeleterNotReady {
        volume: "v".into(),
        error: text,
    }),
];

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = counts();
    for (bytes, expected) in [(TEXT_BYTES_MAX, "allowed"), (TEXT_BYTES_MAX + 1, LARGE)] {
        rows.extend(PLACES.map(|(name, place)| row(name, expected, place(long(bytes)))));
        rows.extend(MESSAGES.map(|(name, message)| {
            let given = "Delete volume v claim_ref=c/u-c phase=Released policy=Delete";
            let mut case = table::case(given, "volume v Failed");
            let Subject::SyncVolumeOperation(progress) = &case.request.subject else { unreachable!("given") };
            let (volume, phase) = (progress.object.target(), VolumePhase::Failed);
            let message = message(long(bytes));
            case.decision.steps[0].action = Action::SetVolumePhase { volume, phase, message };
            Row { name, case, expected }
        }));
    }
    rows
}
