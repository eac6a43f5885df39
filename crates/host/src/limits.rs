//! How much one decision may use.

use std::time::Duration;

use bindery_core::Selector;

/// What one decision of an engine may use. Each excess ends the decision with a typed fault; nothing is
/// written.
///
/// Fuel is what stops an engine: it is counted, so every replica stops at the same instruction. The deadline
/// is the backstop for what fuel does not see, and is generous, because a busy machine must not change
/// verdicts. Fuel does not see the work of the host either; that is what the limits on questions are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Units of fuel: one for most instructions, more for slow ones (see [`crate::FUEL_SCHEDULE`]). At the
    /// worst 1.2 ns each, so the default of 8 million is about 10 ms; the default engine uses about a
    /// hundredth of it.
    pub fuel: u64,
    /// Time in the engine's own code, without the time that its questions take. Default 250 ms.
    pub time: Duration,
    /// Bytes of linear memory, at most [`Limits::MEMORY_BYTES_MAX`]. Default 16 MiB.
    pub memory_bytes: usize,
    /// Elements of each table, at most [`Limits::TABLE_ELEMENTS_MAX`]. Default 10,000.
    pub table_elements: usize,
    /// Questions to the cluster. Default 1,024.
    pub questions: u32,
    /// Questions among them that search the index (access sets, candidates, reserved volumes, tallies).
    /// Default 128.
    pub queries: u32,
    /// Volumes that the answers list, each of which gets a handle the first time. Default 65,536.
    pub rows: u32,
    /// Label requirements and their values in one query: the host compares all of them with each volume, and
    /// no fuel counts that. Default [`Selector::LABELS_MAX`], so that no claim that can be read exceeds it.
    pub labels: usize,
    /// Bytes of text in all questions together, which the host and its journal keep. Default 1 MiB: the
    /// largest selector ([`Selector::BYTES_MAX`]) as often as the default engine asks for volumes at most.
    pub question_bytes: usize,
    /// Bytes that one question or the decision hands over, texts and lists. Default 256 KiB; the largest
    /// decision that makes sense, with all its tallies, has 50.
    pub lifted_bytes: usize,
    /// Steps of a decision. Default 64.
    pub steps: usize,
    /// Tallies of a decision; there are fewer reasons. Default 16.
    pub tallies: usize,
    /// Findings of a review. Default 64.
    pub findings: usize,
}

impl Limits {
    /// Most linear memory that any engine may have: what each slot of the pool reserves.
    pub const MEMORY_BYTES_MAX: usize = 16 << 20;
    /// Most elements that a table of any engine may have.
    pub const TABLE_ELEMENTS_MAX: usize = 10_000;

    /// The default, with a deadline that nobody meets: for whoever compares decisions or shows them, and
    /// would be misled by one that the machine had no time for. Fuel stops an engine all the same.
    pub fn unhurried() -> Self {
        Self { time: Duration::from_secs(3_600), ..Self::default() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fuel: 8_000_000,
            time: Duration::from_millis(250),
            memory_bytes: Self::MEMORY_BYTES_MAX,
            table_elements: Self::TABLE_ELEMENTS_MAX,
            questions: 1_024,
            queries: 128,
            rows: 65_536,
            labels: Selector::LABELS_MAX,
            question_bytes: 1 << 20,
            lifted_bytes: 256 << 10,
            steps: 64,
            tallies: 16,
            findings: 64,
        }
    }
}
