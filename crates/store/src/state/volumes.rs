//! Changes of volumes, and what they do to the index.

use std::sync::Arc;

use bindery_core::{AccessModes, ClaimKey, Counted, Lookup, Source, Text, Volume};

use super::entries::VolumeEntry;
use super::{FreeVolume, State, VolumeId};
use crate::cached::{Cached, ListNumber};
use crate::change::{Change, Changed, Fact, ObjectChange};
use crate::delivery::{Kind, LazyAuthors, Observed};
use crate::index::{Availability, VolumeState, claim_of};
use crate::store::NotReserved;

impl State {
    pub(super) fn observe_volume(
        &mut self,
        name: Text,
        observed: Observed<Volume>,
        authors: Option<LazyAuthors>,
        list: Option<ListNumber>,
        change: &mut Change,
    ) {
        if let Some(id) = self.volumes.id(&name) {
            if list.is_some() {
                let cached = &self.volumes.get(id).cached;
                change.regression = change.regression.take().or_else(|| cached.regression(&observed));
            }
            let edit = |cached: &mut Cached<_>| Changed { authors, ..cached.observe(observed, list) };
            return self.edit_volume(id, change, edit);
        }
        let name = match &observed {
            // The object's own text, so that the delivery's can go.
            Observed::Readable(volume) if volume.name == name => volume.name.clone(),
            _ => name,
        };
        change.push(ObjectChange::Volume(name.clone(), Changed::new(None, Some(observed.clone()))));
        let id = self.volumes.insert(name, Cached::new(observed));
        self.reindex(id, &VolumeState::Absent, &self.volume_state(id), change);
    }

    pub(super) fn drop_volume(&mut self, name: &str, change: &mut Change) {
        let Some(id) = self.volumes.id(name) else { return };
        let was = self.volume_state(id);
        self.reindex(id, &was, &VolumeState::Absent, change);
        let VolumeEntry { name, cached } = self.volumes.remove(id);
        if let Some(claim) = self.picked_for(&name).cloned() {
            self.recount(&claim, change);
        }
        change.push(ObjectChange::Volume(name, cached.gone()));
    }

    pub(crate) fn assume_volume(&mut self, volume: Arc<Volume>) -> Change {
        let Some(id) = self.volumes.id(&volume.name) else {
            return self.ignored();
        };
        let list = self.lists_begun(Kind::Volume);
        let mut change = Change::default();
        self.edit_volume(id, &mut change, |cached| cached.assume(volume, list));
        change.fresh = !change.objects.is_empty();
        self.commit(change)
    }

    fn edit_volume(
        &mut self,
        id: VolumeId,
        change: &mut Change,
        edit: impl FnOnce(&mut Cached<Volume>) -> Changed<Volume>,
    ) {
        let was = self.volume_state(id);
        let entry = self.volumes.get_mut(id);
        let changed = edit(&mut entry.cached);
        let is_reindexed = changed.overlay;
        change.push(ObjectChange::Volume(entry.name.clone(), changed));
        if is_reindexed {
            self.reindex(id, &was, &self.volume_state(id), change);
        }
    }

    fn volume_state(&self, id: VolumeId) -> VolumeState {
        self.volumes
            .overlay(id)
            .map_or(VolumeState::Unreadable, |volume| VolumeState::Readable(volume.clone()))
    }

    /// Brings the index from what the overlay had to what it has, and adds the facts that this changes.
    fn reindex(&mut self, id: VolumeId, was: &VolumeState, now: &VolumeState, change: &mut Change) {
        if was.is_indexed_like(now) {
            return;
        }
        let name = self.volumes.get(id).name.clone();
        self.remember_free(&name, was, now);
        let picked = self.reservations.contains_key(&name);
        let mut sets: Vec<AccessModes> =
            [was, now].iter().filter_map(|s| s.volume()).map(|v| v.access_set()).collect();
        sets.dedup();
        let existed: Vec<bool> = sets.iter().map(|set| self.index.has_access_set(*set)).collect();
        self.index.remove(&self.volumes, id, &name, was);
        self.index.insert(&self.volumes, id, &name, now, picked);
        for (set, existed) in sets.into_iter().zip(existed) {
            if self.index.has_access_set(set) != existed {
                change.facts.push(Fact::AccessSets(set));
            }
        }
        let mut claims: Vec<ClaimKey> =
            [was, now].iter().filter_map(|s| s.volume()).filter_map(|v| claim_of(v)).collect();
        claims.dedup();
        if let Some(last_claims) = &mut self.last_claims {
            let named = |state: &VolumeState| state.volume().and_then(|volume| volume.claim_ref.clone()?.uid);
            if let Some(before) = named(was).filter(|before| named(now).as_ref() != Some(before)) {
                last_claims.remove(&before);
            }
        }
        let owners: Vec<ClaimKey> = claims.iter().chain(self.picked_for(&name)).cloned().collect();
        owners.iter().for_each(|claim| self.recount(claim, change));
        change.facts.extend(claims.into_iter().map(Fact::ReservedFor));
        // Where a decision in flight has picked it, it is offered when that one ends without taking it.
        let is_free = |volume: &&Arc<Volume>| !picked && Availability::of(volume) == Availability::Free;
        change.offers.extend(now.volume().filter(is_free).cloned());
    }

    pub(crate) fn reserve(
        &mut self,
        volume: &str,
        claim: &ClaimKey,
        counted: &[Counted],
    ) -> Result<Change, NotReserved> {
        match self.picked_for(volume) {
            Some(other) if other != claim => return Err(NotReserved::PickedFor(other.clone())),
            _ if !self.is_as_counted(claim, counted) => return Err(NotReserved::Siblings),
            Some(_) => return Ok(self.ignored()),
            None => {}
        }
        let known = self.volumes.id(volume);
        let name = known.map_or_else(|| volume.into(), |id| self.volumes.get(id).name.clone());
        self.remember_pick(&name);
        self.reservations.insert(name, claim.clone());
        self.set_picked(known, true);
        let mut change = Change { fresh: true, ..Change::default() };
        self.recount(claim, &mut change);
        Ok(self.commit(change))
    }

    pub(crate) fn unreserve(&mut self, volume: &str, claim: &ClaimKey) -> Change {
        if self.reservations.get(volume) != Some(claim) {
            return self.ignored();
        }
        self.remember_pick(volume);
        self.reservations.remove(volume);
        let known = self.volumes.id(volume);
        self.set_picked(known, false);
        let mut change = Change { fresh: true, ..Change::default() };
        change.offers.extend(self.free(volume));
        if change.offers.is_empty() {
            change.facts.push(Fact::Reservation(volume.into()));
        }
        self.recount(claim, &mut change);
        self.commit(change)
    }

    /// The volume, where it is free and no decision in flight has picked it.
    pub(crate) fn free(&self, name: &str) -> Option<Arc<Volume>> {
        let volume = self.volumes.find(name)?.cached.overlay().ok()?;
        let is_free = Availability::of(volume) == Availability::Free && !self.reservations.contains_key(name);
        is_free.then(|| volume.clone())
    }

    /// Remembers what a volume was before it is indexed anew, where it was free or becomes so.
    fn remember_free(&mut self, name: &Text, was: &VolumeState, now: &VolumeState) {
        let Some(history) = &mut self.history else { return };
        let free = |state: &VolumeState| {
            state.volume().filter(|volume| Availability::of(volume) == Availability::Free).cloned()
        };
        let picked_for = self.reservations.get(name).cloned();
        match free(was) {
            Some(volume) => history.changes(name.clone(), Some(FreeVolume { volume, picked_for })),
            None if free(now).is_some() => history.changes(name.clone(), None),
            None => {}
        }
    }

    /// Remembers a free volume before a decision picks it, or ends.
    fn remember_pick(&mut self, name: &str) {
        let Some(history) = &mut self.history else { return };
        let known = self.volumes.find(name).and_then(|entry| entry.cached.overlay().ok());
        let free = known.filter(|volume| Availability::of(volume) == Availability::Free);
        if let Some(volume) = free.cloned() {
            let picked_for = self.reservations.get(name).cloned();
            history.changes(volume.name.clone(), Some(FreeVolume { volume, picked_for }));
        }
    }

    fn set_picked(&mut self, id: Option<VolumeId>, picked: bool) {
        if let Some(id) = id
            && let Ok(volume) = self.volumes.overlay(id)
        {
            self.index.set_picked(id, volume, picked);
        }
    }

    pub(crate) fn volume(&self, source: Source, name: &str) -> Lookup<Arc<Volume>> {
        self.volumes.find(name).map_or(Lookup::Absent, |entry| entry.cached.lookup(source))
    }

    pub(crate) fn volumes(&self) -> Vec<Arc<Volume>> {
        self.volumes.iter().filter_map(|entry| entry.cached.overlay().ok().cloned()).collect()
    }

    pub(crate) fn volumes_naming(&self, claim: &ClaimKey) -> Vec<Arc<Volume>> {
        self.index.naming(claim).map(|id| self.volumes.indexed(id).clone()).collect()
    }

    pub(crate) fn volumes_labelled(&self, claim: &ClaimKey) -> Vec<Arc<Volume>> {
        self.index.labelled(claim).map(|id| self.volumes.indexed(id).clone()).collect()
    }

    pub(crate) fn volume_names(&self) -> Vec<Text> {
        self.volumes.iter().map(|entry| entry.name.clone()).collect()
    }
}
