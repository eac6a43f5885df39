//! Looks at all objects: begins to load those that have changed, and forgets those that are gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use bindery_policy::ObjectStatus;
use serde_json::Value;

use super::{Changed, ConfiguredObjects};
use crate::policies::object::{LoadedObject, ObjectName, is_in_shadow, limit, object_name, wanted};

impl ConfiguredObjects {
    /// Begins to load the objects that have changed, and forgets those that are gone; `is_retry`: also those
    /// whose module, or that of their last good generation, could not be read. Returns what else is to be in
    /// effect.
    pub(super) fn refresh(&mut self, is_retry: bool) -> Changed {
        let mut changed = Changed::default();
        let held = limit::holders(&self.loaded);
        let mut all = self.objects.all();
        // Before loads begin, which make room for what they fetch.
        let loaded = self.loaded.values().flat_map(LoadedObject::wanted);
        self.hosts.registry.want(wanted(&all).into_iter().chain(loaded));
        // Those in effect get room in the cache before shadows.
        all.sort_by_key(|(object, _)| is_in_shadow(object));
        let mut left_out = limit::left_out(&all, &self.loaded);
        let (mut names, mut to_load) = (BTreeSet::new(), BTreeSet::new());
        for (object, status) in all {
            let name = object_name(&object);
            names.insert(name.clone());
            if let Some(why) = left_out.remove(&name) {
                changed.add(self.leave_out(name, object, status, why));
            } else {
                to_load.insert(name.clone());
                self.begin(name, object, status, is_retry);
            }
        }
        self.loads.retain(&to_load);
        self.loaded.retain(|name, gone| {
            let is_there = names.contains(name);
            // What an object over the limit holds is looked at below.
            let had_effect = !is_there && !gone.is_over_limit();
            changed.active |= had_effect && !gone.is_shadow();
            changed.shadows |= had_effect && gone.is_shadow();
            is_there
        });
        self.written.retain(|name, _| names.contains(name));
        self.differs_since.retain(|name, _| names.contains(name));
        changed.active |= held != limit::holders(&self.loaded);
        changed
    }

    /// Begins to load an object if it has changed, or an earlier generation of it is to come back.
    fn begin(&mut self, name: ObjectName, object: Value, status: Value, is_retry: bool) {
        if let Some(loaded) = self.loaded.get_mut(&name) {
            loaded.settle();
        }
        if self.loads.has(&name, &object) {
            return;
        }
        let earlier = self.loaded.get(&name);
        let is_current = |loaded: &LoadedObject| {
            let is_left_out = loaded.is_over_limit() || is_retry && loaded.may_be_retried();
            loaded.is_current(&object, &self.objects) && !is_left_out
        };
        let known: ObjectStatus = serde_json::from_value(status).unwrap_or_default();
        let (hosts, objects) = (self.hosts.clone(), Arc::clone(&self.objects));
        match earlier.filter(|loaded| is_current(loaded)) {
            Some(loaded) if loaded.has_failed(&known) => {
                let mut loaded = loaded.clone();
                self.loads.begin(name, object, known.clone(), async move {
                    loaded.roll_back(&hosts, &objects).await;
                    loaded
                });
            }
            Some(loaded) if is_retry && loaded.awaits_good() => {
                let mut loaded = loaded.clone();
                self.loads.begin(name, object, known.clone(), async move {
                    loaded.restore_awaited(&hosts, &objects).await;
                    loaded
                });
            }
            Some(_) => {}
            None => {
                let (earlier, of) = (earlier.cloned(), object.clone());
                self.loads.begin(name, object, known.clone(), async move {
                    LoadedObject::load(of, earlier, &known, &hosts, &objects).await
                });
            }
        }
    }

    /// Loads nothing of an object, because of a limit.
    fn leave_out(&mut self, name: ObjectName, object: Value, status: Value, why: String) -> Changed {
        let earlier = self.loaded.get(&name);
        let is_known = |it: &LoadedObject| {
            it.is_over_limit() && it.why_not_ready() == Some(&why) && it.is_current(&object, &self.objects)
        };
        if earlier.is_some_and(is_known) {
            return Changed::default();
        }
        let had_effect = earlier.is_some_and(|earlier| !earlier.is_over_limit());
        let known = serde_json::from_value(status).unwrap_or_default();
        let left_out = LoadedObject::left_out(object, &known, why);
        if had_effect {
            return self.replace(name, left_out);
        }
        self.loaded.insert(name, left_out);
        Changed::default()
    }
}
