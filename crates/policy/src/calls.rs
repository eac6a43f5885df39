//! The calls of policies that a decision rests on, with the fuel of each.
//!
//! Fuel is that of a call, not of a verdict: it depends on all rows that the call was shown. So a call that
//! has judged is written down with its rows, by the decision that has made it. A later decision that finds
//! the verdicts kept makes no call, and has none.

use std::sync::Arc;

use bindery_core::Text;
use serde::{Deserialize, Serialize};

use crate::Candidates;
use crate::kept::Context;

/// The most rows of the calls of one decision that are written down.
const ROWS_MAX: usize = 4_096;
/// Bytes of a row without its columns, and of a column of a row, without texts.
const ROW_BYTES: usize = 16;
const CELL_BYTES: usize = 4;

/// A call of a policy, with its fuel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyCall {
    /// The policy.
    pub policy: Text,
    /// What it was asked.
    pub function: PolicyFunction,
    /// Units of fuel that the call used, comparable under one fuel schedule.
    pub fuel: u64,
}

/// What a policy was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicyFunction {
    /// What a volume must be for the claim.
    Narrow,
    /// To judge these rows, which the call was shown in this order.
    Judge(Candidates),
    /// What becomes of the volume.
    Reclaim,
}

impl PolicyCall {
    /// Its fuel, and what for.
    pub fn fuel_in_words(&self) -> String {
        self.in_words(self.fuel)
    }

    /// This number of units, and what for.
    pub(crate) fn in_words(&self, fuel: u64) -> String {
        match &self.function {
            PolicyFunction::Narrow => format!("{fuel} units of fuel to narrow"),
            PolicyFunction::Judge(rows) => format!("{fuel} units of fuel to judge {} rows", rows.whole.len()),
            PolicyFunction::Reclaim => format!("{fuel} units of fuel to judge the volume"),
        }
    }
}

/// Calls that have judged rows for one decision.
#[derive(Default)]
pub(crate) struct JudgedCalls {
    calls: Vec<JudgedCall>,
    rows: usize,
}

/// A call that has judged rows.
struct JudgedCall {
    /// The place of its policy in the chain.
    place: usize,
    context: Arc<Context>,
    rows: Candidates,
    fuel: u64,
}

impl JudgedCalls {
    /// Adds a call, unless that were too many rows.
    pub(crate) fn add(&mut self, place: usize, context: &Arc<Context>, rows: Candidates, fuel: u64) {
        let count = rows.whole.len();
        if self.rows + count <= ROWS_MAX {
            self.rows += count;
            self.calls.push(JudgedCall { place, context: Arc::clone(context), rows, fuel });
        }
    }

    /// The calls of a policy about claims like this one, each with its fuel and about how many bytes its rows
    /// take. A claim may have changed between two tries of a decision.
    pub(crate) fn of<'a>(
        &'a self,
        place: usize,
        context: &'a Context,
    ) -> impl Iterator<Item = (&'a Candidates, u64, usize)> {
        let calls = self.calls.iter();
        calls
            .filter(move |call| call.place == place && call.context.view == context.view)
            .map(|call| (&call.rows, call.fuel, call.bytes()))
    }
}

impl JudgedCall {
    fn bytes(&self) -> usize {
        let texts: usize = self.rows.texts.iter().map(|text| text.len()).sum();
        self.rows.whole.len() * (ROW_BYTES + CELL_BYTES * self.rows.columns.len()) + texts
    }
}
