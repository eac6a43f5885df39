//! The state under the store's lock.

mod claims;
mod pods;
mod records;
mod volumes;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::mem;
use std::sync::Arc;

use bindery_core::{Claim, ClaimKey, Class, Lookup, Query, Tally, Text, Uid};

use self::pods::Pods;
pub(crate) use self::records::{VolumeId, Volumes};
use crate::cached::{Cached, ListNumber};
use crate::change::{Change, Revision, Topic};
use crate::index::{Asked, Index};
use crate::observed::{Kind, Observed};

#[derive(Debug, Default)]
pub(crate) struct State {
    revision: Revision,
    synced: BTreeSet<Kind>,
    /// Of each kind the last list that has begun.
    lists: [ListNumber; Kind::ALL.len()],
    pub(crate) volumes: Volumes,
    /// Of the volumes as the overlay has them.
    pub(crate) index: Index,
    /// The volumes that decisions in flight have picked, by name, each with the claim that it is for.
    reservations: HashMap<Text, ClaimKey>,
    claims: HashMap<ClaimKey, Cached<Claim>>,
    classes: BTreeMap<Text, Observed<Class>>,
    pods: Pods,
    nodes: HashSet<Text>,
}

impl State {
    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    pub(crate) fn mark_synced(&mut self, kind: Kind) {
        self.synced.insert(kind);
    }

    pub(crate) fn mark_unsynced(&mut self) {
        self.synced.clear();
    }

    pub(crate) fn list_begins(&mut self, kind: Kind) {
        self.lists[kind as usize] += 1;
    }

    pub(crate) fn lists_begun(&self, kind: Kind) -> ListNumber {
        self.lists[kind as usize]
    }

    pub(crate) fn is_synced(&self, kind: Kind) -> bool {
        self.synced.contains(&kind)
    }

    pub(crate) fn synced(&self) -> bool {
        Kind::ALL.into_iter().all(|kind| self.is_synced(kind))
    }

    /// Gives a change its revision. One that changes nothing keeps the present one.
    fn commit(&mut self, mut change: Change) -> Change {
        if !change.is_empty() {
            self.revision.0 += 1;
        }
        change.revision = self.revision;
        change
    }

    /// Nothing is taken: what was delivered is older than what is known.
    fn ignored(&self) -> Change {
        Change { revision: self.revision, ..Change::default() }
    }

    fn changed(&mut self, topics: Vec<Topic>) -> Change {
        self.commit(Change { fresh: true, topics, ..Change::default() })
    }

    pub(crate) fn note(&mut self, topics: Vec<Topic>) -> Change {
        self.changed(topics)
    }

    // Classes are few: every change compares them all.
    pub(crate) fn change_classes(
        &mut self,
        edit: impl FnOnce(&mut BTreeMap<Text, Observed<Class>>),
    ) -> Change {
        let (before, defaults) = (self.classes.clone(), self.default_classes());
        edit(&mut self.classes);
        let names: BTreeSet<&Text> = before.keys().chain(self.classes.keys()).collect();
        let mut topics: Vec<Topic> = names
            .into_iter()
            .filter(|name| before.get(*name) != self.classes.get(*name))
            .map(|name| Topic::Class(name.clone()))
            .collect();
        if self.default_classes() != defaults {
            topics.push(Topic::DefaultClasses);
        }
        self.changed(topics)
    }

    pub(crate) fn class(&self, name: &str) -> Lookup<Arc<Class>> {
        match self.classes.get(name) {
            None => Lookup::Absent,
            Some(Observed::Readable(class)) => Lookup::Found(class.clone()),
            Some(Observed::Unreadable(unreadable)) => Lookup::Unreadable(unreadable.why.clone()),
        }
    }

    pub(crate) fn default_classes(&self) -> Result<Vec<Text>, Text> {
        let mut defaults = Vec::new();
        for (name, observed) in &self.classes {
            match observed {
                Observed::Readable(class) if class.default => defaults.push(class),
                Observed::Readable(_) => {}
                Observed::Unreadable(unreadable) => {
                    let why = &unreadable.why;
                    return Err(format!(
                        "StorageClass {name:?} cannot be read, and may be the default class: {why}"
                    )
                    .into());
                }
            }
        }
        defaults.sort_by(|a, b| b.created.cmp(&a.created).then_with(|| a.name.cmp(&b.name)));
        Ok(defaults.into_iter().map(|class| class.name.clone()).collect())
    }

    pub(crate) fn apply_node(&mut self, name: Text) -> Change {
        let added = self.nodes.insert(name.clone());
        self.changed(if added { vec![Topic::Node(name)] } else { Vec::new() })
    }

    pub(crate) fn remove_node(&mut self, name: &str) -> Change {
        let removed = self.nodes.take(name);
        self.changed(removed.map(Topic::Node).into_iter().collect())
    }

    pub(crate) fn replace_nodes(&mut self, list: Vec<Text>) -> Change {
        let before = mem::replace(&mut self.nodes, list.into_iter().collect());
        let changed: Vec<Topic> =
            before.symmetric_difference(&self.nodes).cloned().map(Topic::Node).collect();
        self.changed(changed)
    }

    pub(crate) fn node(&self, name: &str) -> bool {
        self.nodes.contains(name)
    }

    pub(crate) fn lookup_node(&self, name: &str) -> Lookup<()> {
        if self.nodes.contains(name) { Lookup::Found(()) } else { Lookup::Absent }
    }

    /// The claim that holds a reservation of the volume.
    pub(crate) fn holder(&self, id: VolumeId) -> Option<&ClaimKey> {
        self.reservations.get(&self.volumes.get(id).name)
    }

    pub(crate) fn tallies(&self, query: &Query, asker: Option<&(ClaimKey, Uid)>) -> Vec<Tally> {
        let is_picked_for_claim = |id| asker.is_some_and(|(key, _)| self.holder(id) == Some(key));
        self.index
            .tallies(&self.volumes, Asked { query, claim: asker, is_picked_for_claim: &is_picked_for_claim })
    }
}
