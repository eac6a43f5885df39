//! The newest version of a kind, asked for again and again.

use std::time::Duration;

use bindery_controller::Intake;
use bindery_core::Version;
use bindery_store::Kind;
use tokio::time::{MissedTickBehavior, interval};

use super::takeover::read;
use crate::client::ApiClient;

/// How often.
const EVERY: Duration = Duration::from_secs(60);

/// Asks for the newest version of volumes every minute, for as long as it is polled: an API server accepts a
/// watch from a version that its etcd does not have, as after a restore, and tells nothing by it. A replica
/// that competes for a Lease needs no more than that: the Lease's version tells.
pub async fn ask_for_newest(client: impl Into<ApiClient>, intake: Intake) {
    let client = client.into();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        compare(&client, &intake, Kind::Volume).await;
    }
}

/// Asks for the newest version of a kind, so that it is noticed where versions went back.
pub(super) async fn compare(client: &ApiClient, intake: &Intake, kind: Kind) {
    let sent = intake.sent(kind);
    match read(client, kind).await {
        Ok(page) => intake.answered(&sent, &Version::from(page.version.as_str())),
        // The watch tells what is wrong.
        Err(fault) => tracing::debug!(%kind, %fault, "the newest version is not known"),
    }
}
