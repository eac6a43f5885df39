//! The entries of replicas in the status of objects: each tells where a replica has loaded something else
//! than the leader, whose state is the rest of the status.
//!
//! A replica owns its entry by server-side apply, renews it while it differs, and removes it when it does not
//! differ any more. The leader removes the entries of replicas that do not renew them.

use std::time::Duration;

use bindery_policy::{Condition, ObjectStatus, ReplicaStatus};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::time::Instant;

use super::ConfiguredObjects;
use super::status::{Told, now};
use crate::policies::object::{LoadedObject, ObjectName};

/// How often a replica renews an entry.
const RENEW_EVERY: SignedDuration = SignedDuration::from_mins(5);
/// After this time without renewal an entry is removed: its replica is gone.
const GONE_AFTER: SignedDuration = SignedDuration::from_mins(15);
/// The most characters of an identity in a field manager, which has at most 128.
const MANAGER_CHARS: usize = 120;
/// How long the status may differ from what a replica has before the replica tells so: the leader and this
/// replica load a change at different times.
pub(super) const DIFFERS_AFTER: Duration = Duration::from_secs(20);

fn age(entry: &ReplicaStatus) -> SignedDuration {
    let renewed = entry.renew_time.parse::<Timestamp>().unwrap_or(Timestamp::UNIX_EPOCH);
    Timestamp::now().duration_since(renewed)
}

impl ConfiguredObjects {
    /// Writes the entry of this replica, which does not lead, where it differs from the leader.
    pub(super) async fn write_entry(&mut self, name: &ObjectName, known: &ObjectStatus) {
        let Some(loaded) = self.loaded.get(name) else { return };
        let wanted = self.entry(name, loaded, known);
        let written = known.replicas.iter().find(|entry| entry.name == self.identity);
        let is_same = match (&wanted, written) {
            (None, None) => true,
            (Some(wanted), Some(written)) => {
                let renewed = ReplicaStatus { renew_time: written.renew_time.clone(), ..wanted.clone() };
                renewed == *written && age(written) < RENEW_EVERY
            }
            _ => false,
        };
        if is_same {
            self.differs_since.remove(name);
            return;
        }
        let since = self.differs_since.entry(name.clone()).or_insert_with(Instant::now);
        if wanted.is_some() && written.is_none() && since.elapsed() < DIFFERS_AFTER {
            return;
        }
        self.differs_since.remove(name);
        self.apply_entries(name, loaded, wanted.as_slice()).await;
    }

    /// Removes the entry of this replica, which leads, and those of replicas that are gone.
    pub(super) async fn remove_entries(&self, name: &ObjectName, known: &ObjectStatus) {
        let Some(loaded) = self.loaded.get(name) else { return };
        if known.replicas.iter().any(|entry| entry.name == self.identity) {
            self.apply_entries(name, loaded, &[]).await;
        }
        let stays = |entry: &&ReplicaStatus| age(entry) < GONE_AFTER;
        let left: Vec<_> = known.replicas.iter().filter(stays).collect();
        if left.len() == known.replicas.len() {
            return;
        }
        let patch = json!({
            "metadata": {"uid": loaded.object["metadata"]["uid"]},
            "status": {"replicas": left},
        });
        if let Err(error) = self.objects.patch_status(&name.0, &name.1, &patch).await {
            tracing::warn!(kind = name.0, name = name.1, %error, "entries of old replicas cannot be removed");
        }
    }

    /// The entry of this replica; `None` if it has loaded the same as the leader.
    fn entry(&self, name: &ObjectName, loaded: &LoadedObject, known: &ObjectStatus) -> Option<ReplicaStatus> {
        let Told { status, reason, message, .. } = self.ready(name, loaded);
        let digest = loaded.last_good.as_ref().map(|last_good| last_good.digest.clone());
        let is_same = |known: &Condition| (&*known.status, &*known.reason) == (status, reason);
        // Until the leader has seen the generation there is nothing to differ from.
        let generation = loaded.object["metadata"]["generation"].as_i64()?;
        let is_known = known.observed_generation == Some(generation);
        if !is_known || known.digest == digest && known.condition("Ready").is_some_and(is_same) {
            return None;
        }
        Some(ReplicaStatus {
            name: self.identity.clone(),
            observed_generation: generation,
            digest,
            ready: status.into(),
            reason: reason.into(),
            message: message.into(),
            renew_time: now(),
        })
    }

    async fn apply_entries(&self, name: &ObjectName, loaded: &LoadedObject, entries: &[ReplicaStatus]) {
        let uid = loaded.object["metadata"]["uid"].as_str().unwrap_or_default();
        let status = match entries {
            [] => json!({}),
            entries => json!({"replicas": entries}),
        };
        // The end of the name of a pod is its own.
        let identity = self.identity.char_indices().rev().nth(MANAGER_CHARS - 1);
        let manager = format!("bindery-{}", &self.identity[identity.map_or(0, |(at, _)| at)..]);
        if let Err(error) = self.objects.write_status(&name.0, &name.1, uid, &manager, &status).await {
            tracing::warn!(kind = name.0, name = name.1, error, "this replica's entry cannot be written");
        }
    }
}
