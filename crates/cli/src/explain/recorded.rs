//! `bindery explain --at`: what was decided of an object, from a journal.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use bindery_core::{Answer, Evidence, Exchange, Handle, Key, Quantity, Question, Slot, Text};
use bindery_journal::{Entry, Files, Header, Record, What};
use jiff::Timestamp;
use serde::Serialize;

use crate::journal::damaged;
use crate::journal::kept::check_kept;
use crate::journal::show::{DecidedBy, shown};
use crate::journal::subject::{is_about, time};
use crate::journal::unknown::Unknown;
use crate::output::{Format, counted, table};

/// What a journal has of an object up to a time.
#[derive(Default, Serialize)]
struct Recorded {
    object: String,
    at: String,
    /// The last decision, and before it the last one that did something.
    decisions: Vec<Decided>,
    /// Records that are missing in the journal up to then.
    missing: u64,
    /// Records up to then of kinds that this version does not know, by the version that wrote them.
    unknown: Unknown,
}

/// A decision, with what became of its writes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Decided {
    time: String,
    replica: Option<String>,
    /// The volumes that the engine was shown as free, in its order.
    candidates: Vec<ShownVolume>,
    decision: Box<Record>,
    /// Until the next decision of the object.
    writes: Vec<Entry>,
    /// About how many bytes the writes have.
    #[serde(skip)]
    kept: usize,
    #[serde(skip)]
    at_ms: u64,
}

/// A volume that the engine was shown as free.
#[derive(Serialize)]
struct ShownVolume {
    /// Its name, where the engine asked for it.
    name: Option<Text>,
    capacity: String,
    state: &'static str,
}

/// Prints what was decided of an object at this time.
pub(super) fn explain(journal: &Path, key: &Key, at: Timestamp, output: Format) -> Result<ExitCode> {
    let mut found = Recorded { object: key.to_string(), at: at.to_string(), ..Recorded::default() };
    let (mut files, mut status, mut first) = (Files::open(journal)?, ExitCode::SUCCESS, None::<u64>);
    while let Some(entry) = files.next() {
        match entry {
            Ok(entry) => {
                first = Some(first.map_or(entry.at_ms, |first| first.min(entry.at_ms)));
                if time(entry.at_ms) <= at {
                    found.add(entry, key, files.header())?;
                }
            }
            Err(error) => status = damaged(error),
        }
    }
    if found.decisions.is_empty() {
        eprint!("{}", found.unknown.lines("explain it"));
        let begins = first.map_or_else(String::new, |first| format!("; it begins at {}", time(first)));
        bail!(
            "{} has no decision of {key} up to {at}{begins}; `bindery journal show --object` lists all of an \
             object",
            journal.display()
        );
    }
    output.print(&found, |out| out.write_all(found.text().as_bytes()))?;
    Ok(status)
}

impl Recorded {
    fn add(&mut self, entry: Entry, key: &Key, header: Option<&Header>) -> Result<()> {
        let at_ms = entry.at_ms;
        match entry.what {
            What::Gap(gap) => self.missing = self.missing.saturating_add(gap.lost),
            What::Unknown(_) => self.unknown.add(header),
            What::Decision(decision) if decision.evidence.request.subject.key() == *key => {
                self.keep(Decided {
                    time: time(at_ms).to_string(),
                    replica: header.map(|header| header.replica.clone()),
                    candidates: candidates(&decision),
                    decision,
                    writes: Vec::new(),
                    kept: 0,
                    at_ms,
                });
            }
            What::Write(_) if is_about(&entry.what, key) => {
                if let Some(decided) = self.decisions.iter_mut().rfind(|decided| decided.at_ms <= at_ms) {
                    decided.kept += size_of::<Entry>() + entry.encode().map_or(0, |bytes| bytes.len());
                    decided.writes.push(entry);
                    check_kept(decided.kept, format_args!("a write at {}", time(at_ms)))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Keeps the last decision and the last one that did something. They are found by their times, because a
    /// folder has the journal of one replica after that of another.
    fn keep(&mut self, next: Decided) {
        let place = self.decisions.partition_point(|decided| decided.at_ms <= next.at_ms);
        self.decisions.insert(place, next);
        let last = self.decisions.len() - 1;
        let acting = self.decisions.iter().rposition(Decided::acts);
        let mut places = 0..;
        self.decisions.retain(|_| places.next().is_some_and(|at| at == last || Some(at) == acting));
    }

    fn text(&self) -> String {
        let mut text = format!("{} at {}\n", self.object, self.at);
        for decided in &self.decisions {
            text += &decided.text();
        }
        if self.missing > 0 {
            let missing = counted(self.missing, "record up to then is", "records up to then are");
            text += &format!("{missing} missing in the journal\n");
        }
        text + &self.unknown.lines("explain it")
    }
}

impl Decided {
    fn acts(&self) -> bool {
        self.decision.evidence.decision.actions().next().is_some()
    }

    fn text(&self) -> String {
        let what = What::Decision(self.decision.clone());
        let mut text = DecidedBy::of(&self.decision, self.replica.as_deref()).text();
        text += &shown(&Entry { at_ms: self.at_ms, what });
        if !self.candidates.is_empty() {
            text += "    volumes that it could choose among, in order:\n";
            let row = |ShownVolume { name, capacity, state }: &ShownVolume| {
                let name = name.as_deref().unwrap_or("(its name was not asked)");
                vec![format!("      {name}"), capacity.clone(), (*state).to_owned()]
            };
            text += &table(&self.candidates.iter().map(row).collect::<Vec<_>>());
        }
        for write in &self.writes {
            text += &shown(write);
        }
        text
    }
}

/// The volumes that the engine was shown as free. It knows them by numbers, and asks for the names of few.
fn candidates(Record { evidence, .. }: &Record) -> Vec<ShownVolume> {
    let names = names(evidence);
    let mut candidates = Vec::new();
    for Exchange { answer, .. } in &evidence.exchanges {
        let Answer::Page(page) = answer else { continue };
        let rows = page.handles.iter().zip(&page.whole).zip(&page.nanos).zip(&page.slots);
        candidates.extend(rows.map(|(((handle, whole), nanos), slot)| ShownVolume {
            name: names.get(handle).cloned(),
            capacity: Quantity { nanos: *nanos, ..Quantity::bytes(*whole) }.to_string(),
            state: match slot {
                Slot::Free => "free",
                Slot::InFlight => "taken by a decision in flight",
                Slot::Withheld => "withheld by a policy",
            },
        }));
    }
    candidates
}

fn names(evidence: &Evidence) -> BTreeMap<Handle, Text> {
    let named = |Exchange { question, answer }: &Exchange| match (question, answer) {
        (Question::Identify(handle), Answer::Identity(volume)) => Some((*handle, volume.name.clone())),
        (Question::Describe(handle), Answer::Described(volume)) => Some((*handle, volume.name.clone())),
        _ => None,
    };
    evidence.exchanges.iter().filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bindery_core::{Action, Decision, GuardVerdict, Outcome, Request, Subject};
    use bindery_journal::Wrote;

    use super::*;

    fn decision(at_ms: u64, acts: bool) -> Entry {
        let volume = bindery_kit::volume("v");
        let step = Action::DeleteVolume { volume: volume.target() }.into();
        let decision = Decision::new(if acts { vec![step] } else { Vec::new() }, Outcome::Done);
        let request = Request { now: 0, subject: Subject::SyncVolume(Arc::new(volume)) };
        let evidence = Evidence { engine: "native".to_owned(), request, exchanges: Vec::new(), decision };
        let (reads, redacted) = Default::default();
        let guard = GuardVerdict::Passed;
        let record = Record { evidence, guard, chain: None, policies: None, fuel: None, reads, redacted };
        Entry { at_ms, what: What::Decision(Box::new(record)) }
    }

    fn write(at_ms: u64) -> Entry {
        let (write, object) = ("delete volume".to_owned(), "v".to_owned());
        let wrote = Wrote { write, object, claim: false, uid: None, version: None, result: Ok(None) };
        Entry { at_ms, what: What::Write(wrote) }
    }

    #[test]
    fn given_a_later_decision_of_another_replica_the_one_that_acted_is_kept() {
        let mut found = Recorded::default();
        // One replica has led before and after the other one.
        for entry in [decision(1, true), decision(4, false), decision(2, true), write(3)] {
            found.add(entry, &Key::Volume("v".into()), None).unwrap();
        }
        let kept: Vec<_> = found.decisions.iter().map(|it| (it.at_ms, it.writes.len())).collect();
        assert_eq!(kept, [(2, 1), (4, 0)]);
    }
}
