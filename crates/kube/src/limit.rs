//! Limits how many requests are in flight: to what the API server answers without queueing them, but no lower
//! than the share that its own fairness gives this client.
//!
//! The algorithm is Gradient2 of Netflix's concurrency-limits. The limit follows the ratio of the usual
//! latency to that of the last answer, and grows slowly while they are equal. The usual latency is measured
//! while less than half of the limit is used. Queueing reduces the limit to [`QUEUED_MIN`] at least, because
//! a client that yields to every queue yields to all clients that do not. Only answers that miss Kubernetes'
//! latency objective reduce it further. Refusals (429, 503 with `Retry-After`) and requests without an
//! answer cut the limit as TCP cuts its window: once for everything that was in flight at that moment.
//!
//! Requests get permits in the order in which they ask, so a key with many writes does not delay the first
//! write of others. The port and the plugins share the limit. Watches need no permit, nor do lists, events,
//! the Lease and certificates, which have at most one request in flight each.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// Limit at the start, and the lowest limit while answers are slow but not late. The chart's priority level
/// has this many seats on an API server with default settings: 40 of 285 shares of 600.
const QUEUED_MIN: f64 = 80.0;
/// An answer that takes longer is late: Kubernetes' latency objective for a change of a single object
/// (sig-scalability).
const LATE: Duration = Duration::from_secs(1);
/// How often late answers are logged.
const LATE_LOG_EVERY: Duration = Duration::from_secs(60);
/// Lowest limit. Even fewer requests would not make a slow server faster.
const MIN: f64 = 4.0;
/// Highest limit.
const MAX: f64 = 256.0;
/// The limit shrinks when an answer takes longer than this many times the usual latency.
const TOLERANCE: f64 = 1.5;
/// One slow answer reduces the limit to this part of it at least.
const GRADIENT_MIN: f64 = 0.5;
/// A refusal reduces the limit to this part of it.
const REFUSED: f64 = 0.7;
/// Weight of a newly computed limit.
const SMOOTHING: f64 = 0.2;
/// Weight of one answer in the usual latency, a moving average over 600 answers.
const WEIGHT: f64 = 2.0 / 601.0;
/// The first answers, whose plain average is the usual latency.
const WARM_UP: f64 = 10.0;
/// If an answer comes this many times faster than usual, the usual latency was measured under load.
const DRIFT: f64 = 2.0;
/// Such a usual latency is reduced to this part of it.
const DRIFT_KEPT: f64 = 0.95;

/// The limit, and its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// Requests that may be in flight at the same time.
    pub limit: usize,
    /// Requests in flight.
    pub in_flight: usize,
    /// Requests since the start that an overloaded API server refused, or did not answer within a minute.
    pub refused: u64,
    /// Requests since the start that took longer than a second.
    pub late: u64,
}

/// The limit of one [`crate::ApiClient`].
pub(crate) struct Limit {
    state: Mutex<State>,
    /// Permits in use and free are [`State::permits`] together. Waiting requests get them in their order.
    semaphore: Semaphore,
}

#[derive(Default)]
struct State {
    limit: f64,
    /// Permits in use and free: as many as the limit, or more until enough are given back after it shrank.
    permits: usize,
    in_flight: usize,
    /// Usual latency in seconds.
    usual: f64,
    /// Answers measured so far, up to [`WARM_UP`].
    answers: f64,
    /// When the limit was cut last. Requests from before say nothing about the limit since.
    cut: Option<Instant>,
    /// When a late answer was logged last.
    logged: Option<Instant>,
    refused: u64,
    late: u64,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The API server answered.
    Answered,
    /// The API server was overloaded.
    Refused,
    /// The connection failed, which says nothing about the server's load.
    Lost,
}

/// The permission to send one request. If it is dropped without [`Permit::end`], the request was abandoned.
pub(crate) struct Permit<'a> {
    limit: &'a Limit,
    /// `Some` until this is dropped.
    permit: Option<SemaphorePermit<'a>>,
    began: Instant,
}

impl Limit {
    pub(crate) fn new() -> Self {
        let mut state = State { limit: QUEUED_MIN, ..State::default() };
        state.permits = state.limit();
        let semaphore = Semaphore::new(state.permits);
        Self { state: Mutex::new(state), semaphore }
    }

    /// Waits for a permit.
    pub(crate) async fn acquire(&self) -> Permit<'_> {
        // An error would mean that the semaphore is closed, which it never is.
        let permit = self.semaphore.acquire().await.ok();
        self.state.lock().in_flight += 1;
        Permit { limit: self, permit, began: Instant::now() }
    }

    pub(crate) fn pressure(&self) -> Pressure {
        let state = self.state.lock();
        Pressure {
            limit: state.limit(),
            in_flight: state.in_flight,
            refused: state.refused,
            late: state.late,
        }
    }

    /// Counts a request that an overloaded server refused, with a permit or without.
    pub(crate) fn count_refusal(&self) {
        self.state.lock().refused += 1;
    }

    fn answered(&self, took: Duration, now: Instant) {
        let mut state = self.state.lock();
        state.answered(took);
        if took <= LATE {
            return;
        }
        state.late += 1;
        if state.logged.is_none_or(|logged| now - logged >= LATE_LOG_EVERY) {
            state.logged = Some(now);
            let limit = state.limit();
            drop(state);
            tracing::warn!(?took, limit, "the API server answers late");
        }
    }
}

impl State {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between MIN and MAX")]
    fn limit(&self) -> usize {
        self.limit as usize
    }

    fn answered(&mut self, took: Duration) {
        let (took, is_late) = (took.as_secs_f64(), took > LATE);
        // A simulated server takes no time.
        if took <= 0.0 {
            return;
        }
        // While less than half of the limit is used, an answer shows the usual latency, and nothing about the
        // limit. Otherwise it may be slow because of the limit and must not count as usual.
        let used = self.in_flight * 2 >= self.limit();
        if self.answers < WARM_UP {
            self.answers += 1.0;
            self.usual += (took - self.usual) / self.answers;
        } else if !used {
            self.usual += (took - self.usual) * WEIGHT;
        }
        if self.usual > took * DRIFT {
            self.usual *= DRIFT_KEPT;
        }
        if !used {
            return;
        }
        // A late answer is never usual, even if all answers so far were late.
        let usual = self.usual.min(LATE.as_secs_f64() / TOLERANCE);
        let gradient = (TOLERANCE * usual / took).clamp(GRADIENT_MIN, 1.0);
        let computed = self.limit * gradient + self.limit.log10().ceil();
        // Below QUEUED_MIN after refusals, the limit grows again or stays.
        let least = if is_late { MIN } else { self.limit.min(QUEUED_MIN) };
        self.limit = (self.limit + (computed - self.limit) * SMOOTHING).clamp(least, MAX);
    }

    fn refused(&mut self, began: Instant, now: Instant) {
        if self.cut.is_none_or(|cut| began >= cut) {
            self.limit = (self.limit * REFUSED).max(MIN);
            self.cut = Some(now);
        }
    }
}

impl Permit<'_> {
    /// Ends the request, and adapts the limit to its outcome.
    pub(crate) fn end(self, outcome: Outcome) {
        let now = Instant::now();
        match outcome {
            Outcome::Answered => self.limit.answered(now - self.began, now),
            Outcome::Refused => self.limit.state.lock().refused(self.began, now),
            Outcome::Lost => {}
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.limit.state.lock();
        state.in_flight -= 1;
        let limit = state.limit();
        if state.permits > limit {
            // A permit that is given back would go to a waiting request.
            self.permit.take().into_iter().for_each(SemaphorePermit::forget);
            state.permits -= 1 + self.limit.semaphore.forget_permits(state.permits - 1 - limit);
        } else {
            self.limit.semaphore.add_permits(limit - state.permits);
            state.permits = limit;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures::FutureExt as _;

    use super::*;

    /// A server that works on a number of requests at a time, each for `millis`; the others queue.
    struct Server {
        workers: Semaphore,
        millis: AtomicU64,
    }

    impl Server {
        fn new(workers: usize, millis: u64) -> Arc<Self> {
            Arc::new(Self { workers: Semaphore::new(workers), millis: AtomicU64::new(millis) })
        }

        async fn answer(&self) {
            let worker = self.workers.acquire().await.expect("never closed");
            tokio::time::advance(Duration::ZERO).await;
            let takes = Duration::from_millis(self.millis.load(Ordering::SeqCst));
            tokio::time::timeout(takes, std::future::pending::<()>()).await.unwrap_err();
            drop(worker);
        }
    }

    /// Sends requests all at once; returns the limit afterwards.
    async fn load(limit: &Arc<Limit>, server: &Arc<Server>, requests: usize) -> usize {
        let sent = (0..requests).map(|_| {
            let (limit, server) = (Arc::clone(limit), Arc::clone(server));
            tokio::spawn(async move {
                let permit = limit.acquire().await;
                server.answer().await;
                permit.end(Outcome::Answered);
            })
        });
        futures::future::try_join_all(sent).await.expect("no request panics");
        limit.pressure().limit
    }

    /// Takes all permits.
    async fn full(limit: &Limit) -> Vec<Permit<'_>> {
        futures::future::join_all((0..limit.pressure().limit).map(|_| limit.acquire())).await
    }

    async fn refuse(limit: &Limit, requests: usize) {
        for _ in 0..requests {
            tokio::time::advance(Duration::from_millis(5)).await;
            limit.acquire().await.end(Outcome::Refused);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_follows_the_latency_of_answers() {
        let (quick, queueing) = (Server::new(1_000, 10), Server::new(8, 10));
        let limit = Arc::new(Limit::new());
        assert_eq!(load(&limit, &quick, 20_000).await, 256);
        assert_eq!(load(&limit, &queueing, 2_000).await, 80, "queueing alone leaves the fair share");
        assert_eq!(load(&limit, &quick, 20_000).await, 256, "a slow hour is forgotten");

        let limit = Arc::new(Limit::new());
        assert_eq!(load(&limit, &queueing, 1_000).await, 80, "80 wait for a tenth of a second");
        queueing.millis.store(400, Ordering::SeqCst);
        let late = load(&limit, &queueing, 1_000).await;
        assert!((4..=20).contains(&late), "{late}: more would wait for longer than a second");
        assert!(limit.pressure().late > 0);

        let always_late = load(&Arc::new(Limit::new()), &Server::new(1_000, 2_000), 2_000).await;
        assert!(always_late < 20, "{always_late}");
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_cut_once_for_all_that_was_in_flight() {
        let limit = Limit::new();
        let mut permits = full(&limit).await;
        tokio::time::advance(Duration::from_millis(5)).await;
        permits.drain(..10).for_each(|permit| permit.end(Outcome::Refused));
        assert_eq!(limit.pressure(), Pressure { limit: 56, in_flight: 70, refused: 0, late: 0 });
        drop(permits);
        refuse(&limit, 100).await;
        assert_eq!(limit.pressure(), Pressure { limit: 4, in_flight: 0, refused: 0, late: 0 });
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_that_refusals_have_cut_grows_again() {
        let limit = Arc::new(Limit::new());
        refuse(&limit, 100).await;
        assert_eq!(limit.pressure().limit, 4);
        let reached = load(&limit, &Server::new(8, 10), 2_000).await;
        assert!((4..=80).contains(&reached), "{reached}, of a server with 8 workers");
        assert_eq!(load(&limit, &Server::new(1_000, 10), 20_000).await, 256);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_gets_the_permit_before_later_ones() {
        let limit = Limit::new();
        let mut permits = full(&limit).await;
        let mut waits = pin!(limit.acquire());
        assert!(waits.as_mut().now_or_never().is_none());
        permits.pop();
        let mut later = pin!(limit.acquire());
        assert!(later.as_mut().now_or_never().is_none());
        drop(waits.now_or_never().expect("the first in line"));
        assert!(later.now_or_never().is_some());
    }
}
