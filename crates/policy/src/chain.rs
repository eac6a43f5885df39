//! The policies of a cluster, and what they say about one claim.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bindery_core::{Cell, Claim, ColumnSet, MatchVerdict, Stop, Text, Volume, VolumeRow};
use parking_lot::MutexGuard;
use serde::{Deserialize, Serialize};

use crate::evidence::Skipped;
use crate::kept::{AnswerCache, Context, RowKey, Verdict, Verdicts};
use crate::rounds::{Judging, Rounds, TIME_MAX};
use crate::row::Shown;
use crate::view::{claim_view, sentence};
use crate::{Matcher, Matches, PolicyFault, PolicyMetrics, ReclaimRule, RelatedObjects};

/// The loaded policies, in the order in which they are asked: by [`Policy::order`], then by name.
pub struct Chain {
    policies: Vec<Policy>,
    reclaimers: Vec<ReclaimRule>,
    /// See [`Chain::columns`].
    pub(crate) columns: Arc<ColumnSet>,
    /// See [`Chain::digest`].
    pub(crate) digest: OnceLock<String>,
    /// The longest time of all calls of matchers for one decision, by this clock.
    pub(crate) time_max: Duration,
    pub(crate) clock: fn() -> Instant,
}

impl Default for Chain {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

/// A matcher with the document that loads it. Clones count together.
#[derive(Clone)]
pub struct Policy {
    /// `metadata.name` of the document.
    pub name: Text,
    /// Policies of lower order are asked first.
    pub order: i32,
    /// By what its scores are multiplied, from 1 to 100.
    pub weight: u32,
    /// The claims that it applies to.
    pub matches: Matches,
    /// The matcher, or why it could not be loaded: then the claims that it matches wait or are decided
    /// without it, by `on_failure`.
    pub matcher: Result<Arc<dyn Matcher>, String>,
    /// Its settings: a JSON object that has passed the schema of the matcher.
    pub settings: String,
    /// The most candidates of one access-mode set that are scored; the smallest volumes come first.
    pub max_candidates: usize,
    /// What becomes of a claim when the policy fails.
    pub on_failure: OnFailure,
    /// What becomes of a claim whose volumes are all rejected.
    pub otherwise: Otherwise,
    /// What it has done since the start of the process.
    pub metrics: PolicyMetrics,
}

/// What becomes of a claim when a policy that applies to it fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum OnFailure {
    /// The claim waits: it gets no free volume, nothing is provisioned for it, and it gets no class.
    #[default]
    Wait,
    /// The claim is decided without the policy.
    Skip,
}

impl OnFailure {
    pub(crate) fn fail(self, policy: &Text, why: &str) -> Result<(), Waits> {
        match self {
            Self::Wait => Err(Waits { policy: policy.clone(), why: why.to_owned() }),
            Self::Skip => Ok(()),
        }
    }
}

/// What becomes of a claim if the policy rejects volumes that it could have had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Otherwise {
    /// Rejected volumes count as if they did not match, as with a selector: a volume may be provisioned.
    #[default]
    Provision,
    /// The claim waits for a volume that is allowed.
    Wait,
}

/// A claim waits because of a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy {policy}: {why}")]
pub struct Waits {
    /// The policy.
    pub policy: Text,
    /// Why it gives no answer.
    pub why: String,
}

impl From<Waits> for Stop {
    fn from(Waits { policy, why }: Waits) -> Self {
        Self::Waits { policy, why }
    }
}

/// What the policies of a claim say about a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// All allow it; the sum of the weighted scores.
    Allowed(u32),
    /// A policy rejects it.
    Rejected(Rejection),
    /// The policy of that place in [`Applied`] has to judge it first.
    Unjudged(usize, RowKey),
}

/// A volume that a policy rejects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// The policy's place in the chain.
    pub(crate) policy: usize,
    /// The reason's place in [`crate::Metadata::reasons`].
    pub(crate) reason: u32,
    /// Whether the policy has judged it, beyond its requirements.
    pub(crate) judged: bool,
}

impl Chain {
    /// A chain of these policies.
    pub fn new(mut policies: Vec<Policy>) -> Self {
        policies.sort_by(|a, b| (a.order, &a.name).cmp(&(b.order, &b.name)));
        let columns = policies.iter().flat_map(Policy::columns).cloned().collect();
        let columns = Arc::new(ColumnSet::new(columns, Default::default()));
        let (reclaimers, digest) = Default::default();
        Self { policies, reclaimers, columns, digest, time_max: TIME_MAX, clock: Instant::now }
    }

    /// The chain with these reclaimers.
    #[must_use]
    pub fn with_reclaimers(mut self, mut reclaimers: Vec<ReclaimRule>) -> Self {
        reclaimers.sort_by(|a, b| (a.order, &a.name).cmp(&(b.order, &b.name)));
        self.reclaimers = reclaimers;
        self
    }

    /// The chain with another limit of the time that its matchers may take for one decision, measured by a
    /// clock. Two seconds by default.
    #[must_use]
    pub fn within(self, time_max: Duration, clock: fn() -> Instant) -> Self {
        Self { time_max, clock, ..self }
    }

    /// The policies that judge volumes for claims, in order.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// The columns that the policies are shown, for the store to keep.
    pub fn columns(&self) -> &Arc<ColumnSet> {
        &self.columns
    }

    /// The reclaimers in order.
    pub fn reclaimers(&self) -> &[ReclaimRule] {
        &self.reclaimers
    }

    /// Whether no policy judges volumes for claims.
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    /// The first policy that applies to a claim.
    ///
    /// # Errors
    ///
    /// It is unknown whether a policy applies: which, and why.
    pub fn applying(&self, claim: &Claim, related: &RelatedObjects<'_>) -> Result<Option<&Policy>, Waits> {
        for policy in &self.policies {
            if policy.applies(claim, related)? {
                return Ok(Some(policy));
            }
        }
        Ok(None)
    }

    /// Whether a claim may newly get a volume, for the guard.
    ///
    /// # Errors
    ///
    /// [`Stop::Judge`]: a matcher has to be asked first ([`Rounds::perform`]). [`Stop::Waits`]: the claim
    /// waits, because a policy gives no answer.
    pub fn verdict(
        &self,
        claim: &Claim,
        volume: &Volume,
        related: &RelatedObjects<'_>,
        kept: &AnswerCache,
        rounds: &mut Rounds,
    ) -> Result<MatchVerdict, Stop> {
        self.narrowed(claim, related, kept, rounds)?.verdict(volume, rounds)
    }

    /// Whether every policy that applies to a claim answers, for the guard: nothing is provisioned for it
    /// before, and it gets no class.
    ///
    /// # Errors
    ///
    /// As [`Self::verdict`].
    pub fn answers(
        &self,
        claim: &Claim,
        related: &RelatedObjects<'_>,
        kept: &AnswerCache,
        rounds: &mut Rounds,
    ) -> Result<(), Stop> {
        self.narrowed(claim, related, kept, rounds).map(drop)
    }

    /// The policies that apply to a claim, when each has narrowed.
    pub(crate) fn narrowed(
        &self,
        claim: &Claim,
        related: &RelatedObjects<'_>,
        kept: &AnswerCache,
        rounds: &mut Rounds,
    ) -> Result<Applied<'_>, Stop> {
        let applied = self.applied(claim, related, kept, &rounds.failed)?;
        rounds.narrowed(&applied)?;
        Ok(applied)
    }

    /// The policies that apply to a claim, without those that have failed in this decision and are skipped.
    ///
    /// # Errors
    ///
    /// The claim waits: a policy has failed, is not loaded, or it is unknown whether it applies.
    pub(crate) fn applied(
        &self,
        claim: &Claim,
        related: &RelatedObjects<'_>,
        kept: &AnswerCache,
        failed: &BTreeMap<usize, PolicyFault>,
    ) -> Result<Applied<'_>, Waits> {
        let (mut asked, mut skipped) = (Vec::new(), Vec::new());
        for (place, policy) in self.policies.iter().enumerate() {
            if !policy.applies(claim, related)? {
                continue;
            }
            let fault = failed.get(&place).map(ToString::to_string);
            let why = match (&policy.matcher, fault) {
                (Ok(matcher), None) => {
                    policy.knows(matcher.metadata(), claim, related)?;
                    let view = claim_view(matcher.metadata(), claim, related);
                    let counted = policy.spread().map(related.siblings);
                    let shown = Shown::new(&self.columns, matcher.metadata(), counted);
                    let context = kept.context(place, view);
                    asked.push(Asked { place, policy, matcher, context, shown });
                    continue;
                }
                (Err(why), _) => why.clone(),
                (Ok(_), Some(why)) => why,
            };
            policy.on_failure.fail(&policy.name, &why)?;
            skipped.push(Skipped { policy: policy.name.clone(), why });
        }
        Ok(Applied { asked, skipped, columns: &self.columns })
    }
}

/// The policies that apply to one claim.
pub(crate) struct Applied<'a> {
    pub(crate) asked: Vec<Asked<'a>>,
    /// Those that have failed, and without which the claim is decided.
    pub(crate) skipped: Vec<Skipped>,
    /// The columns of rows.
    pub(crate) columns: &'a Arc<ColumnSet>,
}

/// A policy that applies to a claim.
pub(crate) struct Asked<'a> {
    /// Its place in the chain.
    pub(crate) place: usize,
    pub(crate) policy: &'a Policy,
    pub(crate) matcher: &'a Arc<dyn Matcher>,
    /// What is kept of its answers for claims like this.
    pub(crate) context: Arc<Context>,
    /// What it is shown of volumes.
    pub(crate) shown: Shown,
}

impl Asked<'_> {
    /// The reason for which the requirements reject a volume.
    pub(crate) fn rejection(&self, row: &VolumeRow<'_>) -> Option<u32> {
        self.context.narrowing()?.rejection_of(row.capacity, |column| self.shown.value(column, row))
    }

    /// Whether the policy judges volumes, beyond its requirements.
    pub(crate) fn judges(&self) -> bool {
        self.context.narrowing().is_some_and(|narrowing| narrowing.judge)
    }
}

impl Applied<'_> {
    /// The policies that have not narrowed the claim's volumes yet.
    pub(crate) fn without_narrowing(&self) -> impl Iterator<Item = &Asked<'_>> {
        self.asked.iter().filter(|asked| asked.context.narrowing().is_none())
    }

    /// The policy that scores the fewest candidates, and how many.
    pub(crate) fn scores_fewest(&self) -> Option<(&Text, usize)> {
        let scoring = self.asked.iter().filter(|asked| asked.matcher.metadata().scores && asked.judges());
        let limits = scoring.map(|asked| (&asked.policy.name, asked.policy.max_candidates));
        limits.min_by_key(|(_, max)| *max)
    }

    /// Whether rejected volumes can hold the claim back.
    pub(crate) fn waits(&self) -> bool {
        self.asked.iter().any(|asked| asked.policy.otherwise == Otherwise::Wait)
    }

    /// Whether the claim waits because of a rejected volume.
    pub(crate) fn holds_back(&self, rejection: &Rejection) -> bool {
        self.asked
            .iter()
            .any(|asked| asked.place == rejection.policy && asked.policy.otherwise == Otherwise::Wait)
    }

    /// The kept verdicts of each policy, for [`Self::judgement`].
    pub(crate) fn kept(&self) -> Vec<MutexGuard<'_, Verdicts>> {
        self.asked.iter().map(|asked| asked.context.verdicts()).collect()
    }

    /// What the policies say about a volume. First all requirements, then judgements in the order of the
    /// chain; a policy judges only what those before it allow.
    pub(crate) fn judgement(&self, kept: &[MutexGuard<'_, Verdicts>], row: &VolumeRow<'_>) -> Judgement {
        for asked in &self.asked {
            if let Some(reason) = asked.rejection(row) {
                return Judgement::Rejected(Rejection { policy: asked.place, reason, judged: false });
            }
        }
        let mut score = 0;
        for (at, asked) in self.asked.iter().enumerate() {
            if asked.context.narrowing().is_some_and(|narrowing| !narrowing.judge) {
                continue;
            }
            let key = asked.shown.key(row);
            match kept[at].get(&key).copied() {
                None => return Judgement::Unjudged(at, key),
                Some(Verdict::Rejected(reason)) => {
                    return Judgement::Rejected(Rejection { policy: asked.place, reason, judged: true });
                }
                Some(Verdict::Allowed(given)) => score += given * asked.policy.weight,
            }
        }
        Judgement::Allowed(score)
    }

    /// What an engine is told about a volume that the claim names, or whose choice the guard checks.
    pub(crate) fn verdict(&self, volume: &Volume, rounds: &mut Rounds) -> Result<MatchVerdict, Stop> {
        let cells: Vec<Cell> = self.columns.cells(volume).collect();
        let row = VolumeRow::new(volume, &cells);
        let judgement = self.judgement(&self.kept(), &row);
        match judgement {
            Judgement::Allowed(_) => Ok(MatchVerdict::Allowed),
            Judgement::Rejected(rejection) => Ok(self.told(&rejection, volume)),
            Judgement::Unjudged(at, key) => {
                let mut judging = Judging::new(self, 1);
                judging.add(at, key, &row);
                Err(rounds.stop(judging.into_work()))
            }
        }
    }

    fn told(&self, rejection: &Rejection, volume: &Volume) -> MatchVerdict {
        let by = self.asked.iter().find(|asked| asked.place == rejection.policy);
        let (policy, reason) = by.map_or_else(Default::default, |asked| {
            let metadata = asked.matcher.metadata();
            (asked.policy.name.clone(), sentence(metadata, rejection.reason, &asked.context.view, volume))
        });
        MatchVerdict::Rejected { policy, reason }
    }
}
