//! The facts that policies declare, when policies are replaced.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bindery_core::Declared;
use bindery_store::Kind;

use super::Intake;

impl Intake {
    /// Decodes what earlier and next policies declare from now on: decisions with the earlier ones may be in
    /// flight. Returns the kinds whose objects lack facts.
    pub(crate) fn declare(&self, earlier: Declared, next: Declared) -> Vec<Kind> {
        let (store, known) = (&self.inner.store, self.declared());
        let mut declared = earlier;
        declared.include(next);
        declared.namespaces |= known.namespaces;
        if declared.reclaims {
            store.keep_last_claims();
        }
        if declared.spreads != known.spreads {
            store.keep_spreads(&declared.spreads);
        }
        let volumes = !declared.volumes.is_subset(&known.volumes);
        // Parameters of classes are facts of claims.
        let claims = !declared.claims.is_subset(&known.claims);
        self.inner.lacks_claim_facts.fetch_or(claims, Ordering::SeqCst);
        *self.inner.declared.write() = Arc::new(declared);
        let lack = [(volumes, Kind::Volume), (claims, Kind::Claim), (claims, Kind::Class)];
        lack.into_iter().filter_map(|(lacks, kind)| lacks.then_some(kind)).collect()
    }

    /// The lists are complete: forgets claims that are gone and lack facts.
    pub(crate) fn has_listed(&self) {
        if self.inner.lacks_claim_facts.swap(false, Ordering::SeqCst) {
            self.inner.store.forget_last_claims();
        }
    }

    /// Has these kinds listed anew, and waits until they are, and those that an earlier call has not awaited.
    /// May be dropped at any time.
    pub(crate) async fn list_anew(&self, kinds: Vec<Kind>) {
        let freshness = self.freshness();
        kinds.iter().for_each(|&kind| freshness.want_list(kind));
        for kind in [Kind::Volume, Kind::Claim, Kind::Class] {
            freshness.until_listed(kind).await;
        }
    }
}
