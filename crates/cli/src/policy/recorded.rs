//! `bindery policy test --from`: what a journal has recorded of a policy is asked again.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use bindery_host::ComponentPolicy;
use bindery_journal::{Files, What};
use bindery_policy::{AskedAgain, PolicyDifference};

use crate::output;

/// Asks the module what the policy of that name was asked, with the settings of then. Exits with status 1 if
/// an answer is another one.
pub(super) fn run(journal: &Path, name: &str, policy: &ComponentPolicy) -> Result<ExitCode> {
    let (mut same, mut different, mut not_asked, mut redacted) = (0, 0, 0, 0);
    let mut notes = BTreeSet::new();
    for (number, entry) in (1..).zip(Files::open(journal)?) {
        let What::Decision(record) = entry?.what else { continue };
        let Some(recorded) = &record.policies else { continue };
        if record.redacted.policies {
            redacted += 1;
            continue;
        }
        let asked = match policy {
            ComponentPolicy::Matcher(matcher) => recorded.ask_matcher(name, matcher),
            ComponentPolicy::Reclaimer(reclaimer) => recorded.ask_reclaimer(name, reclaimer),
        };
        let AskedAgain { same: again, differences, not_asked: left_out, notes: told, .. } = asked;
        same += again;
        different += differences.len();
        not_asked += left_out;
        let mut text: String =
            told.iter().filter(|note| !notes.contains(*note)).map(|it| format!("{it}\n")).collect();
        notes.extend(told);
        for PolicyDifference { volume, then, now, .. } in differences {
            let about = volume.map_or_else(String::new, |volume| format!(": volume {volume}"));
            // Writing to a string cannot fail.
            _ = writeln!(text, "entry {number}{about}\n  then {then}\n  now  {now}");
        }
        output::print(&text)?;
    }
    if redacted > 0 {
        output::print(&format!("{redacted} records are left out: policies saw what is redacted in them\n"))?;
    }
    if same + different + not_asked == 0 {
        bail!("{} has nothing of a policy {name:?} of that kind; name one that it has", journal.display());
    }
    output::print(&format!("{same} answers the same, {different} different, {not_asked} not asked for\n"))?;
    Ok(if different == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
