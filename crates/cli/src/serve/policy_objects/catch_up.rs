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

/// What a new leader waits for before it decides: the policies that the API server has.
pub(crate) struct CatchUp {
    pub(super) objects: Arc<PolicyObjects>,
    pub(super) in_effect: watch::Receiver<Generations>,
}

impl CatchUp {
    /// Waits until what the API server has at this moment, or something later, is in effect.
    pub(crate) async fn wait(&self) {
        let mut in_effect = self.in_effect.clone();
        loop {
            match self.objects.list().await {
                Ok(objects) => {
                    let has = |effect: &Generations, object: &Value| {
                        let (uid, wanted) = generation(object);
                        effect.get(&object_name(object)).is_some_and(|(known, generation)| {
                            *known == uid && generation.as_i64() >= wanted.as_i64()
                        })
                    };
                    let all = |effect: &Generations| objects.iter().all(|(object, _)| has(effect, object));
                    if timeout(LIST_EVERY, in_effect.wait_for(all)).await.is_ok() {
                        return;
                    }
                    tracing::warn!("this replica has not loaded the newest policies; no decision is made");
                }
                Err(error) => {
                    tracing::warn!(%error, "policies cannot be listed; no decision is made");
                    sleep(LIST_EVERY).await;
                }
            }
        }
    }
}
