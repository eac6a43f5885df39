//! The plan as data: the outcome for each claim and each released volume.

use std::sync::Arc;

use bindery_controller::Key;
use bindery_core::{
    Action, Claim, ClaimPhase, Event, EventKind, Lookup, OperationKind, ReclaimPolicy, Source, Text, Volume,
    VolumePhase,
};
use bindery_store::{Explanation, Obstacle, VolumeObstacles};
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::planner::{Decided, Planner};

/// The plan. It is made while it is written, claim by claim, because the plan of a large cluster is longer
/// than its objects. Programs read its JSON, so fields are only added.
pub(super) struct Plan<'a> {
    planner: &'a Planner,
    /// Most candidates of a claim.
    pub(super) nearest: usize,
    /// The volumes whose claims are gone, in the order of names.
    pub(super) volumes: Vec<VolumePlan>,
}

impl<'a> Plan<'a> {
    /// The plan of a planner that has settled.
    pub(super) fn new(planner: &'a Planner, nearest: usize) -> Self {
        let mut volumes: Vec<_> =
            planner.volumes_before().filter_map(|name| volume_plan(planner, name)).collect();
        volumes.sort_by(|a, b| a.name.cmp(&b.name));
        Self { planner, nearest, volumes }
    }

    /// Every claim, in the order of namespace and name, with at most that many candidates.
    pub(super) fn claims(&self, nearest: usize) -> impl Iterator<Item = ClaimPlan> {
        self.planner.claims_before().map(move |before| claim_plan(self.planner, before, nearest))
    }
}

impl Serialize for Plan<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Claims<'a>(&'a Plan<'a>);
        impl Serialize for Claims<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(self.0.claims(self.0.nearest))
            }
        }
        let mut plan = serializer.serialize_struct("Plan", 2)?;
        plan.serialize_field("claims", &Claims(self))?;
        plan.serialize_field("volumes", &self.volumes)?;
        plan.end()
    }
}

/// The plan of a claim.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClaimPlan {
    pub(super) namespace: Text,
    pub(super) name: Text,
    /// The storage that it requests.
    pub(super) request: String,
    /// Its class in the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) storage_class: Option<Text>,
    pub(super) outcome: Outcome,
    /// Whether phase or volume differ from the manifest.
    pub(super) changed: bool,
    /// Its volume in the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) volume: Option<Text>,
    /// Its capacity in the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) capacity: Option<String>,
    /// The provisioner of a volume for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) provisioner: Option<Text>,
    /// The messages of its events.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) messages: Vec<String>,
    /// The nearest volumes, if the claim has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) candidates: Vec<CandidatePlan>,
    /// How many volumes are further away than the candidates.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) more_candidates: usize,
}

/// What becomes of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Outcome {
    /// The claim has a volume.
    Bound,
    /// A volume would be provisioned.
    Provisioning,
    /// Its class waits until a pod uses it.
    WaitsForConsumer,
    /// Its class waits until the scheduler has placed the pods that use it.
    WaitsForScheduler,
    /// The claim gets no volume.
    Pending,
    /// Its volume is gone or belongs to another claim.
    Lost,
    /// The claim was being deleted, and is gone.
    Deleted,
}

/// A volume that a claim might get.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CandidatePlan {
    pub(super) volume: Text,
    /// Whether the volume fits the claim. If the class waits, the scheduler may choose it.
    pub(super) fits: bool,
    /// Why it does not fit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) obstacles: Vec<ObstaclePlan>,
}

/// One reason why a volume does not fit a claim.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObstaclePlan {
    /// The contract's name of the reason.
    reason: &'static str,
    /// The field of the volume that does not fit, if there is one.
    #[serde(skip_serializing_if = "str::is_empty")]
    field: &'static str,
    /// The value of the volume.
    #[serde(skip_serializing_if = "String::is_empty")]
    offers: String,
    /// The value that the claim asks for.
    #[serde(skip_serializing_if = "String::is_empty")]
    asks: String,
    /// The same as a sentence.
    pub(super) message: String,
}

/// The plan of a volume whose claim is gone.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VolumePlan {
    pub(super) name: Text,
    pub(super) capacity: String,
    pub(super) reclaim_policy: String,
    /// Its phase in the end, or `Deleted`.
    pub(super) phase: String,
    /// Its fate, as a sentence.
    pub(super) fate: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

fn claim_plan(planner: &Planner, before: &Arc<Claim>, nearest: usize) -> ClaimPlan {
    let decided = planner.decided(&Key::Claim(before.key.clone()));
    let now = planner.claim(&before.key);
    let claim = now.as_ref().unwrap_or(before);
    let outcome = if now.is_some() { outcome(claim, &decided) } else { Outcome::Deleted };
    let bound = outcome == Outcome::Bound;
    let has_volume = matches!(outcome, Outcome::Bound | Outcome::Lost | Outcome::Deleted);
    let (candidates, more_candidates) =
        if has_volume || nearest == 0 { (Vec::new(), 0) } else { candidates(planner, claim, nearest) };
    ClaimPlan {
        namespace: claim.key.namespace.clone(),
        name: claim.key.name.clone(),
        request: claim.request.to_string(),
        storage_class: claim.class.clone(),
        outcome,
        changed: before.status.phase != claim.status.phase || before.volume_name != claim.volume_name,
        volume: claim.volume_name.clone(),
        capacity: claim.status.capacity.filter(|_| bound).map(|capacity| capacity.to_string()),
        provisioner: provisioner(claim, &decided).filter(|_| outcome == Outcome::Provisioning),
        messages: if bound { Vec::new() } else { messages(planner, claim, &decided) },
        candidates,
        more_candidates,
    }
}

fn outcome(claim: &Claim, decided: &Decided) -> Outcome {
    match claim.status.phase {
        ClaimPhase::Bound => return Outcome::Bound,
        ClaimPhase::Lost => return Outcome::Lost,
        ClaimPhase::Unset | ClaimPhase::Pending => {}
    }
    let emitted = |is: fn(&EventKind) -> bool| events(decided).any(|event| is(&event.kind));
    if emitted(|kind| matches!(kind, EventKind::ExternalProvisioning(_))) {
        Outcome::Provisioning
    } else if emitted(|kind| matches!(kind, EventKind::WaitForFirstConsumer)) {
        Outcome::WaitsForConsumer
    } else if emitted(|kind| matches!(kind, EventKind::WaitForPodScheduled(_))) {
        Outcome::WaitsForScheduler
    } else {
        Outcome::Pending
    }
}

fn provisioner(claim: &Claim, decided: &Decided) -> Option<Text> {
    let named = events(decided).find_map(|event| match &event.kind {
        EventKind::ExternalProvisioning(provisioner) => Some(provisioner.clone()),
        _ => None,
    });
    named.or_else(|| claim.annotations.storage_provisioner.clone())
}

fn events(decided: &Decided) -> impl Iterator<Item = &Event> {
    decided.decisions.iter().flat_map(|decision| decision.actions()).filter_map(|action| match action {
        Action::Emit(event) => Some(event),
        _ => None,
    })
}

/// The messages for the user, each once.
fn messages(planner: &Planner, claim: &Claim, decided: &Decided) -> Vec<String> {
    if let Some(why) = misbound(planner, claim) {
        return vec![why];
    }
    let missing = claim.volume_name.as_deref().filter(|name| planner.volume(name).is_none());
    // Upstream records no event for this.
    let missing = missing.map(|name| format!("spec.volumeName: there is no volume {name:?} yet"));
    let emitted = events(decided).map(|event| event.kind.to_string());
    let mut messages: Vec<String> = Vec::new();
    for message in emitted.chain(missing).chain(decided.error.clone()) {
        if !messages.iter().any(|known| known.contains(&message)) {
            messages.push(message);
        }
    }
    messages
}

/// Why a claim is lost whose volume exists. Upstream's event says "Two claims are bound to the same volume"
/// for each of these cases.
fn misbound(planner: &Planner, claim: &Claim) -> Option<String> {
    let name = claim.volume_name.as_ref().filter(|_| claim.status.phase == ClaimPhase::Lost)?;
    let Lookup::Found(volume) = planner.store().volume(Source::Overlay, name) else { return None };
    let owner = volume.claim_ref.as_ref()?;
    let (key, uid) = (owner.claim_key(), owner.uid.as_ref().map_or("none", |uid| &*uid.0));
    if planner.claim(&key).is_some_and(|other| Some(&other.uid) == owner.uid.as_ref()) {
        return Some(format!("Two claims are bound to the same volume {name:?}; it belongs to {key}"));
    }
    Some(format!(
        "volume {name:?} belongs to {key} with UID {uid}, and this claim has UID {}: one of them was made \
         again, for instance by a restore. If the volume has this claim's data, clear its spec.claimRef, and \
         the claim is bound again. If not, delete the claim and make it again: it gets another volume",
        claim.uid
    ))
}

/// The volume that the claim names, else the nearest ones, and how many others there are.
fn candidates(planner: &Planner, claim: &Claim, nearest: usize) -> (Vec<CandidatePlan>, usize) {
    let Explanation { nearest, more } = planner.store().explain(claim, nearest);
    let candidate = |VolumeObstacles { volume, mut obstacles }| {
        if obstacles.is_empty() {
            obstacles.extend(planner.rejection(claim, &volume));
        }
        CandidatePlan {
            volume,
            fits: obstacles.is_empty(),
            obstacles: obstacles.iter().map(obstacle).collect(),
        }
    };
    (nearest.into_iter().map(candidate).collect(), more)
}

fn obstacle(obstacle: &Obstacle) -> ObstaclePlan {
    ObstaclePlan {
        reason: obstacle.reason.name(),
        field: obstacle.field,
        offers: obstacle.offers.clone(),
        asks: obstacle.asks.clone(),
        message: obstacle.to_string(),
    }
}

/// The plan of a volume that is released, failed or gone in the end; `None` for every other.
fn volume_plan(planner: &Planner, name: &Text) -> Option<VolumePlan> {
    let decided = planner.decided(&Key::Volume(name.clone()));
    let Some(object) = planner.volume(name) else {
        return Some(VolumePlan {
            name: name.clone(),
            capacity: String::new(),
            reclaim_policy: String::new(),
            phase: "Deleted".to_owned(),
            fate: "it would be deleted".to_owned(),
        });
    };
    let Lookup::Found(volume) = planner.store().volume(Source::Overlay, name) else { return None };
    if !matches!(volume.phase, VolumePhase::Released | VolumePhase::Failed) {
        return None;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Some(VolumePlan {
        name: name.clone(),
        capacity: volume.capacity.map(|capacity| capacity.to_string()).unwrap_or_default(),
        reclaim_policy: text(&object["spec"]["persistentVolumeReclaimPolicy"]),
        phase: volume.phase.name().to_owned(),
        fate: fate(&volume, &decided, &text(&object["status"]["message"])),
    })
}

fn fate(volume: &Volume, decided: &Decided, message: &str) -> String {
    if decided.left_out == Some(OperationKind::Recycle) {
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
