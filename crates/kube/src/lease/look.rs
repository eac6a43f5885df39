//! The first look at the Lease, before a replica lists anything.

use std::time::Duration;

use tokio::time::timeout;

use super::Elector;
use crate::rest::Fault;

/// Longest time that the first lists wait for the answer.
const LOOK_MAX: Duration = Duration::from_secs(2);

impl Elector {
    /// Reads the Lease once, before the first lists begin. If it is free, and nothing changes it until this
    /// replica takes it, these lists have everything that earlier leaders wrote
    /// ([`until_current`](crate::watch::until_current)).
    pub async fn look(mut self) {
        let looked = timeout(LOOK_MAX, self.read()).await.unwrap_or(Err(Fault::TooLate));
        if let Err(fault) = looked {
            // A replica that competes logs what is wrong. Without an answer only its first decision is later.
            tracing::debug!(lease = self.named(), %fault, "the Lease is not known before the first lists");
        }
    }
}
