//! Proves that the caches are current before a replica decides as the leader.

use std::time::Duration;

use bindery_controller::Intake;
use bindery_core::Version;
use bindery_store::Kind;
use futures::future::join_all;
use tokio::time::{sleep, timeout};

use super::feed::path;
use crate::client::ApiClient;
use crate::encoding::ListPage;
use crate::rest::{self, Fault};

/// A kind with at most this many objects is listed again, which takes a tenth of a second.
const LISTED_MAX: u64 = 5_000;
/// Longest wait for the bookmark of a larger kind, which then is listed too.
const BOOKMARK_MAX: Duration = Duration::from_secs(5);
/// Longest time for the first attempt to read something, and for later ones. A leader that has not begun
/// after 20 s leaves the Lease to another replica. A dead connection must not cost that, and an API server
/// that queues requests may need more than 5 s.
const READ_MAX: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(12)];
/// Pause between two attempts to read something.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// A version that every cache has reached after its first list.
const LOWEST: &str = "1";

/// Waits until the cache of each kind has everything that was written before this call. A follower's watch
/// may have died silently, and decisions on a stale cache would take bound volumes for lost.
///
/// Each kind is read once, consistently, with a limit of 1: the version of the answer is the cluster's. A
/// kind whose watch has reached it is current. Otherwise the kind is listed again. A kind with more than
/// 5,000 objects is first asked for a bookmark, which takes about two seconds whatever its size. It is
/// listed if the bookmark does not reach the version within 5 s, as on an API server before 1.34 whose watch
/// cache learns of versions from etcd's progress notifications only.
pub async fn until_current(client: impl Into<ApiClient>, intake: &Intake) {
    let client = client.into();
    join_all(intake.kinds().iter().map(|&kind| until_kind_current(&client, intake, kind))).await;
}

/// Reads what a new leader needs before it decides, until it is answered.
pub(crate) async fn until_read<T, F: Future<Output = Result<T, Fault>>>(
    client: &ApiClient,
    what: &str,
    read: impl Fn(ApiClient) -> F,
) -> T {
    let mut client = client.within(READ_MAX[0]);
    loop {
        match read(client.clone()).await {
            Ok(read) => return read,
            Err(fault) => {
                tracing::warn!(%fault, "{what} cannot be read; nothing is decided");
                client = client.within(READ_MAX[1]);
                if fault.is_unanswered() {
                    client = client.with_new_connections();
                }
                sleep(RETRY_EVERY).await;
            }
        }
    }
}

async fn until_kind_current(client: &ApiClient, intake: &Intake, kind: Kind) {
    let freshness = intake.freshness();
    let newest = until_read(client, &format!("the version of {kind}"), |client| async move {
        let sent = freshness.sent(kind);
        let page = read(&client, kind).await?;
        intake.answered(&sent, &Version::from(page.version.as_str()));
        Ok(page)
    })
    .await;
    freshness.until_reached(kind, &Version::from(LOWEST)).await;
    let version = Version::from(newest.version.as_str());
    if freshness.has_reached(kind, &version) {
        return;
    }
    if newest.remaining >= LISTED_MAX {
        freshness.want_bookmark(kind);
        if timeout(BOOKMARK_MAX, freshness.until_reached(kind, &version)).await.is_ok() {
            return;
        }
    }
    tracing::debug!(%kind, %version, "listing again: the watch has not reached the cluster's version");
    freshness.want_list(kind);
    freshness.until_listed(kind).await;
}

/// The first object of a kind, read consistently.
pub(super) async fn read(client: &ApiClient, kind: Kind) -> Result<ListPage, Fault> {
    rest::get(client, &format!("{}?limit=1", path(kind))).await?.page().map_err(Fault::NoAnswer)
}
