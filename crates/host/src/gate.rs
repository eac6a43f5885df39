//! Admits as many decisions at a time as the pool has instances, and runs the epoch clock while decisions
//! run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use wasmtime::EngineWeak;

/// Length of a tick of the epoch clock.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// Ticks after the last decision until the clock stops: a busy host does not restart it for every decision,
/// and an idle host does not run it.
const LINGER_TICKS: u32 = 100;

/// Bounds the number of decisions at a time, and advances the epochs that bound their time.
pub(crate) struct Gate {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Notified when a decision leaves while others wait, when the clock must start, and when the host is
    /// dropped.
    changed: Condvar,
    ticks: Arc<AtomicU64>,
    room: u32,
}

#[derive(Default)]
struct State {
    inside: u32,
    waiting: u32,
    /// Whether a decision came in since the clock last looked.
    busy: bool,
    clock_stopped: bool,
    closed: bool,
}

impl Shared {
    /// The state. A panic elsewhere leaves the counters right.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ticks while decisions run, waits while none runs, and ends with the host.
    fn run(&self, engine: &EngineWeak) {
        let mut idle_ticks = 0;
        loop {
            thread::sleep(TICK);
            self.ticks.fetch_add(1, Ordering::Relaxed);
            match engine.upgrade() {
                Some(engine) => engine.increment_epoch(),
                None => return,
            }
            let mut state = self.lock();
            let busy = state.inside > 0 || std::mem::take(&mut state.busy);
            idle_ticks = if busy { 0 } else { idle_ticks + 1 };
            if idle_ticks >= LINGER_TICKS {
                state.clock_stopped = true;
                while state.clock_stopped && !state.closed {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                idle_ticks = 0;
            }
            if state.closed {
                return;
            }
        }
    }
}

/// A decision inside the gate; leaves when dropped.
pub(crate) struct Pass<'a>(&'a Shared);

impl Gate {
    /// A gate for `room` decisions at a time. Its clock has a thread of its own: a task of an asynchronous
    /// runtime would stop exactly when decisions keep the runtime's threads busy.
    pub(crate) fn new(room: u32, engine: EngineWeak) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            ticks: Arc::default(),
            room,
        });
        let clock = Arc::clone(&shared);
        thread::Builder::new().name("bindery-epochs".to_owned()).spawn(move || clock.run(&engine))?;
        Ok(Self { shared })
    }

    /// Waits for room, which takes microseconds.
    pub(crate) fn enter(&self) -> Pass<'_> {
        let mut state = self.shared.lock();
        while state.inside == self.shared.room {
            state.waiting += 1;
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.inside += 1;
        state.busy = true;
        if state.clock_stopped {
            state.clock_stopped = false;
            self.shared.changed.notify_all();
        }
        Pass(&self.shared)
    }
}

impl Pass<'_> {
    /// The clock in ticks. It runs while any pass is held.
    pub(crate) fn clock(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.0.ticks)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.inside -= 1;
        if state.waiting > 0 {
            self.0.changed.notify_all();
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}
