//! Which long operations run or back off (upstream's `goroutinemap` with exponential backoff).
//!
//! The [`Ticket`] of an operation wakes its object when the operation ends. Subscriptions cannot, because no
//! fact of the store changes then.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bindery_core::{Key, OperationKind, OperationState, PluginOperation, Uid};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::queue::{Queue, Timer};
use crate::upstream::UpstreamMetrics;

/// Delay after the first failure of an operation (upstream's `initialDurationBeforeRetry`).
pub const OPERATION_BACKOFF: Duration = Duration::from_millis(500);
/// Longest delay (upstream's `maxDurationBeforeRetry`: 2 min 2 s, just above the attach limit of a cloud).
const OPERATION_BACKOFF_MAX: Duration = Duration::from_secs(122);

/// The operations of a binder. At most one of each name runs, and a failed one backs off. The end of an
/// operation determines when its object is decided again.
pub(crate) struct OperationMap {
    queue: Arc<Queue>,
    entries: Mutex<HashMap<Name, Entry>>,
    /// The objects that wait for the end of the stop, while recycling and deleting are stopped.
    held: Mutex<Option<BTreeSet<Key>>>,
    pub(crate) metrics: UpstreamMetrics,
}

/// Identifies an operation. As in upstream's `provision-<claim>[<uid>]`, both ways to provision are the same
/// operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name {
    verb: PluginOperation,
    uid: Uid,
}

#[derive(Default)]
struct Entry {
    running: bool,
    /// Whether a decision has learnt that it runs.
    awaited: bool,
    /// Whether its object is gone, so that its result does not matter.
    gone: bool,
    /// Set by a failure and cleared by success: when it may start again, and the delay before that.
    backoff: Option<(Instant, Duration)>,
}

/// The right to run one operation. If it is dropped without [`Ticket::finish`], the operation counts as never
/// started and its object is decided again; after a panic it counts as failed.
pub(crate) struct Ticket {
    map: Arc<OperationMap>,
    name: Name,
    /// The object of the operation.
    key: Key,
    ended: bool,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Succeeded,
    Failed,
    Abandoned,
}

/// Why an operation does not start; the sync that asked for it succeeds all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotStarted {
    /// One of that name runs; its end wakes the object.
    Running,
    /// The last one failed; it may start after this delay.
    BackingOff(Duration),
    /// Operations of its kind are stopped; their release wakes the object.
    Held,
}

impl OperationMap {
    /// No operation runs; objects to be decided because of one go to that queue.
    pub(crate) fn new(queue: Arc<Queue>) -> Self {
        Self { queue, entries: Mutex::default(), held: Mutex::default(), metrics: UpstreamMetrics::default() }
    }

    /// Whether the operation of that kind on the object of that UID may start.
    pub(crate) fn state(&self, kind: OperationKind, uid: &Uid) -> OperationState {
        match self.entries.lock().get_mut(&Name::new(kind, uid)) {
            Some(entry) if entry.running => {
                entry.awaited = true;
                OperationState::Running
            }
            Some(Entry { backoff: Some((until, _)), .. }) if Instant::now() < *until => {
                OperationState::BackingOff
            }
            _ => OperationState::Idle,
        }
    }

    /// Takes the right to run an operation on the object of that key and UID.
    pub(crate) fn start(
        self: &Arc<Self>,
        kind: OperationKind,
        uid: &Uid,
        key: Key,
    ) -> Result<Ticket, NotStarted> {
        if matches!(kind, OperationKind::Delete | OperationKind::Recycle) && self.holds_back(&key) {
            return Err(NotStarted::Held);
        }
        let name = Name::new(kind, uid);
        let mut entries = self.entries.lock();
        let entry = entries.entry(name.clone()).or_default();
        if entry.running {
            entry.awaited = true;
            return Err(NotStarted::Running);
        }
        if let Some((until, _)) = entry.backoff {
            let now = Instant::now();
            if now < until {
                return Err(NotStarted::BackingOff(until - now));
            }
        }
        (entry.running, entry.awaited) = (true, false);
        Ok(Ticket { map: Arc::clone(self), name, key, ended: false })
    }

    /// Forgets the backoffs of an object that is gone, so that the map only holds objects that exist.
    pub(crate) fn forget(&self, uid: &Uid) {
        self.entries.lock().retain(|name, entry| {
            entry.gone |= name.uid == *uid;
            entry.running || !entry.gone
        });
    }

    /// Forgets all backoffs, because the timers that would wake their objects are gone.
    pub(crate) fn reset(&self) {
        self.entries.lock().retain(|_, entry| {
            entry.backoff = None;
            entry.running
        });
    }

    /// How many operations run.
    pub(crate) fn running(&self) -> usize {
        self.entries.lock().values().filter(|entry| entry.running).count()
    }

    /// Stops recycling and deleting: no operation of these kinds starts, and running ones take no further
    /// step.
    pub(crate) fn hold(&self) {
        self.held.lock().get_or_insert_default();
    }

    /// Ends the stop of recycling and deleting. The objects that were held back are decided again.
    pub(crate) fn release(&self) {
        let held = self.held.lock().take();
        self.queue.add_all(held.into_iter().flatten());
    }

    /// Whether recycling and deleting are stopped.
    pub(crate) fn holds(&self) -> bool {
        self.held.lock().is_some()
    }

    /// Whether the object must not be recycled or deleted now; it is decided again when it may.
    pub(crate) fn holds_back(&self, key: &Key) -> bool {
        self.held.lock().as_mut().is_some_and(|held| {
            held.insert(key.clone());
            true
        })
    }
}

impl Entry {
    /// Records the end of a run. Returns the delay before the next one if it failed.
    fn end(&mut self, ending: Ending) -> Option<Duration> {
        self.running = false;
        match ending {
            Ending::Abandoned => None,
            Ending::Succeeded => {
                self.backoff = None;
                None
            }
            Ending::Failed => {
                let delay = match self.backoff {
                    None => OPERATION_BACKOFF,
                    Some((_, delay)) => (delay * 2).min(OPERATION_BACKOFF_MAX),
                };
                self.backoff = Some((Instant::now() + delay, delay));
                Some(delay)
            }
        }
    }
}

impl Ticket {
    /// Ends the operation. Its object is decided again when a backoff has passed, or at once if a decision
    /// has seen the running operation meanwhile and may have waited for it.
    pub(crate) fn finish(mut self, succeeded: bool) {
        self.end(if succeeded { Ending::Succeeded } else { Ending::Failed });
    }

    fn end(&mut self, ending: Ending) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let (delay, awaited) = {
            let mut entries = self.map.entries.lock();
            let Some(entry) = entries.get_mut(&self.name) else { return };
            let (delay, awaited) = (entry.end(ending).filter(|_| !entry.gone), entry.awaited);
            if entry.gone || entry.backoff.is_none() {
                entries.remove(&self.name);
            }
            (delay, awaited)
        };
        let queue = &self.map.queue;
        if let Some(delay) = delay {
            queue.add_after(self.key.clone(), Timer::Operation, delay);
        }
        if awaited || ending == Ending::Abandoned {
            queue.add(self.key.clone());
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // An immediate retry of an operation that panics would panic without end.
        self.end(if std::thread::panicking() { Ending::Failed } else { Ending::Abandoned });
    }
}

impl Name {
    fn new(kind: OperationKind, uid: &Uid) -> Self {
        let verb = match kind {
            OperationKind::ProvisionExternal | OperationKind::Provision => PluginOperation::Provision,
            OperationKind::Delete => PluginOperation::Delete,
            OperationKind::Recycle => PluginOperation::Recycle,
        };
        Self { verb, uid: uid.clone() }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn map() -> Arc<OperationMap> {
        Arc::new(OperationMap::new(Arc::default()))
    }

    fn key() -> Key {
        Key::Volume("v1".into())
    }

    fn uid() -> Uid {
        "u1".into()
    }

    impl OperationMap {
        fn started(self: &Arc<Self>, kind: OperationKind) -> Ticket {
            self.start(kind, &uid(), key()).expect("it is idle")
        }

        fn not_started(self: &Arc<Self>, kind: OperationKind) -> Option<NotStarted> {
            self.start(kind, &uid(), key()).err()
        }

        /// Whether the object is to be decided now.
        fn wakes(&self) -> bool {
            self.queue.next().now_or_never().is_some()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_of_a_name_runs_at_a_time_and_its_end_wakes_its_object() {
        let map = map();
        let ticket = map.started(OperationKind::Provision);
        assert_eq!(map.state(OperationKind::Delete, &uid()), OperationState::Idle);
        ticket.finish(true);
        assert!(!map.wakes());
        let ticket = map.started(OperationKind::Provision);
        assert_eq!(map.not_started(OperationKind::ProvisionExternal), Some(NotStarted::Running));
        ticket.finish(true);
        assert!(map.wakes());
        assert_eq!(map.state(OperationKind::Provision, &uid()), OperationState::Idle);
        assert!(map.entries.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_backs_off_twice_as_long_each_time_up_to_the_most() {
        let map = map();
        let mut expected = OPERATION_BACKOFF;
        for _ in 0..10 {
            map.started(OperationKind::Delete).finish(false);
            assert_eq!(map.state(OperationKind::Delete, &uid()), OperationState::BackingOff);
            assert_eq!(map.not_started(OperationKind::Delete), Some(NotStarted::BackingOff(expected)));
            assert!(!map.wakes());
            tokio::time::advance(expected).await;
            assert!(map.wakes());
            expected = (expected * 2).min(OPERATION_BACKOFF_MAX);
        }
        map.started(OperationKind::Delete).finish(true);
        map.started(OperationKind::Delete).finish(false);
        assert_eq!(map.not_started(OperationKind::Delete), Some(NotStarted::BackingOff(OPERATION_BACKOFF)));
        map.forget(&uid());
        assert!(map.entries.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn of_an_object_that_goes_while_its_operation_runs_nothing_is_kept() {
        let map = map();
        let ticket = map.started(OperationKind::Delete);
        map.forget(&uid());
        assert_eq!(map.not_started(OperationKind::Delete), Some(NotStarted::Running));
        ticket.finish(false);
        assert!(map.entries.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_abandoned_operation_is_forgotten_and_its_object_decided_again() {
        let map = map();
        drop(map.started(OperationKind::Delete));
        assert!(map.wakes());
        assert_eq!(map.state(OperationKind::Delete, &uid()), OperationState::Idle);
        assert!(map.entries.lock().is_empty());

        // The backoff of an earlier failure stays what it was.
        map.started(OperationKind::Delete).finish(false);
        tokio::time::advance(OPERATION_BACKOFF).await;
        assert!(map.wakes());
        drop(map.started(OperationKind::Delete));
        assert!(map.wakes());
        map.started(OperationKind::Delete).finish(false);
        assert_eq!(
            map.not_started(OperationKind::Delete),
            Some(NotStarted::BackingOff(OPERATION_BACKOFF * 2))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_operation_that_panics_backs_off() {
        let map = map();
        let ticket = map.started(OperationKind::Delete);
        let task = tokio::spawn(async move {
            let _ticket = ticket;
            panic!("a bug in a plugin")
        });
        assert!(task.await.is_err());
        assert!(!map.wakes());
        assert_eq!(map.not_started(OperationKind::Delete), Some(NotStarted::BackingOff(OPERATION_BACKOFF)));
    }
}
