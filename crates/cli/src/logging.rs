//! Log and traces.

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

/// The crates whose spans are traced. Libraries have a span for every connection.
const TRACED: [&str; 3] = ["bindery", "bindery_controller", "bindery_kube"];

/// The filter of dependencies that no directive names: warnings and errors. kube-client is off because it
/// logs each failed request as an error without its cause; Bindery logs the request with its cause.
const OF_DEPENDENCIES: &str = "warn,kube_client=off";

#[derive(clap::Args)]
pub(crate) struct LogArguments {
    /// What is logged to standard error, such as `info` or `bindery_controller=debug,warn`. By default
    /// `warn`, and `error` for `diff`, `explain`, `plan` and `steer`, whose output includes failures. A level
    /// alone applies to Bindery's own crates; dependencies log warnings unless they are named, as in
    /// `wasmtime=debug`.
    #[arg(long, global = true, value_name = "FILTER", env = "BINDERY_LOG",
          value_parser = filter)]
    log: Option<EnvFilter>,
    /// Format of the log.
    #[arg(long, global = true, env = "BINDERY_LOG_FORMAT", default_value = "text")]
    log_format: Format,
}

/// Reads a filter. A word that is neither a level nor contains one is refused: it is a mistyped level, and
/// [`EnvFilter`] would take it for a target and log nothing else.
fn filter(text: &str) -> Result<EnvFilter> {
    for directive in text.split(',').filter(|directive| !directive.is_empty()) {
        let after = directive.rsplit(']').next().unwrap_or_default();
        if !after.contains('=') && directive.parse::<LevelFilter>().is_err() {
            bail!("{directive:?} is neither a level (off, error, warn, info, debug, trace) nor TARGET=LEVEL");
        }
    }
    Ok(EnvFilter::try_new(directives(text))?)
}

/// The directives of a filter, with each level alone replaced by that level for Bindery's own crates.
fn directives(text: &str) -> String {
    let own = |directive: &str| match directive.parse::<LevelFilter>() {
        // Below `warn`, dependencies log no more than Bindery does.
        Ok(level) if level < LevelFilter::WARN => directive.to_owned(),
        Ok(level) => format!("{OF_DEPENDENCIES},bindery={level}"),
        Err(_) => directive.to_owned(),
    };
    text.split(',').filter(|directive| !directive.is_empty()).map(own).collect::<Vec<_>>().join(",")
}

/// The values of `--log-format`.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people. Each line has the operation with its object and UID before the message.
    Text,
    /// For programs: each line is a JSON object. The operation with its `object` and `uid` is in the field
    /// `span`, unless the line itself has fields of these names.
    Json,
}

impl LogArguments {
    /// Starts the log, at `level` by default. Traces go to `collector` until the returned value is dropped.
    pub(crate) fn start(self, level: LevelFilter, collector: Option<&Uri>) -> Result<Option<Traces>> {
        // https://no-color.org
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
    use super::{directives, filter};

    #[test]
    fn a_mistyped_level_is_refused() {
        for text in ["info", "OFF", "", "warn,bindery=debug", "bindery[sync{uid=a}]=trace,info"] {
            filter(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        }
        for (text, word) in
            [("inof", "inof"), ("warn,bindery", "bindery"), ("bindery[sync{uid=a}]", "bindery[sync{uid=a}]")]
        {
            let why = filter(text).unwrap_err().to_string();
            assert!(why.starts_with(&format!("{word:?} is neither a level")), "{text}: {why}");
        }
        assert!(filter("bindery=inof").is_err());
    }

    #[test]
    fn a_level_alone_applies_to_binderys_own_crates() {
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
