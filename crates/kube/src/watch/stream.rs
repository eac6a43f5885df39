//! One watch request: a line for each event, for as long as the server keeps it open.

use std::time::Duration;

use futures::{AsyncBufReadExt, AsyncReadExt};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Watch, WatchError};
use crate::rest::{self, Fault};

/// Seconds after which the server is asked to end the watch (client-go asks for 5 to 10 minutes), so that a
/// connection that died without a word is noticed.
const WATCH_SECONDS: u64 = 300;
/// Longest silence: past the time at which the server was to end the watch, the connection is dead.
const SILENCE_MAX: Duration = Duration::from_secs(WATCH_SECONDS + 30);
/// Longest line. An API server stores objects of 1.5 MiB or so at most.
const LINE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// An event, as the server sends it.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    event: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Versioned {
    metadata: Version,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Version {
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    code: u16,
    reason: String,
    message: String,
}

impl Watch {
    /// Watches from `version` on, and moves it along, until the server ends the watch.
    pub(super) async fn watch(&self, version: &mut String) -> Result<(), WatchError> {
        let uri = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={}",
            self.feed.path(),
            rest::encode(version),
        );
        let request = http::Request::get(uri)
            // A compressed stream holds events back until a block is full.
            .header(http::header::ACCEPT_ENCODING, "identity")
            .body(Vec::new())
            .map_err(|error| WatchError::Nonsense(error.to_string()))?;
        let mut stream = Box::pin(self.client.request_stream(request).await.map_err(refused)?);
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut limited = (&mut stream).take(LINE_BYTES_MAX);
            match tokio::time::timeout(SILENCE_MAX, limited.read_until(b'\n', &mut line)).await {
                Err(_) => return Err(Fault::NoAnswer("the watch fell silent".to_owned()).into()),
                Ok(Err(error)) => return Err(Fault::NoAnswer(error.to_string()).into()),
                Ok(Ok(0)) => return Ok(()),
                // The connection ended within a line: the event comes again on the next one.
                Ok(Ok(_)) if line.last() != Some(&b'\n') => {
                    return Err(Fault::NoAnswer("the watch broke off".to_owned()).into());
                }
                Ok(Ok(_)) => self.take(&line, version)?,
            }
        }
    }

    fn take(&self, line: &[u8], version: &mut String) -> Result<(), WatchError> {
        let nonsense = |error: serde_json::Error| WatchError::Nonsense(error.to_string());
        let event: Line<'_> = serde_json::from_slice(line).map_err(nonsense)?;
        match event.event {
            "ADDED" | "MODIFIED" => self.feed.apply(event.object),
            "DELETED" => self.feed.gone(event.object),
            "BOOKMARK" => {}
            "ERROR" => return Err(status_error(serde_json::from_str(event.object.get()).map_err(nonsense)?)),
            // A kind of event that is not known yet tells nothing that could be acted on.
            _ => return Ok(()),
        }
        let seen: Versioned = serde_json::from_str(event.object.get()).map_err(nonsense)?;
        if !seen.metadata.resource_version.is_empty() {
            *version = seen.metadata.resource_version;
        }
        Ok(())
    }
}

fn refused(error: kube::Error) -> WatchError {
    match error {
        kube::Error::Api(status) => status_error(Status {
            code: status.code,
            reason: status.reason.clone(),
            message: status.message.clone(),
        }),
        other => WatchError::Fault(Fault::NoAnswer(other.to_string())),
    }
}

fn status_error(status: Status) -> WatchError {
    let Status { code, reason, message } = status;
    if code == 410 || reason == "Expired" || reason == "Gone" {
        return WatchError::Expired;
    }
    WatchError::Fault(Fault::Refused { code, reason, message, retry_after: None })
}
