//! What policies may read beside a claim.

use std::sync::Arc;

use bindery_core::{Claim, Class, Counted, Lookup, RelatedLookup, Spread};

use crate::NamespaceLabels;

/// What policies may read beside the claim.
pub struct RelatedObjects<'a> {
    /// The labels of its namespace. Only looked at where a policy needs them.
    pub namespace: NamespaceLabels,
    /// Its class.
    pub class: Lookup<Arc<Class>>,
    /// Counts the volumes of its siblings.
    pub siblings: &'a dyn Fn(&Spread) -> Counted,
}

impl RelatedObjects<'_> {
    /// Gives `read` the objects that are related to a claim.
    pub fn of<T>(
        claim: &Claim,
        lookup: &(impl RelatedLookup + ?Sized),
        read: impl FnOnce(&RelatedObjects<'_>) -> T,
    ) -> T {
        read(&RelatedObjects {
            namespace: lookup.namespace_labels(&claim.key.namespace),
            class: lookup.class_of(claim.class_or_empty()),
            siblings: &|spread| lookup.siblings(claim, spread),
        })
    }
}
