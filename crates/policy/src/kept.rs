//! The answers of matchers that are kept, so that a volume is judged again only when something changes that
//! the matcher reads.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, OnceLock};

use bindery_core::{Quantity, Text};
use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use crate::{ClaimView, Narrowing};

/// Bytes of kept answers by default.
const BYTES_DEFAULT: usize = 64 << 20;
/// Bytes of a kept verdict: its key, itself, and the room of a hash table.
const VERDICT_BYTES: usize = 48;
/// Bytes of the answers about a claim, without verdicts, narrowing and the texts of its facts.
const CONTEXT_BYTES: usize = 512;

/// A matcher's verdict about a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// It may be taken: its score, 0 where the matcher does not score.
    Allowed(u32),
    /// It may not: the reason's place in [`crate::Metadata::reasons`].
    Rejected(u32),
}

/// Narrowings and verdicts of one [`crate::Chain`]. A verdict is found again by the policy, and the claim and
/// the volume as the policy sees them. If there are too many, those of the claims that were asked about the
/// longest time ago are forgotten.
pub struct AnswerCache {
    inner: Mutex<Inner>,
    bytes_max: usize,
}

struct Inner {
    contexts: LruCache<ContextKey, KeptContext>,
    bytes: usize,
    /// Verdicts by policy.
    verdicts: BTreeMap<usize, usize>,
}

/// What is kept of a context, as far as it is counted.
struct KeptContext {
    context: Arc<Context>,
    verdicts: usize,
    /// Bytes of the narrowing.
    narrowing: usize,
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
    /// With the units of fuel that the call used.
    narrowing: OnceLock<(Narrowing, Option<u64>)>,
    verdicts: Mutex<Verdicts>,
}

/// Verdicts by what was shown.
pub(crate) type Verdicts = HashMap<RowKey, Verdict, RowHash>;

/// Hashes row keys by a secret odd factor, so users cannot choose capacities whose keys collide in a map.
#[derive(Clone, Copy)]
pub(crate) struct RowHash {
    factor: u128,
}

pub(crate) struct RowHasher {
    factor: u128,
    hash: u64,
}

/// Names what a matcher is shown of a volume: its capacity, the hashes of its columns, and the number of
/// siblings' volumes. The matcher sees nothing else, so volumes with equal keys get one verdict. The hashes
/// have random keys ([`bindery_core::ColumnSet`]), so users cannot create two volumes with the same key that
/// differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowKey(u128);

impl Default for AnswerCache {
    fn default() -> Self {
        Self::new(BYTES_DEFAULT)
    }
}

impl AnswerCache {
    /// Keeps about this number of bytes.
    pub fn new(bytes_max: usize) -> Self {
        let inner = Inner { contexts: LruCache::unbounded(), bytes: 0, verdicts: BTreeMap::new() };
        Self { inner: Mutex::new(inner), bytes_max }
    }

    /// About how many bytes it keeps at most.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
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
            let (narrowing, verdicts) = (OnceLock::new(), Mutex::default());
            let context = Arc::new(Context { view, narrowing, verdicts });
            KeptContext { context, verdicts: 0, narrowing: 0 }
        });
        Arc::clone(&counted.context)
    }

    /// Counts the narrowing and the verdicts that were added to what is kept for a claim, and forgets the
    /// oldest answers until the rest fits.
    pub(crate) fn added(&self, policy: usize, context: &Arc<Context>, verdicts: usize) {
        let mut inner = self.inner.lock();
        let Inner { contexts, bytes, verdicts: all } = &mut *inner;
        // It may have been forgotten meanwhile.
        if let Some(counted) = contexts.peek_mut(&ContextKey::new(policy, &context.view))
            && Arc::ptr_eq(&counted.context, context)
        {
            counted.verdicts += verdicts;
            *bytes += VERDICT_BYTES * verdicts;
            if counted.narrowing == 0 {
                counted.narrowing = context.narrowing().map_or(0, Narrowing::bytes);
                *bytes += counted.narrowing;
            }
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
            self.bytes -= key.bytes() + VERDICT_BYTES * counted.verdicts + counted.narrowing;
            *self.verdicts.entry(key.policy).or_default() -= counted.verdicts;
        }
    }
}

impl ContextKey {
    fn new(policy: usize, ClaimView { request, facts }: &ClaimView) -> Self {
        Self { policy, whole: request.whole, nanos: request.nanos, facts: facts.clone() }
    }

    /// Bytes of the context without verdicts and narrowing. The facts are in the key and in the view.
    fn bytes(&self) -> usize {
        CONTEXT_BYTES + 2 * self.facts.iter().flatten().map(|text| text.len()).sum::<usize>()
    }
}

impl Context {
    /// The narrowing, where the policy has been asked.
    pub(crate) fn narrowing(&self) -> Option<&Narrowing> {
        self.narrowing.get().map(|(narrowing, _)| narrowing)
    }

    /// The fuel of the call that narrowed, whichever decision made it; `None` where none is counted.
    pub(crate) fn narrowing_fuel(&self) -> Option<u64> {
        self.narrowing.get().and_then(|(_, fuel)| *fuel)
    }

    pub(crate) fn keep_narrowing(&self, narrowing: Narrowing, fuel: Option<u64>) {
        // Another decision may have kept the same answer meanwhile.
        _ = self.narrowing.set((narrowing, fuel));
    }

    /// The verdicts. While they are locked, no other decision keeps or reads verdicts about claims like this.
    pub(crate) fn verdicts(&self) -> MutexGuard<'_, Verdicts> {
        self.verdicts.lock()
    }

    pub(crate) fn verdict(&self, row: RowKey) -> Option<Verdict> {
        self.verdicts().get(&row).copied()
    }

    /// Keeps verdicts. Returns how many were not kept before.
    pub(crate) fn keep(&self, rows: &[RowKey], verdicts: Vec<Verdict>) -> usize {
        let mut kept = self.verdicts.lock();
        let before = kept.len();
        kept.extend(rows.iter().copied().zip(verdicts));
        kept.len() - before
    }
}

impl RowKey {
    /// Rows that differ in capacity or number alone have keys that differ. A column that differs changes the
    /// key by a number that no user can foresee, times a power of two that tells the columns apart.
    pub(crate) fn new(capacity: Quantity, count: Option<u32>, columns: impl Iterator<Item = u128>) -> Self {
        let columns = columns.fold(0_u128, |key, hash| (key << 1).wrapping_add(hash));
        let rest = u128::from(capacity.whole) << 64
            | u128::from(capacity.nanos) << 32
            | u128::from(count.unwrap_or_default());
        Self(columns.wrapping_add(rest))
    }
}

impl Default for RowHash {
    fn default() -> Self {
        let [high, low] = [0, 1].map(|half: u8| u128::from(RandomState::new().hash_one(half)));
        Self { factor: high << 64 | low | 1 }
    }
}

impl BuildHasher for RowHash {
    type Hasher = RowHasher;

    fn build_hasher(&self) -> RowHasher {
        RowHasher { factor: self.factor, hash: 0 }
    }
}

impl Hasher for RowHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u128(u128::from(*byte)));
    }

    /// The upper bits of a product depend on all bits of its factors, but the map uses the lower ones too: a
    /// second product spreads them.
    fn write_u128(&mut self, key: u128) {
        let upper = key.wrapping_add(u128::from(self.hash)).wrapping_mul(self.factor) >> 64;
        let spread = upper * (self.factor >> 64);
        self.hash = (spread >> 64 ^ spread) as u64;
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use bindery_core::SelectorOperator;

    use super::*;
    use crate::Requirement;

    #[test]
    fn given_large_narrowings_they_are_counted_and_the_oldest_go() {
        let kept = AnswerCache::new(250_000);
        let context = |fact: &str| {
            let facts = vec![Some(fact.into())];
            kept.context(0, ClaimView { request: Quantity::default(), facts })
        };
        for fact in ["a", "b", "c"] {
            let context = context(fact);
            let values = vec!["x".repeat(50_000).into(), "y".repeat(50_000).into()];
            let needed = Requirement { column: 0, operator: SelectorOperator::In, values, reason: 0 };
            let narrowing = Narrowing { requirements: vec![needed], ..Narrowing::default() };
            context.keep_narrowing(narrowing, None);
            kept.added(0, &context, 0);
            kept.added(0, &context, 1);
        }
        assert_eq!(["c", "b", "a"].map(|fact| context(fact).narrowing().is_some()), [true, true, false]);
        let mut inner = kept.inner.lock();
        inner.forget_oldest(0);
        assert_eq!(inner.bytes, 0);
    }
}
