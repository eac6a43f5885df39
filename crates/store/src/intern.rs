//! Texts that many objects share are kept once.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bindery_core::{Claim, Text, Volume};

/// Keeps one copy of every text that is in use.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    texts: HashSet<Text>,
    /// How many texts there were after the last sweep.
    swept: usize,
}

/// Below this many texts a sweep is not worth its time.
const SWEEP_MIN: usize = 4096;

impl Interner {
    /// The copy of the text that is shared.
    fn share(&mut self, text: &mut Text) {
        if let Some(shared) = self.texts.get(text) {
            *text = shared.clone();
            return;
        }
        if self.texts.len() >= SWEEP_MIN.max(2 * self.swept) {
            self.texts.retain(|text| Arc::strong_count(text) > 1);
            self.swept = self.texts.len();
        }
        self.texts.insert(text.clone());
    }

    fn share_some(&mut self, text: &mut Option<Text>) {
        if let Some(text) = text {
            self.share(text);
        }
    }

    /// Shares the texts of a volume that repeat across volumes: labels, classes, drivers, finalizers. Does
    /// nothing where the volume itself is shared already.
    pub(crate) fn share_volume(&mut self, volume: &mut Arc<Volume>) {
        let Some(volume) = Arc::get_mut(volume) else { return };
        let labels = std::mem::take(&mut volume.labels).into_iter();
        volume.labels = labels
            .map(|(mut key, mut value)| {
                self.share(&mut key);
                self.share(&mut value);
                (key, value)
            })
            .collect::<BTreeMap<_, _>>();
        self.share(&mut volume.class);
        self.share(&mut volume.source);
        self.share_some(&mut volume.attributes_class);
        self.share_some(&mut volume.annotations.provisioned_by);
        self.share_some(&mut volume.annotations.migrated_to);
        volume.finalizers.iter_mut().for_each(|finalizer| self.share(finalizer));
        if let Some(claim_ref) = &mut volume.claim_ref {
            self.share(&mut claim_ref.namespace);
        }
    }

    /// Shares the texts of a claim that repeat across claims.
    pub(crate) fn share_claim(&mut self, claim: &mut Arc<Claim>) {
        let Some(claim) = Arc::get_mut(claim) else { return };
        self.share(&mut claim.key.namespace);
        self.share_some(&mut claim.class);
        self.share_some(&mut claim.attributes_class);
        self.share_some(&mut claim.status.attributes_class);
        let annotations = &mut claim.annotations;
        for text in [
            &mut annotations.selected_node,
            &mut annotations.storage_provisioner,
            &mut annotations.beta_storage_provisioner,
            &mut annotations.migrated_to,
        ] {
            self.share_some(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_become_one_and_unused_ones_are_dropped() {
        let mut interner = Interner::default();
        let (mut a, mut b): (Text, Text) = ("zone".into(), "zone".into());
        interner.share(&mut a);
        interner.share(&mut b);
        assert!(Arc::ptr_eq(&a, &b));
        for number in 0..3 * SWEEP_MIN {
            interner.share(&mut number.to_string().into());
        }
        assert!(interner.texts.len() <= SWEEP_MIN);
        assert!(interner.texts.contains(&a));
    }
}
