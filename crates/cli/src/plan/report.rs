//! The plan as tables for people.

use std::io::{self, Write};

use bindery_core::Text;

use super::candidates::CandidatePlan;
use super::outcome::{ClaimPlan, Gets, Outcome, Plan, VolumePlan};
use crate::output;

/// What a plan says that has steered claims.
const STEERED: &str = "\n\
    Upstream's binder binds what Bindery reserves for steered claims. In mode steer, claims that are not\n\
    steered get what upstream's binder chooses, without policies.\n";

/// Writes the plan as tables.
pub(super) fn write(plan: &Plan<'_>, out: &mut dyn Write) -> io::Result<()> {
    let outcomes = claims(plan);
    if outcomes.len() == 1 && plan.volumes.is_empty() {
        return out.write_all(b"There are no claims, and no volumes to reclaim.\n");
    }
    if outcomes.len() > 1 {
        out.write_all(output::table(&outcomes).as_bytes())?;
    }
    if plan.has_steered() {
        out.write_all(STEERED.as_bytes())?;
    }
    for claim in plan.claims(plan.nearest) {
        let has_details = match claim.outcome {
            Outcome::Bound => !claim.messages.is_empty(),
            outcome => outcome != Outcome::Deleted,
        };
        if has_details {
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

/// The outcome of each claim, after a head. The last column is there only if policies change something.
fn claims(plan: &Plan<'_>) -> Vec<Vec<String>> {
    const COLUMNS: [&str; 7] =
        ["CLAIM", "REQUEST", "CLASS", "OUTCOME", "VOLUME", "CAPACITY", "WITHOUT POLICIES"];
    let mut changes = false;
    let rows = plan.claims(0).map(|claim| {
        let or_empty = |text: &Option<Text>| text.as_deref().unwrap_or_default().to_owned();
        changes |= claim.without_policies.is_some();
        row([
            &title(&claim),
            &claim.request,
            &or_empty(&claim.storage_class),
            &outcome(&claim),
            &or_empty(&claim.volume),
            claim.capacity.as_deref().unwrap_or_default(),
            &claim.without_policies.as_ref().map_or_else(|| "the same".to_owned(), Gets::sentence),
        ])
    });
    let mut rows: Vec<_> = std::iter::once(row(COLUMNS)).chain(rows).collect();
    if !changes {
        rows.iter_mut().for_each(|row| row.truncate(COLUMNS.len() - 1));
    }
    rows
}

fn title(claim: &ClaimPlan) -> String {
    format!("{}/{}", claim.namespace, claim.name)
}

/// The outcome of a claim in a few words.
pub(crate) fn outcome(claim: &ClaimPlan) -> String {
    match claim.outcome {
        Outcome::Bound if claim.changed && claim.is_steered => "would be reserved".to_owned(),
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

impl Gets {
    /// What the claim would get, in a few words.
    pub(crate) fn sentence(&self) -> String {
        match (self.outcome, &self.volume, &self.provisioner) {
            (Outcome::Bound, Some(volume), _) => format!("bound to {volume}"),
            (Outcome::Provisioning, _, Some(provisioner)) => format!("provisioned by {provisioner}"),
            (Outcome::Bound, None, _) => "bound".to_owned(),
            (Outcome::Provisioning, ..) => "provisioned".to_owned(),
            (Outcome::WaitsForConsumer, ..) => "waits for first consumer".to_owned(),
            (Outcome::WaitsForScheduler, ..) => "waits for the scheduler".to_owned(),
            (Outcome::Pending, ..) => "pending".to_owned(),
            (Outcome::Lost, ..) => "lost".to_owned(),
            (Outcome::Deleted, ..) => "gone".to_owned(),
        }
    }
}

/// The messages and candidates of a claim.
fn details(claim: &ClaimPlan) -> String {
    let why =
        if claim.messages.is_empty() { "nothing more is said".to_owned() } else { claim.messages.join("; ") };
    let mut text = format!("\n{}: {why}\n", title(claim));
    text += &candidates(claim);
    text
}

/// The candidates of a claim, line by line.
pub(crate) fn candidates(claim: &ClaimPlan) -> String {
    let waits = matches!(claim.outcome, Outcome::WaitsForConsumer | Outcome::WaitsForScheduler);
    let row = |candidate: &CandidatePlan| vec![format!("  {}", candidate.volume), candidate.sentence(waits)];
    let mut text = output::table(&claim.candidates.iter().map(row).collect::<Vec<_>>());
    if claim.more_candidates > 0 {
        let more = output::counted(claim.more_candidates, "more volume", "more volumes");
        text += &format!("  and {more}, further away; --nearest all lists every volume\n");
    }
    text
}

fn volumes(volumes: &[VolumePlan]) -> Vec<Vec<String>> {
    let head = row(["VOLUME", "CAPACITY", "POLICY", "PHASE", "WHAT BECOMES OF IT"]);
    let rows = volumes.iter().map(|volume| {
        row([&volume.name, &volume.capacity, &volume.reclaim_policy, &volume.phase, &volume.fate])
    });
    std::iter::once(head).chain(rows).collect()
}
