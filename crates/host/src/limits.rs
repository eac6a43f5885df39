//! How much fuel, time and memory one decision may use.

use std::time::Duration;

/// What one decision of an engine may use. Exceeding a limit ends the decision with a typed fault; nothing is
/// written.
///
/// Fuel is the limit that stops an engine: every replica stops at the same instruction. The deadline is the
/// backstop for work that costs no fuel. It counts processor time, because a busy machine must not change a
/// decision.
/// How much an engine may ask is bounded where questions are answered, for every engine alike: see
/// [`bindery_core::DecisionLimits`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Units of fuel: one for most instructions, more for slow ones (see [`crate::FUEL_SCHEDULE`]). At the
    /// worst 1.2 ns each, so the default of 8 million is about 10 ms; the default engine uses about a
    /// hundredth of it.
    pub fuel: u64,
    /// Processor time in the engine's own code, without the time that its questions take: each call gets as
    /// much, and on an idle machine at most twice as much. Default 250 ms.
    pub time: Duration,
    /// Bytes of linear memory, at most [`Limits::MEMORY_BYTES_MAX`]. Default 16 MiB.
    pub memory_bytes: usize,
    /// Elements of each table, at most [`Limits::TABLE_ELEMENTS_MAX`]. Default 10,000.
    pub table_elements: usize,
    /// Bytes that one question or the decision hands over, texts and lists. Default 256 KiB; the largest
    /// decision that makes sense, with all its tallies, has 50.
    pub lifted_bytes: usize,
}

impl Limits {
    /// Most linear memory that any engine may have: what each slot of the pool reserves.
    pub const MEMORY_BYTES_MAX: usize = 16 << 20;
    /// Most elements that a table of any engine may have.
    pub const TABLE_ELEMENTS_MAX: usize = 10_000;
    /// Most linear memory that any policy may have.
    pub const POLICY_MEMORY_BYTES_MAX: usize = 64 << 20;
    /// Most elements that a table of any policy may have.
    pub const POLICY_TABLE_ELEMENTS_MAX: usize = 20_000;

    /// The default for one call of a policy, which may contain an interpreter: 16 million units of fuel, 250
    /// ms, 64 MiB of memory, tables of 20,000 elements, and answers of 256 KiB. A policy in Python uses 5
    /// million for 512 rows; one in JavaScript 2.4 million, or ten times as much if it answers plain arrays.
    pub fn policy() -> Self {
        Self {
            fuel: 16_000_000,
            memory_bytes: Self::POLICY_MEMORY_BYTES_MAX,
            table_elements: Self::POLICY_TABLE_ELEMENTS_MAX,
            ..Self::default()
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fuel: 8_000_000,
            time: Duration::from_millis(250),
            memory_bytes: Self::MEMORY_BYTES_MAX,
            table_elements: Self::TABLE_ELEMENTS_MAX,
            lifted_bytes: 256 << 10,
        }
    }
}
