//! The connection limiter: it caps the open connections and chooses which one to close for a new one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Counters of a server's connections.
#[derive(Debug, Default)]
pub struct ConnectionStats {
    open: AtomicUsize,
    /// Connections that were closed at the cap.
    pub shed: Counter,
    /// Handshakes that failed, took too long, or came with a client certificate that is not accepted.
    pub handshake_errors: Counter,
}

impl ConnectionStats {
    /// Open connections.
    pub fn connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

/// The open connections of a server, by the order in which they were accepted.
pub(super) struct ConnectionLimiter {
    open: Mutex<BTreeMap<u64, Arc<Connection>>>,
    next: AtomicU64,
    connections_max: usize,
    pub(super) stats: Arc<ConnectionStats>,
}

/// An open connection.
pub(super) struct Connection {
    activity: Mutex<Activity>,
    /// Cancelled by the head of the first request.
    pub(super) has_asked: CancellationToken,
    /// Cancelled when the connection has to close.
    pub(super) evicted: CancellationToken,
}

struct Activity {
    /// When a request was last answered with success.
    answered: Option<Instant>,
    /// When the connection was accepted or a request last ended.
    idle_since: Instant,
    /// Requests whose head has come and whose answer has not been made.
    requests: usize,
    /// Those of them whose body is not complete.
    incomplete: usize,
}

/// The right to be connected, until it is dropped.
pub(super) struct Permit {
    id: u64,
    pub(super) connection: Arc<Connection>,
    limiter: Arc<ConnectionLimiter>,
}

/// A request in flight, until it is dropped.
pub(super) struct InFlight(Arc<Connection>);

/// The body of a request in flight: dropped when it has been read, or is not read any more.
pub(super) struct UnreadBody(Arc<Connection>);

impl ConnectionLimiter {
    pub(super) fn new(connections_max: usize, stats: Arc<ConnectionStats>) -> Arc<Self> {
        Arc::new(Self { open: Mutex::default(), next: AtomicU64::new(0), connections_max, stats })
    }

    /// Admits a connection, and evicts another at the cap. `None` if every connection has a complete request
    /// in flight.
    pub(super) fn admit(self: &Arc<Self>) -> Option<Permit> {
        let mut open = self.open.lock();
        if open.len() >= self.connections_max {
            self.stats.shed.inc();
            let idle = open.iter().filter(|(_, connection)| !connection.has_complete_request());
            let id = *idle.min_by_key(|(id, connection)| (connection.activity.lock().answered, **id))?.0;
            open.remove(&id)?.evicted.cancel();
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection::new());
        open.insert(id, Arc::clone(&connection));
        self.stats.open.store(open.len(), Ordering::Relaxed);
        Some(Permit { id, connection, limiter: Arc::clone(self) })
    }

    /// Evicts every connection.
    pub(super) fn close_all(&self) {
        self.open.lock().values().for_each(|connection| connection.evicted.cancel());
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut open = self.limiter.open.lock();
        open.remove(&self.id);
        self.limiter.stats.open.store(open.len(), Ordering::Relaxed);
    }
}

impl Connection {
    fn new() -> Self {
        let [has_asked, evicted] = [(); 2].map(|()| CancellationToken::new());
        let activity = Activity { answered: None, idle_since: Instant::now(), requests: 0, incomplete: 0 };
        Self { activity: Mutex::new(activity), has_asked, evicted }
    }

    fn has_complete_request(&self) -> bool {
        let activity = self.activity.lock();
        activity.requests > activity.incomplete
    }

    /// Notes the head of a request.
    pub(super) fn begin(self: &Arc<Self>) -> (InFlight, UnreadBody) {
        self.has_asked.cancel();
        let mut activity = self.activity.lock();
        activity.requests += 1;
        activity.incomplete += 1;
        (InFlight(Arc::clone(self)), UnreadBody(Arc::clone(self)))
    }

    /// Since when the connection has had no request in flight; `None` while it has one.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let activity = self.activity.lock();
        (activity.requests == 0).then_some(activity.idle_since)
    }
}

impl InFlight {
    /// Records that the request was answered with success: the connection is closed after those that never
    /// had a successful answer.
    pub(super) fn succeeded(&self) {
        self.0.activity.lock().answered = Some(Instant::now());
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut activity = self.0.activity.lock();
        activity.requests -= 1;
        activity.idle_since = Instant::now();
    }
}

impl Drop for UnreadBody {
    fn drop(&mut self) {
        self.0.activity.lock().incomplete -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(connections_max: usize) -> (Arc<ConnectionLimiter>, Arc<ConnectionStats>) {
        let stats = Arc::<ConnectionStats>::default();
        (ConnectionLimiter::new(connections_max, Arc::clone(&stats)), stats)
    }

    fn is_evicted(permit: &Permit) -> bool {
        permit.connection.evicted.is_cancelled()
    }

    /// Answers a request of this connection.
    fn answer(permit: &Permit) {
        let (in_flight, body) = permit.connection.begin();
        drop(body);
        in_flight.succeeded();
    }

    #[test]
    fn connections_without_an_answer_are_closed_before_the_one_idle_longest() {
        let (limiter, stats) = limiter(4);
        let open: [_; 4] = std::array::from_fn(|_| limiter.admit().unwrap());
        answer(&open[2]);
        answer(&open[0]);
        let (_head, _unread) = open[3].connection.begin();
        let mut order = Vec::new();
        let mut newer = Vec::new();
        while order.len() < 4 {
            newer.push(limiter.admit().unwrap());
            answer(newer.last().unwrap());
            let gone = (0..4).filter(|at| is_evicted(&open[*at]) && !order.contains(at));
            order.extend(gone.collect::<Vec<_>>());
        }
        assert_eq!(order, [1, 3, 2, 0]);
        assert_eq!((stats.connections(), stats.shed.get()), (4, 4));
        drop((open, newer));
        assert_eq!(stats.connections(), 0);
    }

    #[test]
    fn a_connection_with_a_complete_request_in_flight_is_not_closed() {
        let (limiter, stats) = limiter(1);
        let permit = limiter.admit().unwrap();
        let [(first, first_body), (second, second_body)] = [(); 2].map(|()| permit.connection.begin());
        drop(first_body);
        assert!(limiter.admit().is_none());
        drop(first);
        // The remaining request has no complete body.
        assert!(permit.connection.idle_since().is_none());
        assert!(limiter.admit().is_some() && is_evicted(&permit));
        assert_eq!(stats.shed.get(), 2);
        drop((second, second_body));
    }
}
