//! One watch request: a frame for each event, for as long as the server keeps it open. The first ones may be a list.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, TryStreamExt};
use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;

use super::{Watch, WatchError};
use crate::decode::Encoded as _;
use crate::encoding::{Encoding, Event};
use crate::rest::{self, Fault};

/// Seconds after which the server is asked to end the watch (client-go asks for 5 to 10 minutes), so that a
/// connection that died without a word is noticed.
const WATCH_SECONDS: u64 = 300;
/// Longest silence: past the time at which the server was to end the watch, the connection is dead.
const SILENCE_MAX: Duration = Duration::from_secs(WATCH_SECONDS + 30);
/// Longest frame. An API server stores objects of 1.5 MiB or so at most.
const FRAME_BYTES_MAX: u32 = 16 * 1024 * 1024;
/// Marks the bookmark at the end of a streamed list (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// As much of an object as a watch needs to go on.
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

/// As much of a bookmark as tells whether it ends a list.
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
struct Events<R> {
    encoding: Encoding,
    stream: R,
}

impl<R: AsyncBufRead + Unpin> Events<R> {
    /// The next event; `None` where the server has ended the watch.
    async fn next(&mut self) -> Result<Option<Event>, WatchError> {
        let frame = match self.encoding {
            Encoding::Json => tokio::time::timeout(SILENCE_MAX, self.line()).await,
            Encoding::Protobuf => tokio::time::timeout(SILENCE_MAX, self.block()).await,
        };
        let lost = |why: String| WatchError::Fault(Fault::NoAnswer(why));
        match frame {
            Err(_) => Err(lost("the watch fell silent".to_owned())),
            Ok(Err(error)) => Err(lost(error.to_string())),
            Ok(Ok(None)) => Ok(None),
            Ok(Ok(Some(frame))) => self.encoding.event(frame).map(Some).map_err(WatchError::Nonsense),
        }
    }

    async fn line(&mut self) -> std::io::Result<Option<Bytes>> {
        let mut line = Vec::new();
        (&mut self.stream).take(FRAME_BYTES_MAX.into()).read_until(b'\n', &mut line).await?;
        match line.last() {
            None => Ok(None),
            Some(b'\n') => Ok(Some(line.into())),
            // The connection ended within a line: the event comes again on the next one.
            Some(_) => Err(broken_off()),
        }
    }

    /// A block behind its length, which is 4 bytes, the highest first.
    async fn block(&mut self) -> std::io::Result<Option<Bytes>> {
        if self.stream.fill_buf().await?.is_empty() {
            return Ok(None);
        }
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).await?;
        let length = u32::from_be_bytes(length);
        if length > FRAME_BYTES_MAX {
            return Err(std::io::Error::other(format!("an event of {length} bytes is too large")));
        }
        let mut block = Vec::new();
        let read = (&mut self.stream).take(length.into()).read_to_end(&mut block).await?;
        if read as u64 == u64::from(length) { Ok(Some(block.into())) } else { Err(broken_off()) }
    }
}

fn broken_off() -> std::io::Error {
    std::io::Error::other("the watch broke off")
}

impl Watch {
    /// Watches from `version` on, and moves it along, until the server ends the watch.
    pub(super) async fn watch(&self, version: &mut String) -> Result<(), WatchError> {
        let mut events = self.open(&format!("resourceVersion={}", rest::encode(version))).await?;
        while let Some(event) = events.next().await? {
            self.take(&event, version)?;
        }
        Ok(())
    }

    /// Has all objects sent as the first events of a watch, hands them over, and watches on; `version` is set as soon as
    /// the list is complete.
    pub(super) async fn stream_list(&mut self, version: &mut Option<String>) -> Result<(), WatchError> {
        let mut events = self.open("sendInitialEvents=true&resourceVersionMatch=NotOlderThan").await?;
        self.feed.begin();
        // What changes while the list is sent is told among it, and holds after it.
        let mut late: Vec<Event> = Vec::new();
        let from = loop {
            let Some(event) = events.next().await? else {
                return Err(Fault::NoAnswer("the watch ended within the list".to_owned()).into());
            };
            match event.kind.as_str() {
                "ADDED" if late.is_empty() => self.feed.list(&event.object),
                "BOOKMARK" => {
                    let bookmark: Bookmark = event.object.read().map_err(WatchError::Nonsense)?;
                    if bookmark.metadata.annotations.contains_key(INITIAL_EVENTS_END) {
                        break bookmark.metadata.resource_version;
                    }
                }
                "ERROR" => return Err(self.client.failure(&event.object).into()),
                _ => late.push(event),
            }
        };
        self.feed.complete();
        tracing::debug!(kind = %self.feed.kind(), version = from, "listed, as a stream");
        for event in late {
            self.take(&event, &mut String::new())?;
        }
        let version = version.insert(from);
        while let Some(event) = events.next().await? {
            self.take(&event, version)?;
        }
        Ok(())
    }

    async fn open(&self, from: &str) -> Result<Events<impl AsyncBufRead + Unpin + use<>>, WatchError> {
        let uri = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&{from}",
            self.feed.path(),
        );
        let request = http::Request::get(uri)
            // A compressed stream holds events back until a block is full.
            .header(http::header::ACCEPT_ENCODING, "identity")
            .body(Body::empty())
            .map_err(|error| WatchError::Nonsense(error.to_string()))?;
        let (encoding, body) = rest::open(&self.client, request).await?;
        let stream = body.into_data_stream().map_err(std::io::Error::other).into_async_read();
        Ok(Events { encoding, stream: Box::pin(stream) })
    }

    fn take(&self, event: &Event, version: &mut String) -> Result<(), WatchError> {
        match event.kind.as_str() {
            "ADDED" | "MODIFIED" => self.feed.apply(&event.object),
            "DELETED" => self.feed.gone(&event.object),
            "BOOKMARK" => {}
            "ERROR" => return Err(self.client.failure(&event.object).into()),
            // A kind of event that is not known yet tells nothing that could be acted on.
            _ => return Ok(()),
        }
        let seen: Versioned = event.object.read().map_err(WatchError::Nonsense)?;
        if !seen.metadata.resource_version.is_empty() {
            *version = seen.metadata.resource_version;
        }
        Ok(())
    }
}
