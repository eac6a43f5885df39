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
/// Bytes of the answers about a claim, without verdicts and the texts of its facts.
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
    contexts: LruCache<ContextKey, Counted>,
    bytes: usize,
    /// Verdicts by policy.
    verdicts: BTreeMap<usize, usize>,
}

/// What is kept of a context, as far as it is counted.
struct Counted {
    context: Arc<Context>,
    verdicts: usize,
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
        let inner = Inner { contexts: LruCache::unbounded(), bytes: 0, verdicts: BTreeMap::new() };
        Self { inner: Mutex::new(inner), bytes_max, hashers: [RandomState::new(), RandomState::new()] }
    }

    /// Number of verdicts that are kept, by the policy's place in the chain.
    pub fn verdicts(&self) -> BTreeMap<usize, usize> {
        self.inner.lock().verdicts.clone()
    }

    /// What is kept for a claim. It becomes the latest one.
    pub(crate) fn context(&self, policy: usize, view: ClaimView) -> Arc<Context> {
        let mut inner = self.inner.lock();
        inner.forget_oldest(self.bytes_max);
        let Inner { contexts, bytes, .. } = &mut *inner;
        let key = ContextKey::new(policy, &view);
        let counted = contexts.get_or_insert(key.clone(), || {
            *bytes += key.bytes();
            let hashers = self.hashers.clone();
            let (narrowing, verdicts) = (OnceLock::new(), Mutex::default());
            Counted { context: Arc::new(Context { view, narrowing, verdicts, hashers }), verdicts: 0 }
        });
        Arc::clone(&counted.context)
    }

    /// Counts the verdicts that were added to what is kept for a claim, and forgets the oldest answers until
    /// the rest fits.
    pub(crate) fn added(&self, policy: usize, context: &Arc<Context>, verdicts: usize) {
        let mut inner = self.inner.lock();
        let Inner { contexts, bytes, verdicts: all } = &mut *inner;
        // It may have been forgotten meanwhile.
        if let Some(counted) = contexts.peek_mut(&ContextKey::new(policy, &context.view))
            && Arc::ptr_eq(&counted.context, context)
        {
            counted.verdicts += verdicts;
            *bytes += VERDICT_BYTES * verdicts;
            *all.entry(policy).or_default() += verdicts;
        }
        inner.forget_oldest(self.bytes_max);
    }
}

impl Inner {
    fn forget_oldest(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max
            && let Some((key, counted)) = self.contexts.pop_lru()
        {
            self.bytes -= key.bytes() + VERDICT_BYTES * counted.verdicts;
            *self.verdicts.entry(key.policy).or_default() -= counted.verdicts;
        }
    }
}

impl ContextKey {
    fn new(policy: usize, ClaimView { request, facts }: &ClaimView) -> Self {
        Self { policy, whole: request.whole, nanos: request.nanos, facts: facts.clone() }
    }

    /// Bytes of the context without verdicts. The facts are in the key and in the view.
    fn bytes(&self) -> usize {
        CONTEXT_BYTES + 2 * self.facts.iter().flatten().map(|text| text.len()).sum::<usize>()
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
    /// spreads. Returns how many were not kept before.
    pub(crate) fn keep(
        &self,
        metadata: &Metadata,
        volumes: &[Arc<Volume>],
        spread: &[u32],
        verdicts: Vec<Verdict>,
    ) -> usize {
        let row = |(at, volume): (usize, &Arc<Volume>)| self.row(metadata, volume, spread.get(at).copied());
        let rows: Vec<u128> = volumes.iter().enumerate().map(row).collect();
        let mut kept = self.verdicts.lock();
        let before = kept.len();
        kept.extend(rows.into_iter().zip(verdicts));
        kept.len() - before
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
}
