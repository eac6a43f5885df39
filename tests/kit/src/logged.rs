//! Captured log lines.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, dispatcher};

/// Captures what this thread logs until it is dropped, in the format of `bindery`'s text log. Tasks of a
/// current-thread runtime log here too.
#[derive(Debug)]
pub struct Logged {
    lines: Lines,
    _logging: DefaultGuard,
    /// With a single dispatcher, tracing caches the interest of the first thread that reaches a line for all
    /// threads. A second dispatcher prevents this.
    _second: Dispatch,
}

#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Logged {
    /// Captures lines of this level and more severe ones from now on.
    #[must_use]
    pub fn from(level: LevelFilter) -> Self {
        let lines = Lines::default();
        let log = tracing_subscriber::fmt().with_ansi(false).with_max_level(level);
        let log = log.with_writer({
            let lines = lines.clone();
            move || lines.clone()
        });
        let _logging = dispatcher::set_default(&Dispatch::new(log.finish()));
        Self { lines, _logging, _second: Dispatch::new(NoSubscriber::default()) }
    }

    /// All lines so far.
    #[must_use]
    pub fn text(&self) -> String {
        let lines = self.lines.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&lines).into_owned()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
