//! The explanation of a volume.

use anyhow::{Result, bail};
use bindery_core::{Key, Lookup, Source, Text, Volume, VolumePhase};
use serde::Serialize;

use super::{advice, lines, text};
use crate::plan::decider::EngineAndPolicies;
use crate::plan::load::ManifestObject;
use crate::plan::outcome::{VolumePlan, volume_plan};
use crate::plan::planner::Planner;

/// The explanation of a volume. Programs read its JSON, so fields are only added.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VolumeExplanation {
    kind: &'static str,
    name: Text,
    /// What it offers, as a sentence.
    offers: String,
    /// `status.phase`.
    phase: String,
    /// Since when it is in this phase.
    #[serde(skip_serializing_if = "String::is_empty")]
    since: String,
    /// Since when it is being deleted.
    #[serde(skip_serializing_if = "String::is_empty")]
    deleted_since: String,
    /// The claim that it is for, as `namespace/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<String>,
    /// How it is related to that claim, as a sentence.
    claim_state: String,
    /// The decision, as a sentence.
    decision: String,
    /// What becomes of it when its claim is deleted, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    after_its_claim: Option<String>,
}

/// Explains a volume.
pub(super) async fn explain(
    decider: &EngineAndPolicies,
    objects: Vec<ManifestObject>,
    object: &ManifestObject,
    name: &Text,
) -> Result<VolumeExplanation> {
    let key = Key::Volume(name.clone());
    let planner = decider.decide(objects.clone(), &key).await?;
    let given = |field: &str| text(object, field);
    let phase = given("/status/phase");
    let decision = decision(&planner, name, &phase);
    let volume = match planner.store().volume(Source::Overlay, name) {
        Lookup::Found(volume) => volume,
        Lookup::Unreadable(why) | Lookup::Failed(why) => {
            bail!("PersistentVolume {name:?} cannot be read: {why}")
        }
        Lookup::Absent => bail!("PersistentVolume {name:?} {decision}"),
    };
    let claim = volume.claim_ref.as_ref().map(|claim_ref| claim_ref.claim_key());
    let after_its_claim = match &claim {
        Some(claim) if volume.phase == VolumePhase::Bound => {
            let planner = decider.planner(objects).await?;
            planner.delete_claim(claim).await?;
            decider.settle_alone(&planner, &key).await?;
            Some(volume_plan(&planner, name).map_or_else(|| "it stays as it is".to_owned(), |plan| plan.fate))
        }
        _ => None,
    };
    Ok(VolumeExplanation {
        kind: "PersistentVolume",
        name: name.clone(),
        offers: offers(&volume, &given("/spec/persistentVolumeReclaimPolicy")),
        phase: if phase.is_empty() { VolumePhase::Pending.name().to_owned() } else { phase },
        since: given("/status/lastPhaseTransitionTime"),
        deleted_since: given("/metadata/deletionTimestamp"),
        claim: claim.map(|claim| claim.to_string()),
        claim_state: claim_state(&planner, &volume),
        decision,
        after_its_claim,
    })
}

fn offers(volume: &Volume, policy: &str) -> String {
    let capacity = volume.capacity.map_or_else(|| "no capacity".to_owned(), |capacity| capacity.to_string());
    let class =
        if volume.class.is_empty() { "without class".to_owned() } else { format!("class {}", volume.class) };
    format!("{capacity}, {}, {class}, reclaim policy {policy}", advice::modes(volume.access_set()))
}

/// How the volume is related to the claim of its claimRef.
fn claim_state(planner: &Planner, volume: &Volume) -> String {
    let Some(claim_ref) = &volume.claim_ref else { return "none".to_owned() };
    let key = claim_ref.claim_key();
    match (planner.claim(&key), &claim_ref.uid) {
        (None, Some(_)) => format!("{key}, which is gone"),
        (None, None) => format!("reserved for {key}, which does not exist yet"),
        (Some(claim), Some(uid)) if claim.uid != *uid => {
            format!(
                "an earlier {key} with UID {uid}, which is gone; the claim of that name now is another one"
            )
        }
        (Some(claim), _) if claim.volume_name.as_ref() == Some(&volume.name) => format!("bound to {key}"),
        (Some(claim), _) => match &claim.volume_name {
            Some(other) => format!("reserved for {key}, which has volume {other}"),
            None => format!("reserved for {key}, which is not bound yet"),
        },
    }
}

/// The decision about the volume, as a sentence.
fn decision(planner: &Planner, name: &Text, phase_before: &str) -> String {
    if let Some(VolumePlan { phase, fate, .. }) = volume_plan(planner, name) {
        return if phase == phase_before || fate.starts_with("it would be deleted") {
            fate
        } else {
            format!("would become {phase}: {fate}")
        };
    }
    match planner.store().volume(Source::Overlay, name) {
        Lookup::Found(volume) if volume.phase.name() != phase_before => {
            format!("would become {}", volume.phase.name())
        }
        _ => "nothing has to be done".to_owned(),
    }
}

impl VolumeExplanation {
    /// One screen for people.
    pub(super) fn text(&self) -> String {
        let since = |what: &str, time: &str| {
            if time.is_empty() { String::new() } else { format!("{what} since {time}") }
        };
        let phase = since("", &self.since) + &since("; it is being deleted", &self.deleted_since);
        let mut rows = vec![
            ("offers", self.offers.clone()),
            ("phase", format!("{}{phase}", self.phase)),
            ("claim", self.claim_state.clone()),
            ("decision", self.decision.clone()),
        ];
        if let Some(fate) = &self.after_its_claim {
            rows.push(("when its claim is deleted", fate.clone()));
        }
        format!("PersistentVolume {}\n{}", self.name, lines(&rows))
    }
}
