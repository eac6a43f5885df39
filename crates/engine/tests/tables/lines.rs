//! Decisions and questions as lines of text.
//!
//! An action that may fail without failing the decision ends with `?`, one that follows regardless with `!`.
//! The last line of a decision is its outcome.

use bindery_core::{
    Action, CapacityChange, Decision, Edit, Event, FinalizerEdit, Follows, Outcome, Point, Question,
    Regarding, Source, Step, Text, VolumeTarget,
};

/// A decision: how long it waits, its steps, what a review finds, how it goes on, when it is made again, and
/// how many volumes were not chosen for which reason, with the nearest of them.
pub(crate) fn decision(decision: &Decision) -> Vec<String> {
    let wait = (decision.wait_ms > 0).then(|| format!("wait {} ms", decision.wait_ms));
    let steps = decision.steps.iter().map(step);
    let findings =
        decision.findings.iter().map(|f| format!("{:?} {:?} / {:?}", f.rule, &*f.found, &*f.wanted));
    let outcome = match &decision.outcome {
        Outcome::Done => "done".to_owned(),
        Outcome::Failed(failure) => format!("failed: {failure}"),
        Outcome::Continue(at) => format!("continue at {}", point(*at)),
    };
    let again = decision.requeue_after_ms.map(|time| format!("again in {time} ms"));
    let tallies = decision.tallies.iter().map(|tally| {
        let nearest: String = tally.nearest.iter().map(|name| format!(" {name}")).collect();
        format!("{} {:?}{nearest}", tally.count, tally.reason)
    });
    wait.into_iter().chain(steps).chain(findings).chain([outcome]).chain(again).chain(tallies).collect()
}

fn point(point: Point) -> String {
    match point {
        Point::Created { attempt } => format!("Created {attempt}"),
        Point::CleanedUp { attempt } => format!("CleanedUp {attempt}"),
        point => format!("{point:?}"),
    }
}

fn step(step: &Step) -> String {
    let mark = match step.follows {
        Follows::Success => "",
        Follows::Tolerated => "?",
        Follows::Regardless => "!",
    };
    format!("{}{mark}", action(&step.action))
}

fn action(action: &Action) -> String {
    match action {
        Action::ReserveVolume { volume, claim, mark } => {
            format!("reserve {} for {}{}", volume.name, claim.key.name, said(*mark, " mark"))
        }
        Action::SetVolumePhase { volume, phase, message } => {
            let message = message.to_string();
            let message = if message.is_empty() { message } else { format!(": {message}") };
            format!("volume {} {}{message}", volume.name, phase.name())
        }
        Action::BindClaim { claim, volume, set_volume_name, mark } => {
            let name = said(*set_volume_name, " name");
            format!("bind {} to {}{name}{}", claim.key.name, volume.name, said(*mark, " mark"))
        }
        Action::SetClaimStatus { claim, phase, access_modes, capacity, attributes_class } => {
            let modes = match access_modes {
                Edit::Keep => String::new(),
                Edit::Set(modes) => modes.iter().map(|mode| format!(" +{}", mode.short())).collect(),
                Edit::Remove => " -modes".to_owned(),
            };
            let capacity = match capacity {
                CapacityChange::Keep => String::new(),
                CapacityChange::Remove => " -capacity".to_owned(),
                CapacityChange::Storage(quantity) => format!(" storage={quantity}"),
                CapacityChange::Whole(quantity) => format!(" capacity={quantity}"),
            };
            let attributes = edit("attributes", attributes_class);
            format!("claim {} {}{modes}{capacity}{attributes}", claim.key.name, phase.name())
        }
        Action::SetClaimClass { claim, class } => format!("class of {}: {class}", claim.key.name),
        Action::AnnotateClaim { claim, provisioner, migrated_to } => {
            let provisioner = provisioner.as_ref().map(|p| format!(" provisioner={p}")).unwrap_or_default();
            format!("annotate claim {}{provisioner}{}", claim.key.name, edit("migrated-to", migrated_to))
        }
        Action::RemoveSelectedNode { claim } => format!("remove node of {}", claim.key.name),
        Action::AnnotateVolume { volume, migrated_to, in_tree_finalizer, external_finalizer } => format!(
            "annotate volume {}{}{}{}",
            target(volume),
            edit("migrated-to", migrated_to),
            finalizer("in-tree", *in_tree_finalizer),
            finalizer("external", *external_finalizer)
        ),
        Action::SetReclaimPolicy { volume, policy } => {
            format!("policy of {}: {}", volume.name, policy.name())
        }
        Action::UnbindVolume { volume, clear } => format!("unbind {} {clear:?}", volume.name),
        Action::CreateVolume { name, class, plugin, .. } => {
            format!("create {name} class={class} plugin={plugin}")
        }
        Action::DeleteVolume { volume } => format!("delete {}", target(volume)),
        Action::Emit(event) => emit(event),
        Action::EnqueueClaim(key) => format!("enqueue {key}"),
        Action::StartOperation(operation) => {
            format!("start {:?} {:?} {}", operation.kind, &*operation.plugin, operation.uid)
        }
        Action::CallPlugin { plugin, operation } => format!("call {plugin} {operation:?}"),
    }
}

/// The name of a volume, and its version where that is not the usual one.
fn target(VolumeTarget { name, version, .. }: &VolumeTarget) -> String {
    if *version == "1".into() { name.to_string() } else { format!("{name} at {version}") }
}

fn emit(event: &Event) -> String {
    let (event_type, reason) = event.kind.type_and_reason();
    let object = match &event.regarding {
        Regarding::Claim(claim) => &claim.key.name,
        Regarding::Volume(volume) => &volume.name,
    };
    format!("{} {reason} on {object}", event_type.name())
}

fn said(is: bool, text: &'static str) -> &'static str {
    if is { text } else { "" }
}

fn edit(name: &str, edit: &Edit<Text>) -> String {
    match edit {
        Edit::Keep => String::new(),
        Edit::Set(value) => format!(" {name}={value}"),
        Edit::Remove => format!(" -{name}"),
    }
}

fn finalizer(name: &str, edit: FinalizerEdit) -> String {
    match edit {
        FinalizerEdit::Keep => String::new(),
        FinalizerEdit::Add => format!(" +{name}"),
        FinalizerEdit::Remove => format!(" -{name}"),
    }
}

/// Kind and object of a question.
pub(crate) fn question(question: &Question) -> String {
    let source = |source: &Source| format!("{source:?}").to_lowercase();
    match question {
        Question::Claim(from, key) => format!("claim {} {}", source(from), key.name),
        Question::Volume(from, name) => format!("volume {} {name}", source(from)),
        Question::Pods(key) => format!("pods {}", key.name),
        Question::Node(name) => format!("node {name}"),
        Question::Class(name) => format!("class {name}"),
        Question::DefaultClasses => "default classes".to_owned(),
        Question::Plugin(name) => format!("plugin {name}"),
        Question::PluginForVolume(name) => format!("plugin for {name}"),
        Question::PluginReady(name, operation) => format!("ready {name} {operation:?}"),
        Question::Migration(name) => format!("migration {name}"),
        Question::DynamicProvisioning => "dynamic provisioning".to_owned(),
        Question::Operation(kind, uid) => format!("operation {kind:?} {uid}"),
        Question::AccessSets(set) => format!("access sets {}", set.bits()),
        Question::Candidates { query, limit, .. } => {
            format!("candidates {} {limit}", query.access_set.bits())
        }
        Question::ReservedFor { key, .. } => format!("reserved for {}", key.name),
        Question::Identify(handle) => format!("identify {}", handle.0),
        Question::Describe(handle) => format!("describe {}", handle.0),
        Question::Tallies(_) => "tallies".to_owned(),
        Question::Verdict(name) => format!("verdict of {name}"),
        Question::Reclaim(name) => format!("reclaim of {name}"),
    }
}
