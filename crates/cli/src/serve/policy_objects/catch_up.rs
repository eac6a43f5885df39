//! What a new leader waits for before it decides.

use std::sync::Arc;
use std::time::Duration;

use bindery_kube::PolicyObjects;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::{Generations, generation};
use crate::policies::object::object_name;

/// How often a new leader lists policies until it has loaded them.
const LIST_EVERY: Duration = Duration::from_secs(2);

/// Waits until the policies that the API server has, and no others, are in effect.
pub(super) async fn catch_up(objects: Arc<PolicyObjects>, mut in_effect: watch::Receiver<Generations>) {
    loop {
        match objects.list().await {
            Ok(listed) => {
                let of = |(object, _): &(Value, Value)| (object_name(object), generation(object));
                let wanted: Generations = listed.iter().map(of).collect();
                if timeout(LIST_EVERY, in_effect.wait_for(|effect| *effect == wanted)).await.is_ok() {
                    return;
                }
                tracing::warn!("this replica has not loaded the newest policies; no decision is made");
                objects.list_again();
            }
            Err(error) => {
                tracing::warn!(%error, "policies cannot be listed; no decision is made");
                sleep(LIST_EVERY).await;
            }
        }
    }
}
