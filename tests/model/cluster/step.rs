//! The steps of the model.

use crate::objects::Id;

/// A step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A replica begins a turn on an object, in which the engine of that number decides.
    Begin(usize, Id, u8),
    /// The request of a turn arrives, and a write is answered.
    Arrive(usize),
    /// The answer to a read comes back.
    Return(usize),
    /// A write is carried out, and its answer is lost.
    LoseAnswer(usize),
    /// A write is given up, and arrives later or never.
    Delay(usize),
    /// A late write arrives.
    ArriveLate,
    /// A watch delivers a change to a replica.
    Deliver(usize, usize),
    /// A replica ends, and another one lists everything and takes over.
    Crash(usize),
    /// As [`Step::Crash`]; a write of the first one arrives later or never.
    CrashWriting(usize),
    /// A user deletes a claim.
    Delete(Id),
    /// A protection controller releases a deleted object.
    Release(Id),
    /// A user makes a claim of that name.
    Create(Id),
    /// A user edits an object: a place in the world's list.
    Edit(usize),
}
