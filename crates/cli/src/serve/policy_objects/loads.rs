//! Loads objects beside each other, so that a module that takes long to compile delays no other change.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bindery_policy::{ENGINE, ObjectStatus};
use serde_json::Value;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::generation;
use crate::policies::object::{LoadedObject, ObjectName, is_in_shadow};

/// For this time changes wait for loads, from the first load on, so that objects that are applied together
/// take effect together. Then what these objects match is held, or decided by their last good generations,
/// until they are loaded.
const TOGETHER: Duration = Duration::from_secs(1);

/// The loads that are running.
#[derive(Default)]
pub(super) struct Loads {
    running: BTreeMap<ObjectName, Running>,
    tasks: JoinSet<(ObjectName, LoadedObject)>,
    /// Until when other changes wait for loads that are not late.
    until: Option<Instant>,
}

struct Running {
    object: Value,
    /// Its status when the load began.
    known: ObjectStatus,
    is_late: bool,
    task: AbortHandle,
}

impl Loads {
    /// Whether this generation of an object is being loaded.
    pub(super) fn has(&self, name: &ObjectName, object: &Value) -> bool {
        self.running.get(name).is_some_and(|running| generation(&running.object) == generation(object))
    }

    /// Begins a load, in place of one of an earlier generation.
    pub(super) fn begin(
        &mut self,
        name: ObjectName,
        object: Value,
        known: ObjectStatus,
        load: impl Future<Output = LoadedObject> + Send + 'static,
    ) {
        let of = name.clone();
        let task = self.tasks.spawn(async move { (of, load.await) });
        // Those who change objects all the time delay others no longer than those who do it once.
        if self.together_until().is_none() {
            self.until = Some(Instant::now() + TOGETHER);
        }
        let running = Running { object, known, is_late: false, task };
        if let Some(earlier) = self.running.insert(name, running) {
            earlier.task.abort();
        }
    }

    /// Ends the loads of other objects than these.
    pub(super) fn retain(&mut self, names: &BTreeSet<ObjectName>) {
        for (_, running) in self.running.extract_if(.., |name, _| !names.contains(name)) {
            running.task.abort();
        }
    }

    /// Waits for the end of a load; for ever if none runs.
    pub(super) async fn next(&mut self) -> (ObjectName, LoadedObject) {
        loop {
            match self.tasks.join_next_with_id().await {
                None => std::future::pending().await,
                Some(Ok((id, (name, loaded)))) => {
                    // One that was replaced may have ended before it was aborted.
                    if self.running.get(&name).is_some_and(|running| running.task.id() == id) {
                        self.running.remove(&name);
                        return (name, loaded);
                    }
                }
                Some(Err(error)) => {
                    self.running.retain(|_, running| running.task.id() != error.id());
                    if error.is_panic() {
                        tracing::error!(%error, "an object could not be loaded; it is tried again");
                    }
                }
            }
        }
    }

    /// Until when other changes wait; `None` if they need not.
    pub(super) fn together_until(&self) -> Option<Instant> {
        self.until.filter(|_| self.running.values().any(|running| !running.is_late))
    }

    /// The objects whose loads others have waited for long enough, with their statuses; each once.
    pub(super) fn late(&mut self) -> Vec<(ObjectName, Value, ObjectStatus)> {
        if self.until.is_none_or(|until| Instant::now() < until) {
            return Vec::new();
        }
        let due = self.running.iter_mut().filter(|(_, running)| !running.is_late);
        due.map(|(name, running)| {
            running.is_late = true;
            (name.clone(), running.object.clone(), running.known.clone())
        })
        .collect()
    }

    /// Whether a replica that starts waits for a load. It waits for no shadow; for an engine until it is
    /// loaded.
    pub(super) fn delay_start(&self) -> bool {
        let delays = |running: &Running| !running.is_late || running.object["kind"] == ENGINE;
        self.running.values().any(|running| !is_in_shadow(&running.object) && delays(running))
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use serde_json::json;

    use super::*;

    /// Begins a load that does not end.
    fn begin(loads: &mut Loads, name: &str, mode: &str, generation: u32) {
        let metadata = json!({"name": name, "generation": generation});
        let object = json!({"kind": "MatchPolicy", "metadata": metadata, "spec": {"mode": mode}});
        loads.begin(("MatchPolicy".to_owned(), name.to_owned()), object, ObjectStatus::default(), pending());
    }

    /// The names of the loads that others have waited for until now, which is the end of that time.
    fn late(loads: &mut Loads) -> Vec<String> {
        loads.until = Some(Instant::now());
        loads.late().into_iter().map(|((_, name), ..)| name).collect()
    }

    #[tokio::test]
    async fn others_wait_once_for_loads_that_are_replaced_again_and_again() {
        let mut loads = Loads::default();
        begin(&mut loads, "patched", "shadow", 1);
        let until = loads.together_until();
        assert!(until.is_some());
        for generation in 2..=4 {
            begin(&mut loads, "patched", "shadow", generation);
            begin(&mut loads, &format!("new-{generation}"), "shadow", 1);
            assert_eq!(loads.together_until(), until);
        }
        assert!(loads.late().is_empty());
        assert_eq!(late(&mut loads), ["new-2", "new-3", "new-4", "patched"]);
        assert_eq!(loads.together_until(), None);
        begin(&mut loads, "patched", "shadow", 5);
        assert!(loads.together_until() > until);
        assert_eq!(late(&mut loads), ["patched"]);
    }

    #[tokio::test]
    async fn a_start_waits_for_no_shadow() {
        let mut loads = Loads::default();
        begin(&mut loads, "a", "shadow", 1);
        assert!(!loads.delay_start());
        begin(&mut loads, "b", "enforce", 1);
        assert!(loads.delay_start());
        assert_eq!(late(&mut loads), ["a", "b"]);
        assert!(!loads.delay_start());
    }
}
