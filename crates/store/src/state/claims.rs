//! Changes of claims.

use std::sync::Arc;

use bindery_core::{Claim, ClaimKey, ClaimRef, Lookup, Source, Uid, Volume};

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
            self.recount(&key, change);
            let change_of_claim = ObjectChange::Claim(key, changed);
            self.keep_last_claim(&change_of_claim);
            return change.push(change_of_claim);
        }
        let key = match &observed {
            // The object's own texts, so that the delivery's can go.
            Observed::Readable(claim) if claim.key == key => claim.key.clone(),
            _ => key,
        };
        change.push(ObjectChange::Claim(key.clone(), Changed::new(None, Some(observed.clone()))));
        self.claims.insert(key.clone(), Cached::new(observed));
        self.recount(&key, change);
    }

    pub(super) fn drop_claim(&mut self, key: &ClaimKey, change: &mut Change) {
        if let Some((key, cached)) = self.claims.remove_entry(key) {
            self.recount(&key, change);
            let gone = ObjectChange::Claim(key, cached.gone());
            self.keep_last_claim(&gone);
            change.push(gone);
        }
    }

    /// Keeps the last state of a claim that is gone, if its volume names it.
    fn keep_last_claim(&mut self, change: &ObjectChange) {
        let (Some(uid), ObjectChange::Claim(_, Changed { before: Some(Observed::Readable(claim)), .. })) =
            (change.gone(), change)
        else {
            return;
        };
        let is_named = claim.volume_name.as_ref().is_some_and(|name| self.names(name, uid));
        if let Some(last_claims) = self.last_claims.as_mut().filter(|_| is_named) {
            last_claims.insert(uid.clone(), Arc::clone(claim));
        }
    }

    /// Whether a volume names the claim of that UID.
    fn names(&self, volume: &str, uid: &Uid) -> bool {
        let volume = self.volumes.find(volume).and_then(|entry| entry.cached.overlay().ok());
        volume.and_then(|volume| volume.claim_ref.as_ref()).is_some_and(|it| it.uid.as_ref() == Some(uid))
    }

    /// The claim that a claimRef with a UID names, as it was last seen.
    pub(crate) fn last_claim(&self, claim_ref: &ClaimRef) -> Option<Arc<Claim>> {
        let uid = claim_ref.uid.as_ref()?;
        match self.claim(Source::Overlay, &claim_ref.claim_key()) {
            Lookup::Found(claim) if claim.uid == *uid => Some(claim),
            _ => self.last_claims.as_ref()?.get(uid).cloned(),
        }
    }

    pub(crate) fn assume_claim(&mut self, claim: Arc<Claim>) -> Change {
        let list = self.lists_begun(Kind::Claim);
        let Some(cached) = self.claims.get_mut(&claim.key) else { return self.ignored() };
        let key = claim.key.clone();
        let changed = cached.assume(claim, list);
        let mut change = Change { fresh: changed.overlay, ..Change::default() };
        self.recount(&key, &mut change);
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
