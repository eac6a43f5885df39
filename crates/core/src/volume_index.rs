//! Code between a cluster and an engine reads volumes and related objects through these traits, without
//! handles and pages.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::{
    Claim, ClaimRef, Class, Cluster, ColumnRequirement, ColumnSet, Counted, Handle, Lookup, Query, Slot,
    Spread, Text, Volume, VolumeRow,
};

/// A free volume, as a scan gives it.
#[derive(Clone, Copy, Debug)]
pub struct Scanned<'a> {
    /// The volume.
    pub volume: &'a Arc<Volume>,
    /// The volume as policies are shown it.
    pub row: VolumeRow<'a>,
    /// Whether it can be taken.
    pub slot: Slot,
}

/// Looks up what policies may read beside a claim or a volume.
pub trait RelatedLookup {
    /// The labels of a namespace.
    fn namespace_labels(&self, name: &str) -> Lookup<Arc<BTreeMap<Text, Text>>>;

    /// A class.
    fn class_of(&self, name: &str) -> Lookup<Arc<Class>>;

    /// The volumes of a claim's siblings. Only for declared spreads.
    fn siblings(&self, claim: &Claim, spread: &Spread) -> Counted;

    /// The claim that a claimRef with a UID names, as it was last seen: also where it is gone, if claims that
    /// are gone are kept.
    fn last_claim(&self, claim_ref: &ClaimRef) -> Option<Arc<Claim>>;
}

/// A cluster whose volumes can be read without handles and pages, for what stands between it and an engine.
pub trait VolumeIndex: Cluster + RelatedLookup {
    /// Gives `each` the free volumes that meet the query, in ascending (capacity, name), until it breaks.
    /// Volumes that do not meet the requirements may be left out. Rows have these columns.
    fn scan(
        &mut self,
        query: &Query,
        requirements: &[ColumnRequirement],
        columns: &Arc<ColumnSet>,
        each: &mut dyn FnMut(Scanned<'_>) -> ControlFlow<()>,
    );

    /// The handle of a volume that the last scan has given; numbered by first mention.
    fn handle(&mut self, volume: &str) -> Option<Handle>;
}
