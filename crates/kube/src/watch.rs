//! Lists and watches into the binder's [`Intake`].
//!
//! One loop for each kind: list, hand the complete list over, watch from its version with bookmarks, list again when
//! the server has forgotten that version (410). A server that can streams the list as the first events of the watch
//! (KEP-3157, on by default since 1.34), which costs it no memory; of others it is fetched in pages. Objects are read
//! one by one from the bytes, so a list of 100,000 is never in memory as it was sent, and one that makes no sense spoils none
//! of the others.

mod feed;
mod stream;

use std::time::Duration;

use bindery_controller::Intake;
use bindery_store::Kind;
use kube::client::Body;
use tokio_util::sync::CancellationToken;

use self::feed::Feed;
use crate::client::ApiClient;
use crate::encoding::Page;
use crate::rest::{self, Fault};

/// Objects in one page of a list (client-go's default).
const PAGE: u32 = 500;
/// First pause after a failure, doubled by each that follows (client-go's reflector). It is longer where the API server asks
/// for that.
const BACKOFF: Duration = Duration::from_millis(800);
/// Longest pause.
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// A watch that ended sooner, and told of nothing, was none.
const SHORT: Duration = Duration::from_secs(1);
/// A watch that lasted this long was a good one: the next failure starts at [`BACKOFF`] again.
const BACKOFF_RESET: Duration = Duration::from_secs(120);

/// Keeps a binder's store up to date until `shutdown`.
pub async fn run(client: impl Into<ApiClient>, intake: Intake, shutdown: CancellationToken) {
    let client = client.into();
    let watches = Kind::ALL.map(|kind| {
        let watch =
            Watch { client: client.clone(), feed: Feed::new(kind, intake.clone()), streams_lists: true };
        Box::pin(watch.run())
    });
    shutdown.run_until_cancelled(futures::future::join_all(watches)).await;
}

/// The watch of one kind.
struct Watch {
    client: ApiClient,
    feed: Feed,
    /// Whether the server streams lists, for all that is known.
    streams_lists: bool,
}

/// Why a list or a watch came to nothing.
#[derive(Debug, thiserror::Error)]
enum WatchError {
    /// The API server has forgotten the version or the page that was asked for: list anew, at once.
    #[error("the API server has forgotten the version")]
    Expired,
    /// It ended as soon as it was open.
    #[error("the watch was ended at once, without an event")]
    Short,
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

impl Watch {
    async fn run(mut self) {
        let kind = self.feed.kind();
        let mut pause = BACKOFF;
        let mut version: Option<String> = None;
        loop {
            let (began, before) = (tokio::time::Instant::now(), version.clone());
            let error = match self.turn(&mut version).await {
                // Who ends every watch at once would be asked again without a pause: client-go calls it "very short watch".
                Ok(()) if began.elapsed() < SHORT && before.is_some() && before == version => {
                    WatchError::Short
                }
                Ok(()) => {
                    pause = BACKOFF;
                    continue;
                }
                Err(error) => error,
            };
            if matches!(error, WatchError::Expired) && version.take().is_some() {
                self.feed.expired();
                tracing::info!(%kind, "the watch has expired; listing again");
                continue;
            }
            if began.elapsed() >= BACKOFF_RESET {
                pause = BACKOFF;
            }
            self.feed.failed();
            tracing::warn!(%kind, %error, ?pause, "watching failed; trying again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(BACKOFF_MAX);
        }
    }

    /// Lists where there is no version to watch from, and watches until the server ends the watch.
    async fn turn(&mut self, version: &mut Option<String>) -> Result<(), WatchError> {
        if version.is_none() && self.streams_lists {
            match self.stream_list(version).await {
                // Without the feature, or before 1.27: "sendInitialEvents is forbidden".
                Err(WatchError::Fault(Fault::Refused { code: 400 | 422, message, .. })) => {
                    tracing::info!(kind = %self.feed.kind(), message, "the API server does not stream lists");
                    self.streams_lists = false;
                }
                result => return result,
            }
        }
        let from = match version {
            Some(version) => version,
            None => version.insert(self.list().await?),
        };
        self.watch(from).await
    }

    /// Lists all objects and hands them over. Answers the version of the list.
    async fn list(&mut self) -> Result<String, WatchError> {
        let mut next: Option<String> = None;
        self.feed.begin();
        loop {
            let page = self.page(next.as_deref()).await?;
            page.items.iter().for_each(|item| self.feed.list(item));
            next = page.next;
            if next.is_none() {
                self.feed.complete();
                tracing::debug!(kind = %self.feed.kind(), version = page.version, "listed");
                return Ok(page.version);
            }
        }
    }

    async fn page(&self, next: Option<&str>) -> Result<Page, WatchError> {
        let path = self.feed.path();
        let uri = match next {
            Some(token) => format!("{path}?limit={PAGE}&continue={}", rest::encode(token)),
            None => format!("{path}?limit={PAGE}"),
        };
        let request = http::Request::get(uri)
            .body(Body::empty())
            .map_err(|error| WatchError::Nonsense(error.to_string()))?;
        rest::send(&self.client, request).await?.page().map_err(WatchError::Nonsense)
    }
}
