//! How much one decision may ask, with any engine.

use crate::{Question, Selector, Stop};

/// What one decision may ask at most. The work of answering cannot be interrupted and costs an engine no
/// fuel, so it is bounded before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionLimits {
    /// Questions. Default 1,024.
    pub questions: usize,
    /// Questions among them that search the index (access sets, candidates, reserved volumes, tallies).
    /// Default 128.
    pub searches: usize,
    /// Volumes that the answers list; each gets a handle the first time. Default 65,536.
    pub rows: usize,
    /// Label requirements and their values in one query, because each volume is compared with all of them.
    /// Default [`Selector::LABELS_MAX`], so that no claim that can be read exceeds it.
    pub labels: usize,
    /// Bytes of text in all questions together, which the binder and its journal keep. Default 1 MiB: the
    /// largest selector ([`Selector::BYTES_MAX`]) as often as the default engine asks for volumes at most.
    pub question_bytes: usize,
}

impl Default for DecisionLimits {
    fn default() -> Self {
        Self {
            questions: 1_024,
            searches: 128,
            rows: 65_536,
            labels: Selector::LABELS_MAX,
            question_bytes: 1 << 20,
        }
    }
}

/// What is left of the [`DecisionLimits`] of one decision.
#[derive(Clone, Debug)]
pub struct QuestionBudget {
    limits: DecisionLimits,
    questions: usize,
    searches: usize,
    rows: usize,
    question_bytes: usize,
}

impl QuestionBudget {
    /// The budget of a decision that has asked nothing yet.
    pub fn new(limits: DecisionLimits) -> Self {
        Self { limits, questions: 0, searches: 0, rows: 0, question_bytes: 0 }
    }

    /// Takes a question from the budget; called before the question is answered.
    ///
    /// # Errors
    ///
    /// The question exceeds a limit, or asks for a page of no rows.
    pub fn take_question(&mut self, question: &Question) -> Result<(), Stop> {
        let limits = self.limits;
        take(&mut self.questions, 1, limits.questions, "questions")?;
        take(&mut self.question_bytes, text_bytes(question), limits.question_bytes, "bytes of questions")?;
        if let Question::Candidates { query, .. } | Question::Tallies(query) = question {
            let what = "label requirements and values of one query";
            take(&mut 0, Selector::labels(&query.labels), limits.labels, what)?;
        }
        if is_search(question) {
            take(&mut self.searches, 1, limits.searches, "searches of the index")?;
        }
        if matches!(question, Question::Candidates { limit: 0, .. }) {
            return Err(Stop::Nonsense("a page of no rows"));
        }
        Ok(())
    }

    /// Takes the volumes that an answer lists from the budget.
    ///
    /// # Errors
    ///
    /// They are more than [`QuestionBudget::rows_left`].
    pub fn take_rows(&mut self, rows: usize) -> Result<(), Stop> {
        take(&mut self.rows, rows, self.limits.rows, "rows")
    }

    /// How many more volumes answers may list.
    pub fn rows_left(&self) -> usize {
        self.limits.rows.saturating_sub(self.rows)
    }
}

fn take(used: &mut usize, amount: usize, max: usize, what: &'static str) -> Result<(), Stop> {
    *used = used.saturating_add(amount);
    if *used > max { Err(Stop::TooMany { what, max: max as u64 }) } else { Ok(()) }
}

fn is_search(question: &Question) -> bool {
    matches!(
        question,
        Question::AccessSets(_)
            | Question::Candidates { .. }
            | Question::ReservedFor { .. }
            | Question::Tallies(_)
    )
}

/// Bytes of the texts of a question.
fn text_bytes(question: &Question) -> usize {
    match question {
        Question::Claim(_, key) | Question::Pods(key) => key.namespace.len() + key.name.len(),
        Question::Volume(_, name)
        | Question::Node(name)
        | Question::Class(name)
        | Question::Plugin(name)
        | Question::PluginForVolume(name)
        | Question::PluginReady(name, _)
        | Question::Verdict(name)
        | Question::Reclaim(name)
        | Question::Migration(name) => name.len(),
        Question::Operation(_, uid) => uid.0.len(),
        Question::ReservedFor { key, uid } => key.namespace.len() + key.name.len() + uid.0.len(),
        Question::Candidates { query, .. } | Question::Tallies(query) => {
            query.class.len() + query.attributes_class.len() + Selector::bytes(&query.labels)
        }
        Question::DefaultClasses
        | Question::DynamicProvisioning
        | Question::AccessSets(_)
        | Question::Identify(_)
        | Question::Describe(_) => 0,
    }
}
