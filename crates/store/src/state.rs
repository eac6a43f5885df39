//! The state under the store's lock.

mod claims;
mod entries;
mod history;
mod pods;
mod siblings;
mod volumes;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bindery_core::{Claim, ClaimKey, Class, ColumnSet, Lookup, Quantity, Query, Tally, Text, Uid};

use self::entries::VolumeEntry;
pub(crate) use self::entries::{VolumeId, Volumes};
use self::history::History;
pub(crate) use self::history::{FreeVolume, Since};
use self::pods::Pods;
use self::siblings::SiblingCounts;
use crate::cached::{Cached, ListNumber};
use crate::change::{Change, Fact, Revision};
use crate::delivery::{Delivered, Delivery, Kind, Object, ObjectKey, Observed};
use crate::index::{Index, TallyQuery};

#[derive(Debug, Default)]
pub(crate) struct State {
    revision: Revision,
    synced: BTreeSet<Kind>,
    /// The number of the last list of each kind that has begun.
    lists: [ListNumber; Kind::ALL.len()],
    pub(crate) volumes: Volumes,
    /// Has the volumes as the overlay has them.
    pub(crate) index: Index,
    /// The volumes that decisions in flight have picked, by name, each with the claim that it is for.
    reservations: HashMap<Text, ClaimKey>,
    siblings: SiblingCounts,
    claims: HashMap<ClaimKey, Cached<Claim>>,
    classes: BTreeMap<Text, Observed<Class>>,
    pods: Pods,
    nodes: HashSet<Text>,
    /// The labels of each namespace; `None` if namespaces are not watched.
    namespaces: Option<HashMap<Text, Arc<BTreeMap<Text, Text>>>>,
    /// The last states of claims that are gone and that a volume names; `None` if they are not kept.
    last_claims: Option<HashMap<Uid, Arc<Claim>>>,
    /// The latest changes; `None` if they are not remembered.
    history: Option<History>,
}

impl State {
    pub(crate) fn keep_namespaces(&mut self) {
        self.namespaces.get_or_insert_default();
        self.synced.remove(&Kind::Namespace);
    }

    pub(crate) fn keep_columns(&mut self, columns: Arc<ColumnSet>) {
        self.index.show(&self.volumes, columns);
    }

    pub(crate) fn keep_last_claims(&mut self) {
        self.last_claims.get_or_insert_default();
    }

    pub(crate) fn forget_last_claims(&mut self) {
        if let Some(last_claims) = &mut self.last_claims {
            last_claims.clear();
        }
    }

    /// Remembers the latest changes from now on, or forgets them.
    pub(crate) fn keep_history(&mut self, is_kept: bool) {
        let history = self.history.take().unwrap_or_else(|| History::new(self.revision));
        self.history = is_kept.then_some(history);
    }

    /// What has changed since a revision; `None` if that is not known.
    pub(crate) fn since(&self, revision: Revision) -> Option<Since<'_>> {
        self.history.as_ref()?.since(revision)
    }

    /// The kinds that are watched.
    pub(crate) fn kinds(&self) -> &'static [Kind] {
        if self.namespaces.is_some() { &Kind::ALL } else { &Kind::ALWAYS }
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revision
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
        self.kinds().iter().all(|kind| self.is_synced(*kind))
    }

    /// Takes what a watch delivers.
    pub(crate) fn deliver(&mut self, delivery: Delivery) -> Change {
        let defaults = (delivery.kind() == Kind::Class).then(|| self.default_classes());
        let mut change = Change { fresh: true, ..Change::default() };
        match delivery {
            Delivery::Applied(delivered) if self.is_outdated(&delivered.object) => return self.ignored(),
            Delivery::Applied(delivered) => self.apply(delivered, None, &mut change),
            Delivery::Gone(key) => self.remove(&key, &mut change),
            Delivery::Listed { kind, objects, .. } => self.replace(kind, objects, &mut change),
            Delivery::Bookmark { .. } => {}
        }
        if defaults.is_some_and(|defaults| defaults != self.default_classes()) {
            change.facts.push(Fact::DefaultClasses);
        }
        self.commit(change)
    }

    /// Whether the watch has already delivered a newer version of the object.
    fn is_outdated(&self, object: &Object) -> bool {
        match object {
            Object::Volume(name, observed) => {
                self.volumes.find(name).is_some_and(|entry| entry.cached.outdates(observed))
            }
            Object::Claim(key, observed) => {
                self.claims.get(key).is_some_and(|cached| cached.outdates(observed))
            }
            Object::Class(..) | Object::Pod(_) | Object::Node(_) | Object::Namespace(..) => false,
        }
    }

    /// The known object that equals this one.
    pub(crate) fn known(&self, object: &Object) -> Option<Object> {
        match object {
            Object::Volume(name, observed) => {
                let VolumeEntry { name, cached } = self.volumes.find(name)?;
                cached.equal_to(observed).map(|known| Object::Volume(name.clone(), known.clone()))
            }
            Object::Claim(key, observed) => {
                let (key, cached) = self.claims.get_key_value(key)?;
                cached.equal_to(observed).map(|known| Object::Claim(key.clone(), known.clone()))
            }
            Object::Class(..) | Object::Pod(_) | Object::Node(_) | Object::Namespace(..) => None,
        }
    }

    /// Takes an object; `list` is the number of the list that it came in.
    fn apply(&mut self, delivered: Delivered, list: Option<ListNumber>, change: &mut Change) {
        let authors = delivered.authors;
        match delivered.object {
            Object::Volume(name, observed) => self.observe_volume(name, observed, authors, list, change),
            Object::Claim(key, observed) => self.observe_claim(key, observed, authors, list, change),
            Object::Class(name, observed) => {
                if self.classes.get(&name) != Some(&observed) {
                    self.classes.insert(name.clone(), observed);
                    change.facts.push(Fact::Class(name));
                }
            }
            Object::Pod(pod) => {
                change.facts.extend(self.pods.replace((pod.namespace, pod.name), Some(pod.content)));
            }
            Object::Node(name) => {
                if self.nodes.insert(name.clone()) {
                    change.facts.push(Fact::Node(name));
                }
            }
            Object::Namespace(name, labels) => {
                let Some(namespaces) = &mut self.namespaces else { return };
                if namespaces.get(&name) != Some(&labels) {
                    namespaces.insert(name.clone(), labels);
                    change.facts.push(Fact::Namespace(name));
                }
            }
        }
    }

    fn remove(&mut self, key: &ObjectKey, change: &mut Change) {
        match key {
            ObjectKey::Volume(name) => self.drop_volume(name, change),
            ObjectKey::Claim(key) => self.drop_claim(key, change),
            ObjectKey::Class(name) => {
                let removed = self.classes.remove_entry(name);
                change.facts.extend(removed.map(|(name, _)| Fact::Class(name)));
            }
            ObjectKey::Pod { namespace, name } => {
                change.facts.extend(self.pods.replace((namespace.clone(), name.clone()), None));
            }
            ObjectKey::Node(name) => change.facts.extend(self.nodes.take(name).map(Fact::Node)),
            ObjectKey::Namespace(name) => {
                let removed = self.namespaces.as_mut().and_then(|namespaces| namespaces.remove_entry(name));
                change.facts.extend(removed.map(|(name, _)| Fact::Namespace(name)));
            }
        }
    }

    /// Takes a complete list of a kind.
    fn replace(&mut self, kind: Kind, mut objects: Vec<Delivered>, change: &mut Change) {
        let known = self.keys(kind);
        if !known.is_empty() {
            let listed: HashSet<ObjectKey> = objects.iter().map(|listed| listed.object.key()).collect();
            known.iter().filter(|key| !listed.contains(key)).for_each(|key| self.remove(key, change));
        }
        if kind == Kind::Volume {
            // In the order of the index, so that its chunks are filled one after the other and never split.
            objects.sort_by(|a, b| capacity_and_name(&a.object).cmp(&capacity_and_name(&b.object)));
        }
        let number = self.lists_begun(kind);
        for listed in objects {
            self.apply(listed, Some(number), change);
        }
        // Before the first list of every kind there is nothing that a list could contradict.
        change.regression = change.regression.take().filter(|_| self.synced());
        if change.regression.is_some() {
            // A decision on this list and on caches of before the restore could give a volume to a claim that
            // does not exist any more.
            self.mark_unsynced();
        } else {
            self.synced.insert(kind);
        }
    }

    /// The keys of the known objects of a kind.
    fn keys(&self, kind: Kind) -> Vec<ObjectKey> {
        match kind {
            Kind::Volume => self.volume_names().into_iter().map(ObjectKey::Volume).collect(),
            Kind::Claim => self.claim_keys().into_iter().map(ObjectKey::Claim).collect(),
            Kind::Class => self.classes.keys().cloned().map(ObjectKey::Class).collect(),
            Kind::Pod => self.pods.keys().collect(),
            Kind::Node => self.nodes.iter().cloned().map(ObjectKey::Node).collect(),
            Kind::Namespace => {
                let names = self.namespaces.iter().flat_map(HashMap::keys);
                names.cloned().map(ObjectKey::Namespace).collect()
            }
        }
    }

    /// Gives a change its revision. One that changes nothing keeps the present one.
    fn commit(&mut self, mut change: Change) -> Change {
        if !change.is_empty() || self.history.as_ref().is_some_and(History::is_pending) {
            self.revision.0 += 1;
        }
        change.revision = self.revision;
        if let Some(history) = &mut self.history {
            history.remember(&change);
        }
        change
    }

    /// The change of a delivery or own write that is not taken.
    fn ignored(&self) -> Change {
        Change { revision: self.revision, ..Change::default() }
    }

    pub(crate) fn class(&self, name: &str) -> Lookup<Arc<Class>> {
        match self.classes.get(name) {
            None => Lookup::Absent,
            Some(Observed::Readable(class)) => Lookup::Found(class.clone()),
            Some(Observed::Unreadable(unreadable)) => Lookup::Unreadable(unreadable.why.clone()),
        }
    }

    /// The labels of a namespace.
    pub(crate) fn namespace_labels(&self, name: &str) -> Lookup<Arc<BTreeMap<Text, Text>>> {
        match &self.namespaces {
            None => Lookup::Failed("namespaces are not watched".into()),
            Some(namespaces) => namespaces.get(name).cloned().map_or(Lookup::Absent, Lookup::Found),
        }
    }

    /// Names of the default classes, newest first, then by name.
    ///
    /// # Errors
    ///
    /// A class cannot be read, so it may be the default; a class once given to a claim cannot be taken back.
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

    pub(crate) fn node(&self, name: &str) -> Lookup<()> {
        if self.nodes.contains(name) { Lookup::Found(()) } else { Lookup::Absent }
    }

    /// The claim for which a decision in flight has picked the volume.
    pub(crate) fn picked_for(&self, volume: &str) -> Option<&ClaimKey> {
        self.reservations.get(volume)
    }

    pub(crate) fn tallies(&self, query: &Query, asker: Option<&(ClaimKey, Uid)>) -> Vec<Tally> {
        let is_picked_for_claim =
            |volume: &Text| asker.is_some_and(|(key, _)| self.picked_for(volume) == Some(key));
        self.index.tallies(
            &self.volumes,
            TallyQuery { query, claim: asker, is_picked_for_claim: &is_picked_for_claim },
        )
    }
}

fn capacity_and_name(object: &Object) -> Option<(Quantity, &Text)> {
    match object {
        Object::Volume(name, Observed::Readable(volume)) => Some((volume.capacity.unwrap_or_default(), name)),
        _ => None,
    }
}
