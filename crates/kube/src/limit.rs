//! How many requests may be under way at the same time: as many as the API server answers without queueing
//! them, and no fewer than its own fairness would let through.
//!
//! Gradient2 of Netflix's concurrency-limits: the limit follows the ratio of the usual time of an answer to
//! that of the last one, and grows slowly where nothing is the matter. What is usual is learned where there
//! is room to spare. A queue leaves [`QUEUED_MIN`], for who yields to every queue yields to all who do not;
//! only answers that are late by Kubernetes' own objective shrink the limit further. Refusals (429, 503 with
//! `Retry-After`) and answers that do not come at all cut it, as TCP cuts its window: once for everything
//! that was under way at that moment. Requests come in their order, so that a key whose writes are many does
//! not keep others from their first. The port and the plugins share it. Watches are not counted; nor are the
//! requests of lists, events, the Lease and certificates, of which each has one under way at most.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// Limit at the start, and the least that answers leave of it which are slow and not late: no more than the
/// seats that the chart's priority level has on an API server with default settings, which are 40 shares of
/// 285 of its 600.
const QUEUED_MIN: f64 = 80.0;
/// After how long an answer is late whoever waits for it: Kubernetes' objective for changes of a single
/// object (sig-scalability, API call latency).
const LATE: Duration = Duration::from_secs(1);
/// How often it is logged that answers come late.
const LATE_TOLD_EVERY: Duration = Duration::from_secs(60);
/// Least limit: a server that is slow for all is not made faster by fewer requests than these.
const MIN: f64 = 4.0;
/// Greatest limit.
const MAX: f64 = 256.0;
/// An answer may take this many times as long as usual before the limit shrinks.
const TOLERANCE: f64 = 1.5;
/// Least part of the limit that one slow answer leaves.
const GRADIENT_MIN: f64 = 0.5;
/// Part of the limit that a refusal leaves.
const REFUSED: f64 = 0.7;
/// How much of a newly reckoned limit is taken over at once.
const SMOOTHING: f64 = 0.2;
/// Weight of an answer in the usual time: of a moving average over 600 answers.
const WEIGHT: f64 = 2.0 / 601.0;
/// Answers whose plain average is the usual time at the start.
const WARM_UP: f64 = 10.0;
/// Where an answer comes this many times faster than usual, what counted as usual was measured under load.
const DRIFT: f64 = 2.0;
/// Part of such a usual time that is kept.
const DRIFT_KEPT: f64 = 0.95;

/// What the limit is, and what it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// Requests that may be under way at the same time.
    pub limit: usize,
    /// Requests that are.
    pub in_flight: usize,
    /// Requests that the API server refused because it was too busy, or did not answer within a minute, since
    /// the start.
    pub refused: u64,
    /// Requests that took longer than a second, since the start.
    pub late: u64,
}

/// The limit of one [`crate::ApiClient`].
pub(crate) struct Limit {
    state: Mutex<State>,
    /// Room for as many requests as [`State::places`] says; who waits for it comes before who comes later.
    room: Semaphore,
    refused: AtomicU64,
    late: AtomicU64,
}

struct State {
    limit: f64,
    /// Places that there are, taken and free: the limit, or more until those who have too many give them
    /// back.
    places: usize,
    in_flight: usize,
    /// Seconds that an answer usually takes.
    usual: f64,
    /// Answers that it is made of, up to [`WARM_UP`].
    answers: f64,
    /// When the limit was cut last: requests from before say nothing about the limit since.
    cut: Option<Instant>,
    /// When it was logged last that an answer came late.
    told: Option<Instant>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The API server has answered, whatever it said.
    Answered,
    /// It was too busy to.
    Refused,
    /// The request says nothing about how busy the server is: the connection failed.
    Lost,
}

/// Room for one request. Dropped before [`Permit::end`], the request was abandoned, which says nothing.
pub(crate) struct Permit<'a> {
    limit: &'a Limit,
    /// Its place; there is always one until it is dropped.
    place: Option<SemaphorePermit<'a>>,
    began: Instant,
}

impl Limit {
    pub(crate) fn new() -> Self {
        let mut state = State {
            limit: QUEUED_MIN,
            places: 0,
            in_flight: 0,
            usual: 0.0,
            answers: 0.0,
            cut: None,
            told: None,
        };
        state.places = state.limit();
        let room = Semaphore::new(state.places);
        Self { state: Mutex::new(state), room, refused: AtomicU64::new(0), late: AtomicU64::new(0) }
    }

    /// Waits for room.
    pub(crate) async fn acquire(&self) -> Permit<'_> {
        // It is never closed.
        let place = self.room.acquire().await.ok();
        self.state().in_flight += 1;
        Permit { limit: self, place, began: Instant::now() }
    }

    pub(crate) fn pressure(&self) -> Pressure {
        let state = self.state();
        Pressure {
            limit: state.limit(),
            in_flight: state.in_flight,
            refused: self.refused.load(Ordering::Relaxed),
            late: self.late.load(Ordering::Relaxed),
        }
    }

    /// The server was too busy for a request, whether that has room here or not.
    pub(crate) fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn answered(&self, took: Duration, now: Instant) {
        let mut state = self.state();
        state.answered(took);
        if took <= LATE {
            return;
        }
        self.late.fetch_add(1, Ordering::Relaxed);
        if state.told.is_none_or(|told| now - told >= LATE_TOLD_EVERY) {
            state.told = Some(now);
            let limit = state.limit();
            drop(state);
            tracing::warn!(?took, limit, "the API server answers late");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        // Where the limit is not half used, answers say what is usual and nothing about the limit. Where it
        // is, they may come late because of it: taken for usual, they would raise it for as long as it is
        // used.
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
        // What is late is not usual, though all that was ever answered came so.
        let usual = self.usual.min(LATE.as_secs_f64() / TOLERANCE);
        let gradient = (TOLERANCE * usual / took).clamp(GRADIENT_MIN, 1.0);
        let reckoned = self.limit * gradient + self.limit.log10().ceil();
        // What refusals have cut grows again or stays.
        let least = if is_late { MIN } else { self.limit.min(QUEUED_MIN) };
        self.limit = (self.limit + (reckoned - self.limit) * SMOOTHING).clamp(least, MAX);
    }

    fn refused(&mut self, began: Instant, now: Instant) {
        if self.cut.is_none_or(|cut| began >= cut) {
            self.limit = (self.limit * REFUSED).max(MIN);
            self.cut = Some(now);
        }
    }
}

impl Permit<'_> {
    /// The request has ended.
    pub(crate) fn end(self, outcome: Outcome) {
        let now = Instant::now();
        match outcome {
            Outcome::Answered => self.limit.answered(now - self.began, now),
            Outcome::Refused => self.limit.state().refused(self.began, now),
            Outcome::Lost => {}
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.limit.state();
        state.in_flight -= 1;
        let limit = state.limit();
        if state.places > limit {
            // Given back, it would go to who waits for it.
            self.place.take().into_iter().for_each(SemaphorePermit::forget);
            state.places -= 1 + self.limit.room.forget_permits(state.places - 1 - limit);
        } else {
            self.limit.room.add_permits(limit - state.places);
            state.places = limit;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use futures::FutureExt as _;

    use super::*;

    /// A server that works on so many requests at a time, each for so many milliseconds; the others queue.
    struct Slow {
        room: tokio::sync::Semaphore,
        millis: AtomicU64,
        most: AtomicUsize,
        in_flight: AtomicUsize,
    }

    impl Slow {
        fn new(room: usize) -> Self {
            let room = tokio::sync::Semaphore::new(room);
            Self {
                room,
                millis: AtomicU64::new(10),
                most: AtomicUsize::new(0),
                in_flight: AtomicUsize::new(0),
            }
        }

        async fn answer(&self) {
            let now = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            let turn = self.room.acquire().await.expect("never closed");
            tokio::time::advance(Duration::ZERO).await;
            let takes = Duration::from_millis(self.millis.load(Ordering::SeqCst));
            tokio::time::timeout(takes, std::future::pending::<()>()).await.unwrap_err();
            drop(turn);
            self.in_flight.fetch_sub(1, Ordering::SeqCst);
        }
    }

    async fn load(limit: &Arc<Limit>, server: &Arc<Slow>, requests: usize) {
        let sent = (0..requests).map(|_| {
            let (limit, server) = (Arc::clone(limit), Arc::clone(server));
            tokio::spawn(async move {
                let permit = limit.acquire().await;
                server.answer().await;
                permit.end(Outcome::Answered);
            })
        });
        futures::future::try_join_all(sent).await.expect("no request panics");
    }

    /// Takes all the room that there is at the start.
    async fn full(limit: &Limit) -> Vec<Permit<'_>> {
        futures::future::join_all((0..limit.pressure().limit).map(|_| limit.acquire())).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_keeps_up_gets_more_and_one_that_queues_gets_less() {
        let (limit, quick) = (Arc::new(Limit::new()), Arc::new(Slow::new(1_000)));
        load(&limit, &quick, 20_000).await;
        assert_eq!(limit.pressure().limit, 256);
        let slow = Arc::new(Slow::new(8));
        load(&limit, &slow, 2_000).await;
        assert_eq!(
            limit.pressure().limit,
            80,
            "a server with room for 8 gets the least that leaves it to queue fairly"
        );
        load(&limit, &quick, 20_000).await;
        assert_eq!(limit.pressure().limit, 256, "what was learned of a bad hour is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_whose_answers_are_late_gets_less_than_its_share() {
        let (limit, server) = (Arc::new(Limit::new()), Arc::new(Slow::new(8)));
        load(&limit, &server, 1_000).await;
        assert_eq!(limit.pressure().limit, 80, "80 wait for a tenth of a second");
        server.millis.store(400, Ordering::SeqCst);
        load(&limit, &server, 1_000).await;
        let reached = limit.pressure().limit;
        assert!(
            (4..=20).contains(&reached),
            "of {reached} at a time the last waits for longer than a second"
        );
        assert!(limit.pressure().late > 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_never_quick_gets_less_too() {
        let (limit, server) = (Arc::new(Limit::new()), Arc::new(Slow::new(1_000)));
        server.millis.store(2_000, Ordering::SeqCst);
        load(&limit, &server, 2_000).await;
        assert!(limit.pressure().limit < 20, "{:?}", limit.pressure());
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_cut_once_for_all_that_was_under_way() {
        let limit = Limit::new();
        let mut permits = full(&limit).await;
        tokio::time::advance(Duration::from_millis(5)).await;
        permits.drain(..10).for_each(|permit| permit.end(Outcome::Refused));
        assert_eq!(limit.pressure(), Pressure { limit: 56, in_flight: 70, refused: 0, late: 0 });
        drop(permits);
        for _ in 0..100 {
            tokio::time::advance(Duration::from_millis(5)).await;
            limit.acquire().await.end(Outcome::Refused);
        }
        assert_eq!(limit.pressure(), Pressure { limit: 4, in_flight: 0, refused: 0, late: 0 });
    }

    #[tokio::test(start_paused = true)]
    async fn what_refusals_have_cut_grows_again_once_there_are_none() {
        let (limit, slow) = (Arc::new(Limit::new()), Arc::new(Slow::new(8)));
        for _ in 0..100 {
            tokio::time::advance(Duration::from_millis(5)).await;
            limit.acquire().await.end(Outcome::Refused);
        }
        assert_eq!(limit.pressure().limit, 4);
        load(&limit, &slow, 2_000).await;
        let reached = limit.pressure().limit;
        assert!((4..=80).contains(&reached), "a server with room for 8 gets {reached} at a time");
        load(&limit, &Arc::new(Slow::new(1_000)), 20_000).await;
        assert_eq!(limit.pressure().limit, 256);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_just_had_room_comes_behind_who_waits() {
        let limit = Limit::new();
        let mut permits = full(&limit).await;
        let mut waits = pin!(limit.acquire());
        assert!(waits.as_mut().now_or_never().is_none());
        permits.pop();
        let mut again = pin!(limit.acquire());
        assert!(again.as_mut().now_or_never().is_none());
        drop(waits.now_or_never().expect("it came first"));
        assert!(again.now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_gets_the_room_of_who_gives_up() {
        let limit = Arc::new(Limit::new());
        let mut permits = full(&limit).await;
        let waits = tokio::spawn({
            let limit = Arc::clone(&limit);
            async move { limit.acquire().await.end(Outcome::Lost) }
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        permits.pop();
        waits.await.expect("it gets the room");
        assert_eq!(limit.pressure(), Pressure { limit: 80, in_flight: 79, refused: 0, late: 0 });
    }
}
