//! Decision records: writes, reads, replays and compares what was asked, answered and decided.
//!
//! A journal is a file of [`Record`]s, each chained to the one before by SHA-256. Reading finds a record that
//! was changed, dropped or moved. Reading cannot find whole records that were cut off at the end: compare
//! [`Reader::digest`], which `bindery replay` prints, with a copy kept elsewhere. A crash may leave an
//! unfinished record at the end; every record before it stays readable.
//!
//! A record holds everything that a decision rests on ([`bindery_core::Evidence`]), so [`replay()`] needs no
//! cluster and no policy; [`PolicyEvidence::ask_again`] asks the policies too. Replaying with another engine
//! works as long as that engine asks no question that was not recorded; else the result is
//! [`Replayed::NotReplayable`], never a guess.

mod file;
mod replay;

pub use file::{ReadError, Reader, Writer};
pub use replay::{Replayed, replay};

use bindery_core::Evidence;
use bindery_policy::PolicyEvidence;

/// One decision with its evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The evidence and the decision.
    pub evidence: Evidence,
    /// The guard's objection; `None` if the decision was carried out.
    pub refused: Option<String>,
    /// What policies have said; `None` if none applies. It follows the rest of a record, so a record without
    /// it is as before there were policies.
    pub policies: Option<PolicyEvidence>,
}

impl Record {
    fn to_bytes(&self) -> postcard::Result<Vec<u8>> {
        let bytes = postcard::to_stdvec(&(&self.evidence, &self.refused))?;
        match &self.policies {
            None => Ok(bytes),
            Some(policies) => postcard::to_extend(policies, bytes),
        }
    }

    fn from_bytes(bytes: &[u8]) -> postcard::Result<Self> {
        let ((evidence, refused), rest) = postcard::take_from_bytes(bytes)?;
        let policies = if rest.is_empty() { None } else { Some(postcard::from_bytes(rest)?) };
        Ok(Self { evidence, refused, policies })
    }
}
