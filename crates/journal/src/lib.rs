//! Decision records: writes, reads, replays and compares what was asked, answered and decided.
//!
//! A journal is a file of [`Record`]s, each chained to the one before by SHA-256. Reading finds a record that
//! was changed, dropped or moved. Reading cannot find whole records that were cut off at the end: compare
//! [`Reader::digest`], which `bindery replay` prints, with a copy kept elsewhere. A crash may leave an
//! unfinished record at the end; every record before it stays readable.
//!
//! A record holds everything that a decision rests on ([`bindery_core::Evidence`]), so [`replay()`] needs no
//! cluster. Replaying with another engine works as long as that engine asks no question that was not
//! recorded; else the result is [`Replayed::NotReplayable`], never a guess.

mod file;
mod replay;

pub use file::{ReadError, Reader, Writer};
pub use replay::{Replayed, replay};

use bindery_core::Evidence;
use serde::{Deserialize, Serialize};

/// One decision with its evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The evidence and the decision.
    pub evidence: Evidence,
    /// The guard's objection; `None` if the decision was carried out.
    pub refused: Option<String>,
}
