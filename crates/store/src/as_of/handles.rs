//! The handles of a decision that is made again.

use std::collections::HashMap;
use std::sync::Arc;

use bindery_core::{Handle, Stop, Text, Volume};

/// The volumes of one call, numbered by first mention.
#[derive(Default)]
pub(super) struct Handles {
    named: Vec<Named>,
    by_name: HashMap<Text, Handle>,
}

/// What a handle stands for.
#[derive(Clone)]
pub(super) enum Named {
    Volume(Arc<Volume>),
    /// The handle of the earlier decision.
    Told(Handle),
}

impl Handles {
    pub(super) fn push(&mut self, named: Named) -> Handle {
        self.named.push(named);
        // There are no more handles than rows, which the budget bounds.
        Handle(u32::try_from(self.named.len() - 1).unwrap_or(u32::MAX))
    }

    pub(super) fn of(&mut self, volume: &Arc<Volume>) -> Handle {
        if let Some(handle) = self.by_name.get(&volume.name) {
            return *handle;
        }
        let handle = self.push(Named::Volume(Arc::clone(volume)));
        self.by_name.insert(volume.name.clone(), handle);
        handle
    }

    pub(super) fn get(&self, handle: Handle) -> Result<&Named, Stop> {
        let named = self.named.get(handle.0 as usize);
        named.ok_or(Stop::Nonsense("a handle that was not given in this call"))
    }
}
