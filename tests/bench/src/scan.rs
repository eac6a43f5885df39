//! Upstream's search: a scan over all volumes whose access modes contain the claim's
//! (`findBestMatchForClaim` and `FindMatchingVolume`, with the same order of steps, and without garbage).

use std::collections::BTreeMap;
use std::sync::Arc;

use bindery_core::{AccessModes, Claim, Selector, Volume, VolumePhase};

/// Upstream's index: volumes by access-mode set, unsorted within a group.
pub(crate) struct Scan {
    groups: BTreeMap<AccessModes, Vec<Arc<Volume>>>,
}

impl Scan {
    pub(crate) fn new(volumes: impl IntoIterator<Item = Arc<Volume>>) -> Self {
        let mut groups = BTreeMap::<_, Vec<_>>::new();
        for volume in volumes {
            groups.entry(volume.access_set()).or_default().push(volume);
        }
        Self { groups }
    }

    /// `findBestMatchForClaim`: the groups that contain the claim's modes, from the fewest modes on.
    pub(crate) fn best_match(&self, claim: &Claim) -> Option<&Arc<Volume>> {
        let wanted = claim.access_set();
        let mut groups: Vec<_> = self.groups.iter().filter(|(set, _)| set.contains(wanted)).collect();
        groups.sort_by_key(|(set, _)| set.len());
        groups.into_iter().find_map(|(_, volumes)| find_matching_volume(claim, volumes))
    }
}

/// `FindMatchingVolume` without a node, for a class with immediate binding.
fn find_matching_volume<'a>(claim: &Claim, volumes: &'a [Arc<Volume>]) -> Option<&'a Arc<Volume>> {
    let mut smallest: Option<&Arc<Volume>> = None;
    for volume in volumes {
        if volume.claim_ref.is_some() && !volume.is_bound_to(claim) {
            continue;
        }
        let capacity = volume.capacity.unwrap_or_default();
        if capacity < claim.request
            || volume.mode != claim.mode
            || volume.attributes_class_or_empty() != claim.attributes_class_or_empty()
            || volume.deleting
        {
            continue;
        }
        if volume.is_bound_to(claim) {
            return Some(volume);
        }
        if volume.phase != VolumePhase::Available
            || !selects(claim, volume)
            || *volume.class != *claim.class_or_empty()
        {
            continue;
        }
        if smallest.is_none_or(|smallest| smallest.capacity.unwrap_or_default() > capacity) {
            smallest = Some(volume);
        }
    }
    smallest
}

fn selects(claim: &Claim, volume: &Volume) -> bool {
    match &claim.selector {
        None => true,
        Some(Selector::Requirements(requirements)) => {
            requirements.iter().all(|r| r.matches(volume.labels.get(&r.key).map(|value| &**value)))
        }
        Some(Selector::Invalid(_)) => false,
    }
}
