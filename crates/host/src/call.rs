//! One call of an engine: its questions, counted, and its memory, limited.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bindery_core::{Answer, Cluster, Query, Question, Selector, Stop};
use wasmtime::{ResourceLimiter, UpdateDeadline};

use crate::Limits;
use crate::borrow::Borrowed;

/// What a store holds: the cluster behind the limits on questions.
pub(crate) struct Call {
    cluster: Borrowed,
    limits: Arc<Limits>,
    clock: Arc<AtomicU64>,
    /// Ticks that questions took since the deadline was last put off.
    asking_ticks: u64,
    pub(crate) used: Used,
    pub(crate) room: Room,
}

/// How large the engine's memory and tables may become.
pub(crate) struct Room {
    limits: Arc<Limits>,
    /// Bytes of memory so far.
    pub(crate) memory_bytes: usize,
}

/// What a call has asked so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    pub(crate) questions: u32,
    queries: u32,
    pub(crate) rows: u32,
    question_bytes: usize,
    /// One more than the highest handle that an answer named.
    handles: u32,
}

/// Why an engine got no more time, memory or table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Excess {
    #[error("past its deadline")]
    Deadline,
    #[error("it asked for {desired} bytes of memory; the limit is {max}")]
    Memory { desired: usize, max: usize },
    #[error("it asked for a table of {desired} elements; the limit is {max}")]
    Table { desired: usize, max: usize },
}

impl Call {
    pub(crate) fn new(cluster: Borrowed, limits: Arc<Limits>, clock: Arc<AtomicU64>) -> Self {
        let room = Room { limits: Arc::clone(&limits), memory_bytes: 0 };
        Self { cluster, limits, clock, asking_ticks: 0, used: Used::default(), room }
    }

    /// Puts the deadline off by the time that questions took, which is not the engine's; else it has passed.
    pub(crate) fn at_deadline(&mut self) -> wasmtime::Result<UpdateDeadline> {
        match std::mem::take(&mut self.asking_ticks) {
            0 => Err(wasmtime::Error::new(Excess::Deadline)),
            ticks => Ok(UpdateDeadline::Continue(ticks)),
        }
    }

    /// Counts a question before it is answered, because the host's work cannot be interrupted.
    fn count(&mut self, question: &Question) -> Result<(), Stop> {
        let weight = weigh(question);
        raise(&mut self.used.questions, 1, self.limits.questions, "questions")?;
        self.used.question_bytes += weight.bytes;
        if self.used.question_bytes > self.limits.question_bytes {
            return Err(too_many("bytes of questions", self.limits.question_bytes as u64));
        }
        if weight.labels > self.limits.labels {
            return Err(too_many("label requirements and values of one query", self.limits.labels as u64));
        }
        if weight.searches {
            raise(&mut self.used.queries, 1, self.limits.queries, "searches of the index")?;
        }
        if weight.handle.is_some_and(|handle| handle >= self.used.handles) {
            return Err(Stop::Nonsense("a handle that no answer of this call named"));
        }
        if matches!(question, Question::Candidates { limit: 0, .. }) {
            return Err(Stop::Nonsense("a page of no rows"));
        }
        Ok(())
    }

    /// Counts the rows of an answer and notes the handles that it names.
    fn note(&mut self, answer: &Answer) -> Result<(), Stop> {
        let handles = match answer {
            Answer::Page(page) => &page.handles,
            Answer::Reserved(handles) => handles,
            _ => return Ok(()),
        };
        let rows = u32::try_from(handles.len()).unwrap_or(u32::MAX);
        raise(&mut self.used.rows, rows, self.limits.rows, "rows")?;
        let highest = handles.iter().map(|handle| handle.0.saturating_add(1)).max();
        self.used.handles = self.used.handles.max(highest.unwrap_or_default());
        Ok(())
    }
}

impl Cluster for Call {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        self.count(&question)?;
        let asked = self.clock.load(Ordering::Relaxed);
        let answer = self.cluster.ask(question);
        self.asking_ticks += self.clock.load(Ordering::Relaxed).saturating_sub(asked);
        let answer = answer?;
        self.note(&answer)?;
        Ok(answer)
    }
}

impl ResourceLimiter for Room {
    /// Traps rather than answering -1: what an engine does then is not worth finding out.
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let max = self.limits.memory_bytes;
        if desired > max {
            return Err(wasmtime::Error::new(Excess::Memory { desired, max }));
        }
        self.memory_bytes = self.memory_bytes.max(desired);
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
        Ok(true)
    }

    fn table_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(error)
    }
}

/// What a question weighs.
#[derive(Default)]
struct Weight {
    /// Bytes of its texts.
    bytes: usize,
    /// Label requirements and their values.
    labels: usize,
    /// Whether it searches the index.
    searches: bool,
    /// The handle that it names.
    handle: Option<u32>,
}

fn weigh(question: &Question) -> Weight {
    let text = |bytes| Weight { bytes, ..Weight::default() };
    match question {
        Question::Claim(_, key) | Question::Pods(key) => text(key.namespace.len() + key.name.len()),
        Question::Volume(_, name)
        | Question::Node(name)
        | Question::Class(name)
        | Question::Plugin(name)
        | Question::PluginForVolume(name)
        | Question::PluginReady(name, _)
        | Question::Migration(name) => text(name.len()),
        Question::Operation(_, uid) => text(uid.0.len()),
        Question::DefaultClasses | Question::DynamicProvisioning => text(0),
        Question::AccessSets(_) => Weight { searches: true, ..text(0) },
        Question::Candidates { query, after, .. } => {
            Weight { handle: after.map(|handle| handle.0), ..weigh_query(query) }
        }
        Question::Tallies(query) => weigh_query(query),
        Question::ReservedFor { key, uid } => {
            Weight { searches: true, ..text(key.namespace.len() + key.name.len() + uid.0.len()) }
        }
        Question::Identify(handle) | Question::Describe(handle) => {
            Weight { handle: Some(handle.0), ..text(0) }
        }
    }
}

fn weigh_query(query: &Query) -> Weight {
    Weight {
        bytes: query.class.len() + query.attributes_class.len() + Selector::bytes(&query.labels),
        labels: Selector::labels(&query.labels),
        searches: true,
        handle: None,
    }
}

fn raise(used: &mut u32, by: u32, max: u32, what: &'static str) -> Result<(), Stop> {
    *used = used.saturating_add(by);
    if *used > max { Err(too_many(what, max.into())) } else { Ok(()) }
}

fn too_many(what: &'static str, max: u64) -> Stop {
    Stop::TooMany { what, max }
}

#[cfg(test)]
mod tests {
    use bindery_core::{ClaimKey, Handle, Page};

    use super::*;

    /// A cluster that takes its time: so many ticks for every answer, each of which lists three volumes.
    struct Slow {
        clock: Arc<AtomicU64>,
        ticks: u64,
    }

    impl Cluster for Slow {
        fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
            self.clock.fetch_add(self.ticks, Ordering::Relaxed);
            let handles = vec![Handle(0), Handle(1), Handle(2)];
            Ok(match question {
                Question::ReservedFor { .. } => Answer::Reserved(handles),
                _ => Answer::DynamicProvisioning(true),
            })
        }
    }

    /// Has a call ask a cluster whose answers take so many ticks.
    fn in_a_call<T>(ticks: u64, limits: Limits, ask: impl FnOnce(&mut Call) -> T) -> T {
        let clock = Arc::<AtomicU64>::default();
        let mut cluster = Slow { clock: Arc::clone(&clock), ticks };
        #[allow(unsafe_code, reason = "see the safety comment")]
        // SAFETY: the call ends with this function, within the borrow.
        let cluster = unsafe { Borrowed::new(&mut cluster) };
        ask(&mut Call::new(cluster, Arc::new(limits), clock))
    }

    #[test]
    fn the_time_of_questions_is_not_the_engines() {
        let late = |call: &mut Call| {
            call.at_deadline().err().is_some_and(|error| error.downcast_ref() == Some(&Excess::Deadline))
        };
        let put_off = |call: &mut Call| match call.at_deadline() {
            Ok(UpdateDeadline::Continue(ticks)) => ticks,
            _ => panic!("questions took time, so the deadline is put off"),
        };
        in_a_call(7, Limits::default(), |call| {
            call.ask(Question::DynamicProvisioning).unwrap();
            call.ask(Question::DynamicProvisioning).unwrap();
            // By all that they took, and once.
            assert_eq!(put_off(call), 14);
            assert!(late(call));
            call.ask(Question::DynamicProvisioning).unwrap();
            assert_eq!(put_off(call), 7);
            assert!(late(call));
        });
        in_a_call(0, Limits::default(), |call| {
            call.ask(Question::DynamicProvisioning).unwrap();
            assert!(late(call), "an answer that takes no time puts nothing off");
        });
    }

    #[test]
    fn rows_count_in_whatever_answer_they_come() {
        let reserved = || Question::ReservedFor { key: ClaimKey::new("default", "data"), uid: "8f0c".into() };
        in_a_call(0, Limits { rows: 6, ..Limits::default() }, |call| {
            call.ask(reserved()).unwrap();
            call.note(&Answer::Page(Page { handles: vec![Handle(3); 3], ..Page::default() })).unwrap();
            assert_eq!(call.used.rows, 6);
            assert_eq!(call.ask(reserved()), Err(Stop::TooMany { what: "rows", max: 6 }));
        });
    }
}
