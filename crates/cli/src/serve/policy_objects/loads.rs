//! Loads objects beside each other, so that a module that takes long to compile delays no other change.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::generation;
use crate::policies::object::{LoadedObject, ObjectName};

/// For this time other changes wait for a load, so that objects that are applied together take effect
/// together. Then what the object matches is held, or decided by its last good generation, until it is
/// loaded.
const TOGETHER: Duration = Duration::from_secs(1);

/// The loads that are running.
#[derive(Default)]
pub(super) struct Loads {
    running: BTreeMap<ObjectName, Running>,
    tasks: JoinSet<(ObjectName, LoadedObject)>,
}

struct Running {
    object: Value,
    began: Instant,
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
        load: impl Future<Output = LoadedObject> + Send + 'static,
    ) {
        let of = name.clone();
        let task = self.tasks.spawn(async move { (of, load.await) });
        let running = Running { object, began: Instant::now(), is_late: false, task };
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
        let fresh = self.running.values().filter(|running| !running.is_late);
        fresh.map(|running| running.began + TOGETHER).min()
    }

    /// The objects whose loads others have waited for long enough; each once.
    pub(super) fn late(&mut self) -> Vec<(ObjectName, Value)> {
        let is_due = |running: &Running| !running.is_late && running.began.elapsed() >= TOGETHER;
        let due = self.running.iter_mut().filter(|(_, running)| is_due(running));
        due.map(|(name, running)| {
            running.is_late = true;
            (name.clone(), running.object.clone())
        })
        .collect()
    }

    /// Whether an object of this kind is being loaded.
    pub(super) fn has_kind(&self, kind: &str) -> bool {
        self.running.keys().any(|(of, _)| of == kind)
    }
}
