//! Golden cases: what a policy should say about some volumes.
//!
//! A file holds YAML documents, one for each case. `expect` is the last field of a case, so that it can be
//! written again without touching what people wrote above it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use bindery_policy::Wish;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{manifest, yaml};

/// A case as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    /// One sentence: given, when, then.
    #[serde(rename = "case")]
    pub(crate) title: String,
    #[serde(default)]
    pub(crate) settings: Map<String, Value>,
    /// The manifest of the claim. Without it a reclaimer is told that nothing is known of the claim.
    #[serde(default)]
    pub(crate) claim: Value,
    /// The manifest of its namespace; without it the namespace has no labels.
    #[serde(default)]
    pub(crate) namespace: Value,
    /// The manifest of its class; without it the class has no parameters.
    #[serde(default)]
    pub(crate) class: Value,
    /// The manifests of free volumes that fit the claim.
    #[serde(default)]
    pub(crate) volumes: Vec<Value>,
    /// The manifest of the volume whose claim is gone, for a reclaimer.
    #[serde(default)]
    pub(crate) volume: Value,
    /// Other claims, each with the volume that it has, for a policy that spreads volumes.
    #[serde(default)]
    pub(crate) siblings: Vec<Pair>,
    #[serde(default)]
    pub(crate) expect: Option<CaseAnswer>,
}

/// The manifests of a claim and of the volume that it has.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pair {
    pub(crate) claim: Value,
    pub(crate) volume: Value,
}

impl Case {
    /// The claim and the volumes, each with the amount of storage that it must name.
    pub(crate) fn amounts(&self) -> impl Iterator<Item = (&Value, &Value)> {
        let claim = (&self.claim, &self.claim["spec"]["resources"]["requests"]["storage"]);
        let volumes = self.volumes.iter().map(|volume| (volume, &volume["spec"]["capacity"]["storage"]));
        std::iter::once(claim).chain(volumes)
    }
}

/// What a policy says in a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "Expected")]
pub(crate) enum CaseAnswer {
    /// The settings are refused, with this sentence.
    Refused(String),
    /// What it says about the volumes.
    #[serde(untagged)]
    Judged {
        /// The volume that the claim gets, if no other policy applies.
        chosen: Option<String>,
        /// Each volume by its name.
        volumes: BTreeMap<String, CaseVerdict>,
    },
    /// What becomes of the volume.
    #[serde(untagged)]
    Reclaimed {
        /// What the reclaimer says.
        fate: Wish,
        /// The name of its reason; none for `byPolicy`.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// An answer as it is written: its fields say which one it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    refused: Option<String>,
    chosen: Option<String>,
    volumes: Option<BTreeMap<String, CaseVerdict>>,
    fate: Option<Wish>,
    reason: Option<String>,
}

impl TryFrom<Expected> for CaseAnswer {
    type Error = &'static str;

    fn try_from(expected: Expected) -> Result<Self, Self::Error> {
        match expected {
            Expected { refused: Some(why), chosen: None, volumes: None, fate: None, reason: None } => {
                Ok(Self::Refused(why))
            }
            Expected { refused: None, chosen, volumes: Some(volumes), fate: None, reason: None } => {
                Ok(Self::Judged { chosen, volumes })
            }
            Expected { refused: None, chosen: None, volumes: None, fate: Some(fate), reason } => {
                Ok(Self::Reclaimed { fate, reason })
            }
            _ => Err("give chosen and volumes, or fate and reason, or refused"),
        }
    }
}

/// What a policy says about a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum CaseVerdict {
    /// It is allowed, by a policy that does not score.
    Allowed,
    /// It is allowed, with this score.
    Score(u32),
    /// It is rejected, for this reason.
    Rejected(String),
}

/// A file of cases.
pub(crate) struct File {
    pub(crate) path: PathBuf,
    text: String,
    /// Each case with the line on which it begins, from 1.
    pub(crate) cases: Vec<(usize, Case)>,
}

/// Reads files and folders of cases.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Vec<File>> {
    let mut files = Vec::new();
    for path in paths {
        for path in manifest::files(path, false)? {
            let text =
                fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
            files.push(File::parse(path, text)?);
        }
    }
    if files.iter().all(|file| file.cases.is_empty()) {
        bail!("there is no case; docs/policies/cases.md says how to write one");
    }
    Ok(files)
}

impl File {
    pub(crate) fn parse(path: PathBuf, text: String) -> Result<Self> {
        let name = path.display();
        let documents = yaml::documents(&text).map_err(|why| anyhow!("{name}: {why}"))?;
        let mut cases = Vec::new();
        for yaml::Document { line, content } in documents {
            if !content.is_null() {
                let case = serde_path_to_error::deserialize(content)
                    .map_err(|why| anyhow!("{name}: the case at line {line}: {why}"))?;
                cases.push((usize::try_from(line)?, case));
            }
        }
        expectations_come_last(&name, &text)?;
        Ok(Self { path, text, cases })
    }

    /// The text of the file, with other answers expected: one for each case.
    pub(crate) fn updated(&self, answers: &[CaseAnswer]) -> Result<String> {
        let lines: Vec<&str> = self.text.lines().collect();
        let mut written = String::new();
        let mut done = 0;
        for ((line, _), answer) in self.cases.iter().zip(answers) {
            let end_or = |mark: &str, end: usize| {
                let found = lines[*line..end].iter().position(|line| line.starts_with(mark));
                found.map_or(end, |found| line + found)
            };
            let end = end_or("---", lines.len());
            let until = end_or("expect:", end);
            written.extend(lines[done..until].iter().flat_map(|line| [line, "\n"]));
            let mut expected = Vec::new();
            yaml::write(&mut expected, &BTreeMap::from([("expect", answer)]))?;
            written += str::from_utf8(&expected)?;
            done = end;
        }
        written.extend(lines[done..].iter().flat_map(|line| [line, "\n"]));
        Ok(written)
    }
}

/// Checks that `expect` is the last key of each case: what follows it would be lost by [`File::updated`].
fn expectations_come_last(name: &dyn std::fmt::Display, text: &str) -> Result<()> {
    let mut expected = false;
    for (number, line) in text.lines().enumerate() {
        let is_key = line.starts_with(|first: char| first.is_ascii_alphabetic());
        if line.starts_with("---") {
            expected = false;
        } else if is_key && expected {
            let key = line.split(':').next().unwrap_or(line);
            bail!("{name}: line {}: {key} follows expect; move expect to the end of its case", number + 1);
        } else if line.starts_with("expect:") {
            expected = true;
        }
    }
    Ok(())
}

/// The folder of the cases of a module, by default: `cases` beside it.
pub(crate) fn folder_beside(module: &Path) -> PathBuf {
    module.with_file_name("cases")
}
