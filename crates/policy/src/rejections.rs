//! How many volumes the policies of a claim reject, and whether they have looked at all.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use bindery_core::Text;
use serde::{Deserialize, Serialize};

use crate::chain::{Applied, Judgement};

/// How many volumes the policies of a claim reject. It prints as events say it: `12 of 14 volumes rejected:
/// own-zone 9, at-most-twice 3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejections {
    /// How many free volumes the claim could have without policies.
    pub of: u32,
    /// How many of them each policy rejects, most first. A volume counts for one policy: the one whose reason
    /// is told.
    pub by_policy: Vec<(Text, u32)>,
}

impl fmt::Display for Rejections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count: u32 = self.by_policy.iter().map(|(_, count)| count).sum();
        let each: Vec<String> =
            self.by_policy.iter().map(|(name, count)| format!("{name} {count}")).collect();
        write!(f, "{count} of {} volumes rejected: {}", self.of, each.join(", "))
    }
}

/// There are more candidates than a policy scores. It prints as events say it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unscored {
    /// The policy that scores the fewest.
    pub policy: Text,
    /// How many are scored: [`crate::Policy::max_candidates`].
    pub max: usize,
}

impl fmt::Display for Unscored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, max } = self;
        write!(
            f,
            "there are more volumes than policy {policy} scores (spec.maxCandidates: {max}); only the \
             smallest were scored"
        )
    }
}

/// The judgements about the candidates of one access-mode set, counted.
#[derive(Default)]
pub(crate) struct JudgementCounts {
    candidates: u32,
    /// By the policy's place in the chain.
    rejected: BTreeMap<usize, u32>,
}

impl JudgementCounts {
    pub(crate) fn add(&mut self, judgement: &Judgement) {
        self.candidates += 1;
        if let Judgement::Rejected(by) = judgement {
            *self.rejected.entry(by.policy).or_default() += 1;
        }
    }

    /// How many volumes are rejected.
    pub(crate) fn rejected(&self) -> u32 {
        self.rejected.values().sum()
    }

    /// The sum of these; `None` if no volume is rejected.
    pub(crate) fn sum<'a>(
        counted: impl Iterator<Item = &'a Self>,
        applied: &Applied<'_>,
    ) -> Option<Rejections> {
        let mut sum = Self::default();
        for Self { candidates, rejected } in counted {
            sum.candidates += candidates;
            rejected.iter().for_each(|(place, count)| *sum.rejected.entry(*place).or_default() += count);
        }
        let names = applied
            .asked
            .iter()
            .filter_map(|asked| Some((asked.policy.name.clone(), *sum.rejected.get(&asked.place)?)));
        let mut by_policy: Vec<_> = names.collect();
        // Stable: policies with equal counts stay in the order of the chain.
        by_policy.sort_by_key(|(_, count)| Reverse(*count));
        (!by_policy.is_empty()).then_some(Rejections { of: sum.candidates, by_policy })
    }
}
