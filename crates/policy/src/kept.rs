//! The answers of matchers that are kept, so that a volume is judged again only when something changes that
//! the matcher reads.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, OnceLock};

use bindery_core::{Text, Volume};
use lru::LruCache;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::{ClaimView, Metadata, Narrowing};

/// Bytes of kept answers by default.
const BYTES_DEFAULT: usize = 64 << 20;
/// Bytes of a kept verdict: its key, itself, and the room of a hash table.
const VERDICT_BYTES: usize = 48;
/// Bytes of the answers about a claim, without the texts of its facts.
const CONTEXT_BYTES: usize = 512;

/// A matcher's verdict about a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// It may be taken: its score, 0 where the matcher does not score.
    Allowed(u32),
    /// It may not: the reason's place in [`Metadata::reasons`].
    Rejected(u32),
}

/// Narrowings and verdicts of one [`crate::Chain`]. A verdict is found again by the policy, the claim as the
/// policy sees it, the volume's UID, capacity and columns, and the number of siblings' volumes. If there are
/// too many, those of the claims that were asked about the longest time ago are forgotten.
pub struct Kept {
    inner: Mutex<Inner>,
    bytes_max: usize,
    hashers: [RandomState; 2],
}

struct Inner {
    contexts: LruCache<ContextKey, Arc<Context>>,
    /// Answers that were kept since all were last counted.
    uncounted: usize,
}

/// A policy's place in the chain, and a claim as it sees it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ContextKey {
    policy: usize,
    whole: u64,
    nanos: u32,
    facts: Vec<Option<Text>>,
}

/// What a policy has answered about claims that it sees alike.
pub(crate) struct Context {
    pub(crate) view: ClaimView,
    narrowing: OnceLock<Narrowing>,
    verdicts: Mutex<HashMap<u128, Verdict>>,
    hashers: [RandomState; 2],
}

impl Default for Kept {
    fn default() -> Self {
        Self::new(BYTES_DEFAULT)
    }
}

impl Kept {
    /// Keeps about this number of bytes.
    pub fn new(bytes_max: usize) -> Self {
        let inner = Inner { contexts: LruCache::unbounded(), uncounted: 0 };
        Self { inner: Mutex::new(inner), bytes_max, hashers: [RandomState::new(), RandomState::new()] }
    }

    /// Number of verdicts that are kept, by the policy's place in the chain.
    pub fn verdicts(&self) -> BTreeMap<usize, usize> {
        let mut verdicts = BTreeMap::new();
        for (key, context) in &self.inner.lock().contexts {
            *verdicts.entry(key.policy).or_default() += context.verdicts.lock().len();
        }
        verdicts
    }

    /// What is kept for a claim. It becomes the latest one.
    pub(crate) fn context(&self, policy: usize, view: ClaimView) -> Arc<Context> {
        let (whole, nanos) = (view.request.whole, view.request.nanos);
        let key = ContextKey { policy, whole, nanos, facts: view.facts.clone() };
        let new = || {
            let hashers = self.hashers.clone();
            Arc::new(Context { view, narrowing: OnceLock::new(), verdicts: Mutex::default(), hashers })
        };
        Arc::clone(self.inner.lock().contexts.get_or_insert(key, new))
    }

    /// Forgets the oldest answers until the rest fits, after this number of answers was kept. Counting visits
    /// every claim, so it is done once for each sixteenth of the bound.
    pub(crate) fn trim(&self, answers: usize) {
        let mut inner = self.inner.lock();
        inner.uncounted += answers;
        if inner.uncounted * CONTEXT_BYTES < self.bytes_max / 16 {
            return;
        }
        inner.uncounted = 0;
        let mut bytes: usize = inner.contexts.iter().map(|(key, context)| context.bytes(key)).sum();
        while bytes > self.bytes_max {
            let Some((key, context)) = inner.contexts.pop_lru() else { return };
            bytes -= context.bytes(&key).min(bytes);
        }
    }
}

impl Context {
    /// The narrowing, where the policy has been asked.
    pub(crate) fn narrowing(&self) -> Option<&Narrowing> {
        self.narrowing.get()
    }

    pub(crate) fn keep_narrowing(&self, narrowing: Narrowing) {
        // Another decision may have kept the same answer meanwhile.
        _ = self.narrowing.set(narrowing);
    }

    pub(crate) fn verdict(
        &self,
        metadata: &Metadata,
        volume: &Volume,
        count: Option<u32>,
    ) -> Option<Verdict> {
        self.verdicts.lock().get(&self.row(metadata, volume, count)).copied()
    }

    /// Keeps the verdicts about volumes; `spread` has the number of siblings' volumes for each, if the policy
    /// spreads.
    pub(crate) fn keep(
        &self,
        metadata: &Metadata,
        volumes: &[Arc<Volume>],
        spread: &[u32],
        verdicts: Vec<Verdict>,
    ) {
        let row = |(at, volume): (usize, &Arc<Volume>)| self.row(metadata, volume, spread.get(at).copied());
        let rows: Vec<u128> = volumes.iter().enumerate().map(row).collect();
        self.verdicts.lock().extend(rows.into_iter().zip(verdicts));
    }

    /// The key of a verdict: two hashes of everything that the verdict depends on. The hashes have random
    /// keys, so users cannot create two volumes with the same key.
    fn row(&self, metadata: &Metadata, volume: &Volume, count: Option<u32>) -> u128 {
        let capacity = volume.capacity.unwrap_or_default();
        let columns: Vec<Option<Text>> = metadata.columns.iter().map(|fact| volume.fact(fact)).collect();
        let row = (&volume.uid, capacity.whole, capacity.nanos, &columns, count);
        let hash = |hasher: &RandomState| u128::from(hasher.hash_one(row));
        let [first, second] = &self.hashers;
        hash(first) << 64 | hash(second)
    }

    fn bytes(&self, key: &ContextKey) -> usize {
        let texts: usize = key.facts.iter().flatten().map(|text| text.len()).sum();
        CONTEXT_BYTES + 2 * texts + VERDICT_BYTES * self.verdicts.lock().len()
    }
}
