//! What the rest of the binder reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bindery_core::{
    BindingMode, Claim, ClaimKey, ClaimRef, Class, Counted, Lookup, RelatedLookup, Source, Spread, Text,
    Volume,
};

use super::Store;
use crate::change::Revision;
use crate::delivery::{Kind, Unreadable};
use crate::explain::{Explanation, Obstacle};

impl Store {
    /// The kinds that are watched.
    pub fn kinds(&self) -> &'static [Kind] {
        self.state().kinds()
    }

    /// Whether the initial lists of all kinds are complete. Before that nothing is decided.
    pub fn synced(&self) -> bool {
        self.state().synced()
    }

    /// The kinds whose first complete list is still to come.
    pub fn awaited(&self) -> Vec<Kind> {
        let state = self.state();
        state.kinds().iter().copied().filter(|kind| !state.is_synced(*kind)).collect()
    }

    /// Revision of the latest change.
    pub fn revision(&self) -> Revision {
        self.state().revision()
    }

    /// A volume. [`Source::Live`] is answered as [`Source::Cache`]: the store reads nothing live.
    pub fn volume(&self, source: Source, name: &str) -> Lookup<Arc<Volume>> {
        self.state().volume(source, name)
    }

    /// A claim; see [`Store::volume`].
    pub fn claim(&self, source: Source, key: &ClaimKey) -> Lookup<Arc<Claim>> {
        self.state().claim(source, key)
    }

    /// A class.
    pub fn class(&self, name: &str) -> Lookup<Arc<Class>> {
        self.state().class(name)
    }

    /// The claim that a claimRef with a UID names, as it was last seen; see [`Store::keep_last_claims`].
    pub fn last_claim(&self, claim_ref: &ClaimRef) -> Option<Arc<Claim>> {
        self.state().last_claim(claim_ref)
    }

    /// The labels of a namespace.
    pub fn namespace_labels(&self, name: &str) -> Lookup<Arc<BTreeMap<Text, Text>>> {
        self.state().namespace_labels(name)
    }

    /// The volumes of a claim's siblings, those that decisions in flight have picked included. Only for
    /// spreads that are kept ([`Store::keep_spreads`]).
    pub fn siblings(&self, claim: &Claim, spread: &Spread) -> Counted {
        self.state().siblings(claim, spread)
    }

    /// Whether the numbers of siblings' volumes are still what a decision about the claim has counted on.
    pub fn is_as_counted(&self, claim: &ClaimKey, counted: &[Counted]) -> bool {
        self.state().is_as_counted(claim, counted)
    }

    /// The claim for which a decision in flight has picked the volume.
    pub fn picked_for(&self, volume: &str) -> Option<ClaimKey> {
        self.state().picked_for(volume).cloned()
    }

    /// The volume as the overlay has it, where it can be taken: it is free, and no decision in flight has
    /// picked it.
    pub fn free_volume(&self, name: &str) -> Option<Arc<Volume>> {
        self.state().free(name)
    }

    /// The volumes whose claimRef has the namespace and name of a claim, whatever its UID, as the overlay has
    /// them, in no order.
    pub fn volumes_naming(&self, claim: &ClaimKey) -> Vec<Arc<Volume>> {
        self.state().volumes_naming(claim)
    }

    /// The volumes with the label that steers a claim, as the overlay has them, in no order.
    pub fn volumes_labelled(&self, claim: &ClaimKey) -> Vec<Arc<Volume>> {
        self.state().volumes_labelled(claim)
    }

    /// Whether the scheduler chooses the volume of a claim: its class waits for the first consumer.
    pub fn waits_for_consumer(&self, claim: &Claim) -> bool {
        let class = self.class(claim.class_or_empty());
        matches!(class, Lookup::Found(class) if class.binding_mode == Some(BindingMode::WaitForFirstConsumer))
    }

    /// The claims of all pods that use a claim and have no node yet, itself among them. A pod that cannot be
    /// read counts as a user of the claim.
    pub fn claims_of_waiting_pods(&self, claim: &ClaimKey) -> BTreeSet<ClaimKey> {
        self.state().claims_of_waiting_pods(claim)
    }

    /// All readable volumes as the overlay has them, in no order.
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        self.state().volumes()
    }

    /// All readable claims as the overlay has them, in no order.
    pub fn claims(&self) -> Vec<Arc<Claim>> {
        self.state().claims()
    }

    /// The names of all volumes, the unreadable ones too, in no order.
    pub fn volume_names(&self) -> Vec<Text> {
        self.state().volume_names()
    }

    /// The keys of all claims, the unreadable ones too, in no order.
    pub fn claim_keys(&self) -> Vec<ClaimKey> {
        self.state().claim_keys()
    }

    /// What is known of a volume, where it cannot be parsed.
    pub fn unreadable_volume(&self, name: &str) -> Option<Unreadable> {
        self.state().volumes.find(name)?.cached.overlay().err().cloned()
    }

    /// What is known of a claim, where it cannot be parsed.
    pub fn unreadable_claim(&self, key: &ClaimKey) -> Option<Unreadable> {
        self.state().unreadable_claim(key)
    }

    /// The volumes of the overlay that are nearest to the claim, at most `max`, with their obstacles. A claim
    /// that names a volume gets only that one.
    ///
    /// An invalid selector is not an obstacle here: a decision about the claim fails before it looks at any
    /// volume.
    pub fn explain(&self, claim: &Claim, max: usize) -> Explanation {
        self.state().explain(claim, max)
    }

    /// The obstacles of one volume for a claim, as in [`Store::explain`]; empty where the claim can have it,
    /// `None` where no volume of that name can be read.
    pub fn obstacles(&self, claim: &Claim, volume: &str) -> Option<Vec<Obstacle>> {
        self.state().obstacles(claim, volume)
    }
}

impl RelatedLookup for Store {
    fn namespace_labels(&self, name: &str) -> Lookup<Arc<BTreeMap<Text, Text>>> {
        self.namespace_labels(name)
    }

    fn class_of(&self, name: &str) -> Lookup<Arc<Class>> {
        self.class(name)
    }

    fn siblings(&self, claim: &Claim, spread: &Spread) -> Counted {
        self.siblings(claim, spread)
    }

    fn last_claim(&self, claim_ref: &ClaimRef) -> Option<Arc<Claim>> {
        self.last_claim(claim_ref)
    }
}
