//! Asks the policies: where the store is not locked, and on threads where a slow matcher delays nothing else.

use std::sync::Arc;

use bindery_core::{Claim, EngineFault, Request, Stop, Subject, Verdict, Volume};
use bindery_policy::{Chain, Kept, Rounds, Surroundings};
use bindery_store::{Fact, Store};
use tokio::sync::Semaphore;

/// How many decisions have matchers asked at the same time. The others wait, so that claims without policies
/// keep a processor.
const JUDGING_MAX: usize = 2;

/// The policies of a decider, with the answers that are kept.
pub(crate) struct Policies {
    pub(super) chain: Arc<Chain>,
    pub(super) kept: Arc<Kept>,
    permits: Semaphore,
}

impl Policies {
    pub(crate) fn new(chain: Arc<Chain>) -> Self {
        Self { chain, kept: Arc::default(), permits: Semaphore::new(JUDGING_MAX) }
    }

    /// The claim of a request that policies are asked about; `None` if there is none or no policy. A claim
    /// that was bound before chooses no volume, so a policy that fails does not hold it.
    pub(super) fn claim<'a>(&self, request: &'a Request) -> Option<&'a Arc<Claim>> {
        let claim = match &request.subject {
            Subject::SyncClaim(claim) | Subject::ReviewClaim { new: claim, .. } => claim,
            _ => return None,
        };
        (!self.chain.is_empty() && !claim.annotations.bind_completed).then_some(claim)
    }

    /// What a decision about the claim rests on beside the answers to its engine's questions.
    pub(crate) fn facts(&self, claim: &Claim) -> impl Iterator<Item = Fact> {
        let namespace = Fact::Namespace(claim.key.namespace.clone());
        let class = Fact::Class(claim.class.clone().unwrap_or_default());
        [namespace, class].into_iter().filter(|_| !self.chain.is_empty())
    }

    /// Asks the matchers what a try has left open.
    pub(super) async fn judge(&self, mut rounds: Rounds) -> Result<Rounds, EngineFault> {
        let _permit = self.permits.acquire().await;
        let (chain, kept) = (Arc::clone(&self.chain), Arc::clone(&self.kept));
        let asked = tokio::task::spawn_blocking(move || {
            let answer = rounds.perform(&chain, &kept);
            (rounds, answer)
        });
        match asked.await {
            Ok((rounds, Ok(()))) => Ok(rounds),
            Ok((_, Err(waits))) => Err(Stop::from(waits).into()),
            Err(panic) => Err(EngineFault::Unavailable(format!("a policy could not be asked: {panic}"))),
        }
    }

    /// Whether a claim may newly get a volume. It asks the matchers on this thread.
    pub(crate) fn settle(&self, store: &Store, claim: &Claim, volume: &Volume) -> Result<Verdict, Stop> {
        let mut rounds = Rounds::default();
        loop {
            match self.verdict(store, claim, volume, &mut rounds) {
                Err(Stop::Judge) => rounds.perform(&self.chain, &self.kept)?,
                verdict => return verdict,
            }
        }
    }

    /// Whether a claim may newly get a volume, as the store has both now.
    pub(super) fn verdict(
        &self,
        store: &Store,
        claim: &Claim,
        volume: &Volume,
        rounds: &mut Rounds,
    ) -> Result<Verdict, Stop> {
        let around = Surroundings {
            namespace: store.namespace_labels(&claim.key.namespace),
            class: store.class(claim.class_or_empty()),
        };
        self.chain.verdict(claim, volume, &around, &self.kept, rounds)
    }
}
