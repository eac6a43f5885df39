//! What is logged and traced, and how.

mod repeats;
mod traces;

use std::io::IsTerminal as _;
use std::time::Instant;

use anyhow::{Result, bail};
use http::Uri;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{FilterExt as _, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

use self::repeats::OncePerSecond;
use self::traces::Traces;
pub(crate) use self::traces::endpoint;

/// The crates whose spans are traced: those of libraries would tell of every connection.
const TRACED: [&str; 3] = ["bindery", "bindery_controller", "bindery_kube"];

/// What is logged of dependencies unless a filter names them: warnings and errors. kube-client logs each
/// failed request as an error without its cause; the crates here that sent the request log it with its cause.
const OF_DEPENDENCIES: &str = "warn,kube_client=off";

/// How much is logged, and in which form.
#[derive(clap::Args)]
pub(crate) struct LogArguments {
    /// What is logged to standard error, such as `info` or `bindery_controller=debug,warn`. By default
    /// `warn`, and `error` for `plan`, which tells what fails itself. A level alone counts for Bindery's own
    /// crates; dependencies log warnings unless they are named, as by `wasmtime=debug`.
    #[arg(long, global = true, value_name = "FILTER", env = "BINDERY_LOG",
          value_parser = filter)]
    log: Option<EnvFilter>,
    /// How a line of the log looks.
    #[arg(long, global = true, env = "BINDERY_LOG_FORMAT", default_value = "text")]
    log_format: Format,
}

/// Reads a filter. A word that is neither a level nor has one is refused, though [`EnvFilter`] takes it for a
/// target of which everything is logged: it is a level with a slip, and nothing else would be logged.
fn filter(text: &str) -> Result<EnvFilter> {
    for directive in text.split(',').filter(|directive| !directive.is_empty()) {
        let after = directive.rsplit(']').next().unwrap_or_default();
        if !after.contains('=') && directive.parse::<LevelFilter>().is_err() {
            bail!(
                "{directive:?} is no level, which are off, error, warn, info, debug and trace, and no TARGET=LEVEL"
            );
        }
    }
    Ok(EnvFilter::try_new(directives(text))?)
}

/// The directives of a filter, in which a level alone counts for Bindery's own crates.
fn directives(text: &str) -> String {
    let own = |directive: &str| match directive.parse::<LevelFilter>() {
        // A dependency that fails is silenced with the rest.
        Ok(level) if level < LevelFilter::WARN => directive.to_owned(),
        Ok(level) => format!("{OF_DEPENDENCIES},bindery={level}"),
        Err(_) => directive.to_owned(),
    };
    text.split(',').filter(|directive| !directive.is_empty()).map(own).collect::<Vec<_>>().join(",")
}

/// The values of `--log-format`.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people. Before the message of a line stands what was being done, with the object and its UID.
    Text,
    /// For programs: each line a JSON object. What was being done, with `object` and `uid`, is in its field
    /// `span`, unless the line has fields of these names itself.
    Json,
}

impl LogArguments {
    /// Logs from now on, at least `level` unless told otherwise, and sends traces to a collector where there
    /// is one, until what is returned is dropped.
    ///
    /// # Errors
    ///
    /// Traces cannot be sent.
    pub(crate) fn start(self, level: LevelFilter, collector: Option<&Uri>) -> Result<Option<Traces>> {
        // Colours are for people who look on (https://no-color.org).
        let ansi = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(ansi);
        let filter = self.log.unwrap_or_else(|| EnvFilter::new(directives(&level.to_string())));
        let lines = match self.log_format {
            Format::Text => lines.boxed(),
            Format::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
        };
        let traces = collector.map(Traces::to).transpose()?;
        let traced = Targets::new().with_targets(TRACED.map(|target| (target, LevelFilter::DEBUG)));
        let spans = traces
            .as_ref()
            .map(|traces| tracing_opentelemetry::layer().with_tracer(traces.tracer()).with_filter(traced));
        tracing_subscriber::registry()
            .with(lines.with_filter(filter.and(OncePerSecond::new(Instant::now))))
            .with(spans)
            .init();
        Ok(traces)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::{directives, filter};

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for text in ["info", "OFF", "", "warn,bindery=debug", "bindery[sync{uid=a}]=trace,info"] {
            filter(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        }
        for (text, word) in
            [("inof", "inof"), ("warn,bindery", "bindery"), ("bindery[sync{uid=a}]", "bindery[sync{uid=a}]")]
        {
            let why = filter(text).unwrap_err().to_string();
            assert!(why.starts_with(&format!("{word:?} is no level")), "{text}: {why}");
        }
        assert!(filter("bindery=inof").is_err());
    }

    #[test]
    fn a_level_alone_counts_for_our_own_crates() {
        for (text, directives_of_it) in [
            ("debug", "warn,kube_client=off,bindery=debug"),
            ("bindery_kube=trace,info", "bindery_kube=trace,warn,kube_client=off,bindery=info"),
            ("info,wasmtime=debug", "warn,kube_client=off,bindery=info,wasmtime=debug"),
            ("error", "error"),
            ("off", "off"),
        ] {
            assert_eq!(directives(text), directives_of_it);
        }
    }
}
