//! How many volumes siblings have, for policies that spread volumes.
//!
//! Volumes of a claim are those whose claimRef names it, and those that decisions in flight have picked for
//! it. A volume that is both counts once.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bindery_core::{Claim, ClaimKey, Counted, Counts, Lookup, Siblings, Source, Spread, Text};

use super::{State, VolumeId};
use crate::change::{Change, Fact};

/// The volumes of siblings, counted by value. Only for declared spreads.
#[derive(Debug, Default)]
pub(crate) struct SiblingCounts {
    spreads: Vec<Spread>,
    counts: HashMap<Arc<Siblings>, Counts>,
    /// What each claim has added to the counts.
    shares: HashMap<ClaimKey, Vec<Share>>,
}

/// A volume of a claim, as it is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Share {
    siblings: Arc<Siblings>,
    value: Option<Text>,
}

impl SiblingCounts {
    fn counts_for(&self, claim: &ClaimKey, siblings: &Siblings) -> Counts {
        let mut counts = self.counts.get(siblings).cloned().unwrap_or_default();
        let own = self.shares.get(claim).into_iter().flatten();
        own.filter(|share| *share.siblings == *siblings)
            .for_each(|share| subtract(&mut counts, &share.value));
        counts
    }

    /// Replaces the shares of a claim. Returns those that were added or removed.
    fn replace(&mut self, claim: &ClaimKey, shares: Vec<Share>) -> Vec<Share> {
        let before = self.shares.remove(claim).unwrap_or_default();
        for Share { siblings, value } in &before {
            let Some(counts) = self.counts.get_mut(siblings) else { continue };
            subtract(counts, value);
            if counts.is_empty() {
                self.counts.remove(siblings);
            }
        }
        for Share { siblings, value } in &shares {
            *self.counts.entry(Arc::clone(siblings)).or_default().entry(value.clone()).or_default() += 1;
        }
        let changed = differing(&before, &shares).chain(differing(&shares, &before)).cloned().collect();
        if !shares.is_empty() {
            self.shares.insert(claim.clone(), shares);
        }
        changed
    }

    fn shared(&self, siblings: Siblings) -> Arc<Siblings> {
        self.counts
            .get_key_value(&siblings)
            .map_or_else(|| Arc::new(siblings), |(known, _)| Arc::clone(known))
    }
}

fn subtract(counts: &mut Counts, value: &Option<Text>) {
    if let Some(count) = counts.get_mut(value) {
        *count -= 1;
        if *count == 0 {
            counts.remove(value);
        }
    }
}

/// The shares that occur more often than among the others.
fn differing<'a>(shares: &'a [Share], others: &'a [Share]) -> impl Iterator<Item = &'a Share> {
    let number = |of: &[Share], share: &Share| of.iter().filter(|other| *other == share).count();
    shares.iter().filter(move |share| number(shares, share) > number(others, share))
}

impl State {
    pub(crate) fn keep_spreads(&mut self, spreads: &BTreeSet<Spread>) {
        self.siblings = SiblingCounts { spreads: spreads.iter().cloned().collect(), ..Default::default() };
        let mut change = Change::default();
        self.claim_keys().iter().for_each(|claim| self.recount(claim, &mut change));
    }

    /// Counts the volumes of a claim anew, after the claim, one of the volumes or a reservation has changed.
    pub(super) fn recount(&mut self, claim: &ClaimKey, change: &mut Change) {
        if self.siblings.spreads.is_empty() {
            return;
        }
        let shares = self.shares_of(claim);
        let changed = self.siblings.replace(claim, shares);
        if let Some(history) = &mut self.history {
            changed.iter().for_each(|share| history.counts(claim, &share.siblings));
        }
        change.facts.extend(changed.into_iter().map(|share| Fact::Siblings(share.siblings, share.value)));
    }

    fn shares_of(&self, key: &ClaimKey) -> Vec<Share> {
        let Lookup::Found(claim) = self.claim(Source::Overlay, key) else { return Vec::new() };
        let mut ids = self.index.reserved_for(&self.volumes, key, &claim.uid);
        let picks = self.reservations.iter().filter(|(_, picked_for)| *picked_for == key);
        ids.extend(picks.filter_map(|(volume, _)| self.volumes.id(volume)));
        ids.sort_unstable();
        ids.dedup();
        let spreads = self.siblings.spreads.iter();
        spreads.flat_map(|spread| self.shares_in(spread, &claim, &ids)).collect()
    }

    fn shares_in(&self, spread: &Spread, claim: &Claim, ids: &[VolumeId]) -> Vec<Share> {
        if ids.is_empty() {
            return Vec::new();
        }
        let siblings = self.siblings.shared(Siblings::of_claim(spread, claim));
        let readable = ids.iter().filter_map(|id| self.volumes.overlay(*id).ok());
        let value = readable.map(|volume| volume.fact(&spread.by));
        value.map(|value| Share { siblings: Arc::clone(&siblings), value }).collect()
    }

    /// The volumes of a claim's siblings.
    pub(crate) fn siblings(&self, claim: &Claim, spread: &Spread) -> Counted {
        let siblings = Siblings::of_claim(spread, claim);
        Counted { counts: self.siblings.counts_for(&claim.key, &siblings), siblings }
    }

    /// Whether the numbers of siblings' volumes are still what a decision about the claim has counted on.
    pub(crate) fn is_as_counted(&self, claim: &ClaimKey, counted: &[Counted]) -> bool {
        counted.iter().all(|counted| self.siblings.counts_for(claim, &counted.siblings) == counted.counts)
    }
}
