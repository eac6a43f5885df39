//! Which long operations run or back off (upstream's `goroutinemap` with exponential backoff).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bindery_core::{OperationKind, OperationState, Uid};
use tokio::time::Instant;

/// Delay after the first failure of an operation (upstream's `initialDurationBeforeRetry`).
pub const OPERATION_BACKOFF: Duration = Duration::from_millis(500);
/// Longest delay (upstream's `maxDurationBeforeRetry`: 2 min 2 s, just above the attach limit of a cloud).
pub const OPERATION_BACKOFF_MAX: Duration = Duration::from_secs(122);

/// The operations of a binder: at most one of a name runs, and a failed one backs off.
#[derive(Default)]
pub(crate) struct OperationMap {
    entries: Mutex<HashMap<Name, Entry>>,
}

/// What makes two operations the same: upstream's `provision-<claim>[<uid>]` holds both ways to provision.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name {
    verb: Verb,
    uid: Uid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Verb {
    Provision,
    Delete,
    Recycle,
}

#[derive(Default)]
struct Entry {
    running: bool,
    /// Whether somebody was told that it runs.
    awaited: bool,
    /// Set by a failure, cleared by success: when it may start again, and the delay that led there.
    backoff: Option<(Instant, Duration)>,
}

/// The right to run one operation. Dropped without [`Ticket::finish`], the operation counts as never started.
pub(crate) struct Ticket {
    map: Arc<OperationMap>,
    name: Name,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// After a failure: the delay before it may start again.
    pub(crate) backoff: Option<Duration>,
    /// Whether a decision was told meanwhile that it runs, and so may have held back.
    pub(crate) awaited: bool,
}

/// Why an operation does not start; the sync that asked for it succeeds all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// One of that name runs; its end wakes who waits.
    Running,
    /// The last one failed; it may start after this delay.
    BackingOff(Duration),
}

impl OperationMap {
    /// Whether the operation of that kind on the object of that UID may start.
    pub(crate) fn state(&self, kind: OperationKind, uid: &Uid) -> OperationState {
        match self.entries().get_mut(&Name::new(kind, uid)) {
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

    /// Takes the right to run an operation.
    ///
    /// # Errors
    ///
    /// One of that name runs or backs off.
    pub(crate) fn start(self: &Arc<Self>, kind: OperationKind, uid: &Uid) -> Result<Ticket, Refusal> {
        let name = Name::new(kind, uid);
        let mut entries = self.entries();
        let entry = entries.entry(name.clone()).or_default();
        if entry.running {
            entry.awaited = true;
            return Err(Refusal::Running);
        }
        if let Some((until, _)) = entry.backoff {
            let now = Instant::now();
            if now < until {
                return Err(Refusal::BackingOff(until - now));
            }
        }
        (entry.running, entry.awaited) = (true, false);
        Ok(Ticket { map: Arc::clone(self), name })
    }

    /// Forgets the backoffs of an object that is gone, so that the map only holds objects that exist.
    pub(crate) fn forget(&self, uid: &Uid) {
        self.entries().retain(|name, entry| entry.running || name.uid != *uid);
    }

    /// How many operations run.
    pub(crate) fn running(&self) -> usize {
        self.entries().values().filter(|entry| entry.running).count()
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, HashMap<Name, Entry>> {
        // An entry is changed in one assignment, so a panic elsewhere leaves the map sound.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// Ends the operation.
    pub(crate) fn finish(self, succeeded: bool) -> Ended {
        let mut entries = self.map.entries();
        let entry = entries.entry(self.name.clone()).or_default();
        let awaited = entry.awaited;
        if succeeded {
            entry.backoff = None;
            return Ended { backoff: None, awaited };
        }
        let delay = match entry.backoff {
            None => OPERATION_BACKOFF,
            Some((_, delay)) => (delay * 2).min(OPERATION_BACKOFF_MAX),
        };
        entry.backoff = Some((Instant::now() + delay, delay));
        Ended { backoff: Some(delay), awaited }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut entries = self.map.entries();
        if let Some(entry) = entries.get_mut(&self.name) {
            entry.running = false;
            if entry.backoff.is_none() {
                entries.remove(&self.name);
            }
        }
    }
}

impl Name {
    fn new(kind: OperationKind, uid: &Uid) -> Self {
        let verb = match kind {
            OperationKind::ProvisionExternal | OperationKind::Provision => Verb::Provision,
            OperationKind::Delete => Verb::Delete,
            OperationKind::Recycle => Verb::Recycle,
        };
        Self { verb, uid: uid.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid() -> Uid {
        "u1".into()
    }

    #[tokio::test(start_paused = true)]
    async fn one_of_a_name_runs_at_a_time() {
        let map = Arc::new(OperationMap::default());
        let ticket = map.start(OperationKind::Provision, &uid()).expect("idle");
        assert_eq!(map.start(OperationKind::ProvisionExternal, &uid()).err(), Some(Refusal::Running));
        assert_eq!(map.state(OperationKind::Delete, &uid()), OperationState::Idle);
        assert_eq!(ticket.finish(true), Ended { backoff: None, awaited: true });
        assert_eq!(map.state(OperationKind::Provision, &uid()), OperationState::Idle);
        assert!(map.entries().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_backs_off_twice_as_long_each_time_up_to_the_most() {
        let map = Arc::new(OperationMap::default());
        let mut expected = OPERATION_BACKOFF;
        for _ in 0..10 {
            let ticket = map.start(OperationKind::Delete, &uid()).expect("idle");
            assert_eq!(ticket.finish(false), Ended { backoff: Some(expected), awaited: false });
            assert_eq!(map.state(OperationKind::Delete, &uid()), OperationState::BackingOff);
            assert_eq!(map.start(OperationKind::Delete, &uid()).err(), Some(Refusal::BackingOff(expected)));
            tokio::time::advance(expected).await;
            expected = (expected * 2).min(OPERATION_BACKOFF_MAX);
        }
        map.start(OperationKind::Delete, &uid()).expect("idle").finish(true);
        let ticket = map.start(OperationKind::Delete, &uid()).expect("idle");
        assert_eq!(ticket.finish(false).backoff, Some(OPERATION_BACKOFF));
        map.forget(&uid());
        assert!(map.entries().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_abandoned_operation_counts_as_never_started() {
        let map = Arc::new(OperationMap::default());
        drop(map.start(OperationKind::Delete, &uid()));
        assert_eq!(map.state(OperationKind::Delete, &uid()), OperationState::Idle);
        assert!(map.entries().is_empty());
    }
}
