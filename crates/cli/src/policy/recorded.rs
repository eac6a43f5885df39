//! `bindery policy test --from`: what a journal has recorded of a policy is asked again, and becomes golden
//! cases.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use bindery_host::{ComponentPolicy, FUEL_SCHEDULE};
use bindery_journal::{Files, What};

use super::golden::Golden;
use crate::journal::kept::check_kept;
use crate::journal::unknown::Unknown;
use crate::output;
use crate::replay::answers::{Answers, ask};

/// Asks the module what the policy of that name was asked, with the settings of then, and writes cases into a
/// folder. Exits with status 1 if an answer is another one, or takes other fuel with the recorded module.
pub(super) fn run(
    journal: &Path,
    name: &str,
    policy: &ComponentPolicy,
    write: Option<&Path>,
) -> Result<ExitCode> {
    let (mut answers, mut unknown, mut number) = (Answers::default(), Unknown::default(), 0);
    let mut golden = write.map(|folder| Golden::new(folder, name)).transpose()?;
    let mut files = Files::open(journal)?;
    while let Some(entry) = files.next() {
        let entry = entry?;
        if matches!(entry.what, What::Unknown(_)) {
            unknown.add(files.header());
        }
        let What::Decision(record) = &entry.what else { continue };
        number += 1;
        let counts_alike = files.header().is_some_and(|header| header.fuel_schedule == FUEL_SCHEDULE);
        output::print(&answers.ask(number, record, counts_alike, |recorded| ask(policy, name, recorded)))?;
        answers.forget_differences();
        check_kept(answers.kept, format_args!("record {number}"))?;
        if let Some(golden) = golden.as_mut().filter(|_| !record.redacted.policies) {
            golden.add(record, entry.at_ms, policy.metadata())?;
        }
    }
    let Answers { same, different, not_asked, redacted, .. } = &answers;
    if *redacted > 0 {
        let left_out = output::counted(*redacted, "record is left out", "records are left out");
        output::print(&format!("{left_out}: policies saw what is redacted there\n"))?;
    }
    output::print(&unknown.lines("test"))?;
    answers.check_asked(journal, name)?;
    let same = output::counted(*same, "answer", "answers");
    output::print(&format!("{same} the same, {different} different, {not_asked} not asked for\n"))?;
    if let Some(golden) = golden {
        output::print(&golden.finish()?)?;
    }
    Ok(if *different == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
