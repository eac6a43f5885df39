//! The plan as tables for people.

use super::outcome::{CandidatePlan, ClaimPlan, Outcome, Plan, VolumePlan};
use crate::output;
use bindery_core::Text;

/// The plan as tables, with at most `nearest` candidates for a claim without volume; 0 for all.
pub(super) fn table(plan: &Plan, nearest: usize) -> String {
    if plan.claims.is_empty() && plan.volumes.is_empty() {
        return "There are no claims, and no volumes to reclaim.\n".to_owned();
    }
    let mut text = String::new();
    if !plan.claims.is_empty() {
        text += &output::table(&claims(&plan.claims));
    }
    for claim in &plan.claims {
        let is_settled = matches!(claim.outcome, Outcome::Bound | Outcome::Deleted);
        if !is_settled {
            text += &details(claim, if nearest == 0 { usize::MAX } else { nearest });
        }
    }
    if !plan.volumes.is_empty() {
        text += if text.is_empty() { "" } else { "\n" };
        text += &output::table(&volumes(&plan.volumes));
    }
    text
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(|cell| if cell.is_empty() { "-" } else { cell }.to_owned()).into()
}

fn claims(claims: &[ClaimPlan]) -> Vec<Vec<String>> {
    let head = row(["CLAIM", "REQUEST", "CLASS", "OUTCOME", "VOLUME", "CAPACITY"]);
    let rows = claims.iter().map(|claim| {
        let or_empty = |text: &Option<Text>| text.as_deref().unwrap_or_default().to_owned();
        row([
            &title(claim),
            &claim.request,
            &or_empty(&claim.storage_class),
            &outcome(claim),
            &or_empty(&claim.volume),
            claim.capacity.as_deref().unwrap_or_default(),
        ])
    });
    std::iter::once(head).chain(rows).collect()
}

fn title(claim: &ClaimPlan) -> String {
    format!("{}/{}", claim.namespace, claim.name)
}

fn outcome(claim: &ClaimPlan) -> String {
    match claim.outcome {
        Outcome::Bound if claim.changed => "would be bound".to_owned(),
        Outcome::Bound => "is bound".to_owned(),
        Outcome::Provisioning => {
            format!("would be provisioned by {}", claim.provisioner.as_deref().unwrap_or("its provisioner"))
        }
        Outcome::WaitsForConsumer => "waits for first consumer".to_owned(),
        Outcome::WaitsForScheduler => "waits for the scheduler".to_owned(),
        Outcome::Pending => "pending".to_owned(),
        Outcome::Lost => "lost".to_owned(),
        Outcome::Deleted => "would be gone".to_owned(),
    }
}

/// The messages and candidates of a claim.
fn details(claim: &ClaimPlan, nearest: usize) -> String {
    let why =
        if claim.messages.is_empty() { "nothing more is said".to_owned() } else { claim.messages.join("; ") };
    let mut text = format!("\n{}: {why}\n", title(claim));
    let shown = claim.candidates.iter().take(nearest);
    let rows: Vec<Vec<String>> =
        shown.map(|candidate| vec![format!("  {}", candidate.volume), reasons(claim, candidate)]).collect();
    text += &output::table(&rows);
    let more = claim.candidates.len().saturating_sub(nearest);
    if more > 0 {
        text += &format!("  and {more} more volumes, further away: --nearest 0 lists all\n");
    }
    text
}

fn reasons(claim: &ClaimPlan, candidate: &CandidatePlan) -> String {
    if candidate.fits {
        return match claim.outcome {
            Outcome::WaitsForConsumer | Outcome::WaitsForScheduler => {
                "fits: the scheduler may choose it".to_owned()
            }
            _ => "fits".to_owned(),
        };
    }
    let messages: Vec<&str> = candidate.obstacles.iter().map(|obstacle| obstacle.message.as_str()).collect();
    messages.join("; ")
}

fn volumes(volumes: &[VolumePlan]) -> Vec<Vec<String>> {
    let head = row(["VOLUME", "CAPACITY", "POLICY", "PHASE", "WHAT BECOMES OF IT"]);
    let rows = volumes.iter().map(|volume| {
        row([&volume.name, &volume.capacity, &volume.reclaim_policy, &volume.phase, &volume.fate])
    });
    std::iter::once(head).chain(rows).collect()
}
