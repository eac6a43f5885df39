//! `bindery diff`: what the shadows of a cluster decide otherwise, from the status of their objects or from a
//! journal.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use bindery_core::Text;
use bindery_journal::{DecisionSummary, Differed, Entry, Files, What};
use bindery_kube::PolicyObjects;
use bindery_policy::{ObjectStatus, ShadowAnswer, ShadowDifference, ShadowReleased, ShadowStatus};
use serde::Serialize;

use crate::cluster::ClusterArguments;
use crate::journal::kept::check_kept;
use crate::journal::subject::time;
use crate::journal::unknown::Unknown;
use crate::output::{Format, counted};
use crate::policies::object::{is_in_shadow, object_name};

/// Show what the policies and engines in mode shadow decide otherwise.
///
/// Reads the status of the cluster objects Engine, MatchPolicy and ReclaimPolicy, in which the leader writes
/// what their decisions have shown. Prints a line of numbers for each object, and one for each of its latest
/// differences: what was decided and why, and what the shadow decides and why. With `--journal` it prints all
/// differences that a journal has, and asks no cluster. In mode observe no status is written: there the
/// journal and the metrics `bindery_shadow_*` tell.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name of the object. By default all.
    name: Option<String>,
    /// Print the differences of this journal: a folder or a file of `bindery serve --journal`.
    #[arg(long, value_name = "FOLDER|FILE")]
    journal: Option<PathBuf>,
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

/// Why the status of a shadow has nothing.
const NOT_LOADED: &str = "no leader has loaded it yet; in mode observe no status is written: read `bindery \
                          diff --journal FOLDER` or the metrics bindery_shadow_*";

/// The differences of a shadow in a journal. Programs read its JSON, so fields are only added.
#[derive(Serialize)]
struct Journaled {
    kind: String,
    name: String,
    differences: BTreeMap<Text, u64>,
    all: Vec<ShadowDifference>,
}

/// Runs `bindery diff`. Errors name the object and the remedy.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(journal) = &arguments.journal {
        return arguments.print_journal(journal);
    }
    let shown = crate::block_on(arguments.read())?;
    arguments.print(&shown, "No policy or engine is in mode shadow.\n", Shown::text)
}

impl Arguments {
    /// Prints the differences of a journal, shadow by shadow.
    fn print_journal(&self, journal: &Path) -> Result<ExitCode> {
        let (mut files, mut unknown) = (Files::open(journal)?, Unknown::default());
        let entries = std::iter::from_fn(|| {
            let entry = files.next()?;
            if matches!(entry, Ok(Entry { what: What::Unknown(_), .. })) {
                unknown.add(files.header());
            }
            Some(entry.map_err(anyhow::Error::from))
        });
        let shadows = journaled(entries, self.name.as_deref(), 0)?;
        eprint!("{}", unknown.lines("read the differences"));
        self.print(&shadows, "The journal has no difference of a shadow.\n", Journaled::text)
    }

    /// Prints what is shown of each shadow, or `none`.
    fn print<T: Serialize>(&self, all: &Vec<T>, none: &str, text: fn(&T) -> String) -> Result<ExitCode> {
        self.output.print(all, |out| {
            if all.is_empty() {
                return out.write_all(none.as_bytes());
            }
            all.iter().try_for_each(|one| out.write_all(text(one).as_bytes()))
        })?;
        Ok(ExitCode::SUCCESS)
    }

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
            let wants_shadow = is_in_shadow(&object);
            if !wants_shadow && status.shadow.is_none() {
                continue;
            }
            let is_written = status.shadow.is_some();
            let note = if is_written { String::new() } else { NOT_LOADED.to_owned() };
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
        let ShadowStatus { compared, not_comparable, dropped, differences, released, latest, .. } = shadow;
        let (share, outside, of_share) = match shadow.sample_percent {
            Some(percent) => (
                format!(", {percent}% of claims and volumes"),
                format!(", {} not sampled", shadow.not_sampled),
                " of this share",
            ),
            None => Default::default(),
        };
        let count: u64 = differences.values().sum();
        let by_kind = by_kind(differences);
        let note = if note.is_empty() { String::new() } else { format!("; {note}") };
        let compared = counted(*compared, "decision compared", "decisions compared");
        let differ = counted(count, "differs", "differ");
        let head = format!(
            "{kind} {name}{share}: {compared}, {differ}{by_kind}; {not_comparable} not comparable, {dropped} \
             dropped{outside}{note}\n"
        );
        let released = released.as_ref().map(|ShadowReleased { kept, later, due, offered }| {
            format!(
                "  of the released volumes{of_share} {kept} would be kept, {later} kept and deleted later, \
                 {due} deleted by now, and {offered} offered again\n"
            )
        });
        let head = head + &released.unwrap_or_default();
        latest.iter().map(line).fold(head, |text, line| text + &line)
    }
}

impl Journaled {
    fn text(&self) -> String {
        let Self { kind, name, differences, all } = self;
        let differ = counted(all.len(), "decision differs", "decisions differ");
        let head = format!("{kind} {name}: {differ}{}\n", by_kind(differences));
        all.iter().map(line).fold(head, |text, line| text + &line)
    }
}

/// The differences of a journal, shadow by shadow, or of that name. So many bytes of it are `kept` already.
fn journaled(
    entries: impl Iterator<Item = Result<Entry>>,
    name: Option<&str>,
    mut kept: usize,
) -> Result<Vec<Journaled>> {
    let mut shadows = BTreeMap::new();
    for entry in entries {
        let entry = entry?;
        let What::Difference(differed) = entry.what else { continue };
        let (kind, shadow) = (differed.kind.clone(), differed.shadow.clone());
        if name.is_some_and(|wanted| *wanted != shadow) {
            continue;
        }
        kept += size(&differed);
        check_kept(kept, format_args!("a difference at {}", time(entry.at_ms)))?;
        let new = |(kind, name): &(String, String)| {
            let (kind, name) = (kind.clone(), name.clone());
            Journaled { kind, name, differences: BTreeMap::new(), all: Vec::new() }
        };
        let shadow = shadows.entry((kind, shadow)).or_insert_with_key(new);
        *shadow.differences.entry(differed.difference.clone().into()).or_default() += 1;
        shadow.all.push(difference(entry.at_ms, *differed));
    }
    Ok(shadows.into_values().collect())
}

/// The numbers of differences, behind their sum.
fn by_kind(differences: &BTreeMap<Text, u64>) -> String {
    let counts: Vec<String> = differences.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    if counts.is_empty() { String::new() } else { format!(" ({})", counts.join(", ")) }
}

/// About how many bytes are kept of a difference.
fn size(Differed { kind, shadow, object, difference, active, instead, .. }: &Differed) -> usize {
    let told = [&active.answer, &active.reason, &instead.answer, &instead.reason];
    let texts = [kind, shadow, object, difference].into_iter().chain(told);
    size_of::<ShadowDifference>() + texts.map(String::len).sum::<usize>()
}

/// A difference of a journal, as a status has it.
fn difference(at_ms: u64, differed: Differed) -> ShadowDifference {
    let answer =
        |DecisionSummary { answer, reason }| ShadowAnswer { answer: answer.into(), reason: reason.into() };
    let Differed { object, claim, difference, active, instead, .. } = differed;
    ShadowDifference {
        time: time(at_ms).to_string().into(),
        object: format!("{} {object}", if claim { "pvc" } else { "pv" }).into(),
        kind: difference.into(),
        active: answer(active),
        shadow: answer(instead),
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
    use super::*;
    use crate::journal::kept::KEPT_MAX;

    #[test]
    fn each_difference_is_a_line_with_both_reasons() {
        let difference = ShadowDifference {
            time: "2026-11-26T15:00:00Z".into(),
            object: "pvc ns/c".into(),
            kind: "other-volume".into(),
            active: ShadowAnswer::new("binds volume v1", ""),
            shadow: ShadowAnswer::new(
                "binds volume v2",
                "policy zone rejects volume v1: its zone is b, not a",
            ),
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

    #[test]
    fn given_a_share_the_text_names_it_and_what_is_outside() {
        let shadow = ShadowStatus {
            compared: 40,
            not_sampled: 360,
            sample_percent: Some(10),
            released: Some(ShadowReleased { kept: 2, ..ShadowReleased::default() }),
            ..ShadowStatus::default()
        };
        let (kind, name) = ("ReclaimPolicy".to_owned(), "keep".to_owned());
        assert_eq!(
            Shown { kind, name, note: String::new(), shadow }.text(),
            "ReclaimPolicy keep, 10% of claims and volumes: 40 decisions compared, 0 differ; 0 not \
             comparable, 0 dropped, 360 not sampled\n  of the released volumes of this share 2 would be \
             kept, 0 kept and deleted later, 0 deleted by now, and 0 offered again\n"
        );
    }

    #[test]
    fn a_journal_has_all_differences_of_each_shadow() {
        let told = |answer: &str| DecisionSummary { answer: answer.into(), reason: String::new() };
        let differed = Differed {
            kind: "MatchPolicy".into(),
            shadow: "zone".into(),
            engine: "e".into(),
            chain: "c".into(),
            object: "v".into(),
            claim: false,
            now: 7,
            difference: "other-fate".into(),
            active: told("keeps it"),
            instead: told("deletes it"),
        };
        let entry = |shadow: &str| Entry {
            at_ms: 1_000,
            what: What::Difference(Box::new(Differed { shadow: shadow.into(), ..differed.clone() })),
        };
        let entries: Vec<Entry> = ["zone"; 20].into_iter().chain(["other"]).map(entry).collect();
        let all = journaled(entries.clone().into_iter().map(Ok), None, 0).unwrap();
        let text: Vec<String> = all.iter().map(Journaled::text).collect();
        let line = "  1970-01-01T00:00:01Z  other-fate  pv v: keeps it; shadow: deletes it\n";
        assert_eq!(text[0], format!("MatchPolicy other: 1 decision differs (1 other-fate)\n{line}"));
        let head = "MatchPolicy zone: 20 decisions differ (20 other-fate)\n";
        assert_eq!(text[1], format!("{head}{}", line.repeat(20)));
        let named = journaled(entries.clone().into_iter().map(Ok), Some("other"), 0).unwrap();
        assert_eq!(named.len(), 1);
        let error = journaled(entries.into_iter().map(Ok), None, KEPT_MAX).err().unwrap().to_string();
        let told = "a difference at 1970-01-01T00:00:01Z: the report of the journal ";
        assert!(error.starts_with(told), "{error}");
    }
}
