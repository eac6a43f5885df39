//! What a replica makes sure of before it decides as the leader: that its caches have what the leader before
//! it wrote.

use std::time::Duration;

use bindery_controller::Intake;
use bindery_core::Version;
use bindery_store::Kind;
use futures::future::join_all;
use kube::client::Body;
use tokio::time::{sleep, timeout};

use super::feed::path;
use crate::client::ApiClient;
use crate::encoding::Page;
use crate::rest::{self, Fault};

/// A kind with at most so many objects is listed anew. That takes a tenth of a second.
const LISTED_MAX: u64 = 5_000;
/// How long a watch that is opened anew has to begin before its kind is listed.
const OPENING_MAX: Duration = Duration::from_secs(5);
/// How often it is tried to read the version of a kind.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// A version that every cache has reached once its kind is listed.
const LOWEST: &str = "1";

/// Waits until the cache of each kind is current: not older than this call, or filled by a watch that was
/// opened after it. A follower's watch may be dead without having noticed, and decisions on a stale cache
/// take bound volumes for lost.
///
/// Each kind is read once, consistently, with a limit of 1. The version of the answer is the cluster's. A
/// kind whose watch has reached it is current. Otherwise it is listed anew, or, where it has more than 5,000
/// objects, its watch is opened anew from the version that it has reached.
pub async fn until_current(client: impl Into<ApiClient>, intake: &Intake) {
    let client = client.into();
    join_all(Kind::ALL.map(|kind| until_kind_current(&client, intake, kind))).await;
}

async fn until_kind_current(client: &ApiClient, intake: &Intake, kind: Kind) {
    let freshness = intake.freshness();
    let newest = loop {
        let sent = intake.sent(kind);
        match read(client, kind).await {
            Ok(page) => {
                intake.answered(&sent, &Version::from(page.version.as_str()));
                break page;
            }
            Err(fault) => {
                tracing::warn!(%kind, %fault, "the version of a kind cannot be read; nothing is decided");
                sleep(RETRY_EVERY).await;
            }
        }
    };
    freshness.until_reached(kind, &Version::from(LOWEST)).await;
    let version = Version::from(newest.version.as_str());
    if freshness.has_reached(kind, &version) {
        return;
    }
    if newest.remaining >= LISTED_MAX {
        freshness.want_watch(kind);
        let current = async {
            tokio::select! {
                () = freshness.until_watched(kind) => {}
                () = freshness.until_reached(kind, &version) => {}
            }
        };
        if timeout(OPENING_MAX, current).await.is_ok() {
            return;
        }
    }
    tracing::debug!(%kind, %version, "listing again: the watch has not reached the cluster's version");
    freshness.want_list(kind);
    freshness.until_listed(kind).await;
}

/// The first object of a kind, as a majority of etcd has it.
pub(super) async fn read(client: &ApiClient, kind: Kind) -> Result<Page, Fault> {
    let no_answer = |why: String| Fault::NoAnswer(why);
    let request = http::Request::get(format!("{}?limit=1", path(kind)));
    let request = request.body(Body::empty()).map_err(|error| no_answer(error.to_string()))?;
    rest::send(client, request).await?.page().map_err(no_answer)
}
