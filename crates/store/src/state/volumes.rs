//! Changes of volumes, and what they do to the index.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

use bindery_core::{AccessModes, ClaimKey, Lookup, Source, Text, Volume};

use super::{State, VolumeId};
use crate::cached::{Cached, ListNumber, Moved};
use crate::change::{Change, Topic};
use crate::index::{Seen, Standing, claim_of};
use crate::observed::{Kind, Observed, Unreadable};
use crate::store::HeldBy;

impl State {
    pub(crate) fn apply_volume(&mut self, name: Text, observed: Observed<Volume>) -> Change {
        let known = self.volumes.find(&name);
        if known.is_some_and(|record| record.cached.outdates(&observed)) {
            return self.ignored();
        }
        let mut change = Change { fresh: true, ..Change::default() };
        self.observe_volume(name, observed, None, &mut change);
        self.commit(change)
    }

    pub(crate) fn remove_volume(&mut self, name: &str) -> (Change, Option<Arc<Volume>>) {
        let mut change = Change { fresh: true, ..Change::default() };
        let removed = self.volumes.id(name).and_then(|id| self.drop_volume(id, &mut change));
        (self.commit(change), removed)
    }

    pub(crate) fn replace_volumes(
        &mut self,
        mut list: Vec<(Text, Observed<Volume>)>,
    ) -> (Change, Vec<Arc<Volume>>) {
        let mut change = Change { fresh: true, ..Change::default() };
        let listed: HashSet<&Text> = list.iter().map(|(name, _)| name).collect();
        let gone: Vec<VolumeId> = self
            .volumes
            .iter()
            .filter(|record| !listed.contains(&record.name))
            .filter_map(|record| self.volumes.id(&record.name))
            .collect();
        let removed = gone.into_iter().filter_map(|id| self.drop_volume(id, &mut change)).collect();
        // In the order of the index, so that its chunks are filled one after the other and never split.
        list.sort_by(|(_, a), (_, b)| by_capacity_and_name(a, b));
        let number = self.lists_begun(Kind::Volume);
        for (name, observed) in list {
            self.observe_volume(name, observed, Some(number), &mut change);
        }
        (self.commit(change), removed)
    }

    pub(crate) fn assume_volume(&mut self, volume: Arc<Volume>) -> Change {
        let Some(id) = self.volumes.id(&volume.name) else {
            return self.ignored();
        };
        let list = self.lists_begun(Kind::Volume);
        let mut change = Change::default();
        self.edit_volume(id, &mut change, |cached, change| {
            change.fresh = cached.assume(volume, list);
            Moved { cache: false, overlay: change.fresh }
        });
        self.commit(change)
    }

    fn observe_volume(
        &mut self,
        name: Text,
        observed: Observed<Volume>,
        list: Option<ListNumber>,
        change: &mut Change,
    ) {
        if let Some(id) = self.volumes.id(&name) {
            return self.edit_volume(id, change, |cached, _| cached.observe(observed, list));
        }
        let name = match &observed {
            // The object's own text, so that the delivery's can go.
            Observed::Readable(volume) if volume.name == name => volume.name.clone(),
            _ => name,
        };
        let id = self.volumes.insert(name, Cached::new(observed));
        self.moved(id, Moved { cache: true, overlay: true }, change);
        self.reindex(id, &Seen::Absent, &self.seen(id), change);
    }

    /// Takes a volume out. Answers it as the overlay had it.
    fn drop_volume(&mut self, id: VolumeId, change: &mut Change) -> Option<Arc<Volume>> {
        self.moved(id, Moved { cache: true, overlay: true }, change);
        let was = self.seen(id);
        self.reindex(id, &was, &Seen::Absent, change);
        self.volumes.remove(id);
        match was {
            Seen::Readable(volume) => Some(volume),
            Seen::Absent | Seen::Unreadable => None,
        }
    }

    fn edit_volume(
        &mut self,
        id: VolumeId,
        change: &mut Change,
        edit: impl FnOnce(&mut Cached<Volume>, &mut Change) -> Moved,
    ) {
        let was = self.seen(id);
        let moved = edit(&mut self.volumes.get_mut(id).cached, change);
        self.moved(id, moved, change);
        if moved.overlay {
            self.reindex(id, &was, &self.seen(id), change);
        }
    }

    fn seen(&self, id: VolumeId) -> Seen {
        self.volumes.overlay(id).map_or(Seen::Unreadable, |volume| Seen::Readable(volume.clone()))
    }

    fn moved(&self, id: VolumeId, moved: Moved, change: &mut Change) {
        let name = &self.volumes.get(id).name;
        if moved.overlay {
            change.topics.push(Topic::Volume(Source::Overlay, name.clone()));
        }
        if moved.cache {
            change.topics.push(Topic::Volume(Source::Cache, name.clone()));
        }
    }

    /// Brings the index from what the overlay had to what it has, and says whose answers that alters.
    fn reindex(&mut self, id: VolumeId, was: &Seen, now: &Seen, change: &mut Change) {
        if was.is_indexed_like(now) {
            return;
        }
        let name = self.volumes.get(id).name.clone();
        let held = self.reservations.contains_key(&name);
        let mut sets: Vec<AccessModes> =
            [was, now].iter().filter_map(|s| s.volume()).map(|v| v.access_set()).collect();
        sets.dedup();
        let existed: Vec<bool> = sets.iter().map(|set| self.index.has_access_set(*set)).collect();
        self.index.remove(&self.volumes, id, &name, was);
        self.index.insert(&self.volumes, id, &name, now, held);
        for (set, existed) in sets.into_iter().zip(existed) {
            if self.index.has_access_set(set) != existed {
                change.topics.push(Topic::AccessSets(set));
            }
        }
        let mut claims: Vec<ClaimKey> =
            [was, now].iter().filter_map(|s| s.volume()).filter_map(|v| claim_of(v)).collect();
        claims.dedup();
        change.topics.extend(claims.into_iter().map(Topic::ReservedFor));
        // Where a decision in flight has picked it, it is offered when that one ends without taking it.
        let is_free = |volume: &&Arc<Volume>| !held && Standing::of(volume) == Standing::Free;
        change.offers.extend(now.volume().filter(is_free).cloned());
    }

    pub(crate) fn reserve(&mut self, volume: &str, claim: &ClaimKey) -> Result<(), HeldBy> {
        if let Some(holder) = self.reservations.get(volume) {
            return if holder == claim { Ok(()) } else { Err(HeldBy(holder.clone())) };
        }
        let known = self.volumes.id(volume);
        let name = known.map_or_else(|| volume.into(), |id| self.volumes.get(id).name.clone());
        self.reservations.insert(name, claim.clone());
        self.hold(known, true);
        Ok(())
    }

    pub(crate) fn unreserve(&mut self, volume: &str, claim: &ClaimKey) -> Change {
        if self.reservations.get(volume) != Some(claim) {
            return self.ignored();
        }
        self.reservations.remove(volume);
        let known = self.volumes.id(volume);
        self.hold(known, false);
        let mut change = Change { fresh: true, ..Change::default() };
        change.offers.extend(self.free(volume));
        if change.offers.is_empty() {
            change.topics.push(Topic::Reservation(volume.into()));
        }
        self.commit(change)
    }

    /// The volume, where it is free and no decision in flight has picked it.
    pub(crate) fn free(&self, name: &str) -> Option<Arc<Volume>> {
        let volume = self.volumes.find(name)?.cached.overlay().ok()?;
        let is_free = Standing::of(volume) == Standing::Free && !self.reservations.contains_key(name);
        is_free.then(|| volume.clone())
    }

    fn hold(&mut self, id: Option<VolumeId>, held: bool) {
        if let Some(id) = id
            && let Ok(volume) = self.volumes.overlay(id)
        {
            self.index.hold(id, volume, held);
        }
    }

    pub(crate) fn reserved(&self, volume: &str) -> Option<ClaimKey> {
        self.reservations.get(volume).cloned()
    }

    pub(crate) fn volume(&self, source: Source, name: &str) -> Lookup<Arc<Volume>> {
        self.volumes.find(name).map_or(Lookup::Absent, |record| record.cached.lookup(source))
    }

    pub(crate) fn volumes(&self) -> Vec<Arc<Volume>> {
        self.volumes.iter().filter_map(|record| record.cached.overlay().ok().cloned()).collect()
    }

    pub(crate) fn volume_names(&self) -> Vec<Text> {
        self.volumes.iter().map(|record| record.name.clone()).collect()
    }

    pub(crate) fn unreadable_volumes(&self) -> Vec<(Text, Unreadable)> {
        let unreadable = self
            .volumes
            .iter()
            .filter_map(|record| record.cached.overlay().err().map(|why| (record.name.clone(), why.clone())));
        let mut list: Vec<_> = unreadable.collect();
        list.sort_by(|a, b| a.0.cmp(&b.0));
        list
    }
}

fn by_capacity_and_name(a: &Observed<Volume>, b: &Observed<Volume>) -> Ordering {
    let place = |observed: &Observed<Volume>| match observed {
        Observed::Readable(volume) => Some((volume.capacity.unwrap_or_default(), volume.name.clone())),
        Observed::Unreadable(_) => None,
    };
    place(a).cmp(&place(b))
}
