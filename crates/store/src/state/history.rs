//! The latest changes, by which a later question is answered as it was at an earlier moment.

use std::collections::BTreeMap;
use std::collections::vec_deque::{Iter, VecDeque};
use std::sync::Arc;

use bindery_core::{ClaimKey, Siblings, Text, Volume};

use crate::change::{Change, Fact, Revision};

/// Changes that are remembered, at most: for some seconds at 500 binds a second. Each has a few names and one
/// shared volume.
const CHANGES_MAX: usize = 16_384;
/// Facts and volumes of a change that is remembered, at most: a list after a 410 changes more, and then what
/// was before is not known any more.
const CHANGE_MAX: usize = 256;

/// A volume that could be taken, or that a decision in flight had picked.
#[derive(Clone, Debug)]
pub(crate) struct FreeVolume {
    pub(crate) volume: Arc<Volume>,
    /// The claim for which a decision in flight had picked it.
    pub(crate) picked_for: Option<ClaimKey>,
}

/// What a change changes beside facts.
#[derive(Debug, Default)]
struct Before {
    /// The free volumes that it changes, as each was before; `None` where it was not free.
    volumes: Vec<(Text, Option<FreeVolume>)>,
    /// The claims whose volumes are counted for their siblings, with these.
    siblings: Vec<(ClaimKey, Arc<Siblings>)>,
}

/// The latest changes.
#[derive(Debug, Default)]
pub(crate) struct History {
    changes: VecDeque<Remembered>,
    /// What was before this revision is not known.
    known_since: Revision,
    /// Of the change that is being made.
    pending: Before,
}

#[derive(Debug)]
struct Remembered {
    revision: Revision,
    facts: Vec<Fact>,
    before: Before,
}

/// What has changed since an earlier revision.
pub(crate) struct Since<'a>(Iter<'a, Remembered>);

impl History {
    /// Remembers what comes after a revision.
    pub(crate) fn new(now: Revision) -> Self {
        Self { known_since: now, ..Self::default() }
    }

    /// A free volume is about to change, or one becomes free.
    pub(crate) fn changes(&mut self, name: Text, before: Option<FreeVolume>) {
        self.pending.volumes.push((name, before));
    }

    /// The volumes of a claim are counted otherwise for its siblings.
    pub(crate) fn counts(&mut self, claim: &ClaimKey, siblings: &Arc<Siblings>) {
        self.pending.siblings.push((claim.clone(), Arc::clone(siblings)));
    }

    /// Whether the change that is being made changes a free volume.
    pub(crate) fn is_pending(&self) -> bool {
        !self.pending.volumes.is_empty()
    }

    /// Remembers a change.
    pub(crate) fn remember(&mut self, change: &Change) {
        let before = std::mem::take(&mut self.pending);
        let facts: Vec<Fact> = change.all_facts().take(CHANGE_MAX + 1).collect();
        if facts.is_empty() && before.volumes.is_empty() {
            return;
        }
        if facts.len() + before.volumes.len() > CHANGE_MAX {
            self.changes.clear();
            self.known_since = change.revision;
            return;
        }
        self.changes.push_back(Remembered { revision: change.revision, facts, before });
        if self.changes.len() > CHANGES_MAX
            && let Some(oldest) = self.changes.pop_front()
        {
            self.known_since = oldest.revision;
        }
    }

    /// What has changed since a revision; `None` if that is not known any more.
    pub(crate) fn since(&self, revision: Revision) -> Option<Since<'_>> {
        let from = self.changes.partition_point(|change| change.revision <= revision);
        (revision >= self.known_since).then(|| Since(self.changes.range(from..)))
    }
}

impl<'a> Since<'a> {
    /// Whether a fact has changed that is one of these. Decisions ask about a few facts and soon after, so
    /// an index would cost more than it saves.
    pub(crate) fn has_changed(&self, is_meant: impl Fn(&Fact) -> bool) -> bool {
        self.0.clone().flat_map(|change| &change.facts).any(is_meant)
    }

    /// The free volumes that have changed, as each was at that revision; `None` where it was not free.
    pub(crate) fn free_volumes(&self) -> BTreeMap<Text, Option<FreeVolume>> {
        let mut before = BTreeMap::new();
        for (name, volume) in self.volumes() {
            before.entry(name.clone()).or_insert_with(|| volume.clone());
        }
        before
    }

    /// A free volume that has changed, as it was at that revision.
    pub(crate) fn free_volume(&self, name: &str) -> Option<&'a FreeVolume> {
        self.volumes().find(|(changed, _)| **changed == *name)?.1.as_ref()
    }

    /// The claims whose volumes are counted otherwise for their siblings, with these.
    pub(crate) fn siblings(&self) -> impl Iterator<Item = &'a (ClaimKey, Arc<Siblings>)> {
        self.0.clone().flat_map(|change| &change.before.siblings)
    }

    fn volumes(&self) -> impl Iterator<Item = &'a (Text, Option<FreeVolume>)> {
        self.0.clone().flat_map(|change| &change.before.volumes)
    }
}
