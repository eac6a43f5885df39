//! Changes of claims.

use std::collections::HashSet;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use bindery_core::{Claim, ClaimKey, Lookup, Source};

use super::State;
use crate::cached::{Cached, Moved};
use crate::change::{Change, Topic};
use crate::observed::{Observed, Unreadable};

impl State {
    pub(crate) fn apply_claim(&mut self, key: ClaimKey, observed: Observed<Claim>) -> Change {
        if self.claims.get(&key).is_some_and(|cached| cached.outdates(&observed)) {
            return self.ignored();
        }
        let topics = self.observe_claim(key, observed);
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
        for (key, observed) in list {
            all.extend(self.observe_claim(key, observed));
        }
        (self.changed(all), removed)
    }

    pub(crate) fn assume_claim(&mut self, claim: Arc<Claim>) -> Change {
        let Some(cached) = self.claims.get_mut(&claim.key) else { return self.ignored() };
        let key = claim.key.clone();
        if !cached.assume(claim) {
            return self.ignored();
        }
        self.changed(topics(&key, Moved { cache: false, overlay: true }))
    }

    fn observe_claim(&mut self, key: ClaimKey, observed: Observed<Claim>) -> Vec<Topic> {
        match self.claims.entry(key) {
            Entry::Occupied(mut entry) => {
                let moved = entry.get_mut().observe(observed);
                topics(entry.key(), moved)
            }
            Entry::Vacant(entry) => {
                let topics = topics(entry.key(), Moved { cache: true, overlay: true });
                entry.insert(Cached::new(observed));
                topics
            }
        }
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
