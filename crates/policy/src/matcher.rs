//! What a matcher is asked, and what it answers.

use bindery_core::{Quantity, SelectorOperator, Text};

use crate::Metadata;
use crate::kept::Verdict;

/// The highest score of a volume; the lowest is 0.
pub const SCORE_MAX: u32 = 100;

/// A claim as a matcher sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimView {
    /// `spec.resources.requests[storage]`.
    pub request: Quantity,
    /// The declared facts, in the order of [`Metadata::claim_facts`]; `None` where the claim has none.
    pub facts: Vec<Option<Text>>,
}

/// What a volume must be, so that the matcher does not reject it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Narrowing {
    /// All must hold. The first that does not hold gives the reason.
    pub requirements: Vec<Requirement>,
    /// The largest capacity.
    pub at_most: Option<Bound>,
    /// Whether [`Matcher::judge`] has more to say about the rows that are left.
    pub judge: bool,
}

/// A requirement on a column.
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The capacity.
    pub quantity: Quantity,
    /// Place of the reason in [`Metadata::reasons`].
    pub reason: u32,
}

/// Rows that are to be judged, as columns of equal length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

impl Verdicts {
    /// The verdict of each row.
    ///
    /// # Errors
    ///
    /// A list has another length than the rows, a reason is not declared, or a score is too high.
    pub(crate) fn verdicts(&self, metadata: &Metadata, rows: usize) -> Result<Vec<Verdict>, PolicyFault> {
        let scored = if metadata.scores { rows } else { 0 };
        for (what, found, wanted) in
            [("reasons", self.reasons.len(), rows), ("scores", self.scores.len(), scored)]
        {
            if found != wanted {
                return Err(PolicyFault::BadAnswer(format!("it has {found} {what} for {rows} rows")));
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

/// A matcher: rejects and scores volumes that could be newly given to a claim. The host runs one in a
/// component; tests have native ones.
pub trait Matcher: Send + Sync {
    /// What it says about itself.
    fn metadata(&self) -> &Metadata;

    /// Names it in evidence: the SHA-256 of a component, or the version of a native matcher.
    fn digest(&self) -> &str;

    /// Checks settings beyond their schema. `settings` is a JSON object, as in every call.
    ///
    /// # Errors
    ///
    /// The matcher failed; the inner error is a sentence about the settings.
    fn check(&self, settings: &str) -> Result<Result<(), String>, PolicyFault>;

    /// What a volume must be for this claim.
    ///
    /// # Errors
    ///
    /// The matcher failed.
    fn narrow(&self, settings: &str, claim: &ClaimView) -> Result<Narrowing, PolicyFault>;

    /// Judges rows, each by itself: a verdict must not depend on the rows beside it.
    ///
    /// # Errors
    ///
    /// The matcher failed.
    fn judge(
        &self,
        settings: &str,
        claim: &ClaimView,
        candidates: &Candidates,
    ) -> Result<Verdicts, PolicyFault>;
}
