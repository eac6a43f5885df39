//! Lists and watches into the binder's [`Intake`], which learns how current they are
//! ([`bindery_controller::Freshness`]).
//!
//! Each kind has one loop: list, deliver the complete list, watch from its version with bookmarks, and list
//! again when that version has expired (410). A server that can streams the list as the first events of the
//! watch (KEP-3157, on by default since 1.34), which costs it no memory; other servers send pages. Objects
//! are decoded one by one, so an encoded list of 100,000 is never in memory, and an unreadable object
//! affects no other.

mod feed;
mod newest;
mod stream;
mod takeover;

use std::time::Duration;

use bindery_controller::Intake;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use self::feed::Feed;
pub use self::newest::ask_for_newest;
use self::stream::WatchEvents;
pub use self::takeover::until_current;
pub(crate) use self::takeover::until_read;
use crate::client::ApiClient;
use crate::encoding::ListPage;
use crate::rest::{self, Fault};

/// `timeoutSeconds` of a watch (client-go asks for 5 to 10 minutes).
const WATCH_SECONDS: u64 = 300;
/// `timeoutSeconds` of a watch whose bookmark is wanted soon. An API server sends the last bookmark 2 s
/// before the end of a watch (`nextBookmarkTime` of apiserver's watch cache), so this one comes after 1 to
/// 2.3 s.
const BOOKMARK_SECONDS: u64 = 3;
/// Objects in one page of a list (client-go's default).
const PAGE: u32 = 500;
/// First pause after a failure, doubled by each further one (client-go's reflector). `Retry-After` may make
/// it longer.
const BACKOFF: Duration = Duration::from_millis(800);
/// Longest pause.
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// A watch that ends sooner, without an event, counts as failed.
const SHORT: Duration = Duration::from_secs(1);
/// After a watch that lasted this long, the next failure starts at [`BACKOFF`] again.
const BACKOFF_RESET: Duration = Duration::from_secs(120);
/// A watch that ends sooner was cut.
const EARLY: Duration = Duration::from_secs(WATCH_SECONDS - 10);
/// After this many failures in a row, a list is fetched in pages.
const STREAM_FAILURES_MAX: u32 = 2;
/// After this many paged lists in a row whose continue token expired, a list is fetched in one answer.
const EXPIRED_PAGES_MAX: u32 = 2;

/// How long a list or a watch may be silent before it counts as dead.
#[derive(Clone, Copy, Debug)]
pub struct WatchLimits {
    /// Longest time from the request of a watch to the headers of its answer, and between two objects of a
    /// streamed list.
    pub answer: Duration,
    /// Longest time without bytes on an open watch. A server that sends bookmarks sends one about each
    /// minute.
    pub silence: Duration,
    /// The same for a server that sends no bookmarks, on which an idle watch is silent until it ends after 5
    /// minutes. A server is assumed to send none if the first two watches of a kind were silent for
    /// [`silence`](Self::silence).
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

/// Keeps a binder's store current until `shutdown`.
pub async fn run(
    client: impl Into<ApiClient>,
    intake: Intake,
    limits: WatchLimits,
    shutdown: CancellationToken,
) {
    let client = client.into();
    let watches = intake.kinds().iter().map(|&kind| {
        let watch = Watch {
            client: client.clone(),
            feed: Feed::new(kind, intake.clone()),
            limits,
            streams_lists: true,
            stream_failures: 0,
            expired_pages: 0,
            bookmarks: Bookmarks::Awaited { silences: 0 },
            wants_bookmark: false,
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
    /// Whether the server streams lists; assumed until it refuses one.
    streams_lists: bool,
    /// Streamed lists in a row that failed otherwise.
    stream_failures: u32,
    /// Paged lists in a row whose continue token expired.
    expired_pages: u32,
    bookmarks: Bookmarks,
    /// Whether the next watch is to be short, for its bookmark.
    wants_bookmark: bool,
}

/// When a failed list or watch is tried again.
struct Retry {
    pause: Duration,
    /// Whether a version has expired since the last good watch.
    has_expired: bool,
    /// When the last pause ended early, because the server answered another request.
    hastened: Option<Instant>,
    /// Since when watches fail.
    failing: Option<Instant>,
}

impl Retry {
    /// A watch was good.
    fn reset(&mut self) {
        (self.pause, self.has_expired, self.failing) = (BACKOFF, false, None);
    }
}

/// Whether the server sends bookmarks on watches of a kind.
#[derive(Clone, Copy, Debug)]
enum Bookmarks {
    /// None has come; this many watches have fallen silent.
    Awaited { silences: u32 },
    /// One has come; this many watches in a row have fallen silent since.
    Sent { silences: u32 },
    /// The server is assumed to send none.
    Absent,
}

/// How a watch ended without a failure.
#[derive(Clone, Copy, Debug)]
enum Ended {
    /// The server ended it.
    ByServer,
    /// A list of the kind is wanted.
    ListWanted,
    /// A bookmark is wanted soon: a short watch follows.
    BookmarkWanted,
}

/// Why a list or a watch failed.
#[derive(Debug, thiserror::Error)]
enum WatchError {
    /// The requested version or continue token has expired: list again.
    #[error("the API server has forgotten the version")]
    Expired,
    /// The watch ended as soon as it was open.
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
    /// The answer is malformed.
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
    /// Whether no API server may be running.
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
        let mut version: Option<String> = None;
        let mut retry = Retry { pause: BACKOFF, has_expired: false, hastened: None, failing: None };
        let mut was_cut = false;
        loop {
            let (began, before) = (Instant::now(), version.clone());
            let may_be_short = self.wants_bookmark;
            let turned = self.turn_after(was_cut, &mut version).await;
            // After a restore, a watch from a version that etcd does not have is silent.
            was_cut = match &turned {
                Ok(Ended::ByServer) => !may_be_short && began.elapsed() < EARLY,
                Ok(Ended::ListWanted | Ended::BookmarkWanted) => false,
                Err(error) => matches!(error, WatchError::Silent(_)) || began.elapsed() < EARLY,
            };
            match turned {
                // A server that ends every watch at once must not be asked again without a pause (client-go's
                // "very short watch").
                Ok(Ended::ByServer) if began.elapsed() < SHORT && before.is_some() && before == version => {
                    self.recover(WatchError::Short, began, &mut version, &mut retry).await;
                }
                Ok(Ended::ByServer) => retry.reset(),
                Ok(Ended::ListWanted) => version = None,
                Ok(Ended::BookmarkWanted) => self.wants_bookmark = true,
                Err(error) => self.recover(error, began, &mut version, &mut retry).await,
            }
        }
    }

    /// Pauses after a failure of a turn that began then; at most once without a pause where its version has
    /// expired.
    async fn recover(
        &mut self,
        error: WatchError,
        began: Instant,
        version: &mut Option<String>,
        retry: &mut Retry,
    ) {
        let (kind, intake) = (self.feed.kind, self.feed.intake.clone());
        // A watch that fell silent was open.
        if began.elapsed() >= BACKOFF_RESET || matches!(error, WatchError::Silent(_)) {
            retry.reset();
        }
        if matches!(error, WatchError::Expired) && version.take().is_some() {
            intake.watch_expired(kind);
            // A server on which every version expires at once must not be asked for lists without a pause.
            if !std::mem::replace(&mut retry.has_expired, true) {
                tracing::info!(%kind, "the watch has expired; listing again");
                return;
            }
        }
        intake.watch_failed();
        let mut lists = self.bookmarks.after(&error);
        let Retry { pause, hastened, failing, .. } = retry;
        let since = *failing.get_or_insert_with(Instant::now);
        tracing::warn!(%kind, %error, ?pause, "watching failed; trying again");
        // After an outage all watches open again as soon as the server answers. A watch that fails while
        // other requests succeed continues to back off.
        let may_hasten =
            error.is_outage() && hastened.is_none_or(|hastened| hastened.elapsed() >= BACKOFF_MAX);
        tokio::select! {
            () = sleep(*pause) => *pause = (*pause * 2).min(BACKOFF_MAX),
            () = self.client.until_success(), if may_hasten => {
                *pause = BACKOFF;
                let failed_again = hastened.replace(Instant::now()).is_some_and(|hastened| hastened >= since);
                let age = intake.freshness().age(kind);
                lists |= failed_again && age.is_some_and(|age| age >= self.limits.silence);
            }
            () = intake.freshness().until_list_wanted(kind), if version.is_some() => *version = None,
        }
        // Watches of this kind alone fail: without a list the cache would become older and older.
        if lists && version.take().is_some() {
            *failing = None;
            // A streamed list is a watch too.
            self.stream_failures = STREAM_FAILURES_MAX;
            intake.freshness().want_list(kind);
        }
    }

    /// Makes a turn. Where the last watch was cut, as by a restart of the API server, also looks whether
    /// versions went back meanwhile: after a restore of etcd the watch goes on from a version that etcd gives
    /// out a second time, and misses what was written under it.
    async fn turn_after(&mut self, was_cut: bool, version: &mut Option<String>) -> Result<Ended, WatchError> {
        let (kind, client, intake) = (self.feed.kind, self.client.clone(), self.feed.intake.clone());
        let compares = was_cut && version.is_some();
        let mut turn = std::pin::pin!(self.turn(version));
        tokio::select! {
            biased;
            turned = &mut turn => turned,
            () = newest::compare(&client, &intake, kind), if compares => turn.await,
        }
    }

    /// Lists if there is no version to watch from, then watches until the server ends the watch or something
    /// else is wanted.
    async fn turn(&mut self, version: &mut Option<String>) -> Result<Ended, WatchError> {
        let (kind, intake) = (self.feed.kind, self.feed.intake.clone());
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
            () = intake.freshness().until_bookmark_wanted(kind) => Ok(Ended::BookmarkWanted),
            ended = self.watch(from, events) => ended.map(|()| Ended::ByServer),
        }
    }

    /// Lists and delivers all objects. Returns the version of the list, and the rest of the watch that
    /// streamed it.
    async fn list(&mut self) -> Result<(String, Option<WatchEvents>), WatchError> {
        if self.streams_lists && self.stream_failures < STREAM_FAILURES_MAX {
            match self.stream_list().await {
                Ok((version, events)) => {
                    self.stream_failures = 0;
                    return Ok((version, Some(events)));
                }
                // Without the feature, or before 1.27: "sendInitialEvents is forbidden".
                Err(WatchError::Fault(Fault::Refused { code: 400 | 422, message, .. })) => {
                    tracing::info!(kind = %self.feed.kind, message, "the API server does not stream lists");
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
        // The next list is tried as a stream once.
        self.stream_failures = self.stream_failures.min(STREAM_FAILURES_MAX - 1);
        Ok((version, None))
    }

    /// Lists and delivers all objects page by page. Returns the version of the list.
    async fn list_pages(&mut self) -> Result<String, WatchError> {
        let mut next: Option<String> = None;
        self.feed.begin();
        loop {
            let page = match self.page(next.as_deref()).await {
                Err(WatchError::Expired) if next.is_some() => {
                    self.expired_pages += 1;
                    return Err(WatchError::Expired);
                }
                // Pages are tried again, and a stream.
                Err(error) if next.is_none() && self.expired_pages >= EXPIRED_PAGES_MAX => {
                    self.expired_pages = 0;
                    self.stream_failures = self.stream_failures.min(STREAM_FAILURES_MAX - 1);
                    return Err(error);
                }
                page => page?,
            };
            self.feed.intake.freshness().heard(self.feed.kind);
            page.items.iter().for_each(|item| self.feed.list(item));
            next = page.next;
            if next.is_none() {
                self.expired_pages = 0;
                self.feed.listed(&page.version);
                tracing::debug!(kind = %self.feed.kind, version = page.version, "listed");
                return Ok(page.version);
            }
        }
    }

    /// The page of a continue token, or the first page.
    async fn page(&self, next: Option<&str>) -> Result<ListPage, WatchError> {
        let path = feed::path(self.feed.kind);
        let uri = match next {
            Some(token) => format!("{path}?limit={PAGE}&continue={}", rest::encode(token)),
            // Without a limit the answer is the whole list, so no token can expire.
            None if self.expired_pages >= EXPIRED_PAGES_MAX => path.to_owned(),
            None => format!("{path}?limit={PAGE}"),
        };
        rest::get(&self.client, &uri).await?.page().map_err(WatchError::Nonsense)
    }
}
