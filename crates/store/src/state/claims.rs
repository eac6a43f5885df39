//! Changes of claims.

use std::sync::Arc;

use bindery_core::{Claim, ClaimKey, Lookup, Source, Volume};

use super::State;
use crate::cached::{Cached, ListNumber};
use crate::change::{Change, Changed, ObjectChange};
use crate::delivery::{Kind, LazyAuthors, Observed, Unreadable};

impl State {
    pub(super) fn observe_claim(
        &mut self,
        key: ClaimKey,
        observed: Observed<Claim>,
        authors: Option<LazyAuthors>,
        list: Option<ListNumber>,
        change: &mut Change,
    ) {
        if let Some(cached) = self.claims.get_mut(&key) {
            if list.is_some() {
                change.regression = change.regression.take().or_else(|| cached.regression(&observed));
            }
            let changed = Changed { authors, ..cached.observe(observed, list) };
            return change.push(ObjectChange::Claim(key, changed));
        }
        let key = match &observed {
            // The object's own texts, so that the delivery's can go.
            Observed::Readable(claim) if claim.key == key => claim.key.clone(),
            _ => key,
        };
        change.push(ObjectChange::Claim(key.clone(), Changed::new(None, Some(observed.clone()))));
        self.claims.insert(key, Cached::new(observed));
    }

    pub(super) fn drop_claim(&mut self, key: &ClaimKey, change: &mut Change) {
        if let Some((key, cached)) = self.claims.remove_entry(key) {
            change.push(ObjectChange::Claim(key, cached.gone()));
        }
    }

    pub(crate) fn assume_claim(&mut self, claim: Arc<Claim>) -> Change {
        let list = self.lists_begun(Kind::Claim);
        let Some(cached) = self.claims.get_mut(&claim.key) else { return self.ignored() };
        let key = claim.key.clone();
        let changed = cached.assume(claim, list);
        let mut change = Change { fresh: changed.overlay, ..Change::default() };
        change.push(ObjectChange::Claim(key, changed));
        self.commit(change)
    }

    pub(crate) fn claim(&self, source: Source, key: &ClaimKey) -> Lookup<Arc<Claim>> {
        self.claims.get(key).map_or(Lookup::Absent, |cached| cached.lookup(source))
    }

    pub(crate) fn claims(&self) -> Vec<Arc<Claim>> {
        self.claims.values().filter_map(|cached| cached.overlay().ok().cloned()).collect()
    }

    pub(crate) fn claim_keys(&self) -> Vec<ClaimKey> {
        self.claims.keys().cloned().collect()
    }

    pub(crate) fn unreadable_claim(&self, key: &ClaimKey) -> Option<Unreadable> {
        self.claims.get(key)?.overlay().err().cloned()
    }

    /// Lets a volume name its claim by the texts of the claim itself, where that is known. Half of the memory
    /// of a bound pair that is not structure is these names and UIDs.
    pub(crate) fn share_claim_ref(&self, volume: &mut Arc<Volume>) {
        let Some(claim_ref) = Arc::get_mut(volume).and_then(|volume| volume.claim_ref.as_mut()) else {
            return;
        };
        let Some((key, cached)) = self.claims.get_key_value(&claim_ref.claim_key()) else { return };
        claim_ref.namespace = key.namespace.clone();
        claim_ref.name = key.name.clone();
        if let Ok(claim) = cached.overlay()
            && claim_ref.uid.as_ref() == Some(&claim.uid)
        {
            claim_ref.uid = Some(claim.uid.clone());
        }
    }

    /// Lets a claim name its volume by the volume's own text, and itself by those of the volume's claimRef.
    pub(crate) fn share_volume_name(&self, claim: &mut Arc<Claim>) {
        let Some(claim) = Arc::get_mut(claim) else { return };
        let Some(name) = &mut claim.volume_name else { return };
        let Some(entry) = self.volumes.find(name) else { return };
        name.clone_from(&entry.name);
        if let Ok(volume) = entry.cached.overlay()
            && let Some(claim_ref) = volume.claim_ref.as_ref().filter(|_| volume.is_bound_to(claim))
        {
            claim.key = claim_ref.claim_key();
            claim.uid = claim_ref.uid.clone().unwrap_or_else(|| claim.uid.clone());
        }
    }
}
