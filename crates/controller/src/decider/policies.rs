//! Asks the policies: where the store is not locked, and on threads where a slow matcher delays nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use bindery_core::{
    Claim, ClaimRef, Declared, EngineFault, Key, MatchVerdict, Request, Siblings, Source, Stop, Subject,
    Text, Timestamp, Volume,
};
use bindery_policy::{
    Activity, AnswerCache, Chain, FormerClaim, Policy, Reclaimed, RelatedObjects, Rounds, Said, Waits,
};
use bindery_store::{Fact, Store};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;
use tracing::Span;

use super::views::Objects;
use crate::shadow::{Shadow, ShadowPart, Shadowing};

/// How many decisions have matchers asked at the same time. The others wait, so that claims without policies
/// keep a processor.
const JUDGING_MAX: usize = 2;
/// Bytes of the answers that are kept for all shadows together, in equal parts.
const SHADOWS_BYTES: usize = 32 << 20;

/// The policies in use. The runs of an engine for one decision have the same ones, and so have the checks of
/// the guard. Cheap to clone, and every clone sees a swap.
#[derive(Clone)]
pub(crate) struct ActivePolicies(Arc<RwLock<Arc<Policies>>>);

/// Policies with the answers that are kept.
pub struct Policies {
    pub(crate) chain: Arc<Chain>,
    pub(crate) kept: Arc<AnswerCache>,
    permits: Arc<Semaphore>,
    pub(crate) shadows: Vec<Shadowing>,
}

impl ActivePolicies {
    pub(crate) fn new(chain: Arc<Chain>, shadows: &[Shadow]) -> Self {
        let permits = Arc::new(Semaphore::new(JUDGING_MAX));
        Self(Arc::new(RwLock::new(Arc::new(Policies::new(chain, Arc::default(), permits, shadows)))))
    }

    /// The policies of a decision that begins now.
    pub(crate) fn get(&self) -> Arc<Policies> {
        Arc::clone(&self.0.read())
    }

    /// Whether these are still in use.
    pub(crate) fn are(&self, policies: &Arc<Policies>) -> bool {
        Arc::ptr_eq(&self.0.read(), policies)
    }

    /// Replaces the policies by [`Policies::with_chain`] or [`Policies::with_shadows`].
    pub(crate) fn swap(&self, policies: Policies) {
        *self.0.write() = Arc::new(policies);
    }
}

impl Policies {
    fn new(chain: Arc<Chain>, kept: Arc<AnswerCache>, permits: Arc<Semaphore>, shadows: &[Shadow]) -> Self {
        let of_policies =
            shadows.iter().filter(|shadow| !matches!(shadow.part, ShadowPart::Engine(_))).count();
        let own = || Arc::new(AnswerCache::new(SHADOWS_BYTES / of_policies.max(1)));
        let shadowing = |shadow: &Shadow| {
            let replaces = &shadow.replaces;
            let (chain, kept) = match &shadow.part {
                ShadowPart::Match(policy) => (Arc::new(chain.with_shadow_policy(policy, replaces)), own()),
                ShadowPart::Reclaim(rule) => (Arc::new(chain.with_shadow_rule(rule, replaces)), own()),
                ShadowPart::Engine(_) => (Arc::clone(&chain), Arc::clone(&kept)),
            };
            let policies = Self { chain, kept, permits: Arc::clone(&permits), shadows: Vec::new() };
            Shadowing { shadow: shadow.clone(), policies, counting: Mutex::default() }
        };
        let shadows = shadows.iter().map(shadowing).collect();
        Self { chain, kept, permits, shadows }
    }

    /// Other policies, with the same shadows.
    pub(crate) fn with_chain(&self, chain: Arc<Chain>) -> Self {
        let shadows: Vec<Shadow> = self.shadows().cloned().collect();
        Self::new(chain, Arc::default(), Arc::clone(&self.permits), &shadows)
    }

    /// The same policies, with other shadows.
    pub(crate) fn with_shadows(&self, shadows: &[Shadow]) -> Self {
        Self::new(Arc::clone(&self.chain), Arc::clone(&self.kept), Arc::clone(&self.permits), shadows)
    }

    /// The shadows, with what they have shown.
    pub fn shadows(&self) -> impl Iterator<Item = &Shadow> {
        self.shadows.iter().map(|shadowing| &shadowing.shadow)
    }

    /// What the policy of a shadow has done, by kind and name.
    pub fn shadow_activity(&self, kind: &str, name: &str) -> Option<Activity<'_>> {
        let mut shadows = self.shadows.iter();
        let shadowing = shadows.find(|it| it.shadow.kind() == kind && *it.shadow.name == *name)?;
        shadowing.policies.activities().find(|activity| **activity.name == *name)
    }

    /// All facts that the policies and those of shadows declare.
    pub(crate) fn declared(&self) -> Declared {
        let mut declared = self.chain.declared();
        self.shadows.iter().for_each(|shadow| declared.include(shadow.policies.chain.declared()));
        declared
    }
}

impl Policies {
    /// The claim of a request that policies are asked about; `None` if there is none or no policy.
    pub(super) fn claim<'a>(&self, store: &Store, request: &'a Request) -> Option<&'a Arc<Claim>> {
        let claim = match &request.subject {
            Subject::SyncClaim(claim) | Subject::ReviewClaim { new: claim, .. } => claim,
            _ => return None,
        };
        (!self.chain.is_empty() && gets_a_volume(store, claim)).then_some(claim)
    }

    /// The volume of a request that reclaimers are asked about; `None` if there is none or no reclaimer.
    pub(super) fn volume<'a>(&self, request: &'a Request) -> Option<&'a Volume> {
        match &request.subject {
            Subject::SyncVolume(volume) if self.reclaims() => Some(volume),
            _ => None,
        }
    }

    /// What becomes of a volume whose claim is gone, as the store has both now.
    pub(crate) fn reclaimed(
        &self,
        objects: &impl Objects,
        volume: &Volume,
        now: Timestamp,
        rounds: &mut Rounds,
    ) -> Result<Reclaimed, Stop> {
        let last = FormerClaim::of_volume(&self.chain, volume, objects);
        self.chain.reclaimed(volume, last.as_ref(), now, rounds)
    }

    /// How many volumes reclaimers have kept to which none applies any more. Of 100,000 volumes it takes
    /// about 10 ms, 2 of them under the store's lock; 100 ms if reclaimers have kept them all.
    pub(crate) fn left(&self, store: &Store) -> usize {
        let volumes = store.volumes();
        let noted = volumes.iter().filter(|volume| volume.policy_before().is_some());
        let last = |volume: &Volume| FormerClaim::of_volume(&self.chain, volume, store);
        noted.filter(|volume| self.chain.has_left(volume, last(volume).as_ref())).count()
    }

    /// Whether reclaimers are loaded.
    pub(crate) fn reclaims(&self) -> bool {
        !self.chain.reclaimers().is_empty()
    }

    /// What a decision rests on beside the answers to its engine's questions.
    pub(crate) fn facts(&self, request: &Request) -> Vec<Fact> {
        match &request.subject {
            Subject::SyncClaim(claim) if !self.chain.is_empty() => {
                let namespace = Fact::Namespace(claim.key.namespace.clone());
                vec![namespace, Fact::Class(claim.class.clone().unwrap_or_default())]
            }
            Subject::SyncVolume(volume) if self.reclaims() => {
                let claim_ref = volume.claim_ref.iter();
                let facts = |claim_ref: &ClaimRef| {
                    [Fact::Namespace(claim_ref.namespace.clone()), Fact::Class(volume.class.clone())]
                };
                claim_ref.flat_map(facts).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The policies with what they have done.
    pub fn activities(&self) -> impl Iterator<Item = Activity<'_>> {
        self.chain.activities(&self.kept)
    }

    /// Counts a decision that ended because its object waits for the policy of that name.
    pub(crate) fn count_wait(&self, name: &str) {
        if let Some(metrics) = self.chain.metrics(name) {
            metrics.waits.inc();
        }
    }

    /// Counts a decision that picked a volume although the policy of that name scores fewer than there are.
    pub(crate) fn count_unscored(&self, name: &str) {
        if let Some(metrics) = self.chain.metrics(name) {
            metrics.unscored.inc();
        }
    }

    /// Whether a turn of the key may have policies asked, and so take long.
    pub(crate) fn may_be_asked(&self, store: &Store, key: &Key) -> bool {
        match key {
            Key::Claim(_) if self.chain.is_empty() => false,
            Key::Claim(key) => store.claim(Source::Overlay, key).found().is_some_and(|claim| {
                gets_a_volume(store, &claim) && !matches!(self.applying(store, &claim), Ok(None))
            }),
            Key::Volume(_) if !self.reclaims() => false,
            Key::Volume(name) => {
                let volume = store.volume(Source::Overlay, name).found();
                volume.as_ref().and_then(|volume| volume.claim_ref.as_ref()).is_some_and(|claim_ref| {
                    let claim = store.claim(Source::Overlay, &claim_ref.claim_key()).found();
                    claim.is_none_or(|claim| claim_ref.uid.as_ref() != Some(&claim.uid))
                })
            }
        }
    }

    /// The first policy that applies to a claim.
    pub(crate) fn applying(&self, store: &Store, claim: &Claim) -> Result<Option<&Policy>, Waits> {
        RelatedObjects::of(claim, store, |related| self.chain.applying(claim, related))
    }

    /// The claim of a request and its siblings, for each way in which volumes are spread among them.
    pub(crate) fn siblings(&self, store: &Store, request: &Request) -> BTreeSet<Siblings> {
        let claim = match (&request.subject, self.claim(store, request)) {
            (Subject::SyncClaim(_), Some(claim)) => claim,
            _ => return BTreeSet::new(),
        };
        RelatedObjects::of(claim, store, |related| self.chain.siblings(claim, related))
    }

    /// Asks the matchers what a try has left open.
    pub(super) async fn judge(&self, mut rounds: Rounds) -> Result<Rounds, EngineFault> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let (chain, kept, span) = (Arc::clone(&self.chain), Arc::clone(&self.kept), Span::current());
        let asked = tokio::task::spawn_blocking(move || {
            // A review that is given up leaves its matchers running: they keep the permit.
            let (_permit, _entered) = (permit, span.entered());
            let failed = rounds.failed().len();
            let answer = rounds.perform(&chain, &kept);
            if rounds.failed().len() > failed {
                for (place, fault) in rounds.failed() {
                    tracing::warn!(policy = &*chain.policies()[*place].name, %fault, "a policy failed");
                }
            }
            (rounds, answer)
        });
        match asked.await {
            Ok((rounds, Ok(()))) => Ok(rounds),
            Ok((_, Err(waits))) => Err(Stop::from(waits).into()),
            Err(panic) => Err(EngineFault::Unavailable(format!("a policy could not be asked: {panic}"))),
        }
    }

    /// What the policies of a claim say about a volume. It asks the matchers on this thread.
    pub(crate) fn said(&self, store: &Store, claim: &Claim, volume: &Volume) -> Result<Vec<Said>, Stop> {
        let mut rounds = Rounds::default();
        loop {
            let said = RelatedObjects::of(claim, store, |related| {
                self.chain.said(claim, volume, related, &self.kept, &mut rounds)
            });
            match said {
                Err(Stop::Judge) => rounds.perform(&self.chain, &self.kept)?,
                said => return said,
            }
        }
    }

    /// Whether a claim may newly get a volume, by these objects.
    pub(super) fn verdict(
        &self,
        objects: &impl Objects,
        claim: &Claim,
        volume: &Volume,
        rounds: &mut Rounds,
    ) -> Result<MatchVerdict, Stop> {
        RelatedObjects::of(claim, objects, |related| {
            self.chain.verdict(claim, volume, related, &self.kept, rounds)
        })
    }

    /// Whether every policy that applies to a claim answers, by these objects.
    pub(super) fn answers(
        &self,
        objects: &impl Objects,
        claim: &Claim,
        rounds: &mut Rounds,
    ) -> Result<(), Stop> {
        RelatedObjects::of(claim, objects, |related| self.chain.answers(claim, related, &self.kept, rounds))
    }
}

/// Whether a claim newly gets a volume. One that was bound before chooses none, so a policy that fails does
/// not hold it, unless its volume is free: then it gets the volume anew.
fn gets_a_volume(store: &Store, claim: &Claim) -> bool {
    let is_free = |name: &str| {
        let volume = store.volume(Source::Overlay, name).found();
        volume.is_some_and(|volume| volume.claim_ref.is_none())
    };
    !claim.annotations.bind_completed || claim.volume_name.as_deref().is_some_and(is_free)
}

/// What is to be noted of a claim on its volume for reclaimers; `None` for nothing.
pub(crate) fn note(chain: &Chain, store: &Store, claim: &Claim, volume: &Volume) -> Option<Text> {
    let namespace = store.namespace_labels(&claim.key.namespace);
    chain.note(claim, volume, &namespace, &store.class(&volume.class))
}

#[cfg(test)]
mod tests {
    use bindery_kit::{AtMostTwice, policy};
    use bindery_policy::ShadowMetrics;

    use super::*;

    #[test]
    fn given_one_or_many_shadows_they_share_one_bound_of_kept_answers() {
        let shadow = |number: usize| Shadow {
            name: format!("s{number}").into(),
            replaces: "".into(),
            part: ShadowPart::Match(policy("twice", AtMostTwice::judging())),
            sample_percent: 100,
            metrics: ShadowMetrics::default(),
        };
        for count in [1, 20] {
            let shadows: Vec<Shadow> = (0..count).map(shadow).collect();
            let policies = ActivePolicies::new(Arc::new(Chain::new(Vec::new())), &shadows).get();
            let bytes: usize = policies.shadows.iter().map(|it| it.policies.kept.bytes_max()).sum();
            assert!((SHADOWS_BYTES / 2..=SHADOWS_BYTES).contains(&bytes), "{count}: {bytes}");
        }
    }
}
