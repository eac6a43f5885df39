//! Decision records: what was asked, answered and decided; write, read, replay, compare.
//!
//! A journal is a file of [`Record`]s, one after the other, each chained to the one before by SHA-256: a
//! record that was changed, dropped or put elsewhere is found when the journal is read, except at the end:
//! where whole records are cut off there, what is left is a journal like any other. Who has to know keeps
//! [`Reader::digest`] of a whole journal elsewhere, as `bindery replay` prints it. A crash may leave an
//! unfinished record at the end; everything before it stays readable.
//!
//! A record holds all that a decision rests on ([`bindery_core::Evidence`]), so [`replay()`] needs no
//! cluster. Whether another engine would have decided the same can be told as long as it asks nothing that
//! was not recorded; where it does, the answer is [`Replayed::NotReplayable`] and never a guess.

mod file;
mod replay;

pub use file::{ReadError, Reader, Writer};
pub use replay::{Replayed, replay};

use bindery_core::Evidence;
use serde::{Deserialize, Serialize};

/// One decision, with what is known of how it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The evidence and the decision.
    pub evidence: Evidence,
    /// What the guard said against it; `None` where it was carried out.
    pub refused: Option<String>,
}
