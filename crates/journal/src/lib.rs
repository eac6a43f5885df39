//! Decision records: writes, reads, replays and compares what was asked, answered and decided.
//!
//! A journal is a folder of files. [`JournalWriter`] appends to it from a thread of its own; [`Files`] reads
//! it, also while it is written, [`Follower`] reads on as it is written, and [`Reader`] reads one file of
//! either format. `docs/journal.md` describes the format.
//!
//! Records are written in blocks, each chained to the one before by SHA-256, across files. Reading finds a
//! block that was changed, dropped or moved. Reading cannot find whole blocks that were cut off at the end of
//! the last file: compare [`Files::digest`], which `bindery replay` prints, with a copy kept elsewhere. A
//! crash may leave an unfinished block at the end; every block before it stays readable.
//!
//! A [`Record`] holds everything that a decision rests on ([`bindery_core::Evidence`]), so [`replay()`] needs
//! no cluster and no policy; [`bindery_policy::PolicyEvidence::ask_again`] asks the policies too. Replaying
//! with another engine works as long as that engine asks no question that was not recorded; else the result
//! is [`Replayed::NotReplayable`], never a guess.

mod block;
mod digest;
mod files;
mod folder;
mod follow;
mod queue;
mod reader;
mod record;
mod redact;
mod replay;
mod writer;

pub use digest::ChainDigest;
pub use files::{Ending, FileError, Files, FilesError};
pub use folder::{FolderWriter, Rotation};
pub use follow::{Followed, Follower, Position};
pub use reader::{Place, ReadError, Reader};
pub use record::{DecisionSummary, Differed, Entry, Gap, Header, Record, Redacted, Swap, What, Wrote};
pub use redact::{Redaction, Redactor};
pub use replay::{Replayed, replay};
pub use writer::{Appender, Counts, JournalWriter, Sink, Written, may_log};
