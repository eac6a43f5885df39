//! Lists and watches into the binder's [`Intake`], which is told how current they are
//! ([`bindery_controller::Freshness`]).
//!
//! One loop for each kind: list, hand the complete list over, watch from its version with bookmarks, list
//! again when the server has forgotten that version (410). A server that can streams the list as the first
//! events of the watch (KEP-3157, on by default since 1.34), which costs it no memory; of others it is
//! fetched in pages. Objects are read one by one from the bytes, so a list of 100,000 is never in memory as
//! it was sent, and one that makes no sense spoils none of the others.

mod feed;
mod newest;
mod stream;
mod takeover;

use std::time::Duration;

use bindery_controller::Intake;
use bindery_store::Kind;
use kube::client::Body;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use self::feed::Feed;
pub use self::newest::ask_for_newest;
use self::stream::Events;
pub use self::takeover::until_current;
use crate::client::ApiClient;
use crate::encoding::Page;
use crate::rest::{self, Fault};

/// Seconds after which the server is asked to end the watch (client-go asks for 5 to 10 minutes).
const WATCH_SECONDS: u64 = 300;
/// Objects in one page of a list (client-go's default).
const PAGE: u32 = 500;
/// First pause after a failure, doubled by each that follows (client-go's reflector). It is longer where the
/// API server asks for that.
const BACKOFF: Duration = Duration::from_millis(800);
/// Longest pause.
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// A watch that ended sooner, and told of nothing, was none.
const SHORT: Duration = Duration::from_secs(1);
/// A watch that lasted this long was a good one: the next failure starts at [`BACKOFF`] again.
const BACKOFF_RESET: Duration = Duration::from_secs(120);
/// After this many failures in a row streamed lists are fetched in pages.
const STREAM_FAILURES_MAX: u32 = 2;
/// After this many paged lists in a row whose continue token expired, all objects are fetched in one answer.
const EXPIRED_PAGES_MAX: u32 = 2;

/// How long a list or a watch may keep silent before it counts as dead.
#[derive(Clone, Copy, Debug)]
pub struct WatchLimits {
    /// Longest time from the request of a watch to the headers of its answer, and from one object of a
    /// streamed list to the next.
    pub answer: Duration,
    /// Longest time without bytes on an open watch. A server that sends bookmarks sends one each minute or
    /// so.
    pub silence: Duration,
    /// The same where the server sends no bookmarks. It is taken to send none where the first two watches of
    /// a kind were silent for [`silence`](Self::silence). An idle watch then tells nothing until it ends,
    /// after 5 minutes.
    pub silence_without_bookmarks: Duration,
}

impl Default for WatchLimits {
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(30),
            silence: Duration::from_secs(90),
            silence_without_bookmarks: Duration::from_secs(WATCH_SECONDS + 30),
        }
    }
}

/// Keeps a binder's store up to date until `shutdown`.
pub async fn run(client: impl Into<ApiClient>, intake: Intake, shutdown: CancellationToken) {
    run_with_limits(client, intake, WatchLimits::default(), shutdown).await;
}

/// As [`run`], with other limits.
pub async fn run_with_limits(
    client: impl Into<ApiClient>,
    intake: Intake,
    limits: WatchLimits,
    shutdown: CancellationToken,
) {
    let client = client.into();
    let watches = Kind::ALL.map(|kind| {
        let watch = Watch {
            client: client.clone(),
            feed: Feed::new(kind, intake.clone()),
            limits,
            streams_lists: true,
            stream_failures: 0,
            expired_pages: 0,
            bookmarks: Bookmarks::Awaited { silences: 0 },
        };
        Box::pin(watch.run())
    });
    shutdown.run_until_cancelled(futures::future::join_all(watches)).await;
}

/// The watch of one kind.
struct Watch {
    client: ApiClient,
    feed: Feed,
    limits: WatchLimits,
    /// Whether the server has the feature of streamed lists; so until it refuses one.
    streams_lists: bool,
    /// Streamed lists in a row that failed for another reason.
    stream_failures: u32,
    /// Paged lists in a row whose continue token expired.
    expired_pages: u32,
    bookmarks: Bookmarks,
}

/// Whether the server sends bookmarks on watches of a kind.
#[derive(Clone, Copy, Debug)]
enum Bookmarks {
    /// None has come; so many watches have fallen silent.
    Awaited { silences: u32 },
    /// One has come.
    Sent,
    /// The server is taken to send none.
    Absent,
}

/// How a watch ended that did not fail.
#[derive(Clone, Copy, Debug)]
enum Ended {
    /// The server ended it.
    ByServer,
    /// A list of the kind is wanted.
    ListWanted,
    /// The watch is to be opened anew, from the version that it has reached.
    WatchWanted,
}

/// Why a list or a watch came to nothing.
#[derive(Debug, thiserror::Error)]
enum WatchError {
    /// The API server has forgotten the version or the page that was asked for: list anew.
    #[error("the API server has forgotten the version")]
    Expired,
    /// It ended as soon as it was open.
    #[error("the watch was ended at once, without an event")]
    Short,
    /// No bytes came for too long.
    #[error("the watch fell silent: no bytes for {0:?}")]
    Silent(Duration),
    /// The end of a streamed list did not come.
    #[error("the streamed list does not end")]
    Endless,
    /// Anything else.
    #[error(transparent)]
    Fault(Fault),
    /// The answer is not what it should be.
    #[error("the API server's answer makes no sense: {0}")]
    Nonsense(String),
}

impl From<Fault> for WatchError {
    fn from(fault: Fault) -> Self {
        match &fault {
            Fault::Refused { code, reason, .. }
                if *code == 410 || reason == "Expired" || reason == "Gone" =>
            {
                Self::Expired
            }
            _ => Self::Fault(fault),
        }
    }
}

impl WatchError {
    /// Whether it may mean that there is no API server at the moment.
    fn is_outage(&self) -> bool {
        match self {
            Self::Fault(fault) => fault.is_outage(),
            Self::Silent(_) | Self::Endless => true,
            Self::Expired | Self::Short | Self::Nonsense(_) => false,
        }
    }
}

impl Watch {
    async fn run(mut self) {
        let kind = self.feed.kind();
        let mut pause = BACKOFF;
        let mut version: Option<String> = None;
        // Whether the last list's version expired before a watch from it was a good one.
        let mut has_expired = false;
        let mut hastened: Option<Instant> = None;
        loop {
            let (began, before) = (Instant::now(), version.clone());
            let error = match self.turn(&mut version).await {
                // Who ends every watch at once would be asked again without a pause: client-go calls it "very
                // short watch".
                Ok(Ended::ByServer) if began.elapsed() < SHORT && before.is_some() && before == version => {
                    WatchError::Short
                }
                Ok(Ended::ByServer) => {
                    (pause, has_expired) = (BACKOFF, false);
                    continue;
                }
                Ok(Ended::ListWanted) => {
                    version = None;
                    continue;
                }
                Ok(Ended::WatchWanted) => continue,
                Err(error) => error,
            };
            // One that fell silent was open.
            if began.elapsed() >= BACKOFF_RESET || matches!(error, WatchError::Silent(_)) {
                (pause, has_expired) = (BACKOFF, false);
            }
            if matches!(error, WatchError::Expired) && version.take().is_some() {
                self.feed.intake().watch_expired();
                // A server that forgets every version at once is not to be asked for lists without a pause.
                if !std::mem::replace(&mut has_expired, true) {
                    tracing::info!(%kind, "the watch has expired; listing again");
                    continue;
                }
            }
            // A watch from a version that etcd does not have, as after a restore, is silent too.
            if matches!(error, WatchError::Silent(_)) {
                newest::compare(&self.client, self.feed.intake(), kind).await;
            }
            self.feed.intake().watch_failed();
            tracing::warn!(%kind, %error, ?pause, "watching failed; trying again");
            // After an outage all watches are to be back with the server, and not half a minute later. One
            // that fails while other requests succeed goes on to back off.
            let may_hasten =
                error.is_outage() && hastened.is_none_or(|hastened| hastened.elapsed() >= BACKOFF_MAX);
            tokio::select! {
                () = sleep(pause) => pause = (pause * 2).min(BACKOFF_MAX),
                () = self.client.until_success(), if may_hasten => {
                    (pause, hastened) = (BACKOFF, Some(Instant::now()));
                }
                () = self.feed.until_list_wanted(), if version.is_some() => version = None,
            }
        }
    }

    /// Lists where there is no version to watch from, and watches until the server ends the watch or
    /// something else is wanted.
    async fn turn(&mut self, version: &mut Option<String>) -> Result<Ended, WatchError> {
        let (intake, kind) = (self.feed.intake().clone(), self.feed.kind());
        let ticket = intake.freshness().watch_begins(kind);
        let (from, events) = match version {
            Some(version) => (version, None),
            None => {
                let (listed, events) = self.list().await?;
                (version.insert(listed), events)
            }
        };
        tokio::select! {
            biased;
            () = intake.freshness().until_list_wanted(kind) => Ok(Ended::ListWanted),
            () = intake.freshness().until_watch_wanted(kind, ticket) => Ok(Ended::WatchWanted),
            ended = self.watch(from, events, ticket) => ended.map(|()| Ended::ByServer),
        }
    }

    /// Lists all objects and hands them over. Answers the version of the list, and the watch that sent it
    /// where one did.
    async fn list(&mut self) -> Result<(String, Option<Events>), WatchError> {
        if self.streams_lists && self.stream_failures < STREAM_FAILURES_MAX {
            match self.stream_list().await {
                Ok((version, events)) => {
                    self.stream_failures = 0;
                    return Ok((version, Some(events)));
                }
                // Without the feature, or before 1.27: "sendInitialEvents is forbidden".
                Err(WatchError::Fault(Fault::Refused { code: 400 | 422, message, .. })) => {
                    tracing::info!(kind = %self.feed.kind(), message, "the API server does not stream lists");
                    self.streams_lists = false;
                }
                Err(error) => {
                    let is_busy = matches!(error, WatchError::Fault(Fault::Refused { code: 429, .. }));
                    self.stream_failures += u32::from(!is_busy);
                    return Err(error);
                }
            }
        }
        let version = self.list_pages().await?;
        // What made streams fail may be over: the next list is tried as a stream once.
        self.stream_failures = self.stream_failures.min(STREAM_FAILURES_MAX - 1);
        Ok((version, None))
    }

    /// Lists all objects page by page. Answers the version of the list.
    async fn list_pages(&mut self) -> Result<String, WatchError> {
        let mut next: Option<String> = None;
        self.feed.begin();
        loop {
            let page = match self.page(next.as_deref()).await {
                Err(WatchError::Expired) if next.is_some() => {
                    self.expired_pages += 1;
                    return Err(WatchError::Expired);
                }
                page => page?,
            };
            self.feed.heard();
            page.items.iter().for_each(|item| self.feed.list(item));
            next = page.next;
            if next.is_none() {
                self.expired_pages = 0;
                self.feed.listed(&page.version);
                tracing::debug!(kind = %self.feed.kind(), version = page.version, "listed");
                return Ok(page.version);
            }
        }
    }

    /// The page behind a continue token, or the first one.
    async fn page(&self, next: Option<&str>) -> Result<Page, WatchError> {
        let path = self.feed.path();
        let uri = match next {
            Some(token) => format!("{path}?limit={PAGE}&continue={}", rest::encode(token)),
            // Without a limit the answer is the whole list: no token can expire.
            None if self.expired_pages >= EXPIRED_PAGES_MAX => path.to_owned(),
            None => format!("{path}?limit={PAGE}"),
        };
        let request = http::Request::get(uri)
            .body(Body::empty())
            .map_err(|error| WatchError::Nonsense(error.to_string()))?;
        rest::send(&self.client, request).await?.page().map_err(WatchError::Nonsense)
    }
}
