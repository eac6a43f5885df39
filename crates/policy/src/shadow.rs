//! What the decisions of a shadow have shown: a policy or an engine that decides beside the active ones, and
//! whose decisions are not carried out.

use std::collections::VecDeque;
use std::sync::Arc;

use bindery_core::{Claim, Text, Timestamp, Volume, named_cases};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use sha2::{Digest as _, Sha256};

use crate::{
    Chain, FormerClaim, MATCH_POLICY, Policy, PolicyMetrics, RECLAIM_POLICY, ReclaimRule, RelatedObjects,
    ShadowAnswer, ShadowReleased, Waits,
};

/// The share of a shadow that decides about all objects, in percent.
pub const ALL_PERCENT: u32 = 100;
/// Differences that are kept, so that a status stays small.
pub const DIFFERENCES_MAX: usize = 16;
/// The most characters of an answer or a reason. They come from policies, and are kept in a status.
const TEXT_MAX: usize = 256;

named_cases! {
    /// How the decision of a shadow differs from the one that was carried out.
    DifferenceKind {
        /// It binds the claim to another volume.
        OtherVolume = "other-volume";
        /// It binds the claim, and the claim got no volume.
        Binds = "binds";
        /// It does not bind the claim, and the claim got a volume.
        BindsNone = "binds-none";
        /// It has a volume provisioned, and none was.
        Provisions = "provisions";
        /// Something else becomes of the volume.
        OtherFate = "other-fate";
        /// The scheduler may choose among other volumes.
        OtherLabels = "other-labels";
        /// An operation goes on otherwise.
        OtherStep = "other-step";
        /// The same happens for another reason.
        OtherReason = "other-reason";
        /// It gives no answer.
        Fault = "fault";
        /// The guard refuses what it decides.
        Refused = "refused";
    }
}

/// A decision that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// When it was made.
    pub time: Timestamp,
    /// Its object, as in `pvc NAMESPACE/NAME` or `pv NAME`.
    pub object: Text,
    /// How it differs.
    pub kind: DifferenceKind,
    /// What was decided.
    pub active: ShadowAnswer,
    /// What the shadow decides.
    pub shadow: ShadowAnswer,
}

impl ShadowAnswer {
    /// An answer with its reason. Line breaks become spaces, and what is too long is cut.
    pub fn new(answer: &str, reason: &str) -> Self {
        Self { answer: line(answer), reason: line(reason) }
    }
}

/// Whether the object with this UID is in a share of all objects. The UID alone says so: each object is in
/// the share always or never, shadows of one share see the same objects, and a larger share has those of a
/// smaller one.
pub fn is_sampled(uid: &str, percent: u32) -> bool {
    if percent >= ALL_PERCENT {
        return true;
    }
    let digest = Sha256::digest(uid);
    let number = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    number % ALL_PERCENT < percent
}

/// A text in one line. What is too long is cut.
pub(crate) fn line(text: &str) -> Text {
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(TEXT_MAX) {
        line.truncate(end);
        line.push('…');
    }
    line.into()
}

/// What the decisions of a shadow have shown since the start of the process. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct ShadowMetrics {
    /// Decisions that were compared, those that differ included.
    pub compared: Counter,
    /// Decisions that could not be compared: the cluster has changed too much since, or a live read would
    /// decide.
    pub not_comparable: Counter,
    /// Decisions that the shadow did not make because there were too many.
    pub dropped: Counter,
    /// Decisions that the shadow did not make because their objects are outside its share.
    pub not_sampled: Counter,
    differences: [Counter; DifferenceKind::ALL.len()],
    latest: Arc<Mutex<VecDeque<Difference>>>,
    released: Arc<Mutex<Option<ShadowReleased>>>,
}

impl ShadowMetrics {
    /// Decisions that differ in this way.
    pub fn differences(&self, kind: DifferenceKind) -> u64 {
        self.differences[kind as usize].get()
    }

    /// The latest differences, at most [`DIFFERENCES_MAX`], newest first. Of an object each kind is there
    /// once.
    pub fn latest(&self) -> Vec<Difference> {
        self.latest.lock().iter().cloned().collect()
    }

    /// What would have become of the volumes that were released when they were counted last; `None` if they
    /// were not, or if it is not a reclaimer.
    pub fn released(&self) -> Option<ShadowReleased> {
        *self.released.lock()
    }

    /// Sets what would have become of released volumes.
    pub fn set_released(&self, fates: ShadowReleased) {
        *self.released.lock() = Some(fates);
    }

    /// Counts a decision that was compared.
    pub fn count_compared(&self, difference: Option<Difference>) {
        if let Some(difference) = difference {
            self.differences[difference.kind as usize].inc();
            let mut latest = self.latest.lock();
            latest.retain(|known| known.object != difference.object || known.kind != difference.kind);
            latest.truncate(DIFFERENCES_MAX - 1);
            latest.push_front(difference);
        }
        // Afterwards, so that the difference is there when the counter changes.
        self.compared.inc();
    }
}

impl Chain {
    /// The chain with this policy, and without the one that it replaces. The others count on their own: what
    /// they are asked for a shadow is not what they have done.
    #[must_use]
    pub fn with_shadow_policy(&self, policy: &Policy, replaces: &str) -> Self {
        let others = self.policies().iter().filter(|other| *other.name != *replaces);
        let others = others.map(|other| Policy { metrics: PolicyMetrics::default(), ..other.clone() });
        self.with(others.chain([policy.clone()]).collect(), self.reclaimers().to_vec())
    }

    /// The chain with this reclaimer, and without the one that it replaces; see
    /// [`Self::with_shadow_policy`].
    #[must_use]
    pub fn with_shadow_rule(&self, rule: &ReclaimRule, replaces: &str) -> Self {
        let others = self.reclaimers().iter().filter(|other| *other.name != *replaces);
        let others = others.map(|other| ReclaimRule { metrics: PolicyMetrics::default(), ..other.clone() });
        self.with(self.policies().to_vec(), others.chain([rule.clone()]).collect())
    }

    /// The chain without the policy of a kind and a name.
    #[must_use]
    pub fn without(&self, kind: &str, name: &str) -> Self {
        let is_other = |other: &Text, of: &str| kind != of || **other != *name;
        let policies = self.policies().iter().filter(|policy| is_other(&policy.name, MATCH_POLICY));
        let reclaimers = self.reclaimers().iter().filter(|rule| is_other(&rule.name, RECLAIM_POLICY));
        self.with(policies.cloned().collect(), reclaimers.cloned().collect())
    }

    fn with(&self, policies: Vec<Policy>, reclaimers: Vec<ReclaimRule>) -> Self {
        Self::new(policies).with_reclaimers(reclaimers).within(self.time_max, self.clock)
    }

    /// Whether the policy of that name, if there is one, applies to a claim.
    pub fn applies(&self, name: &str, claim: &Claim, related: &RelatedObjects<'_>) -> Result<bool, Waits> {
        let policy = self.policies().iter().find(|policy| *policy.name == *name);
        policy.map_or(Ok(false), |policy| policy.applies(claim, related))
    }

    /// Whether the reclaimer of that name, if there is one, may apply to a volume.
    pub fn may_reclaim(&self, name: &str, volume: &Volume, last: Option<&FormerClaim>) -> bool {
        let mut rules = self.reclaimers().iter();
        rules.any(|rule| *rule.name == *name && rule.applies(volume, last) != Some(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(object: &str, kind: DifferenceKind, time: i64) -> Difference {
        let (active, shadow) = (ShadowAnswer::new("a", "b"), ShadowAnswer::new("c", "d"));
        Difference { time, object: object.into(), kind, active, shadow }
    }

    #[test]
    fn the_latest_differences_are_kept_each_once_per_object_and_kind() {
        let metrics = ShadowMetrics::default();
        for number in 0..40 {
            metrics.count_compared(Some(difference("pv v", DifferenceKind::OtherFate, number)));
            metrics.count_compared(None);
        }
        let times = |metrics: &ShadowMetrics| -> Vec<_> {
            metrics.latest().into_iter().map(|latest| latest.time).collect()
        };
        assert_eq!(times(&metrics), [39]);
        assert_eq!((metrics.compared.get(), metrics.differences(DifferenceKind::OtherFate)), (80, 40));
        for number in 0..40 {
            let object = format!("pvc ns/{number}");
            metrics.clone().count_compared(Some(difference(&object, DifferenceKind::Binds, number)));
        }
        assert_eq!(times(&metrics), (24..40).rev().collect::<Vec<_>>());
    }

    #[test]
    fn given_a_share_it_has_about_that_many_uids_and_always_the_same() {
        let uids: Vec<String> = (0..10_000).map(|number| format!("uid-{number}")).collect();
        let sampled =
            |percent: u32| -> Vec<_> { uids.iter().filter(|uid| is_sampled(uid, percent)).collect() };
        assert_eq!(sampled(ALL_PERCENT).len(), 10_000);
        for (percent, about) in [(1, 60..=140), (10, 850..=1_150), (50, 4_750..=5_250)] {
            assert!(about.contains(&sampled(percent).len()), "{percent}: {}", sampled(percent).len());
        }
        // They are the same in every process and version.
        assert_eq!(sampled(1)[..3], ["uid-99", "uid-131", "uid-179"]);
        assert!(sampled(10).iter().all(|uid| is_sampled(uid, 50)));
    }

    #[test]
    fn an_answer_is_one_short_line() {
        let long = format!("one\n\ttwo {}", "é".repeat(300));
        let answered = ShadowAnswer::new(&long, "why");
        assert!(answered.answer.starts_with("one two é"), "{}", answered.answer);
        assert_eq!(answered.answer.chars().count(), TEXT_MAX + 1);
    }
}
