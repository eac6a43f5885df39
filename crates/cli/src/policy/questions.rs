//! What a policy is asked: questions of its cases, or made up of the facts that it declares.

use anyhow::{Context as _, Result};
use bindery_core::{Quantity, Text};
use bindery_policy::{
    Candidates, ClaimView, Matcher, Metadata, PolicyFault, Reclaimer, Released, candidates,
};
use serde_json::{Map, Value};

use super::cases::{Case, File};
use super::judge::Tested;
use super::shown::{self, Shown};

/// Values of each fact that is made up.
const VALUES: usize = 8;
/// The request of a claim that is made up, and the least capacity of its volumes.
const REQUEST: Quantity = Quantity::bytes(1 << 30);

/// A question to a policy.
pub(crate) struct PolicyQuestion<'a> {
    settings: String,
    shown: Objects<'a>,
}

/// The policy, and what it is shown.
enum Objects<'a> {
    /// A claim, and volumes that the requirements of the matcher leave.
    Matched { matcher: &'a dyn Matcher, claim: ClaimView, rows: Candidates },
    /// Released volumes, one for each call.
    Released { reclaimer: &'a dyn Reclaimer, volumes: Vec<Released> },
}

/// The questions of cases. A case whose settings are refused has none.
pub(crate) fn of_cases<'a>(policy: Tested<'a>, files: &[File]) -> Result<Vec<PolicyQuestion<'a>>> {
    let mut questions = Vec::new();
    for file in files {
        for (line, case) in &file.cases {
            let place = || format!("{}:{line}: {}", file.path.display(), case.title);
            if policy.checked(&case.settings)?.is_ok() {
                questions.push(of_case(policy, case).with_context(place)?);
            }
        }
    }
    Ok(questions)
}

fn of_case<'a>(policy: Tested<'a>, case: &Case) -> Result<PolicyQuestion<'a>> {
    let settings = Value::Object(case.settings.clone()).to_string();
    let metadata = policy.metadata();
    let shown = match policy {
        Tested::Matcher(matcher) => {
            let Shown { claim, mut volumes, counted } = Shown::new(metadata, case)?;
            let narrowing = matcher.narrow(&settings, &claim)?;
            volumes.retain(|volume| narrowing.judge && narrowing.rejection(metadata, volume).is_none());
            let spread = volumes.iter().filter_map(|volume| Some(counted.as_ref()?.count(volume)));
            let spread = spread.collect();
            Objects::Matched { matcher, claim, rows: candidates(metadata, &volumes, spread) }
        }
        Tested::Reclaimer(reclaimer) => {
            Objects::Released { reclaimer, volumes: vec![shown::released(metadata, case)?] }
        }
    };
    Ok(PolicyQuestion { settings, shown })
}

/// A question without a case. `with_facts`: whether the claim, or the volume of a reclaimer, has any fact.
pub(crate) fn generated<'a>(
    policy: Tested<'a>,
    settings: &Map<String, Value>,
    with_facts: bool,
) -> Result<PolicyQuestion<'a>, PolicyFault> {
    let metadata = policy.metadata();
    let values = |count| vec![value(1).filter(|_| with_facts); count];
    let facts: Vec<Option<Text>> = values(metadata.claim_facts.len());
    let settings = Value::Object(settings.clone()).to_string();
    let shown = match policy {
        Tested::Matcher(matcher) => {
            let claim = ClaimView { request: REQUEST, facts };
            let judges = matcher.narrow(&settings, &claim)?.judge;
            let rows = if judges { generated_rows(metadata) } else { Candidates::default() };
            Objects::Matched { matcher, claim, rows }
        }
        Tested::Reclaimer(reclaimer) => {
            let columns = values(metadata.columns.len());
            let volumes = vec![Released { capacity: REQUEST, columns, claim: Some(facts) }];
            Objects::Released { reclaimer, volumes }
        }
    };
    Ok(PolicyQuestion { settings, shown })
}

/// A row for each value, and one without values.
fn generated_rows(metadata: &Metadata) -> Candidates {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let rows = 0..=VALUES;
    // Each column begins with another value, so that rows differ in more than one.
    let column = |at: usize| rows.clone().map(move |row| number((row + at) % (VALUES + 1))).collect();
    Candidates {
        whole: rows.clone().map(|_| REQUEST.whole).collect(),
        nanos: rows.clone().map(|_| REQUEST.nanos).collect(),
        texts: (1..=VALUES).filter_map(value).collect(),
        columns: (0..metadata.columns.len()).map(column).collect(),
        spread: metadata.spread.iter().flat_map(|_| rows.clone().map(number)).collect(),
    }
}

fn value(number: usize) -> Option<Text> {
    Some(format!("value-{number}").into())
}

impl PolicyQuestion<'_> {
    /// Whether there is a volume to judge.
    pub(crate) fn has_rows(&self) -> bool {
        match &self.shown {
            Objects::Matched { rows, .. } => !rows.whole.is_empty(),
            Objects::Released { .. } => true,
        }
    }

    /// The same with this number of volumes: its own over and over, each time a byte larger.
    pub(crate) fn with_rows(&self, count: usize) -> Self {
        let grown = |whole: u64, time: usize| whole.saturating_add(time as u64);
        let shown = match &self.shown {
            Objects::Matched { matcher, claim, rows } => {
                let own = rows.whole.len();
                let repeated = |list: &Vec<u32>| list.iter().copied().cycle().take(count).collect();
                let whole = rows.whole.iter().cycle().take(count).enumerate();
                let rows = Candidates {
                    whole: whole.map(|(at, whole)| grown(*whole, at / own)).collect(),
                    nanos: repeated(&rows.nanos),
                    texts: rows.texts.clone(),
                    columns: rows.columns.iter().map(repeated).collect(),
                    spread: repeated(&rows.spread),
                };
                Objects::Matched { matcher: *matcher, claim: claim.clone(), rows }
            }
            Objects::Released { reclaimer, volumes } => {
                let varied = volumes.iter().cycle().take(count).enumerate().map(|(at, volume)| {
                    let whole = grown(volume.capacity.whole, at / volumes.len());
                    Released { capacity: Quantity { whole, ..volume.capacity }, ..volume.clone() }
                });
                Objects::Released { reclaimer: *reclaimer, volumes: varied.collect() }
            }
        };
        Self { settings: self.settings.clone(), shown }
    }

    /// Has the claim narrowed. A reclaimer has nothing to narrow.
    pub(crate) fn narrow(&self) -> Result<(), PolicyFault> {
        match &self.shown {
            Objects::Matched { matcher, claim, .. } => matcher.narrow(&self.settings, claim).map(drop),
            Objects::Released { .. } => Ok(()),
        }
    }

    /// Has all volumes judged.
    pub(crate) fn judge(&self) -> Result<(), PolicyFault> {
        match &self.shown {
            Objects::Matched { matcher, claim, rows } => {
                let verdicts = matcher.judge(&self.settings, claim, rows)?;
                verdicts.verdicts(matcher.metadata(), rows.whole.len()).map(drop)
            }
            Objects::Released { reclaimer, volumes } => {
                volumes.iter().try_for_each(|volume| reclaimer.judge(&self.settings, volume).map(drop))
            }
        }
    }
}
