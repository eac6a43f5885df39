//! `bindery diff`: what the shadows of a cluster decide otherwise, from the status of their objects.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use bindery_kube::PolicyObjects;
use bindery_policy::{ObjectStatus, ShadowDifference, ShadowReleased, ShadowStatus};
use serde::Serialize;

use crate::cluster::ClusterArguments;
use crate::output::Format;
use crate::policies::object::object_name;

/// Show what the policies and engines in mode shadow decide otherwise.
///
/// Reads the status of the cluster objects Engine, MatchPolicy and ReclaimPolicy, in which the leader writes
/// what their decisions have shown. Prints a line of numbers for each object, and one for each of its latest
/// differences: what was decided and why, and what the shadow decides and why.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name of the object. By default all.
    name: Option<String>,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Format of the differences.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// What a shadow has shown. Programs read its JSON, so fields are only added.
#[derive(Serialize)]
struct Shown {
    kind: String,
    name: String,
    /// Why there may be nothing to see; empty if the shadow decides.
    #[serde(skip_serializing_if = "String::is_empty")]
    note: String,
    #[serde(flatten)]
    shadow: ShadowStatus,
}

/// Runs `bindery diff`. Errors name the object and the remedy.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let shown = runtime.block_on(arguments.read())?;
    arguments.output.print(&shown, |out| {
        if shown.is_empty() {
            return out.write_all(b"No policy or engine is in mode shadow.\n");
        }
        shown.iter().try_for_each(|shown| out.write_all(shown.text().as_bytes()))
    })?;
    Ok(ExitCode::SUCCESS)
}

impl Arguments {
    async fn read(&self) -> Result<Vec<Shown>> {
        let client = self.cluster.client().await?;
        let (objects, _) = PolicyObjects::new(&client);
        let objects = objects.list().await.context(
            "`bindery diff` lists engines, matchpolicies and reclaimpolicies of policy.bindery.dev",
        )?;
        let mut shown = Vec::new();
        let mut is_there = false;
        for (object, status) in objects {
            let (kind, name) = object_name(&object);
            if self.name.as_ref().is_some_and(|wanted| *wanted != name) {
                continue;
            }
            is_there = true;
            let status: ObjectStatus = serde_json::from_value(status)
                .with_context(|| format!("{kind} {name}: its status is of another version of Bindery"))?;
            let wants_shadow = object["spec"]["mode"] == "shadow";
            if !wants_shadow && status.shadow.is_none() {
                continue;
            }
            let is_written = status.shadow.is_some();
            let note = if is_written { String::new() } else { "no leader has loaded it yet".to_owned() };
            shown.push(Shown { kind, name, note, shadow: status.shadow.unwrap_or_default() });
        }
        if let (Some(name), true) = (&self.name, shown.is_empty()) {
            match is_there {
                true => bail!("{name} is not in mode shadow; set spec.mode to shadow, and try again"),
                false => bail!("there is no policy or engine {name}; `kubectl get bindery` lists them"),
            }
        }
        Ok(shown)
    }
}

impl Shown {
    fn text(&self) -> String {
        let Self { kind, name, note, shadow } = self;
        let ShadowStatus { compared, not_comparable, dropped, differences, released, latest } = shadow;
        let count: u64 = differences.values().sum();
        let by_kind: Vec<String> =
            differences.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let by_kind = if by_kind.is_empty() { String::new() } else { format!(" ({})", by_kind.join(", ")) };
        let note = if note.is_empty() { String::new() } else { format!("; {note}") };
        let head = format!(
            "{kind} {name}: {compared} decisions compared, {count} differ{by_kind}; {not_comparable} not \
             comparable, {dropped} dropped{note}\n"
        );
        let released = released.as_ref().map(|ShadowReleased { kept, later, due, offered }| {
            format!(
                "  of the released volumes {kept} would be kept, {later} kept and deleted later, {due} \
                 deleted by now, and {offered} offered again\n"
            )
        });
        let head = head + &released.unwrap_or_default();
        latest.iter().map(line).fold(head, |text, line| text + &line)
    }
}

/// A difference in one line.
fn line(ShadowDifference { time, object, kind, active, shadow }: &ShadowDifference) -> String {
    let (active, shadow) = (said(&active.answer, &active.reason), said(&shadow.answer, &shadow.reason));
    format!("  {time}  {kind}  {object}: {active}; shadow: {shadow}\n")
}

fn said(answer: &str, reason: &str) -> String {
    if reason.is_empty() { answer.to_owned() } else { format!("{answer} ({reason})") }
}

#[cfg(test)]
mod tests {
    use bindery_policy::ShadowAnswer;

    use super::*;

    #[test]
    fn each_difference_is_a_line_with_both_reasons() {
        let answer =
            |answer: &str, reason: &str| ShadowAnswer { answer: answer.into(), reason: reason.into() };
        let difference = ShadowDifference {
            time: "2026-11-26T15:00:00Z".into(),
            object: "pvc ns/c".into(),
            kind: "other-volume".into(),
            active: answer("binds volume v1", ""),
            shadow: answer("binds volume v2", "policy zone rejects volume v1: its zone is b, not a"),
        };
        let shadow = ShadowStatus {
            compared: 3,
            dropped: 1,
            differences: [("other-volume".into(), 2)].into(),
            latest: vec![difference],
            ..ShadowStatus::default()
        };
        let (kind, name) = ("MatchPolicy".to_owned(), "zone".to_owned());
        let shown = Shown { kind, name, note: String::new(), shadow };
        assert_eq!(
            shown.text(),
            "MatchPolicy zone: 3 decisions compared, 2 differ (2 other-volume); 0 not comparable, 1 \
             dropped\n  2026-11-26T15:00:00Z  other-volume  pvc ns/c: binds volume v1; shadow: binds \
             volume v2 (policy zone rejects volume v1: its zone is b, not a)\n"
        );
    }
}
