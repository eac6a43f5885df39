//! Golden cases: what a policy should say about some volumes.
//!
//! A file holds YAML documents, one for each case. `expect` is the last field of a case, so that it can be
//! written again without touching what people wrote above it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
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
    /// The manifest of the claim.
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
    #[serde(default)]
    pub(crate) expect: Option<Answer>,
}

/// What a policy says in a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum Answer {
    /// The settings are refused, with this sentence.
    Refused(String),
    /// What it says about the volumes.
    #[serde(untagged)]
    Judged {
        /// The volume that the claim gets, if no other policy applies.
        chosen: Option<String>,
        /// Each volume by its name.
        volumes: BTreeMap<String, Verdict>,
    },
}

/// What a policy says about a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Verdict {
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
            let name = path.display();
            let text = fs::read_to_string(&path).with_context(|| format!("{name} cannot be read"))?;
            let cases = parse(&text).with_context(|| name.to_string())?;
            files.push(File { path, text, cases });
        }
    }
    if files.iter().all(|file| file.cases.is_empty()) {
        bail!("there is no case; docs/policies/cases.md says how to write one");
    }
    Ok(files)
}

fn parse(text: &str) -> Result<Vec<(usize, Case)>> {
    let documents = yaml::documents(text).map_err(|why| anyhow!(why))?;
    let case = |document: yaml::Document| {
        let line = usize::try_from(document.line)?;
        let case = serde_json::from_value(document.content);
        Ok((line, case.with_context(|| format!("the case at line {line}"))?))
    };
    documents.into_iter().filter(|document| !document.content.is_null()).map(case).collect()
}

impl File {
    /// Writes the file again, with what the policy says in each case as what is expected.
    pub(crate) fn update(&self, answers: &[Answer]) -> Result<()> {
        let text = updated(&self.text, self.cases.iter().map(|(line, _)| *line).zip(answers))?;
        fs::write(&self.path, text).with_context(|| format!("{} cannot be written", self.path.display()))
    }
}

/// The text with other answers, each with the line on which its case begins.
fn updated<'a>(text: &str, answers: impl Iterator<Item = (usize, &'a Answer)>) -> Result<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut written = Vec::new();
    let mut kept = 0;
    for (line, answer) in answers {
        let after = lines[line..].iter().position(|line| line.starts_with("---"));
        let end = after.map_or(lines.len(), |after| line + after);
        let expect = lines[line..end].iter().position(|line| line.starts_with("expect:"));
        let until = expect.map_or(end, |expect| line + expect);
        written.extend(lines[kept..until].iter().map(|line| (*line).to_owned()));
        let mut expected = Vec::new();
        yaml::write(&mut expected, &BTreeMap::from([("expect", answer)]))?;
        written.push(String::from_utf8(expected)?.trim_end().to_owned());
        kept = end;
    }
    written.extend(lines[kept..].iter().map(|line| (*line).to_owned()));
    Ok(written.join("\n") + "\n")
}

/// The folder of the cases of a module, by default: `cases` beside it.
pub(crate) fn folder_beside(module: &Path) -> PathBuf {
    module.with_file_name("cases")
}
