//! The plan as tables for people.

use std::io::{self, Write};

use bindery_core::Text;

use super::outcome::{CandidatePlan, ClaimPlan, Outcome, Plan, VolumePlan};
use crate::output;

/// Writes the plan as tables.
pub(super) fn write(plan: &Plan<'_>, out: &mut dyn Write) -> io::Result<()> {
    let outcomes = claims(plan);
    if outcomes.len() == 1 && plan.volumes.is_empty() {
        return out.write_all(b"There are no claims, and no volumes to reclaim.\n");
    }
    if outcomes.len() > 1 {
        out.write_all(output::table(&outcomes).as_bytes())?;
    }
    for claim in plan.claims(plan.nearest) {
        if !matches!(claim.outcome, Outcome::Bound | Outcome::Deleted) {
            out.write_all(details(&claim).as_bytes())?;
        }
    }
    if !plan.volumes.is_empty() {
        out.write_all(if outcomes.len() == 1 { b"" } else { b"\n" })?;
        out.write_all(output::table(&volumes(&plan.volumes)).as_bytes())?;
    }
    Ok(())
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(|cell| if cell.is_empty() { "-" } else { cell }.to_owned()).into()
}

/// The outcome of each claim, after a head.
fn claims(plan: &Plan<'_>) -> Vec<Vec<String>> {
    let head = row(["CLAIM", "REQUEST", "CLASS", "OUTCOME", "VOLUME", "CAPACITY"]);
    let rows = plan.claims(0).map(|claim| {
        let or_empty = |text: &Option<Text>| text.as_deref().unwrap_or_default().to_owned();
        row([
            &title(&claim),
            &claim.request,
            &or_empty(&claim.storage_class),
            &outcome(&claim),
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
fn details(claim: &ClaimPlan) -> String {
    let why =
        if claim.messages.is_empty() { "nothing more is said".to_owned() } else { claim.messages.join("; ") };
    let mut text = format!("\n{}: {why}\n", title(claim));
    let row = |candidate: &CandidatePlan| vec![format!("  {}", candidate.volume), reasons(claim, candidate)];
    text += &output::table(&claim.candidates.iter().map(row).collect::<Vec<_>>());
    if claim.more_candidates > 0 {
        text += &format!(
            "  and {} more volumes, further away: --nearest all lists them\n",
            claim.more_candidates
        );
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
