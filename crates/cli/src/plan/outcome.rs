//! What became of each claim and each released volume, as data for reports.

use std::sync::Arc;

use bindery_controller::Key;
use bindery_core::{
    Action, Claim, ClaimPhase, Event, EventKind, Lookup, OperationKind, Reason, ReclaimPolicy, Source, Text,
    Volume, VolumePhase,
};
use bindery_store::{Candidate, Obstacle};
use serde::Serialize;
use serde_json::Value;

use super::world::{Record, World};

/// What would become of everything. Its JSON is read by programs: fields are only added.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Plan {
    /// Every claim, by namespace and name.
    pub(super) claims: Vec<ClaimPlan>,
    /// The volumes whose claims are gone, by name.
    pub(super) volumes: Vec<VolumePlan>,
}

/// What would become of a claim.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClaimPlan {
    /// Namespace.
    pub(super) namespace: Text,
    /// Name.
    pub(super) name: Text,
    /// What it asks for.
    pub(super) request: String,
    /// Its class at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) storage_class: Option<Text>,
    /// What becomes of it.
    pub(super) outcome: Outcome,
    /// Whether that is new, rather than as it was given.
    pub(super) changed: bool,
    /// The volume that it has at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) volume: Option<Text>,
    /// The capacity that it has at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) capacity: Option<String>,
    /// Who would provision a volume for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) provisioner: Option<Text>,
    /// What the user would be told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) messages: Vec<String>,
    /// For a claim that has no volume: every volume, nearest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) candidates: Vec<CandidatePlan>,
}

/// What becomes of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Outcome {
    /// It has a volume.
    Bound,
    /// A volume would be made for it.
    Provisioning,
    /// Its class waits until a pod uses it.
    WaitsForConsumer,
    /// Its class waits until the scheduler has placed the pods that use it.
    WaitsForScheduler,
    /// It gets nothing.
    Pending,
    /// Its volume is gone or belongs to another claim.
    Lost,
    /// It was being deleted, and is gone.
    Deleted,
}

/// A volume that a claim does not get.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CandidatePlan {
    /// Name of the volume.
    pub(super) volume: Text,
    /// Whether the claim could have it: with a class that waits, the scheduler may choose it.
    pub(super) fits: bool,
    /// Everything that keeps the claim from it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) obstacles: Vec<ObstaclePlan>,
}

/// One thing that keeps a claim from a volume.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObstaclePlan {
    /// The reason, as decisions count it.
    reason: &'static str,
    /// The field of the volume; absent where none is at fault.
    #[serde(skip_serializing_if = "str::is_empty")]
    field: &'static str,
    /// What the volume has there.
    #[serde(skip_serializing_if = "String::is_empty")]
    offers: String,
    /// What the claim asks for.
    #[serde(skip_serializing_if = "String::is_empty")]
    asks: String,
    /// All of that in a sentence.
    pub(super) message: String,
}

/// What would become of a volume whose claim is gone.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VolumePlan {
    /// Name.
    pub(super) name: Text,
    /// Its capacity.
    pub(super) capacity: String,
    /// Its reclaim policy.
    pub(super) reclaim_policy: String,
    /// Its phase at the end; `Deleted` where it is gone.
    pub(super) phase: String,
    /// What would be done with it, in a sentence.
    pub(super) fate: String,
}

/// What became of everything in a world that has come to rest.
pub(super) fn plan(world: &World) -> Plan {
    let mut volumes: Vec<_> = world.volumes_before().filter_map(|name| volume_plan(world, name)).collect();
    volumes.sort_by(|a, b| a.name.cmp(&b.name));
    Plan { claims: world.claims_before().map(|before| claim_plan(world, before)).collect(), volumes }
}

fn claim_plan(world: &World, before: &Arc<Claim>) -> ClaimPlan {
    let record = world.record(&Key::Claim(before.key.clone()));
    let now = world.claim(&before.key);
    let claim = now.as_ref().unwrap_or(before);
    let outcome = if now.is_some() { outcome(claim, &record) } else { Outcome::Deleted };
    let bound = outcome == Outcome::Bound;
    let has_volume = matches!(outcome, Outcome::Bound | Outcome::Lost | Outcome::Deleted);
    ClaimPlan {
        namespace: claim.key.namespace.clone(),
        name: claim.key.name.clone(),
        request: claim.request.to_string(),
        storage_class: claim.class.clone(),
        outcome,
        changed: before.status.phase != claim.status.phase || before.volume_name != claim.volume_name,
        volume: claim.volume_name.clone(),
        capacity: claim.status.capacity.filter(|_| bound).map(|capacity| capacity.to_string()),
        provisioner: provisioner(claim, &record).filter(|_| outcome == Outcome::Provisioning),
        messages: if bound { Vec::new() } else { messages(world, claim, &record) },
        candidates: if has_volume { Vec::new() } else { candidates(world, claim) },
    }
}

fn outcome(claim: &Claim, record: &Record) -> Outcome {
    match claim.status.phase {
        ClaimPhase::Bound => return Outcome::Bound,
        ClaimPhase::Lost => return Outcome::Lost,
        ClaimPhase::Unset | ClaimPhase::Pending => {}
    }
    let told = |is: fn(&EventKind) -> bool| events(record).any(|event| is(&event.kind));
    if told(|kind| matches!(kind, EventKind::ExternalProvisioning(_))) {
        Outcome::Provisioning
    } else if told(|kind| matches!(kind, EventKind::WaitForFirstConsumer)) {
        Outcome::WaitsForConsumer
    } else if told(|kind| matches!(kind, EventKind::WaitForPodScheduled(_))) {
        Outcome::WaitsForScheduler
    } else {
        Outcome::Pending
    }
}

fn provisioner(claim: &Claim, record: &Record) -> Option<Text> {
    let told = events(record).find_map(|event| match &event.kind {
        EventKind::ExternalProvisioning(provisioner) => Some(provisioner.clone()),
        _ => None,
    });
    told.or_else(|| claim.annotations.storage_provisioner.clone())
}

fn events(record: &Record) -> impl Iterator<Item = &Event> {
    record.decisions.iter().flat_map(|decision| decision.actions()).filter_map(|action| match action {
        Action::Emit(event) => Some(event),
        _ => None,
    })
}

/// What the user would be told, each sentence once.
fn messages(world: &World, claim: &Claim, record: &Record) -> Vec<String> {
    let missing = claim.volume_name.as_deref().filter(|name| world.volume(name).is_none());
    // Upstream waits for such a volume without a word.
    let missing = missing.map(|name| format!("spec.volumeName: there is no volume {name:?} yet"));
    let told = events(record).map(|event| event.kind.to_string());
    let mut messages: Vec<String> = Vec::new();
    for message in told.chain(missing).chain(record.error.clone()) {
        if !messages.iter().any(|known| known.contains(&message)) {
            messages.push(message);
        }
    }
    messages
}

/// The volumes that the claim could be thought to get: the one that it names, else all.
fn candidates(world: &World, claim: &Claim) -> Vec<CandidatePlan> {
    let candidates = world.store().explain(claim).into_iter();
    candidates
        .map(|Candidate { volume, obstacles }| CandidatePlan {
            volume,
            fits: obstacles.is_empty(),
            obstacles: obstacles.iter().map(obstacle).collect(),
        })
        .collect()
}

fn obstacle(obstacle: &Obstacle) -> ObstaclePlan {
    ObstaclePlan {
        reason: reason(obstacle.reason),
        field: obstacle.field,
        offers: obstacle.offers.clone(),
        asks: obstacle.asks.clone(),
        message: obstacle.to_string(),
    }
}

/// The contract's name of a reason.
fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Unreadable => "unreadable",
        Reason::ReservedForOther => "reserved-for-other",
        Reason::Deleting => "deleting",
        Reason::ClassDiffers => "class-differs",
        Reason::VolumeModeDiffers => "volume-mode-differs",
        Reason::AttributesClassDiffers => "attributes-class-differs",
        Reason::AccessModesMissing => "access-modes-missing",
        Reason::NotAvailable => "not-available",
        Reason::TooSmall => "too-small",
        Reason::SelectorDiffers => "selector-differs",
        Reason::InFlight => "in-flight",
        Reason::WaitsForConsumer => "waits-for-consumer",
    }
}

/// The plan of a volume that is released, failed, or gone at the end; `None` for every other.
fn volume_plan(world: &World, name: &Text) -> Option<VolumePlan> {
    let record = world.record(&Key::Volume(name.clone()));
    let Some(object) = world.volume(name) else {
        return Some(VolumePlan {
            name: name.clone(),
            capacity: String::new(),
            reclaim_policy: String::new(),
            phase: "Deleted".to_owned(),
            fate: "it would be deleted".to_owned(),
        });
    };
    let Lookup::Found(volume) = world.store().volume(Source::Overlay, name) else { return None };
    if !matches!(volume.phase, VolumePhase::Released | VolumePhase::Failed) {
        return None;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Some(VolumePlan {
        name: name.clone(),
        capacity: volume.capacity.map(|capacity| capacity.to_string()).unwrap_or_default(),
        reclaim_policy: text(&object["spec"]["persistentVolumeReclaimPolicy"]),
        phase: volume.phase.name().to_owned(),
        fate: fate(&volume, &record, &text(&object["status"]["message"])),
    })
}

fn fate(volume: &Volume, record: &Record, message: &str) -> String {
    if record.left_out == Some(OperationKind::Recycle) {
        return "it would be scrubbed and offered again".to_owned();
    }
    if volume.phase == VolumePhase::Failed {
        return if message.is_empty() { "it has failed and stays so".to_owned() } else { message.to_owned() };
    }
    match volume.policy {
        ReclaimPolicy::Retain => {
            "it is kept with its data until an administrator clears spec.claimRef or deletes it".to_owned()
        }
        ReclaimPolicy::Delete => {
            let annotations = &volume.annotations;
            let deleter = annotations.migrated_to.as_deref().or(annotations.provisioned_by.as_deref());
            let deleter =
                deleter.map_or_else(|| "its provisioner".to_owned(), |deleter| format!("{deleter:?}"));
            format!("{deleter} is expected to delete it")
        }
        ReclaimPolicy::Recycle | ReclaimPolicy::Unknown => "it stays as it is".to_owned(),
    }
}
