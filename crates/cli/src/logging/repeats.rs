//! Limits how often one cause is logged, such as an API server that is down.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

/// Each cause is logged at most once in this time.
const EVERY: Duration = Duration::from_secs(1);
/// Number of remembered causes at which those older than [`EVERY`] are forgotten.
const CAUSES_MAX: usize = 1_024;
/// The fields that name a cause. Without one of them, the whole event is the cause: a finding about one
/// object, which no later event repeats, names the object and has its `reason`.
const CAUSE: [&str; 3] = ["error", "fault", "why"];

/// Passes one warning or error a second for each cause and line of code, whatever object the event's span is
/// about, so that a cause which fails many requests does not fill the log.
pub(super) struct OncePerSecond {
    now: fn() -> Instant,
    logged: Mutex<HashMap<u64, Instant>>,
}

impl OncePerSecond {
    pub(super) fn new(now: fn() -> Instant) -> Self {
        Self { now, logged: Mutex::default() }
    }

    fn passes(&self, cause: u64) -> bool {
        let now = (self.now)();
        let mut logged = self.logged.lock();
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < EVERY;
        if logged.get(&cause).is_some_and(is_recent) {
            return false;
        }
        if logged.len() >= CAUSES_MAX {
            logged.retain(|_, at| is_recent(at));
        }
        logged.insert(cause, now);
        true
    }
}

impl<S: Subscriber> Filter<S> for OncePerSecond {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        if *event.metadata().level() > Level::WARN {
            return true;
        }
        let mut texts = Texts::default();
        event.record(&mut texts);
        let mut hasher = DefaultHasher::new();
        event.metadata().callsite().hash(&mut hasher);
        if texts.cause.is_empty() {
            texts.all.hash(&mut hasher);
        } else {
            unquoted(&texts.cause).for_each(|text| text.hash(&mut hasher));
        }
        self.passes(hasher.finish())
    }
}

/// The parts of a cause outside quotation marks. Bindery and the API server quote the names of objects, so
/// these are the same for all objects that the cause fails.
fn unquoted(cause: &str) -> impl Iterator<Item = &str> {
    cause.split('"').step_by(2)
}

/// The fields of an event as text.
#[derive(Default)]
struct Texts {
    cause: String,
    all: String,
}

impl Visit for Texts {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = if CAUSE.contains(&field.name()) { &mut self.cause } else { &mut self.all };
        // Writing to a string cannot fail.
        let _ = write!(text, "{}={value:?} ", field.name());
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, LazyLock};

    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::{Layer as _, fmt};

    use super::*;

    /// A log in memory.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A clock that the tests move by hand, in seconds since it was first read.
    static SECONDS: Mutex<u64> = Mutex::new(0);
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);

    fn now() -> Instant {
        *START + Duration::from_secs(*SECONDS.lock())
    }

    #[test]
    fn one_cause_is_logged_once_a_second_whatever_object_it_fails() {
        let log = Log::default();
        let written = log.clone();
        let lines = fmt::layer().with_ansi(false).with_writer(move || written.clone());
        let subscriber = tracing_subscriber::registry().with(lines.with_filter(OncePerSecond::new(now)));
        tracing::subscriber::with_default(subscriber, || {
            for second in 0..2 {
                *SECONDS.lock() = second;
                for kind in ["Pod", "Node", "Pod"] {
                    tracing::warn!(kind, error = "down", "watching failed");
                    tracing::info!(kind, error = "down", "an information");
                }
                tracing::warn!(kind = "Pod", error = "late", "watching failed");
                for object in ["a", "b"] {
                    let error = format!("bind claim \"{object}\": pods \"{object}\" not found");
                    tracing::error_span!("sync", object).in_scope(|| tracing::warn!(%error, "sync failed"));
                    tracing::warn!(object, reason = "larger", "a finding about each object");
                }
            }
        });
        let text = String::from_utf8(log.0.lock().clone()).unwrap();
        let count = |part: &str| text.lines().filter(|line| line.contains(part)).count();
        let counted = [count("error=\"down\"") - count("INFO"), count("error=\"late\""), count("INFO")];
        assert_eq!(counted, [2, 2, 6], "{text}");
        assert_eq!([count("not found"), count("reason=\"larger\"")], [2, 4], "{text}");
    }
}
