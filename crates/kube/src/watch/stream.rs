//! One watch request: a line for each event, for as long as the server keeps it open. The first lines may be a list.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};
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
/// Marks the bookmark at the end of a streamed list (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

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
struct Bookmark {
    metadata: BookmarkMeta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BookmarkMeta {
    resource_version: String,
    annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    code: u16,
    reason: String,
    message: String,
}

/// The lines of an open watch.
struct Lines<R> {
    stream: R,
    line: Vec<u8>,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    /// The next line; `None` where the server has ended the watch.
    async fn next(&mut self) -> Result<Option<&[u8]>, WatchError> {
        self.line.clear();
        let mut limited = (&mut self.stream).take(LINE_BYTES_MAX);
        match tokio::time::timeout(SILENCE_MAX, limited.read_until(b'\n', &mut self.line)).await {
            Err(_) => Err(Fault::NoAnswer("the watch fell silent".to_owned()).into()),
            Ok(Err(error)) => Err(Fault::NoAnswer(error.to_string()).into()),
            Ok(Ok(0)) => Ok(None),
            // The connection ended within a line: the event comes again on the next one.
            Ok(Ok(_)) if self.line.last() != Some(&b'\n') => {
                Err(Fault::NoAnswer("the watch broke off".to_owned()).into())
            }
            Ok(Ok(_)) => Ok(Some(&self.line)),
        }
    }
}

impl Watch {
    /// Watches from `version` on, and moves it along, until the server ends the watch.
    pub(super) async fn watch(&self, version: &mut String) -> Result<(), WatchError> {
        let mut lines = self.open(&format!("resourceVersion={}", rest::encode(version))).await?;
        while let Some(line) = lines.next().await? {
            self.take(line, version)?;
        }
        Ok(())
    }

    /// Has all objects sent as the first events of a watch, hands them over, and watches on; `version` is set as soon as
    /// the list is complete.
    pub(super) async fn stream_list(&mut self, version: &mut Option<String>) -> Result<(), WatchError> {
        let mut lines = self.open("sendInitialEvents=true&resourceVersionMatch=NotOlderThan").await?;
        self.feed.begin();
        // What changes while the list is sent is told among it, and holds after it.
        let mut late: Vec<Vec<u8>> = Vec::new();
        let from = loop {
            let Some(line) = lines.next().await? else {
                return Err(Fault::NoAnswer("the watch ended within the list".to_owned()).into());
            };
            let event: Line<'_> = serde_json::from_slice(line).map_err(nonsense)?;
            match event.event {
                "ADDED" if late.is_empty() => self.feed.list(event.object),
                "BOOKMARK" => {
                    let bookmark: Bookmark = serde_json::from_str(event.object.get()).map_err(nonsense)?;
                    if bookmark.metadata.annotations.contains_key(INITIAL_EVENTS_END) {
                        break bookmark.metadata.resource_version;
                    }
                }
                "ERROR" => return Err(error(event.object)),
                _ => late.push(line.to_vec()),
            }
        };
        self.feed.complete();
        tracing::debug!(kind = %self.feed.kind(), version = from, "listed, as a stream");
        for line in late {
            self.take(&line, &mut String::new())?;
        }
        let version = version.insert(from);
        while let Some(line) = lines.next().await? {
            self.take(line, version)?;
        }
        Ok(())
    }

    async fn open(&self, from: &str) -> Result<Lines<impl AsyncBufRead + Unpin + use<>>, WatchError> {
        let uri = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&{from}",
            self.feed.path(),
        );
        let request = http::Request::get(uri)
            // A compressed stream holds events back until a block is full.
            .header(http::header::ACCEPT_ENCODING, "identity")
            .body(Vec::new())
            .map_err(|error| WatchError::Nonsense(error.to_string()))?;
        let stream = Box::pin(self.client.request_stream(request).await.map_err(refused)?);
        Ok(Lines { stream, line: Vec::new() })
    }

    fn take(&self, line: &[u8], version: &mut String) -> Result<(), WatchError> {
        let event: Line<'_> = serde_json::from_slice(line).map_err(nonsense)?;
        match event.event {
            "ADDED" | "MODIFIED" => self.feed.apply(event.object),
            "DELETED" => self.feed.gone(event.object),
            "BOOKMARK" => {}
            "ERROR" => return Err(error(event.object)),
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

fn nonsense(error: serde_json::Error) -> WatchError {
    WatchError::Nonsense(error.to_string())
}

/// What an event of type ERROR says.
fn error(object: &RawValue) -> WatchError {
    serde_json::from_str(object.get()).map_or_else(nonsense, status_error)
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
