//! What a matcher is asked, and what it answers.

use std::collections::HashMap;
use std::ops::Range;

use bindery_core::{Quantity, SelectorOperator, Text, Volume};
use rustc_hash::FxBuildHasher;
use serde::{Deserialize, Serialize};

use crate::kept::Verdict;
use crate::{FaultCause, Metadata};

/// The highest score of a volume; the lowest is 0.
pub const SCORE_MAX: u32 = 100;
/// The most requirements of one narrowing.
pub(crate) const REQUIREMENTS_MAX: usize = 64;
/// The most values of one requirement.
const VALUES_MAX: usize = 256;
/// The longest value of a requirement, in bytes.
const VALUE_BYTES_MAX: usize = 4 << 10;
/// Bytes of a value without its text: the pointer, its counts, and the room of the allocator.
const VALUE_BYTES: usize = 48;

/// A claim as a matcher sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimView {
    /// `spec.resources.requests[storage]`.
    pub request: Quantity,
    /// The declared facts, in the order of [`Metadata::claim_facts`]; `None` where the claim has none.
    pub facts: Vec<Option<Text>>,
}

/// What a volume must be, so that the matcher does not reject it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Narrowing {
    /// All must hold. The first that does not hold gives the reason.
    pub requirements: Vec<Requirement>,
    /// The largest capacity.
    pub at_most: Option<Bound>,
    /// Whether [`Matcher::judge`] has more to say about the rows that are left.
    pub judge: bool,
}

/// A requirement on a column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    /// Place of the column in [`Metadata::columns`].
    pub column: u32,
    /// How the values are compared.
    pub operator: SelectorOperator,
    /// The values; empty for `Exists` and `DoesNotExist`.
    pub values: Vec<Text>,
    /// Place of the reason in [`Metadata::reasons`].
    pub reason: u32,
}

/// The largest capacity that a matcher allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// The capacity.
    pub quantity: Quantity,
    /// Place of the reason in [`Metadata::reasons`].
    pub reason: u32,
}

/// Rows that are to be judged, as columns of equal length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidates {
    /// Whole bytes of their capacities.
    pub whole: Vec<u64>,
    /// Billionths of a byte of their capacities.
    pub nanos: Vec<u32>,
    /// The values of the columns, each once.
    pub texts: Vec<Text>,
    /// For each declared column, for each row: the place of its value in `texts`, counted from 1; 0 for none.
    pub columns: Vec<Vec<u32>>,
    /// For each row, how many volumes of siblings share its value of the spread's column; empty without
    /// spread.
    pub spread: Vec<u32>,
}

/// The answer to [`Candidates`], row by row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// 0 where the row is allowed, else the place of the reason, counted from 1.
    pub reasons: Vec<u32>,
    /// The score of each row, from 0 to [`SCORE_MAX`]; empty where the matcher does not score.
    pub scores: Vec<u32>,
}

impl Candidates {
    /// Some of the rows, with their texts only: all texts in each of many calls would cost the square of the
    /// rows.
    #[must_use]
    pub fn rows(&self, rows: Range<usize>) -> Self {
        let mut texts = Vec::new();
        let mut places = HashMap::<u32, u32, FxBuildHasher>::default();
        let mut place = |old: u32| match old.checked_sub(1) {
            None => 0,
            Some(at) => *places.entry(at).or_insert_with(|| {
                texts.push(self.texts[at as usize].clone());
                u32::try_from(texts.len()).unwrap_or(u32::MAX)
            }),
        };
        let of = |column: &[u32]| column[rows.clone()].iter().map(|old| place(*old)).collect();
        Self {
            columns: self.columns.iter().map(Vec::as_slice).map(of).collect(),
            whole: self.whole[rows.clone()].to_vec(),
            nanos: self.nanos[rows.clone()].to_vec(),
            spread: self.spread.get(rows).unwrap_or_default().to_vec(),
            texts,
        }
    }
}

impl Narrowing {
    /// Why it rejects a volume: the reason's place in [`Metadata::reasons`].
    pub fn rejection(&self, metadata: &Metadata, volume: &Volume) -> Option<u32> {
        let value = |column: u32| volume.fact(metadata.columns.get(column as usize)?);
        self.rejection_of(volume.capacity.unwrap_or_default(), value)
    }

    /// Why it rejects a volume with this capacity and these values of the declared columns.
    pub(crate) fn rejection_of<T: AsRef<str>>(
        &self,
        capacity: Quantity,
        value: impl Fn(u32) -> Option<T>,
    ) -> Option<u32> {
        let unmet = self.requirements.iter().find(|needed| {
            let value = value(needed.column);
            !needed.operator.matches(&needed.values, value.as_ref().map(AsRef::as_ref))
        });
        let too_large = self.at_most.as_ref().filter(|bound| capacity > bound.quantity);
        unmet.map(|needed| needed.reason).or(too_large.map(|bound| bound.reason))
    }

    /// About how many bytes its requirements take.
    pub(crate) fn bytes(&self) -> usize {
        let values = self.requirements.iter().flat_map(|needed| &needed.values);
        let texts: usize = values.map(|value| VALUE_BYTES + value.len()).sum();
        size_of::<Requirement>() * self.requirements.len() + texts
    }

    /// Checks an answer by what the matcher declares.
    ///
    /// # Errors
    ///
    /// A column or a reason is not declared, an operator has the wrong number of values, there are too many
    /// requirements, or a value is too long.
    pub fn check(&self, metadata: &Metadata) -> Result<(), PolicyFault> {
        let found = self.requirements.len();
        if found > REQUIREMENTS_MAX {
            return Err(bad(format!("it has {found} requirements; the limit is {REQUIREMENTS_MAX}")));
        }
        let reasons = self.requirements.iter().map(|needed| needed.reason);
        for reason in reasons.chain(self.at_most.iter().map(|bound| bound.reason)) {
            if reason as usize >= metadata.reasons.len() {
                let declared = metadata.reasons.len();
                return Err(bad(format!("it gives reason {reason}, from 0; {declared} are declared")));
            }
        }
        for Requirement { column, operator, values, .. } in &self.requirements {
            if *column as usize >= metadata.columns.len() {
                let declared = metadata.columns.len();
                return Err(bad(format!("it requires of column {column}, from 0; {declared} are declared")));
            }
            let takes_values = matches!(operator, SelectorOperator::In | SelectorOperator::NotIn);
            if !takes_values && !values.is_empty() {
                return Err(bad(format!("its requirement of column {column} takes no values")));
            }
            if values.len() > VALUES_MAX || values.iter().any(|value| value.len() > VALUE_BYTES_MAX) {
                return Err(bad(format!(
                    "its requirement of column {column} has more than {VALUES_MAX} values, or one of more \
                     than {VALUE_BYTES_MAX} bytes"
                )));
            }
        }
        Ok(())
    }
}

fn bad(why: String) -> PolicyFault {
    PolicyFault::BadAnswer(why)
}

impl Verdicts {
    /// The verdict of each row.
    ///
    /// # Errors
    ///
    /// A list has another length than the rows, a reason is not declared, or a score is too high.
    pub fn verdicts(&self, metadata: &Metadata, rows: usize) -> Result<Vec<Verdict>, PolicyFault> {
        let scored = if metadata.scores { rows } else { 0 };
        for (what, found, wanted) in
            [("reasons", self.reasons.len(), rows), ("scores", self.scores.len(), scored)]
        {
            if found != wanted {
                return Err(bad(format!("it has {found} {what} for {rows} rows; it must have {wanted}")));
            }
        }
        let verdict = |(row, reason): (usize, &u32)| match reason.checked_sub(1) {
            None => match self.scores.get(row).copied().unwrap_or_default() {
                score if score <= SCORE_MAX => Ok(Verdict::Allowed(score)),
                score => Err(format!("the score of row {row} is {score}; the highest is {SCORE_MAX}")),
            },
            Some(reason) if (reason as usize) < metadata.reasons.len() => Ok(Verdict::Rejected(reason)),
            Some(_) => {
                Err(format!("row {row} has reason {reason} of the {} declared", metadata.reasons.len()))
            }
        };
        self.reasons.iter().enumerate().map(verdict).collect::<Result<_, _>>().map_err(PolicyFault::BadAnswer)
    }
}

/// Why a policy gave no answer. The claims that it matches wait, or are decided without it, as its document
/// says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyFault {
    /// It trapped: what happened.
    #[error("it trapped: {0}")]
    Trapped(String),
    /// It exceeded a limit: which, its value, and the remedy.
    #[error("it was stopped: {0}")]
    Exhausted(String),
    /// Its answer has no meaning: what is wrong with it.
    #[error("its answer is invalid: {0}")]
    BadAnswer(String),
    /// It could not be loaded or run: why.
    #[error("it could not be run: {0}")]
    Unavailable(String),
}

impl PolicyFault {
    /// The kind of fault, for metrics.
    pub fn cause(&self) -> FaultCause {
        match self {
            Self::Trapped(_) => FaultCause::Trapped,
            Self::Exhausted(_) => FaultCause::Exhausted,
            Self::BadAnswer(_) => FaultCause::BadAnswer,
            Self::Unavailable(_) => FaultCause::Unavailable,
        }
    }
}

/// The answer to a call of a policy, with the units of fuel that the call used. Each call begins in an equal
/// instance, so one that is shown the same uses the same fuel under one fuel schedule.
pub type Fueled<T> = (Result<T, PolicyFault>, Option<u64>);

/// A matcher: rejects and scores volumes that could be newly given to a claim. The host runs one in a
/// component; tests have native ones.
pub trait Matcher: Send + Sync {
    /// What it says about itself.
    fn metadata(&self) -> &Metadata;

    /// Names it in evidence: the SHA-256 of a component, or the version of a native matcher.
    fn digest(&self) -> &str;

    /// Units of fuel that its calls have used since it was loaded; a native matcher uses none.
    fn fuel(&self) -> u64 {
        0
    }

    /// Checks settings beyond their schema. `settings` is a JSON object, as in every call.
    ///
    /// # Errors
    ///
    /// The matcher failed; the inner error is a sentence about the settings.
    fn check(&self, settings: &str) -> Result<Result<(), String>, PolicyFault>;

    /// What a volume must be for this claim.
    fn narrow(&self, settings: &str, claim: &ClaimView) -> Result<Narrowing, PolicyFault>;

    /// As [`Matcher::narrow`], with the units of fuel that the call used; `None` where none are counted.
    fn narrow_with_fuel(&self, settings: &str, claim: &ClaimView) -> Fueled<Narrowing> {
        (self.narrow(settings, claim), None)
    }

    /// Judges rows, each by itself: a verdict must not depend on the rows beside it.
    fn judge(
        &self,
        settings: &str,
        claim: &ClaimView,
        candidates: &Candidates,
    ) -> Result<Verdicts, PolicyFault>;

    /// As [`Matcher::judge`], with the units of fuel that the call used; `None` where none are counted.
    fn judge_with_fuel(
        &self,
        settings: &str,
        claim: &ClaimView,
        candidates: &Candidates,
    ) -> Fueled<Verdicts> {
        (self.judge(settings, claim, candidates), None)
    }
}

#[cfg(test)]
mod tests {
    use bindery_core::VolumeFact;

    use super::*;

    #[test]
    fn given_more_than_64_requirements_a_narrowing_is_a_bad_answer() {
        let metadata = Metadata {
            name: "zone".into(),
            version: "1.0.0".into(),
            description: "".into(),
            claim_facts: Vec::new(),
            columns: vec![VolumeFact::ClassName],
            spread: None,
            reasons: vec![crate::Reason { name: "other".into(), text: "".into() }],
            scores: false,
            settings_schema: String::new(),
        };
        let operator = SelectorOperator::Exists;
        let needed = Requirement { column: 0, operator, values: Vec::new(), reason: 0 };
        let check = |count| {
            let requirements = vec![needed.clone(); count];
            Narrowing { requirements, ..Narrowing::default() }.check(&metadata)
        };
        assert_eq!(check(64), Ok(()));
        let why = "it has 65 requirements; the limit is 64".to_owned();
        assert_eq!(check(65), Err(PolicyFault::BadAnswer(why)));
    }
}
