//! One watch request: a frame for each event, as long as the server keeps it open. The first events may be a
//! list.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::unfold;
use futures::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, StreamExt, TryStreamExt};
use http::header::ACCEPT_ENCODING;
use http::{HeaderValue, Method};
use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;
use tokio::time::{Instant, timeout, timeout_at};

use super::feed::path;
use super::{BOOKMARK_SECONDS, Bookmarks, WATCH_SECONDS, Watch, WatchError};
use crate::decode::Encoded as _;
use crate::encoding::{Encoding, WatchEvent};
use crate::rest::{self, Fault};

/// Longest time for a streamed list, even if objects come steadily: in a busy cluster they may never end.
const LIST_MAX: Duration = Duration::from_secs(120);
/// After this many silent watches in a row, the server is assumed to send no bookmarks. If it has sent one
/// before, the kind is listed.
const SILENCES_MAX: u32 = 2;
/// Longest frame. An API server stores objects of about 1.5 MiB at most.
const FRAME_BYTES_MAX: u32 = 16 * 1024 * 1024;
/// Marks the bookmark at the end of a streamed list (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The part of an object that a watch needs to continue.
#[derive(Clone, PartialEq, Deserialize, prost::Message)]
#[serde(default)]
struct Versioned {
    #[prost(message, required, tag = "1")]
    metadata: Version,
}

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
#[serde(rename_all = "camelCase", default)]
struct Version {
    #[prost(string, tag = "6")]
    resource_version: String,
}

/// The part of a bookmark that tells whether it ends a list.
#[derive(Clone, PartialEq, Deserialize, prost::Message)]
#[serde(default)]
struct Bookmark {
    #[prost(message, required, tag = "1")]
    metadata: BookmarkMeta,
}

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
#[serde(rename_all = "camelCase", default)]
struct BookmarkMeta {
    #[prost(string, tag = "6")]
    resource_version: String,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
}

/// The events of an open watch.
pub(super) struct WatchEvents {
    encoding: Encoding,
    stream: Pin<Box<dyn AsyncBufRead + Send>>,
    /// Longest time without bytes.
    silence: Duration,
}

impl WatchEvents {
    /// The next event; `None` if the server has ended the watch.
    async fn next(&mut self) -> Result<Option<WatchEvent>, WatchError> {
        let frame = match self.encoding {
            Encoding::Json => self.line().await,
            Encoding::Protobuf => self.block().await,
        };
        match frame {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(WatchError::Silent(self.silence)),
            Err(error) => Err(WatchError::Fault(rest::no_answer(error))),
            Ok(None) => Ok(None),
            Ok(Some(frame)) => self.encoding.event(frame).map(Some).map_err(WatchError::Nonsense),
        }
    }

    async fn line(&mut self) -> io::Result<Option<Bytes>> {
        let mut line = Vec::new();
        (&mut self.stream).take(FRAME_BYTES_MAX.into()).read_until(b'\n', &mut line).await?;
        match line.last() {
            None => Ok(None),
            Some(b'\n') => Ok(Some(line.into())),
            // The connection ended within a line: the next one repeats the event.
            Some(_) => Err(broken_off()),
        }
    }

    /// A block after its length, 4 bytes in big-endian order.
    async fn block(&mut self) -> io::Result<Option<Bytes>> {
        if self.stream.fill_buf().await?.is_empty() {
            return Ok(None);
        }
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).await?;
        let length = u32::from_be_bytes(length);
        if length > FRAME_BYTES_MAX {
            return Err(io::Error::other(format!("an event of {length} bytes is too large")));
        }
        let mut block = Vec::new();
        let read = (&mut self.stream).take(length.into()).read_to_end(&mut block).await?;
        if read as u64 == u64::from(length) { Ok(Some(block.into())) } else { Err(broken_off()) }
    }
}

fn broken_off() -> io::Error {
    io::Error::other("the watch broke off")
}

impl Watch {
    /// Watches from `version` on, and advances it, until the server ends the watch. `events` is the rest of a
    /// watch that began with a list.
    pub(super) async fn watch(
        &mut self,
        version: &mut String,
        events: Option<WatchEvents>,
    ) -> Result<(), WatchError> {
        let mut events = match events {
            Some(events) => events,
            None => {
                let is_short = std::mem::take(&mut self.wants_bookmark);
                let seconds = if is_short { BOOKMARK_SECONDS } else { WATCH_SECONDS };
                self.open(&format!("resourceVersion={}", rest::encode(version)), seconds).await?
            }
        };
        loop {
            let Some(event) = events.next().await? else { return Ok(()) };
            let Some(seen) = self.take(&event)? else { continue };
            if event.kind == "BOOKMARK" || matches!(self.bookmarks, Bookmarks::Sent { .. }) {
                self.bookmarks = Bookmarks::Sent { silences: 0 };
            }
            *version = seen;
        }
    }

    /// Opens a watch that begins with all objects, and delivers them. Returns the version of the list, and
    /// the rest of the watch.
    pub(super) async fn stream_list(&mut self) -> Result<(String, WatchEvents), WatchError> {
        self.feed.begin();
        let end = Instant::now() + LIST_MAX;
        let mut events =
            self.open("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", WATCH_SECONDS).await?;
        // Objects that change while the list is sent are sent again among it.
        let mut is_late = false;
        let mut stall = Instant::now() + self.limits.answer;
        let version = loop {
            let event =
                timeout_at(stall.min(end), events.next()).await.map_err(|_| WatchError::Endless)??;
            let Some(event) = event else {
                return Err(Fault::NoAnswer("the watch ended within the list".to_owned()).into());
            };
            match event.kind.as_str() {
                "ADDED" if !is_late => {
                    self.feed.list(&event.object);
                    stall = Instant::now() + self.limits.answer;
                }
                "BOOKMARK" => {
                    let bookmark: Bookmark = event.object.read().map_err(WatchError::Nonsense)?;
                    if bookmark.metadata.annotations.contains_key(INITIAL_EVENTS_END) {
                        break bookmark.metadata.resource_version;
                    }
                }
                "ADDED" | "MODIFIED" => {
                    is_late = true;
                    self.feed.list_late(&event.object);
                }
                "DELETED" => {
                    is_late = true;
                    self.feed.list_gone(&event.object);
                }
                "ERROR" => return Err(self.client.failure(&event.object).into()),
                // An event of an unknown kind is ignored.
                _ => {}
            }
        };
        self.feed.listed(&version);
        tracing::debug!(kind = %self.feed.kind, version, "listed, as a stream");
        Ok((version, events))
    }

    async fn open(&self, from: &str, seconds: u64) -> Result<WatchEvents, WatchError> {
        let path = path(self.feed.kind);
        let uri = format!("{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&{from}");
        let mut request = rest::request(Method::GET, &uri, None)?;
        // A compressed stream would delay events until a block is full.
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let (encoding, body) = rest::open(&self.client, request, self.limits.answer).await?;
        self.feed.intake.freshness().heard(self.feed.kind);
        let silence = match self.bookmarks {
            Bookmarks::Awaited { .. } | Bookmarks::Sent { .. } => self.limits.silence,
            Bookmarks::Absent => self.limits.silence_without_bookmarks,
        };
        Ok(WatchEvents { encoding, stream: self.stream(body, silence), silence })
    }

    /// The bytes of a body. Each chunk counts as a sign of life. Ends with `TimedOut` after `silence`
    /// without one.
    fn stream(&self, body: Body, silence: Duration) -> Pin<Box<dyn AsyncBufRead + Send>> {
        let (kind, intake) = (self.feed.kind, self.feed.intake.clone());
        let chunks = unfold((body.into_data_stream(), intake), move |(mut body, intake)| async move {
            let Ok(chunk) = timeout(silence, body.next()).await else {
                return Some((Err(io::ErrorKind::TimedOut.into()), (body, intake)));
            };
            let chunk = chunk?.map_err(io::Error::other);
            if chunk.is_ok() {
                intake.freshness().heard(kind);
            }
            Some((chunk, (body, intake)))
        });
        Box::pin(chunks.boxed().into_async_read())
    }

    /// Delivers an event. Returns its version.
    fn take(&self, event: &WatchEvent) -> Result<Option<String>, WatchError> {
        if event.kind == "ERROR" {
            return Err(self.client.failure(&event.object).into());
        }
        let seen: Versioned = event.object.read().map_err(WatchError::Nonsense)?;
        let seen = seen.metadata.resource_version;
        match event.kind.as_str() {
            "ADDED" | "MODIFIED" => self.feed.apply(&event.object, &seen),
            "DELETED" => self.feed.gone(&event.object, &seen),
            "BOOKMARK" if !seen.is_empty() => self.feed.reached(&seen),
            // Unknown kinds of events are ignored.
            _ => return Ok(None),
        }
        Ok(Some(seen).filter(|version| !version.is_empty()))
    }
}

impl Bookmarks {
    /// Records a failure. Returns whether the kind must be listed, because its watches are open and
    /// dead.
    pub(super) fn after(&mut self, error: &WatchError) -> bool {
        if !matches!(error, WatchError::Silent(_)) {
            return false;
        }
        let (Self::Awaited { silences } | Self::Sent { silences }) = self else {
            // The server ends each watch in time.
            return true;
        };
        *silences += 1;
        if *silences < SILENCES_MAX {
            return false;
        }
        // The server has stopped sending bookmarks, or the watches are dead.
        let has_sent = matches!(self, Self::Sent { .. });
        *self = Self::Absent;
        has_sent
    }
}
