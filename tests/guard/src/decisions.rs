//! Decisions to judge: those of the default engine, the same with one change, and invented ones.

use bindery_core::{
    Action, CapacityChange, ClaimPhase, ClaimTarget, Clear, Cluster, Decision, Edit, Event, EventKind,
    Exchange, Failure, FinalizerEdit, Follows, Handle, Message, Operation, OperationKind, Outcome,
    PluginOperation, Point, Question, ReclaimPolicy, Recorder, Regarding, Request, Source, Step, Subject,
    Text, VolumePhase, VolumeTarget,
};
use bindery_kit::Choices;

use crate::model::Model;
use crate::worlds::{DRIVER, MIGRATED, PLUGIN, volume_phase};

/// Makes one change to a decision.
pub(crate) fn mutate(c: &mut Choices<'_>, model: &Model, decision: &mut Decision) {
    let len = decision.steps.len();
    if len == 0 || c.percent(10) {
        decision.steps.push(step(c, model));
        return;
    }
    let index = c.below(len);
    match c.below(8) {
        0 => _ = decision.steps.remove(index),
        1 => decision.steps.swap(index, (index + 1) % len),
        2 => decision.steps[index].follows = Follows::Regardless,
        3 => decision.outcome = outcome(c),
        4 => decision.steps.insert(index, step(c, model)),
        _ => alter(c, model, &mut decision.steps[index].action),
    }
}

/// An invented decision: any steps, any outcome.
pub(crate) fn invent(c: &mut Choices<'_>, model: &Model) -> Decision {
    let steps = (0..1 + c.below(3)).map(|_| step(c, model)).collect();
    Decision::new(steps, outcome(c))
}

/// Adds questions that any engine could ask, with the model's answers.
pub(crate) fn ask_more(c: &mut Choices<'_>, model: &Model, exchanges: &mut Vec<Exchange>) {
    let mut cluster = model.clone();
    let mut recorder = Recorder::new(&mut cluster);
    let names = [PLUGIN, DRIVER, MIGRATED.0];
    for _ in 0..c.below(8) {
        let claims: Vec<_> = model.seen.claims.keys().cloned().collect();
        let volumes: Vec<_> = model.seen.volumes.keys().cloned().collect();
        let source = c.pick(&[Source::Overlay, Source::Cache, Source::Live]);
        let question = match c.below(10) {
            0 | 1 => Question::Claim(source, c.pick(&claims)),
            2 | 3 => Question::Volume(source, c.pick(&volumes)),
            4 => Question::Identify(Handle(u32::try_from(c.below(3)).unwrap_or(0))),
            5 => Question::Plugin(c.pick(&names).into()),
            6 => Question::PluginForVolume(c.pick(&volumes)),
            7 => Question::Migration(c.pick(&names).into()),
            8 => Question::DynamicProvisioning,
            _ => Question::Pods(c.pick(&claims)),
        };
        // Evidence has only questions with an answer.
        let _ = recorder.ask(question);
    }
    exchanges.extend(recorder.into_exchanges());
}

/// Questions about the subject and its counterpart, so that invented decisions often have evidence.
pub(crate) fn ask_around(model: &Model, request: &Request) -> Vec<Exchange> {
    let mut cluster = model.clone();
    let mut recorder = Recorder::new(&mut cluster);
    let mut questions = vec![Question::DynamicProvisioning];
    questions.extend([PLUGIN, DRIVER, MIGRATED.0].map(|name| Question::Migration(name.into())));
    questions.push(Question::Plugin(PLUGIN.into()));
    match &request.subject {
        Subject::SyncClaimOperation(progress) => {
            questions.push(Question::Volume(Source::Live, format!("pvc-{}", progress.object.uid).into()));
        }
        Subject::SyncVolumeOperation(progress) => {
            questions.push(Question::Volume(Source::Live, progress.object.name.clone()));
            questions.push(Question::PluginForVolume(progress.object.name.clone()));
        }
        _ => {}
    }
    questions.extend(model.seen.claims.keys().map(|key| Question::Claim(Source::Overlay, key.clone())));
    questions.extend(model.seen.claims.keys().map(|key| Question::Pods(key.clone())));
    questions.extend(model.seen.volumes.keys().map(|name| Question::Volume(Source::Overlay, name.clone())));
    for question in questions {
        let _ = recorder.ask(question);
    }
    recorder.into_exchanges()
}

fn volume_target(c: &mut Choices<'_>, model: &Model) -> VolumeTarget {
    let volumes: Vec<_> = model.seen.volumes.values().collect();
    let mut target = c.pick(&volumes).target();
    spoil(c, &mut target.uid.0, &mut target.version.0);
    target
}

fn claim_target(c: &mut Choices<'_>, model: &Model) -> ClaimTarget {
    let claims: Vec<_> = model.seen.claims.values().collect();
    let mut target = c.pick(&claims).target();
    spoil(c, &mut target.uid.0, &mut target.version.0);
    target
}

/// Sometimes a UID or version that was not read.
fn spoil(c: &mut Choices<'_>, uid: &mut Text, version: &mut Text) {
    if c.percent(4) {
        *uid = c.pick(&["uid-c1", "uid-v1", "uid-again", ""]).into();
    }
    if c.percent(6) {
        *version = c.pick(&["2", "3", "0", ""]).into();
    }
}

fn step(c: &mut Choices<'_>, model: &Model) -> Step {
    let follows = c.usually(&[Follows::Success, Follows::Tolerated, Follows::Regardless]);
    Step { action: action(c, model), follows }
}

fn outcome(c: &mut Choices<'_>) -> Outcome {
    let attempt = u32::try_from(1 + c.below(3)).unwrap_or(1);
    c.usually(&[
        Outcome::Done,
        Outcome::Failed(Failure::Read("error".into())),
        Outcome::Continue(Point::Start),
        Outcome::Continue(Point::Annotated),
        Outcome::Continue(Point::Provisioned),
        Outcome::Continue(Point::Created { attempt }),
        Outcome::Continue(Point::CleanedUp { attempt }),
        Outcome::Continue(Point::Deleted),
        Outcome::Continue(Point::FinalizerRemoved),
        Outcome::Continue(Point::Recycled),
    ])
}

fn migrated_to(c: &mut Choices<'_>) -> Edit<Text> {
    c.usually(&[Edit::Keep, Edit::Remove, Edit::Set(MIGRATED.1.into()), Edit::Set("other".into())])
}

fn finalizer(c: &mut Choices<'_>) -> FinalizerEdit {
    c.pick(&[FinalizerEdit::Keep, FinalizerEdit::Add, FinalizerEdit::Remove])
}

fn plugin(c: &mut Choices<'_>) -> Text {
    c.usually(&[PLUGIN, DRIVER, MIGRATED.0, ""]).into()
}

fn call(c: &mut Choices<'_>) -> PluginOperation {
    c.pick(&[PluginOperation::Delete, PluginOperation::Provision, PluginOperation::Recycle])
}

fn kind(c: &mut Choices<'_>) -> OperationKind {
    c.pick(&[
        OperationKind::Delete,
        OperationKind::Recycle,
        OperationKind::Provision,
        OperationKind::ProvisionExternal,
    ])
}

fn phase(c: &mut Choices<'_>) -> (VolumePhase, Message) {
    let phase = volume_phase(c);
    let failed = (phase == VolumePhase::Failed) != c.percent(5);
    (phase, if failed { Message::NoRecycler } else { Message::Empty })
}

fn action(c: &mut Choices<'_>, model: &Model) -> Action {
    let volume = volume_target(c, model);
    let claim = claim_target(c, model);
    match c.below(16) {
        0 | 1 => Action::ReserveVolume { volume, claim, mark: c.percent(50) },
        2 | 3 => {
            let (phase, message) = phase(c);
            Action::SetVolumePhase { volume, phase, message }
        }
        4 => Action::BindClaim { claim, volume, set_volume_name: c.percent(70), mark: c.percent(50) },
        5 | 6 => status(c, model, claim),
        7 => Action::SetClaimClass { claim, class: c.pick(&["gold", "wait", "external", "none"]).into() },
        8 => {
            let provisioner = c.percent(60).then(|| c.pick(&[PLUGIN, DRIVER, MIGRATED.0, MIGRATED.1]).into());
            Action::AnnotateClaim { claim, provisioner, migrated_to: migrated_to(c) }
        }
        9 => Action::AnnotateVolume {
            volume,
            migrated_to: migrated_to(c),
            in_tree_finalizer: finalizer(c),
            external_finalizer: c.usually(&[FinalizerEdit::Keep, FinalizerEdit::Remove, FinalizerEdit::Add]),
        },
        10 => Action::UnbindVolume { volume, clear: if c.percent(50) { Clear::Whole } else { Clear::Uid } },
        11 => match c.below(3) {
            0 => Action::DeleteVolume { volume },
            1 => Action::RemoveSelectedNode { claim },
            _ => {
                let name =
                    if c.percent(10) { "pvc-other".into() } else { format!("pvc-{}", claim.uid).into() };
                let class = c.pick(&["", "gold", "external"]).into();
                Action::CreateVolume { claim, name, class, plugin: plugin(c) }
            }
        },
        12 => {
            let uid = if c.percent(50) { volume.uid } else { claim.uid };
            Action::StartOperation(Operation { kind: kind(c), plugin: plugin(c), uid })
        }
        13 => Action::CallPlugin { plugin: plugin(c), operation: call(c) },
        14 => {
            let policies = [ReclaimPolicy::Retain, ReclaimPolicy::Delete, ReclaimPolicy::Recycle];
            Action::SetReclaimPolicy { volume, policy: c.pick(&policies) }
        }
        _ => {
            let mut regarding =
                if c.percent(50) { Regarding::Volume(volume) } else { Regarding::Claim(claim) };
            if c.percent(30) {
                match &mut regarding {
                    Regarding::Volume(volume) => volume.uid = "u-unknown".into(),
                    Regarding::Claim(claim) => claim.uid = "u-unknown".into(),
                }
            }
            Action::Emit(Event { regarding, kind: EventKind::Unreadable("x".into()) })
        }
    }
}

fn status(c: &mut Choices<'_>, model: &Model, claim: ClaimTarget) -> Action {
    let phase = c.pick(&[ClaimPhase::Pending, ClaimPhase::Bound, ClaimPhase::Lost, ClaimPhase::Unset]);
    let volumes: Vec<_> = model.seen.volumes.values().collect();
    let volume = c.pick(&volumes);
    let amount = volume.annotations.pre_resize_capacity.or(volume.capacity).unwrap_or_default();
    if phase == ClaimPhase::Bound {
        let access_modes = c.usually(&[Edit::Set(volume.access_modes.clone()), Edit::Keep, Edit::Remove]);
        let capacity = c.usually(&[
            CapacityChange::Whole(amount),
            CapacityChange::Storage(amount),
            CapacityChange::Keep,
            CapacityChange::Remove,
        ]);
        let attributes_class = c.usually(&[Edit::Keep, Edit::Remove, Edit::Set("slow".into())]);
        return Action::SetClaimStatus { claim, phase, access_modes, capacity, attributes_class };
    }
    let access_modes = c.usually(&[Edit::Remove, Edit::Keep]);
    let capacity = c.usually(&[CapacityChange::Remove, CapacityChange::Keep]);
    let attributes_class = c.usually(&[Edit::Remove, Edit::Keep]);
    Action::SetClaimStatus { claim, phase, access_modes, capacity, attributes_class }
}

/// Changes one field of an action.
fn alter(c: &mut Choices<'_>, model: &Model, action: &mut Action) {
    match action {
        Action::ReserveVolume { volume, claim, mark } => match c.below(3) {
            0 => *volume = volume_target(c, model),
            1 => *claim = claim_target(c, model),
            _ => *mark = !*mark,
        },
        Action::SetVolumePhase { volume, phase: old, message } => match c.below(2) {
            0 => *volume = volume_target(c, model),
            _ => (*old, *message) = phase(c),
        },
        Action::BindClaim { claim, volume, set_volume_name, mark } => match c.below(4) {
            0 => *volume = volume_target(c, model),
            1 => *claim = claim_target(c, model),
            2 => *set_volume_name = !*set_volume_name,
            _ => *mark = !*mark,
        },
        Action::SetClaimStatus { claim, phase, access_modes, capacity, attributes_class } => match c.below(5)
        {
            0 => *claim = claim_target(c, model),
            1 => *phase = c.pick(&[ClaimPhase::Pending, ClaimPhase::Bound, ClaimPhase::Lost]),
            2 => *access_modes = c.pick(&[Edit::Keep, Edit::Remove]),
            3 => *capacity = c.pick(&[CapacityChange::Keep, CapacityChange::Remove]),
            _ => *attributes_class = c.pick(&[Edit::Set("slow".into()), Edit::Remove, Edit::Keep]),
        },
        Action::SetClaimClass { class, .. } => *class = c.pick(&["wait", "gold", "external", ""]).into(),
        Action::AnnotateClaim { provisioner, migrated_to: old, .. } => match c.below(2) {
            0 => *provisioner = Some(c.pick(&[PLUGIN, DRIVER, MIGRATED.0, MIGRATED.1]).into()),
            _ => *old = migrated_to(c),
        },
        Action::AnnotateVolume { volume, migrated_to: old, in_tree_finalizer, external_finalizer } => {
            match c.below(4) {
                0 => *volume = volume_target(c, model),
                1 => *old = migrated_to(c),
                2 => *in_tree_finalizer = finalizer(c),
                _ => *external_finalizer = finalizer(c),
            }
        }
        Action::UnbindVolume { volume, clear } => match c.below(2) {
            0 => *volume = volume_target(c, model),
            _ => *clear = if *clear == Clear::Whole { Clear::Uid } else { Clear::Whole },
        },
        Action::SetReclaimPolicy { volume, policy } => match c.below(2) {
            0 => *volume = volume_target(c, model),
            _ => *policy = c.pick(&[ReclaimPolicy::Retain, ReclaimPolicy::Delete, ReclaimPolicy::Recycle]),
        },
        Action::DeleteVolume { volume } => *volume = volume_target(c, model),
        Action::CreateVolume { claim, name, class, plugin: old } => match c.below(4) {
            0 => *claim = claim_target(c, model),
            1 => *name = "v0".into(),
            2 => *class = c.pick(&["", "gold", "wait"]).into(),
            _ => *old = plugin(c),
        },
        Action::StartOperation(operation) => match c.below(3) {
            0 => operation.kind = kind(c),
            1 => operation.plugin = plugin(c),
            _ => operation.uid = volume_target(c, model).uid,
        },
        Action::CallPlugin { plugin: old, operation } => match c.below(2) {
            0 => *old = plugin(c),
            _ => *operation = call(c),
        },
        Action::RemoveSelectedNode { claim } => *claim = claim_target(c, model),
        Action::Emit(_) | Action::EnqueueClaim(_) => *action = step(c, model).action,
    }
}
