//! The plan as data: the outcome for each claim and each released volume.

use std::collections::BTreeMap;
use std::sync::Arc;

use bindery_core::{
    Action, Claim, ClaimKey, ClaimPhase, Event, EventKind, Key, OperationKind, ReclaimPolicy, Source, Text,
    Volume, VolumePhase,
};
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::candidates::{CandidatePlan, candidates};
use super::planner::{Decided, Planner};

/// The plan. It is made while it is written, claim by claim, because the plan of a large cluster is longer
/// than its objects. Programs read its JSON, so fields are only added.
pub(crate) struct Plan<'a> {
    planner: &'a Planner,
    /// What each claim would get without policies; empty if there are none.
    without_policies: BTreeMap<ClaimKey, Gets>,
    /// Most candidates of a claim.
    pub(crate) nearest: usize,
    /// The volumes whose claims are gone, in the order of names.
    pub(crate) volumes: Vec<VolumePlan>,
}

impl<'a> Plan<'a> {
    /// The plan of a planner that has settled.
    pub(crate) fn new(
        planner: &'a Planner,
        without_policies: BTreeMap<ClaimKey, Gets>,
        nearest: usize,
    ) -> Self {
        let mut volumes: Vec<_> =
            planner.volumes_before().filter_map(|name| volume_plan(planner, name)).collect();
        volumes.sort_by(|a, b| a.name.cmp(&b.name));
        Self { planner, without_policies, nearest, volumes }
    }

    /// Whether a claim is steered.
    pub(crate) fn has_steered(&self) -> bool {
        self.planner.claims_before().any(|claim| claim.steered)
    }

    /// Every claim, in the order of namespace and name, with at most that many candidates.
    pub(crate) fn claims(&self, nearest: usize) -> impl Iterator<Item = ClaimPlan> {
        self.planner.claims_before().map(move |before| {
            let mut plan = claim_plan(self.planner, before, nearest);
            plan.compare(self.without_policies.get(&before.key));
            plan
        })
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
pub(crate) struct ClaimPlan {
    pub(crate) namespace: Text,
    pub(crate) name: Text,
    /// The storage that it requests.
    pub(crate) request: String,
    /// Its class in the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) storage_class: Option<Text>,
    pub(crate) outcome: Outcome,
    /// Whether it is steered: Bindery reserves its volume, and upstream's binder binds it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_steered: bool,
    /// Whether phase or volume differ from the manifest.
    pub(crate) changed: bool,
    /// Its volume in the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) volume: Option<Text>,
    /// Its capacity in the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) capacity: Option<String>,
    /// The provisioner of a volume for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) provisioner: Option<Text>,
    /// What it would get without policies, if that is something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) without_policies: Option<Gets>,
    /// The messages of its events, as far as they say something that `outcome` does not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) messages: Vec<String>,
    /// The nearest volumes, if the claim has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) candidates: Vec<CandidatePlan>,
    /// How many volumes are further away than the candidates.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) more_candidates: usize,
}

/// What a claim would get.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Gets {
    pub(crate) outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) volume: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) provisioner: Option<Text>,
}

/// What becomes of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
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

/// The plan of a volume whose claim is gone.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VolumePlan {
    pub(crate) name: Text,
    pub(crate) capacity: String,
    pub(crate) reclaim_policy: String,
    /// Its phase in the end, or `Deleted`.
    pub(crate) phase: String,
    /// Its fate, as a sentence.
    pub(crate) fate: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// What a plan says of a claim that the policies of its class do not reach.
const UNREACHED: &str = "the scheduler chooses the volume and knows no policy, so it may take one that is \
                         rejected; steer the class (docs/managed-clusters.md)";

/// What a planner has decided about each claim.
pub(crate) fn gets(planner: &Planner) -> BTreeMap<ClaimKey, Gets> {
    let plans = planner.claims_before().map(|before| (before.key.clone(), claim_plan(planner, before, 0)));
    plans.map(|(key, plan)| (key, plan.gets())).collect()
}

impl ClaimPlan {
    /// Notes what the claim would get without policies, if that is something else.
    pub(crate) fn compare(&mut self, without: Option<&Gets>) {
        self.without_policies = without.filter(|without| **without != self.gets()).cloned();
    }

    fn gets(&self) -> Gets {
        let (volume, provisioner) = (self.volume.clone(), self.provisioner.clone());
        Gets { outcome: self.outcome, volume, provisioner }
    }
}

/// The plan of a claim, with at most that many candidates.
pub(crate) fn claim_plan(planner: &Planner, before: &Arc<Claim>, nearest: usize) -> ClaimPlan {
    let decided = planner.decided(&Key::Claim(before.key.clone()));
    let now = planner.claim(&before.key);
    let claim = now.as_ref().unwrap_or(before);
    let outcome = if now.is_some() { outcome(claim, &decided) } else { Outcome::Deleted };
    let bound = outcome == Outcome::Bound;
    let has_volume = matches!(outcome, Outcome::Bound | Outcome::Lost | Outcome::Deleted);
    let (candidates, more_candidates) =
        if has_volume || nearest == 0 { (Vec::new(), 0) } else { candidates(planner, claim, nearest) };
    let mut messages = if bound { unscored(&decided) } else { messages(planner, claim, &decided) };
    let is_unreached = outcome == Outcome::WaitsForConsumer && !before.steered;
    if is_unreached && candidates.iter().any(|candidate| !candidate.policies.is_empty()) {
        messages.push(UNREACHED.to_owned());
    }
    ClaimPlan {
        namespace: claim.key.namespace.clone(),
        name: claim.key.name.clone(),
        request: claim.request.to_string(),
        storage_class: claim.class.clone(),
        outcome,
        is_steered: before.steered,
        changed: before.status.phase != claim.status.phase || before.volume_name != claim.volume_name,
        volume: claim.volume_name.clone(),
        capacity: claim.status.capacity.filter(|_| bound).map(|capacity| capacity.to_string()),
        provisioner: provisioner(claim, &decided).filter(|_| outcome == Outcome::Provisioning),
        without_policies: None,
        messages,
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

/// That policies did not look at all volumes before the claim got one.
fn unscored(decided: &Decided) -> Vec<String> {
    decided.unscored.iter().map(ToString::to_string).collect()
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
    let volume = planner.store().volume(Source::Overlay, name).found()?;
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

/// The plan of a volume that is released, failed or gone in the end; `None` for every other.
pub(crate) fn volume_plan(planner: &Planner, name: &Text) -> Option<VolumePlan> {
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
    let volume = planner.store().volume(Source::Overlay, name).found()?;
    if !matches!(volume.phase, VolumePhase::Released | VolumePhase::Failed) {
        return None;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Some(VolumePlan {
        name: name.clone(),
        capacity: volume.capacity.map(|capacity| capacity.to_string()).unwrap_or_default(),
        reclaim_policy: text(&object["spec"]["persistentVolumeReclaimPolicy"]),
        phase: volume.phase.name().to_owned(),
        fate: said(&decided).unwrap_or_else(|| fate(&volume, &decided, &text(&object["status"]["message"]))),
    })
}

/// What a reclaimer says, if it sets the reclaim policy.
fn said(decided: &Decided) -> Option<String> {
    let set = events(decided).find(|event| matches!(event.kind, EventKind::ReclaimPolicySet { .. }))?;
    Some(set.kind.to_string())
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
