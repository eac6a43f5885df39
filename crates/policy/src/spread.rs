//! Policies that spread volumes: what their verdicts rest on beside the claim and the row.

use std::collections::BTreeSet;

use bindery_core::{Claim, Counted, Siblings, Spread, Text, VolumeFact, VolumeRow};

use crate::chain::{Applied, Asked, Rejection};
use crate::{Chain, Policy, RelatedObjects};

/// The numbers of siblings' volumes that a decision rests on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpreadCounts {
    /// What was counted for the policies that spread.
    pub counted: Vec<Counted>,
    /// Values for which a policy has rejected a volume because siblings have many volumes with that value.
    pub rejected: Vec<(Siblings, Option<Text>)>,
}

/// What a try has seen rejected by a policy that spreads: its place in [`Applied`], and the row's value.
pub(crate) type Rejected = BTreeSet<(usize, Option<Text>)>;

impl Chain {
    /// A claim and its siblings, once for each way in which policies that apply to it spread volumes, in
    /// ascending order. Where it is unknown whether a policy applies, the claim waits, whatever was counted.
    pub fn siblings(&self, claim: &Claim, related: &RelatedObjects<'_>) -> BTreeSet<Siblings> {
        let applies = |policy: &&Policy| policy.applies(claim, related).unwrap_or_default();
        let spreads = self.policies().iter().filter(|policy| policy.spread().is_some()).filter(applies);
        spreads.filter_map(Policy::spread).map(|spread| Siblings::of_claim(spread, claim)).collect()
    }
}

impl Policy {
    /// The columns that it is shown.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &VolumeFact> {
        let metadata = self.matcher.iter().map(|matcher| matcher.metadata());
        metadata.flat_map(|it| it.columns.iter().chain(it.spread.iter().map(|spread| &spread.by)))
    }

    /// How it spreads volumes, if it does.
    pub(crate) fn spread(&self) -> Option<&Spread> {
        self.matcher.as_ref().ok()?.metadata().spread.as_ref()
    }
}

impl Applied<'_> {
    /// Remembers a rejection that a change of siblings can end.
    pub(crate) fn remember(&self, rejection: &Rejection, row: &VolumeRow<'_>, rejected: &mut Rejected) {
        let by = self.asked.iter().position(|asked| rejection.judged && asked.place == rejection.policy);
        if let Some(at) = by.filter(|at| self.asked[*at].shown.counted.is_some()) {
            rejected.insert((at, self.asked[at].shown.spread_value(row)));
        }
    }

    /// What a try rests on.
    pub(crate) fn spread_counts(&self, rejected: Rejected) -> SpreadCounts {
        // A policy that has said that it does not judge has not seen the numbers.
        let is_shown = |asked: &&Asked<'_>| asked.context.narrowing().is_none_or(|narrowing| narrowing.judge);
        let counted = self.asked.iter().filter(is_shown).filter_map(|asked| asked.shown.counted.clone());
        let of = |at: usize| Some(self.asked[at].shown.counted.as_ref()?.siblings.clone());
        let rejected = rejected.into_iter().filter_map(|(at, value)| Some((of(at)?, value)));
        SpreadCounts { counted: counted.collect(), rejected: rejected.collect() }
    }
}
