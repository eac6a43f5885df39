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
    /// No volume can be taken, but some may become free or allowed; the claim waits for them.
    Waits(Vec<Tally>),
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
    let mut waiting = Waiting::default();
    for set in sets {
        // A reserved volume wins within its group only: upstream takes a free one of a smaller group first.
        if let Some(volume) = reserved.iter().find(|volume| volume.access_set() == set) {
            return Ok(Match::Volume(Arc::clone(volume)));
        }
        if delay {
            continue;
        }
        if let Some(handle) = smallest_free(call, claim, set, &mut waiting)? {
            return Ok(Match::Volume(call.cluster.describe(handle)?));
        }
    }
    waiting.into_match(call)
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
    waiting: &mut Waiting,
) -> Result<Option<Handle>, Halt> {
    let mut after = None;
    let mut pages = 0;
    loop {
        let limit = PAGE_LIMITS[pages.min(PAGE_LIMITS.len() - 1)];
        let page = call.cluster.candidates(Query::of_claim(claim, access_set), after, limit)?;
        for (handle, slot) in page.handles.iter().zip(&page.slots) {
            match slot {
                Slot::Free => return Ok(Some(*handle)),
                Slot::InFlight => waiting.in_flight.push(*handle),
                Slot::Withheld => waiting.withheld.push(*handle),
            }
        }
        match page.handles.last() {
            Some(last) if page.more => after = Some(*last),
            Some(_) | None => return Ok(None),
        }
        pages += 1;
    }
}

/// Volumes that fit, for which a claim waits.
#[derive(Default)]
struct Waiting {
    /// Picked by decisions in flight for other claims.
    in_flight: Vec<Handle>,
    /// Rejected by a policy.
    withheld: Vec<Handle>,
}

impl Waiting {
    fn into_match(self, call: &mut Call<'_>) -> Result<Match, Halt> {
        let mut tallies = Vec::new();
        for (reason, handles) in [(Reason::Rejected, self.withheld), (Reason::InFlight, self.in_flight)] {
            if !handles.is_empty() {
                tallies.push(tally(call, reason, &handles)?);
            }
        }
        Ok(if tallies.is_empty() { Match::None } else { Match::Waits(tallies) })
    }
}

fn tally(call: &mut Call<'_>, reason: Reason, handles: &[Handle]) -> Result<Tally, Halt> {
    let mut nearest = Vec::new();
    for handle in &handles[..handles.len().min(NEAREST_MAX)] {
        nearest.push(call.cluster.identify(*handle)?.name);
    }
    Ok(Tally { reason, count: u32::try_from(handles.len()).unwrap_or(u32::MAX), nearest })
}
