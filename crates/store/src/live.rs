//! Answers that had to be read from the API server.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use bindery_core::{Answer, Question};

use crate::change::Revision;

/// The live reads of one decision.
///
/// A question about [`bindery_core::Source::Live`] stops the call ([`bindery_core::Stop::LiveRead`]); the
/// caller reads, pushes the answer and decides again. The k-th live question of a call is answered by the
/// k-th entry where the questions are equal; where they are not, the world has changed in between, the call
/// stops once more and [`LiveReads::push`] drops the rest of the log.
#[derive(Debug, Default)]
pub struct LiveReads {
    log: Vec<(Question, Answer)>,
    /// How many entries the latest call has used.
    used: AtomicUsize,
    /// Revision of the store at the first call: a change after it may have made an entry obsolete.
    since: OnceLock<Revision>,
}

impl LiveReads {
    /// No live reads yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers the question that stopped the latest call. Entries which that call did not use are dropped.
    pub fn push(&mut self, question: Question, answer: Answer) {
        self.log.truncate(*self.used.get_mut());
        self.log.push((question, answer));
    }

    /// A call begins on a store at this revision. Returns the revision since which the decision is made.
    pub(crate) fn begin(&self, now: Revision) -> Revision {
        self.used.store(0, Ordering::Relaxed);
        *self.since.get_or_init(|| now)
    }

    /// The answer to the next live question of the call, where it was read.
    pub(crate) fn next(&self, question: &Question) -> Option<Answer> {
        let used = self.used.load(Ordering::Relaxed);
        let (asked, answer) = self.log.get(used)?;
        if asked != question {
            return None;
        }
        self.used.store(used + 1, Ordering::Relaxed);
        Some(answer.clone())
    }
}

#[cfg(test)]
mod tests {
    use bindery_core::{ClaimKey, Lookup, Source};

    use super::*;

    fn question(name: &str) -> Question {
        Question::Claim(Source::Live, ClaimKey::new("ns", name))
    }

    #[test]
    fn entries_are_answered_in_order_and_dropped_from_the_first_that_differs() {
        let absent = || Answer::Claim(Lookup::Absent);
        let mut live = LiveReads::new();
        assert_eq!(live.begin(Revision(4)), Revision(4));
        assert_eq!(live.next(&question("a")), None);
        live.push(question("a"), absent());
        live.begin(Revision(5));
        assert_eq!(live.next(&question("a")), Some(absent()));
        assert_eq!(live.next(&question("b")), None);
        live.push(question("b"), absent());

        // The third call asks something else first: what was read for the second does not count.
        assert_eq!(live.begin(Revision(6)), Revision(4));
        assert_eq!(live.next(&question("b")), None);
        live.push(question("b"), absent());
        live.begin(Revision(7));
        assert_eq!(live.next(&question("b")), Some(absent()));
        assert_eq!(live.next(&question("a")), None);
    }
}
