//! The explanation of a claim.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use bindery_core::{Claim, ClaimKey, Key};
use serde::Serialize;

use super::{advice, lines, text};
use crate::objects::Resource;
use crate::plan::candidates::candidates;
use crate::plan::decider::EngineAndPolicies;
use crate::plan::load::ManifestObject;
use crate::plan::outcome::{ClaimPlan, Gets, Outcome, claim_plan, gets};
use crate::plan::planner::Planner;
use crate::plan::report;
use crate::steer::{Progress, Reserved};

/// The explanation of a claim. Programs read its JSON, so fields are only added.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClaimExplanation {
    kind: &'static str,
    /// `status.phase`.
    phase: String,
    /// Since when its volume is in its phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    /// What it asks for, as a sentence.
    asks_for: String,
    /// How far Bindery and upstream's binder are, as a sentence, if the claim is steered and has no volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    steered: Option<String>,
    /// The decision.
    #[serde(flatten)]
    plan: ClaimPlan,
    /// What would change the decision, as sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    advice: Vec<String>,
}

/// Explains a claim, with at most that many candidates.
pub(super) async fn explain(
    decider: &EngineAndPolicies,
    objects: Vec<ManifestObject>,
    object: &ManifestObject,
    key: &ClaimKey,
    nearest: usize,
) -> Result<ClaimExplanation> {
    let decided = Key::Claim(key.clone());
    let without = if decider.policies.is_empty() {
        None
    } else {
        let bare = decider.without_policies().decide(objects.clone(), &decided).await?;
        gets(&bare).remove(key)
    };
    let planner = decider.decide(objects.clone(), &decided).await?;
    let before = planner.claims_before().find(|claim| claim.key == *key);
    let before = before.ok_or_else(|| anyhow!("{key} cannot be read"))?;
    let mut explanation = ClaimExplanation::new(&planner, object, before, without.as_ref(), nearest);
    explanation.steered = steered(before, &objects);
    Ok(explanation)
}

/// How far a steered claim is by these objects.
fn steered(claim: &Claim, objects: &[ManifestObject]) -> Option<String> {
    if !claim.steered || claim.volume_name.is_some() {
        return None;
    }
    let names_it = |object: &&ManifestObject| {
        let uid = text(object, "/spec/claimRef/uid");
        text(object, "/spec/claimRef/namespace") == *claim.key.namespace
            && text(object, "/spec/claimRef/name") == *claim.key.name
            && (uid.is_empty() || uid == *claim.uid.0)
    };
    let volume = objects.iter().find(names_it).map(|volume| Reserved::of(&volume.value));
    let is_of_class = |object: &&ManifestObject| {
        object.resource == Resource::Class && text(object, "/metadata/name") == claim.class_or_empty()
    };
    let mode = objects.iter().find(is_of_class).map(|class| text(class, "/volumeBindingMode"));
    let progress = Progress::of(claim, volume, mode.as_deref() == Some("WaitForFirstConsumer"));
    let why = progress.sentence();
    let volume = progress.into_volume().map(|volume| format!("volume {volume}: ")).unwrap_or_default();
    Some(format!("upstream's binder binds what Bindery reserves; {volume}{why}"))
}

impl ClaimExplanation {
    fn new(
        planner: &Planner,
        object: &ManifestObject,
        before: &Arc<Claim>,
        without: Option<&Gets>,
        nearest: usize,
    ) -> Self {
        let mut plan = claim_plan(planner, before, nearest);
        plan.compare(without);
        if plan.outcome == Outcome::Bound && plan.changed {
            (plan.candidates, plan.more_candidates) = candidates(planner, before, nearest);
        }
        let volume = plan.volume.as_deref().filter(|_| !plan.changed).and_then(|name| planner.volume(name));
        let since = volume.as_ref().and_then(|volume| volume["status"]["lastPhaseTransitionTime"].as_str());
        let phase = text(object, "/status/phase");
        Self {
            kind: "PersistentVolumeClaim",
            phase: if phase.is_empty() { "Pending".to_owned() } else { phase },
            since: since.filter(|_| plan.outcome == Outcome::Bound).map(str::to_owned),
            asks_for: advice::asks_for(before),
            steered: None,
            advice: advice::of_claim(planner, before, &plan),
            plan,
        }
    }

    /// One screen for people.
    pub(super) fn text(&self) -> String {
        let plan = &self.plan;
        let mut text = format!("PersistentVolumeClaim {}/{}\n", plan.namespace, plan.name);
        let mut rows = vec![("asks for", self.asks_for.clone()), ("phase", self.phase.clone())];
        rows.extend(self.steered.clone().map(|steered| ("steered", steered)));
        rows.push(("decision", self.decision()));
        if let Some(without) = &plan.without_policies {
            rows.push(("without policies", without.sentence()));
        }
        text += &lines(&rows);
        if !plan.candidates.is_empty() {
            text += "\nCandidates, nearest first:\n";
            text += &report::candidates(plan);
        }
        if !self.advice.is_empty() {
            text += "\nWhat would change it:\n";
            self.advice.iter().for_each(|sentence| text += &format!("  {sentence}\n"));
        }
        text
    }

    fn decision(&self) -> String {
        let plan = &self.plan;
        let mut decision = match (&plan.volume, &self.since) {
            (Some(volume), Some(since)) => format!("is bound to {volume} since {since}"),
            (Some(volume), None) if plan.outcome == Outcome::Bound && plan.changed && plan.is_steered => {
                format!("{volume} would be reserved, and bound by upstream's binder")
            }
            (Some(volume), None) if plan.outcome == Outcome::Bound => {
                format!("{} to {volume}", report::outcome(plan))
            }
            _ => report::outcome(plan),
        };
        if !plan.messages.is_empty() {
            decision += &format!(": {}", plan.messages.join("; "));
        }
        decision
    }
}
