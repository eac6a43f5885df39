//! The entries of replicas in the status of objects: each tells where a replica has loaded something else
//! than the leader, whose state is the rest of the status.
//!
//! A replica owns its entry by server-side apply, renews it while it differs, and removes it when it does not
//! differ any more. The leader removes the entries of replicas that do not renew them.

use std::time::Duration;

use bindery_policy::{Condition, ObjectStatus, ReplicaStatus};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
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

/// The JSON patch that removes an entry, unless it has changed. A patch of the whole list would make the
/// leader an owner of the other entries too, and their replicas could not remove them any more.
fn removal(index: usize, entry: &ReplicaStatus) -> [Value; 3] {
    let path = format!("/status/replicas/{index}");
    [
        json!({"op": "test", "path": format!("{path}/name"), "value": entry.name}),
        json!({"op": "test", "path": format!("{path}/renewTime"), "value": entry.renew_time}),
        json!({"op": "remove", "path": path}),
    ]
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
        self.apply_entry(name, loaded, wanted.as_ref()).await;
    }

    /// Removes the entry of this replica, which leads, and those of replicas that are gone.
    pub(super) async fn remove_entries(&self, name: &ObjectName, known: &ObjectStatus) {
        let Some(loaded) = self.loaded.get(name) else { return };
        let goes = |entry: &ReplicaStatus| entry.name == self.identity || age(entry) >= GONE_AFTER;
        let gone = known.replicas.iter().enumerate().rev().filter(|(_, entry)| goes(entry));
        let removals: Vec<_> = gone.flat_map(|(index, entry)| removal(index, entry)).collect();
        if removals.is_empty() {
            return;
        }
        let uid = &loaded.object["metadata"]["uid"];
        let is_same = json!({"op": "test", "path": "/metadata/uid", "value": uid});
        let patch = [vec![is_same], removals].concat().into();
        if let Err(error) = self.objects.patch_status(&name.0, &name.1, &patch).await {
            let (kind, name) = name;
            tracing::warn!(kind, name, %error, "entries of old replicas cannot be removed");
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

    async fn apply_entry(&self, name: &ObjectName, loaded: &LoadedObject, entry: Option<&ReplicaStatus>) {
        let uid = loaded.object["metadata"]["uid"].as_str().unwrap_or_default();
        let status = entry.map_or_else(|| json!({}), |entry| json!({"replicas": [entry]}));
        // The end of the name of a pod is its own.
        let identity = self.identity.char_indices().rev().nth(MANAGER_CHARS - 1);
        let manager = format!("bindery-{}", &self.identity[identity.map_or(0, |(at, _)| at)..]);
        if let Err(error) = self.objects.write_status(&name.0, &name.1, uid, &manager, &status).await {
            tracing::warn!(kind = name.0, name = name.1, error, "this replica's entry cannot be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use bindery_engine::DefaultEngine;
    use bindery_kube::ApiClient;
    use bindery_policy::LastGood;
    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use parking_lot::Mutex;
    use tokio::time::advance;

    use super::super::Components;
    use super::*;
    use crate::policies::object::{Cause, Fault};
    use crate::tests::arguments_of;

    /// The field manager, if any, and `status` of each write, or its JSON patch.
    type Writes = Arc<Mutex<Vec<(Option<String>, Value)>>>;

    fn name() -> ObjectName {
        ("MatchPolicy".to_owned(), "m".to_owned())
    }

    /// The replica `me`, which has loaded an object, and an API server that notes what it writes.
    fn replica(loaded: LoadedObject) -> (ConfiguredObjects, Writes) {
        let writes = Writes::default();
        let noted = Arc::clone(&writes);
        let service = tower::service_fn(move |request: Request<Body>| {
            let noted = Arc::clone(&noted);
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect().await.unwrap().to_bytes();
                let body: Value = serde_json::from_slice(&bytes).unwrap();
                let mut pairs = parts.uri.query().unwrap_or_default().split('&');
                let manager = pairs.find_map(|pair| pair.strip_prefix("fieldManager="));
                let written = if body.is_array() { &body } else { &body["status"] };
                noted.lock().push((manager.map(str::to_owned), written.clone()));
                let object = json!({"apiVersion": "v1", "kind": "MatchPolicy", "metadata": {"name": "m"}});
                Ok::<_, Infallible>(Response::new(Body::from(object.to_string().into_bytes())))
            }
        });
        let client = ApiClient::from(kube::Client::new(service, "default"));
        let arguments = Arc::new(arguments_of(&["--identity=me"]));
        let (policies, shadows) = Default::default();
        let base = Components { engine: Arc::new(DefaultEngine), policies, shadows };
        let (mut replica, _) = ConfiguredObjects::new(&arguments, &client, base).unwrap();
        replica.loaded.insert(name(), loaded);
        (replica, writes)
    }

    /// Generation 2, with the module of generation 1 in use.
    fn differs() -> LoadedObject {
        let object = json!({"kind": "MatchPolicy", "metadata": {"name": "m", "uid": "u", "generation": 2}});
        let fault = Fault { cause: Cause::ModuleUnavailable, why: "no file".to_owned() };
        let last_good = LastGood { generation: 1, digest: "sha256:1".into(), spec: serde_json::Map::new() };
        let mut loaded = LoadedObject::new(object);
        (loaded.fault, loaded.last_good) = (Some(fault), Some(last_good));
        loaded
    }

    /// The status of a leader that has loaded generation 2, with these entries.
    fn of_leader(replicas: Vec<ReplicaStatus>) -> ObjectStatus {
        let condition = json!({
            "type": "Ready", "status": "True", "reason": "Loaded", "message": "", "observedGeneration": 2,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let conditions = vec![serde_json::from_value(condition).unwrap()];
        let (observed_generation, digest) = (Some(2), Some("sha256:2".into()));
        ObjectStatus { observed_generation, digest, conditions, replicas, ..ObjectStatus::default() }
    }

    /// The entry of a replica that was renewed so many minutes ago.
    fn entry(name: &str, minutes: i64) -> ReplicaStatus {
        ReplicaStatus {
            name: name.into(),
            observed_generation: 2,
            digest: Some("sha256:1".into()),
            ready: "False".into(),
            reason: "ModuleUnavailable".into(),
            message: "spec.module: no file; generation 1 stays in effect".into(),
            renew_time: (Timestamp::now() - SignedDuration::from_mins(minutes)).to_string().into(),
        }
    }

    fn entries(status: &Value) -> Vec<ReplicaStatus> {
        serde_json::from_value(status["replicas"].clone()).unwrap_or_default()
    }

    #[tokio::test(start_paused = true)]
    async fn given_another_module_than_the_leaders_a_replica_keeps_an_entry() {
        let (mut replica, writes) = replica(differs());
        replica.write_entry(&name(), &of_leader(Vec::new())).await;
        advance(DIFFERS_AFTER - Duration::from_secs(1)).await;
        replica.write_entry(&name(), &of_leader(Vec::new())).await;
        assert!(writes.lock().is_empty(), "the leader may load the change a little later");
        advance(Duration::from_secs(1)).await;
        replica.write_entry(&name(), &of_leader(Vec::new())).await;
        let (manager, status) = writes.lock().pop().unwrap();
        assert_eq!(manager.as_deref(), Some("bindery-me"));
        let written = entries(&status).remove(0);
        let expected = ReplicaStatus { renew_time: written.renew_time.clone(), ..entry("me", 0) };
        assert_eq!((written, status.as_object().unwrap().len()), (expected, 1));

        for (minutes, is_renewed) in [(4, false), (6, true)] {
            replica.write_entry(&name(), &of_leader(vec![entry("me", minutes)])).await;
            assert_eq!(writes.lock().drain(..).count(), usize::from(is_renewed), "{minutes}");
        }
        // As the leader by now: an empty part of the status gives the entry up.
        let mut same = of_leader(vec![entry("me", 0)]);
        (same.digest, same.conditions) = (Some("sha256:1".into()), of_leader(Vec::new()).conditions);
        same.conditions[0].status = "False".into();
        same.conditions[0].reason = "ModuleUnavailable".into();
        replica.write_entry(&name(), &same).await;
        assert_eq!(*writes.lock(), [(Some("bindery-me".to_owned()), json!({}))]);
    }

    #[tokio::test]
    async fn given_entries_a_leader_removes_its_own_and_those_not_renewed() {
        let (replica, writes) = replica(differs());
        replica.remove_entries(&name(), &of_leader(vec![entry("other", 14)])).await;
        assert!(writes.lock().is_empty());
        let all = vec![entry("gone", 16), entry("me", 0), entry("other", 14), entry("lost", 20)];
        let removals = [3, 1, 0].map(|index| removal(index, &all[index])).concat();
        replica.remove_entries(&name(), &of_leader(all)).await;
        let writes = writes.lock();
        let [(None, Value::Array(patch))] = &writes[..] else { panic!("{writes:?}") };
        assert_eq!((&patch[0]["value"], &patch[1..]), (&json!("u"), &removals[..]));
    }
}
