//! The volumes that a claim may newly get, without an engine that chooses one.

use std::sync::Arc;

use bindery_core::{Claim, Cluster, Query, Slot, Stop, Volume, VolumeIndex};

use super::{Filtered, List};
use crate::{AnswerCache, Chain, Rejections, Rounds, SpreadCounts};

/// A volume, with the score that the policies give it.
pub type Scored = (Arc<Volume>, u32);

/// The volumes that a claim may newly get.
#[derive(Default)]
pub struct AllowedVolumes {
    /// The volumes with their scores, highest first within each access-mode set. The order of the sets is
    /// upstream's. Rejected volumes are left out.
    pub volumes: Vec<Scored>,
    /// What this rests on.
    pub spread_counts: SpreadCounts,
    /// How many volumes the policies reject, where they reject all.
    pub rejections: Option<Rejections>,
}

/// The volumes that a claim may newly get.
///
/// # Errors
///
/// A matcher has to be asked first ([`Stop::Judge`]), or a policy does not answer and the claim waits for it.
pub fn allowed(
    index: &mut dyn VolumeIndex,
    claim: &Claim,
    chain: &Chain,
    kept: &AnswerCache,
    rounds: &mut Rounds,
) -> Result<AllowedVolumes, Stop> {
    let mut filtered = Filtered::over(index, claim, chain, kept, rounds);
    filtered.wants_all = true;
    filtered.narrowed()?;
    let mut volumes = Vec::new();
    for access_set in (filtered.index as &mut dyn Cluster).access_sets(claim.access_set())? {
        let mut list = List::default();
        filtered.fill(&Query::of_claim(claim, access_set), &mut list)?;
        let rows = list.rows.into_iter().filter(|row| row.slot != Slot::Withheld);
        volumes.extend(rows.map(|row| (row.volume, row.score)));
    }
    if volumes.is_empty() {
        filtered.tallies(Query::of_claim(claim, claim.access_set()))?;
    }
    let rejections = filtered.rejections().filter(|_| volumes.is_empty());
    Ok(AllowedVolumes { volumes, spread_counts: filtered.into_spread_counts(), rejections })
}
