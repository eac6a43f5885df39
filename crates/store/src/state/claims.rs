//! Changes of claims.

use std::collections::HashSet;
use std::sync::Arc;

use bindery_core::{Claim, ClaimKey, Lookup, Source, Version, Volume};

use super::State;
use crate::cached::{Cached, ListNumber, Moved};
use crate::change::{Change, Topic};
use crate::observed::{Kind, Observed, Unreadable};

impl State {
    pub(crate) fn apply_claim(&mut self, key: ClaimKey, observed: Observed<Claim>) -> Change {
        if self.claims.get(&key).is_some_and(|cached| cached.outdates(&observed)) {
            return self.ignored();
        }
        let topics = self.observe_claim(key, observed, None);
        self.changed(topics)
    }

    pub(crate) fn remove_claim(&mut self, key: &ClaimKey) -> (Change, Option<Arc<Claim>>) {
        let Some((key, cached)) = self.claims.remove_entry(key) else {
            return (self.changed(Vec::new()), None);
        };
        let topics = topics(&key, Moved { cache: true, overlay: true });
        (self.changed(topics), cached.overlay().ok().cloned())
    }

    pub(crate) fn replace_claims(
        &mut self,
        list: Vec<(ClaimKey, Observed<Claim>)>,
    ) -> (Change, Vec<Arc<Claim>>) {
        let listed: HashSet<&ClaimKey> = list.iter().map(|(key, _)| key).collect();
        let gone: Vec<ClaimKey> = self.claims.keys().filter(|key| !listed.contains(key)).cloned().collect();
        let (mut all, mut removed) = (Vec::new(), Vec::new());
        for key in gone {
            removed.extend(self.claims.remove(&key).and_then(|cached| cached.overlay().ok().cloned()));
            all.extend(topics(&key, Moved { cache: true, overlay: true }));
        }
        let number = self.lists_begun(Kind::Claim);
        for (key, observed) in list {
            all.extend(self.observe_claim(key, observed, Some(number)));
        }
        (self.changed(all), removed)
    }

    pub(crate) fn claim_regression(
        &self,
        key: &ClaimKey,
        listed: &Observed<Claim>,
    ) -> Option<(Version, Version)> {
        self.claims.get(key)?.regression(listed)
    }

    pub(crate) fn assume_claim(&mut self, claim: Arc<Claim>) -> Change {
        let list = self.lists_begun(Kind::Claim);
        let Some(cached) = self.claims.get_mut(&claim.key) else { return self.ignored() };
        let key = claim.key.clone();
        if !cached.assume(claim, list) {
            return self.ignored();
        }
        self.changed(topics(&key, Moved { cache: false, overlay: true }))
    }

    fn observe_claim(
        &mut self,
        key: ClaimKey,
        observed: Observed<Claim>,
        list: Option<ListNumber>,
    ) -> Vec<Topic> {
        if let Some(cached) = self.claims.get_mut(&key) {
            let moved = cached.observe(observed, list);
            return topics(&key, moved);
        }
        let key = match &observed {
            // The object's own texts, so that the delivery's can go.
            Observed::Readable(claim) if claim.key == key => claim.key.clone(),
            _ => key,
        };
        let topics = topics(&key, Moved { cache: true, overlay: true });
        self.claims.insert(key, Cached::new(observed));
        topics
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

    pub(crate) fn unreadable_claims(&self) -> Vec<(ClaimKey, Unreadable)> {
        let unreadable = self
            .claims
            .iter()
            .filter_map(|(key, cached)| cached.overlay().err().map(|why| (key.clone(), why.clone())));
        let mut list: Vec<_> = unreadable.collect();
        list.sort_by(|a, b| a.0.cmp(&b.0));
        list
    }

    /// Lets a volume name its claim by the texts of the claim itself, where that is known. Half of the memory
    /// of a bound pair that is not structure is these names and UIDs.
    pub(crate) fn share_claim_ref(&self, volume: &mut Arc<Volume>) {
        let Some(claim_ref) = Arc::get_mut(volume).and_then(|volume| volume.claim_ref.as_mut()) else {
            return;
        };
        let key = ClaimKey { namespace: claim_ref.namespace.clone(), name: claim_ref.name.clone() };
        let Some((key, cached)) = self.claims.get_key_value(&key) else { return };
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
        let Some(record) = self.volumes.find(name) else { return };
        name.clone_from(&record.name);
        if let Ok(volume) = record.cached.overlay()
            && let Some(claim_ref) = volume.claim_ref.as_ref().filter(|_| volume.is_bound_to(claim))
        {
            claim.key = ClaimKey { namespace: claim_ref.namespace.clone(), name: claim_ref.name.clone() };
            claim.uid = claim_ref.uid.clone().unwrap_or_else(|| claim.uid.clone());
        }
    }
}

fn topics(key: &ClaimKey, moved: Moved) -> Vec<Topic> {
    let mut topics = Vec::new();
    if moved.overlay {
        topics.push(Topic::Claim(Source::Overlay, key.clone()));
    }
    if moved.cache {
        topics.push(Topic::Claim(Source::Cache, key.clone()));
    }
    topics
}
