//! `bindery policy test`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use bindery_policy::{Metadata, SettingsSchema};

use super::cases::{self, Case, CaseAnswer, CaseVerdict, File};
use super::judge::Tested;
use super::{module, recorded};
use crate::output;

/// Hold a policy against cases.
///
/// A case is YAML: the manifests of a claim and of volumes, and what the policy should say about each volume.
/// Every case is asked with all volumes at a time, one by one, and in another order; verdicts must not
/// differ. Exits with status 1 when a case fails.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    module: module::ModuleArgument,
    /// Files and folders of cases. By default the folder `cases` beside the module.
    #[arg(value_name = "CASES")]
    cases: Vec<PathBuf>,
    /// Write what the policy says into the cases, as what they expect. Comments in `expect` are lost.
    #[arg(long)]
    update: bool,
    /// Instead of cases, ask again what the policy of `--named` was asked in this journal, with the settings
    /// of then. Each answer that is another one is printed.
    #[arg(long, value_name = "JOURNAL", requires = "named", conflicts_with_all = ["cases", "update"])]
    from: Option<PathBuf>,
    /// The name of the policy in the journal.
    #[arg(long, value_name = "POLICY", requires = "from")]
    named: Option<String>,
    /// Write what the journal has recorded of the policy into this folder, as cases that expect the recorded
    /// answers. In the folder `cases` beside the module they are tested and pushed with it. They have names,
    /// labels and annotations of claims and volumes, as far as the policy was shown them.
    #[arg(long, value_name = "FOLDER", requires = "from")]
    write: Option<PathBuf>,
}

/// Runs `bindery policy test`.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let policy = arguments.module.load()?;
    if let (Some(journal), Some(name)) = (&arguments.from, &arguments.named) {
        return recorded::run(journal, name, &policy, arguments.write.as_deref());
    }
    let files = if arguments.cases.is_empty() {
        let beside = cases::folder_beside(&arguments.module.path()?);
        let why = "no cases are given, and none are beside the module; name files or folders of cases";
        cases::read(&[beside]).context(why)?
    } else {
        cases::read(&arguments.cases)?
    };
    let report = Report::new(Tested::from(&policy), &files)?;
    if arguments.update && report.is_incomplete {
        output::print(&report.text)?;
        bail!("--update has written nothing: first correct the cases that end with an error");
    }
    if arguments.update {
        for (file, answers) in files.iter().zip(&report.answers) {
            fs::write(&file.path, file.updated(answers)?)
                .with_context(|| format!("{} cannot be written", file.path.display()))?;
        }
    }
    output::print(&report.text)?;
    Ok(if report.failed == 0 || arguments.update { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What came of the cases.
pub(super) struct Report {
    pub(super) text: String,
    pub(super) failed: usize,
    /// Whether a case has ended with an error, and so without an answer.
    pub(super) is_incomplete: bool,
    /// What the policy said, case by case of each file.
    pub(super) answers: Vec<Vec<CaseAnswer>>,
}

impl Report {
    pub(super) fn new(policy: Tested<'_>, files: &[File]) -> Result<Self> {
        let (text, answers) = (String::new(), Vec::new());
        let mut report = Self { text, failed: 0, is_incomplete: false, answers };
        let (mut reached, mut count) = (Reached::default(), 0);
        for file in files {
            let mut answers = Vec::new();
            for (line, case) in &file.cases {
                let place = format!("{}:{line}: {}", file.path.display(), case.title);
                count += 1;
                let answer = policy.answer(case);
                let differences = match &answer {
                    Ok(answer) => differences(case.expect.as_ref(), answer),
                    Err(error) => vec![format!("{error:#}")],
                };
                writeln!(
                    report.text,
                    "{} {place}",
                    if differences.is_empty() { "ok    " } else { "failed" }
                )?;
                for difference in &differences {
                    writeln!(report.text, "         {difference}")?;
                }
                report.failed += usize::from(!differences.is_empty());
                match answer {
                    Ok(answer) => {
                        reached.add(case, &answer);
                        answers.push(answer);
                    }
                    Err(_) => report.is_incomplete = true,
                }
            }
            report.answers.push(answers);
        }
        report.text += &reached.missing(policy.metadata())?;
        writeln!(report.text, "{} of {count} cases passed", count - report.failed)?;
        Ok(report)
    }
}

/// What the cases have shown of a policy.
#[derive(Default)]
struct Reached {
    reasons: BTreeSet<String>,
    settings: BTreeSet<String>,
}

impl Reached {
    fn add(&mut self, case: &Case, answer: &CaseAnswer) {
        self.settings.extend(case.settings.keys().cloned());
        if let CaseAnswer::Reclaimed { reason, .. } = answer {
            self.reasons.extend(reason.clone());
        }
        let CaseAnswer::Judged { volumes, .. } = answer else { return };
        self.reasons.extend(volumes.values().filter_map(|verdict| match verdict {
            CaseVerdict::Rejected(reason) => Some(reason.clone()),
            CaseVerdict::Allowed | CaseVerdict::Score(_) => None,
        }));
    }

    /// A line for the reasons and one for the settings that no case reaches.
    fn missing(&self, metadata: &Metadata) -> Result<String> {
        let schema = SettingsSchema::parse(&metadata.settings_schema).map_err(anyhow::Error::msg)?;
        let reasons = metadata.reasons.iter().map(|reason| &*reason.name);
        let line = |what: &str, missing: Vec<&str>| match missing.as_slice() {
            [] => String::new(),
            _ => format!("no case {what} {}\n", missing.join(", ")),
        };
        Ok(line("gives the reason", reasons.filter(|name| !self.reasons.contains(*name)).collect())
            + &line("sets", schema.names().filter(|name| !self.settings.contains(*name)).collect()))
    }
}

/// How an answer differs from what was expected.
pub(super) fn differences(expected: Option<&CaseAnswer>, answer: &CaseAnswer) -> Vec<String> {
    let Some(expected) = expected else {
        return vec!["the case expects nothing; --update writes what the policy says".to_owned()];
    };
    if expected == answer {
        return Vec::new();
    }
    let (
        CaseAnswer::Judged { chosen: expected_chosen, volumes: expected_volumes },
        CaseAnswer::Judged { chosen, volumes },
    ) = (expected, answer)
    else {
        return vec![format!("expected {}, found {}", shown(&Some(expected)), shown(&Some(answer)))];
    };
    let names: BTreeSet<&String> = expected_volumes.keys().chain(volumes.keys()).collect();
    let or = |verdict: Option<&CaseVerdict>, none: &str| {
        verdict.map_or_else(|| none.to_owned(), |verdict| shown(&verdict))
    };
    let verdicts = names.into_iter().map(|name| {
        let found = or(volumes.get(name), "no such volume in the case");
        (&**name, or(expected_volumes.get(name), "nothing"), found)
    });
    let chosen = ("chosen", shown(expected_chosen), shown(chosen));
    let differ = verdicts.chain([chosen]).filter(|(_, expected, found)| expected != found);
    differ.map(|(what, expected, found)| format!("{what}: expected {expected}, found {found}")).collect()
}

fn shown(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
