//! The volumes that a claim might get, nearest first, with all that is against each.

use bindery_core::{Claim, Reason, Text};
use bindery_policy::{Said, Says};
use bindery_store::{Explanation, Obstacle, VolumeObstacles};
use serde::{Serialize, Serializer};

use super::planner::Planner;

/// A volume that a claim might get.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CandidatePlan {
    pub(crate) volume: Text,
    /// Whether the volume fits the claim. If the class waits, the scheduler may choose it.
    pub(crate) fits: bool,
    /// Why it does not fit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) obstacles: Vec<ObstaclePlan>,
    /// What each policy says about it, in order. Policies are not asked about a volume that does not fit
    /// without them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) policies: Vec<PolicyPlan>,
}

/// One reason why a volume does not fit a claim.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObstaclePlan {
    /// The reason, by the contract's name.
    #[serde(serialize_with = "by_name")]
    pub(crate) reason: Reason,
    /// The field of the volume that does not fit, if there is one.
    #[serde(skip_serializing_if = "str::is_empty")]
    field: &'static str,
    /// The value of the volume.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) offers: String,
    /// The value that the claim asks for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) asks: String,
    /// The same as a sentence.
    pub(crate) message: String,
}

/// What one policy says about a volume.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PolicyPlan {
    pub(crate) policy: Text,
    pub(crate) allows: bool,
    /// Its score, if it scores volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<u32>,
    /// By what the score is multiplied.
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u32>,
    /// The name of its reason, if it rejects the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Text>,
    /// The reason as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Text>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn by_name<S: Serializer>(reason: &Reason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(reason.name())
}

/// The volume that the claim names, else the nearest ones, and how many others there are.
pub(crate) fn candidates(planner: &Planner, claim: &Claim, nearest: usize) -> (Vec<CandidatePlan>, usize) {
    let Explanation { nearest, more } = planner.store().explain(claim, nearest);
    (nearest.into_iter().map(|near| candidate(planner, claim, near)).collect(), more)
}

fn candidate(planner: &Planner, claim: &Claim, near: VolumeObstacles) -> CandidatePlan {
    let VolumeObstacles { volume, mut obstacles } = near;
    let said = if obstacles.is_empty() { planner.said(claim, &volume) } else { Ok(Vec::new()) };
    let against =
        |offers: String| Obstacle { reason: Reason::Rejected, field: "", offers, asks: String::new() };
    match &said {
        Err(why) => obstacles.push(against(why.clone())),
        Ok(said) => obstacles.extend(said.iter().filter_map(|Said { policy, says }| match says {
            Says::Rejected { sentence, .. } => {
                Some(against(format!("policy {policy} rejects it: {sentence}")))
            }
            Says::Allowed | Says::Scored { .. } => None,
        })),
    }
    CandidatePlan {
        volume,
        fits: obstacles.is_empty(),
        obstacles: obstacles.into_iter().map(ObstaclePlan::from).collect(),
        policies: said.unwrap_or_default().into_iter().map(PolicyPlan::from).collect(),
    }
}

impl CandidatePlan {
    /// Why it does not fit, or that it does, with the scores of policies.
    pub(crate) fn sentence(&self, may_be_chosen_by_scheduler: bool) -> String {
        if !self.fits {
            let messages: Vec<&str> =
                self.obstacles.iter().map(|obstacle| obstacle.message.as_str()).collect();
            return messages.join("; ");
        }
        let fits = if may_be_chosen_by_scheduler { "fits: the scheduler may choose it" } else { "fits" };
        let scores = self.policies.iter().filter_map(|said| {
            let (score, weight) = (said.score?, said.weight?);
            Some(format!("; policy {} scores it {score}, weight {weight}", said.policy))
        });
        std::iter::once(fits.to_owned()).chain(scores).collect()
    }
}

impl From<Obstacle> for ObstaclePlan {
    fn from(obstacle: Obstacle) -> Self {
        let message = obstacle.to_string();
        let Obstacle { reason, field, offers, asks } = obstacle;
        Self { reason, field, offers, asks, message }
    }
}

impl From<Said> for PolicyPlan {
    fn from(Said { policy, says }: Said) -> Self {
        let allows = !matches!(says, Says::Rejected { .. });
        let (score, weight, reason, message) = match says {
            Says::Allowed => (None, None, None, None),
            Says::Scored { score, weight } => (Some(score), Some(weight), None, None),
            Says::Rejected { reason, sentence } => (None, None, Some(reason), Some(sentence)),
        };
        Self { policy, allows, score, weight, reason, message }
    }
}
