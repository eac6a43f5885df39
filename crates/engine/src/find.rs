//! Which volume a claim gets: upstream's `findBestMatchForClaim`.

use std::sync::Arc;

use bindery_core::{
    AccessModes, Claim, Failure, Handle, NEAREST_MAX, Query, Reason, Selector, Slot, Tally, Volume,
};

use crate::call::{Call, Halt};

/// Sizes of the pages that are asked for; the last size repeats. The first row nearly always decides. Where
/// many rows are taken, few pages are cheaper (measured: a fixed 64 is three times slower).
const PAGE_LIMITS: [u32; 4] = [8, 64, 512, 4096];

/// The result of the search.
pub(crate) enum Match {
    /// The volume to bind.
    Volume(Arc<Volume>),
    /// No volume can be taken, but these may become free again.
    InFlight(Tally),
    /// No volume fits.
    None,
}

/// The volume that fits `claim` best. With `delay` only one that is reserved for the claim: the scheduler
/// chooses among the others.
pub(crate) fn best_match(call: &mut Call<'_>, claim: &Claim, delay: bool) -> Result<Match, Halt> {
    // Groups of equal access modes, fewest modes first: a claim does not take more than it needs.
    let sets = call.cluster.access_sets(claim.access_set())?;
    if sets.is_empty() {
        return Ok(Match::None);
    }
    // Upstream evaluates the selector only while it searches a group.
    if let Some(Selector::Invalid(error)) = &claim.selector {
        return Err(Failure::SelectorInvalid(error.clone()).into());
    }
    let reserved = reserved(call, claim)?;
    let mut in_flight = InFlight::default();
    for set in sets {
        // A reserved volume wins within its group only: upstream takes a free one of a smaller group first.
        if let Some(volume) = reserved.iter().find(|volume| volume.access_set() == set) {
            return Ok(Match::Volume(Arc::clone(volume)));
        }
        if delay {
            continue;
        }
        if let Some(handle) = smallest_free(call, claim, set, &mut in_flight)? {
            return Ok(Match::Volume(call.cluster.describe(handle)?));
        }
    }
    in_flight.into_match(call)
}

/// The volumes reserved for the claim that it can have. Their phase, class and labels do not count.
fn reserved(call: &mut Call<'_>, claim: &Claim) -> Result<Vec<Arc<Volume>>, Halt> {
    let handles = call.cluster.reserved_for(claim.key.clone(), claim.uid.clone())?;
    let mut eligible = Vec::with_capacity(handles.len());
    for handle in handles {
        let volume = call.cluster.describe(handle)?;
        if volume.is_bound_to(claim) && can_have(&volume, claim) {
            eligible.push(volume);
        }
    }
    Ok(eligible)
}

/// Steps 4 to 7 of upstream's selection; a volume without capacity has zero.
fn can_have(volume: &Volume, claim: &Claim) -> bool {
    volume.capacity.unwrap_or_default() >= claim.request
        && volume.mode == claim.mode
        && volume.attributes_class_or_empty() == claim.attributes_class_or_empty()
        && !volume.deleting
}

/// The first row that can be taken; rows come in ascending (capacity, name).
fn smallest_free(
    call: &mut Call<'_>,
    claim: &Claim,
    access_set: AccessModes,
    in_flight: &mut InFlight,
) -> Result<Option<Handle>, Halt> {
    let mut after = None;
    let mut pages = 0;
    loop {
        let limit = PAGE_LIMITS[pages.min(PAGE_LIMITS.len() - 1)];
        let page = call.cluster.candidates(Query::of_claim(claim, access_set), after, limit)?;
        for (handle, slot) in page.handles.iter().zip(&page.slots) {
            match slot {
                Slot::Free => return Ok(Some(*handle)),
                Slot::InFlight | Slot::Withheld => in_flight.add(*handle),
            }
        }
        match page.handles.last() {
            Some(last) if page.more => after = Some(*last),
            Some(_) | None => return Ok(None),
        }
        pages += 1;
    }
}

/// Volumes that fit and that decisions in flight have picked for other claims.
#[derive(Default)]
struct InFlight {
    count: u32,
    nearest: Vec<Handle>,
}

impl InFlight {
    fn add(&mut self, handle: Handle) {
        self.count += 1;
        if self.nearest.len() < NEAREST_MAX {
            self.nearest.push(handle);
        }
    }

    fn into_match(self, call: &mut Call<'_>) -> Result<Match, Halt> {
        if self.count == 0 {
            return Ok(Match::None);
        }
        let mut nearest = Vec::with_capacity(self.nearest.len());
        for handle in self.nearest {
            nearest.push(call.cluster.identify(handle)?.name);
        }
        Ok(Match::InFlight(Tally { reason: Reason::InFlight, count: self.count, nearest }))
    }
}
