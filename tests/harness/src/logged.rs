//! What a test logs.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, dispatcher};

/// What is logged on this thread while this lives, in the words of `bindery`'s text log. Tests on the one
/// thread of their runtime log here whatever their tasks say.
#[derive(Debug)]
pub struct Logged {
    lines: Lines,
    _logging: DefaultGuard,
    /// While there is only one, tracing has the thread that comes first to a line say for all whether it is
    /// wanted.
    _another: Dispatch,
}

#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Logged {
    /// Takes what is logged from now on, of this level and more severe ones.
    #[must_use]
    pub fn from(level: LevelFilter) -> Self {
        let lines = Lines::default();
        let log = tracing_subscriber::fmt().with_ansi(false).with_max_level(level);
        let log = log.with_writer({
            let lines = lines.clone();
            move || lines.clone()
        });
        let _logging = dispatcher::set_default(&Dispatch::new(log.finish()));
        Self { lines, _logging, _another: Dispatch::new(NoSubscriber::default()) }
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
