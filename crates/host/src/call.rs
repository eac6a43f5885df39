//! One call of an engine: its deadline, the time of its questions, and its memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bindery_core::{Answer, Cluster, Question, Stop};
use wasmtime::{ResourceLimiter, Trap, UpdateDeadline};

use crate::Limits;
use crate::borrow::Borrowed;
use crate::deadline::{Deadline, thread_time};

/// The data of a wasmtime store: what one call of an engine may use.
pub(crate) struct Call {
    cluster: Borrowed,
    clock: Arc<AtomicU64>,
    /// Ticks that questions took since the deadline was last put off.
    asking_ticks: u64,
    deadline: Deadline,
    pub(crate) questions: u32,
    pub(crate) memory: Memory,
}

/// Bounds the engine's linear memory and tables.
pub(crate) struct Memory {
    pub(crate) limits: Arc<Limits>,
    /// Bytes of linear memory so far.
    pub(crate) bytes: usize,
    /// Elements of the largest table so far.
    pub(crate) table_elements: usize,
}

impl Memory {
    pub(crate) fn new(limits: Arc<Limits>) -> Self {
        Self { limits, bytes: 0, table_elements: 0 }
    }
}

/// Why an engine did not get more time, memory or table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Excess {
    #[error("past its deadline")]
    Deadline,
    #[error("it asked for {desired} bytes of memory; the limit is {max}")]
    Memory { desired: usize, max: usize },
    #[error("it asked for a table of {desired} elements; the limit is {max}")]
    Table { desired: usize, max: usize },
}

/// Whether a trap says that an answer points outside its memory, or is malformed.
pub(crate) fn is_bad_answer(trap: &Trap) -> bool {
    matches!(
        trap,
        Trap::StringOutOfBounds
            | Trap::ListOutOfBounds
            | Trap::InvalidDiscriminant
            | Trap::UnalignedPointer
            | Trap::InvalidChar
    )
}

impl Call {
    pub(crate) fn new(cluster: Borrowed, limits: Arc<Limits>, clock: Arc<AtomicU64>) -> Self {
        let deadline = Deadline::after(limits.time);
        Self { cluster, clock, asking_ticks: 0, deadline, questions: 0, memory: Memory::new(limits) }
    }

    pub(crate) fn cluster(&mut self) -> &mut dyn Cluster {
        self
    }

    /// Extends the deadline by the time that questions took, which is not the engine's own.
    pub(crate) fn at_deadline(&mut self) -> wasmtime::Result<UpdateDeadline> {
        match std::mem::take(&mut self.asking_ticks) {
            0 => self.deadline.at(thread_time()),
            ticks => {
                self.deadline.put_off(ticks);
                Ok(UpdateDeadline::Continue(ticks))
            }
        }
    }
}

impl Cluster for Call {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        self.questions += 1;
        let asked = self.clock.load(Ordering::Relaxed);
        let answer = self.cluster.ask(question);
        self.asking_ticks += self.clock.load(Ordering::Relaxed).saturating_sub(asked);
        answer
    }
}

impl ResourceLimiter for Memory {
    /// Traps instead of answering -1, which engines rarely handle.
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let max = self.limits.memory_bytes;
        if desired > max {
            return Err(wasmtime::Error::new(Excess::Memory { desired, max }));
        }
        self.bytes = self.bytes.max(desired);
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(error)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let max = self.limits.table_elements;
        if desired > max {
            return Err(wasmtime::Error::new(Excess::Table { desired, max }));
        }
        self.table_elements = self.table_elements.max(desired);
        Ok(true)
    }

    fn table_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cluster that takes `ticks` for every answer.
    struct Slow {
        clock: Arc<AtomicU64>,
        ticks: u64,
    }

    impl Cluster for Slow {
        fn ask(&mut self, _: Question) -> Result<Answer, Stop> {
            self.clock.fetch_add(self.ticks, Ordering::Relaxed);
            Ok(Answer::DynamicProvisioning(true))
        }
    }

    /// Asks `questions` times, each for `ticks`, and returns by how many ticks the deadline is put off, first
    /// and again.
    fn extensions(ticks: u64, questions: u32) -> [u64; 2] {
        let clock = Arc::<AtomicU64>::default();
        let mut cluster = Slow { clock: Arc::clone(&clock), ticks };
        #[allow(unsafe_code, reason = "see the safety comment")]
        // SAFETY: the call ends with this function, within the borrow.
        let cluster = unsafe { Borrowed::new(&mut cluster) };
        let mut call = Call::new(cluster, Arc::new(Limits::default()), clock);
        for _ in 0..questions {
            call.ask(Question::DynamicProvisioning).unwrap();
        }
        [(); 2].map(|()| match call.at_deadline().unwrap() {
            UpdateDeadline::Continue(ticks) => ticks,
            _ => panic!("the deadline is extended or has passed"),
        })
    }

    #[test]
    fn the_time_of_questions_extends_the_deadline_once() {
        let own = Deadline::epochs(Limits::default().time);
        assert_eq!(extensions(7, 2), [14, own]);
        assert_eq!(extensions(7, 1), [7, own]);
    }
}
