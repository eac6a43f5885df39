//! Reads the newest version of a kind, to notice a restore of etcd.

use std::time::Duration;

use bindery_controller::Intake;
use bindery_core::Version;
use bindery_store::Kind;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::takeover::read;
use crate::client::ApiClient;

/// Time between two reads.
const EVERY: Duration = Duration::from_secs(60);

/// Reads the newest version of volumes every minute, while it is polled. After a restore an API server
/// accepts a watch from a version that its etcd does not have, and the watch is silent. A replica that
/// competes for a Lease does not need this: the Lease's version shows the restore.
pub async fn ask_for_newest(client: impl Into<ApiClient>, intake: Intake) {
    let client = client.into();
    let mut ticks = interval_at(Instant::now() + EVERY, EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        compare(&client, &intake, Kind::Volume).await;
    }
}

/// Reads the newest version of a kind, and notices if versions went back.
pub(super) async fn compare(client: &ApiClient, intake: &Intake, kind: Kind) {
    let sent = intake.freshness().sent(kind);
    match read(client, kind).await {
        Ok(page) => intake.answered(&sent, &Version::from(page.version.as_str())),
        // The watch logs what is wrong.
        Err(fault) => tracing::debug!(%kind, %fault, "the newest version is not known"),
    }
}
