//! The default engine, but a claim gets the *largest* free volume that fits.
//!
//! Small claims then leave small volumes alone, which come to fit nothing else once claims grow. The default
//! engine takes the first candidate that it is told of, and the host tells the smallest first. So this engine
//! is the default engine over a cluster that tells them in the opposite order; the rest of its decisions are
//! the same. It ignores the order that policies give by their scores; volumes that they reject it is never
//! told of.

use std::cmp::Reverse;

use bindery_core::{Answer, Cluster, Decision, Page, Question, Request, Stop};

/// Most candidates that are asked for at a time.
const LIMIT: u32 = 4_096;

#[cfg(target_family = "wasm")]
bindery_component::export_engine!(crate::decide);

/// Decides a request as the default engine does, with the largest volumes first.
///
/// # Errors
///
/// The host does not answer a question.
pub fn decide(request: &Request, cluster: &mut dyn Cluster) -> Result<Decision, Stop> {
    bindery_engine::decide(request, &mut LargestFirst(cluster))
}

/// A cluster that tells of the largest candidates first.
struct LargestFirst<'a>(&'a mut dyn Cluster);

impl Cluster for LargestFirst<'_> {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        let Question::Candidates { query, mut after, .. } = question else { return self.0.ask(question) };
        let mut rows = Vec::new();
        loop {
            let page = self.0.candidates(query.clone(), after, LIMIT)?;
            after = page.handles.last().copied().filter(|_| page.more);
            let sizes = page.whole.into_iter().zip(page.nanos);
            rows.extend(sizes.zip(page.handles).zip(page.slots));
            if after.is_none() {
                break;
            }
        }
        // Stable: volumes of one size stay in the order of their names.
        rows.sort_by_key(|((size, _), _)| Reverse(*size));
        let mut page = Page::default();
        for (((whole, nanos), handle), slot) in rows {
            page.whole.push(whole);
            page.nanos.push(nanos);
            page.handles.push(handle);
            page.slots.push(slot);
        }
        Ok(Answer::Page(page))
    }
}
