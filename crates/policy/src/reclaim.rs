//! Reclaimers: what becomes of volumes whose claims are gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use bindery_core::{
    Answer, ClaimFact, Cluster, Fate, Quantity, Question, ReclaimPolicy, ReclaimVerdict, Requirement, Stop,
    Text, Timestamp, Volume, VolumeFact, VolumeIndex, VolumePhase,
};
use serde::{Deserialize, Serialize};

use crate::evidence::ReclaimerAnswer;
use crate::former_claim::FormerClaim;
use crate::rounds::ReclaimWork;
use crate::view::sentence;
use crate::{
    Chain, ClaimView, CollectedEvidence, Fueled, Matches, Metadata, OnFailure, PolicyFault, PolicyMetrics,
    Rounds,
};

/// A reclaimer: says what becomes of a volume whose claim is gone. The host runs one in a component; tests
/// have native ones.
pub trait Reclaimer: Send + Sync {
    /// What it says about itself; it declares no spread and does not score.
    fn metadata(&self) -> &Metadata;

    /// Names it in evidence: the SHA-256 of a component, or the version of a native reclaimer.
    fn digest(&self) -> &str;

    /// Units of fuel that its calls have used since it was loaded; a native reclaimer uses none.
    fn fuel(&self) -> u64 {
        0
    }

    /// Checks settings beyond their schema; see [`crate::Matcher::check`].
    ///
    /// # Errors
    ///
    /// The reclaimer failed; the inner error is a sentence about the settings.
    fn check(&self, settings: &str) -> Result<Result<(), String>, PolicyFault>;

    /// Judges a volume.
    fn judge(&self, settings: &str, shown: &Released) -> Result<Judged, PolicyFault>;

    /// As [`Reclaimer::judge`], with the units of fuel that the call used; `None` where none are counted.
    fn judge_with_fuel(&self, settings: &str, shown: &Released) -> Fueled<Judged> {
        (self.judge(settings, shown), None)
    }
}

/// A volume whose claim is gone, as a reclaimer sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// Its capacity.
    pub capacity: Quantity,
    /// The declared columns, in the order of [`Metadata::columns`]; `None` where the volume has none.
    pub columns: Vec<Option<Text>>,
    /// The declared facts of its claim, in the order of [`Metadata::claim_facts`]; `None` where not all are
    /// known.
    pub claim: Option<Vec<Option<Text>>>,
}

/// What a reclaimer answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// What becomes of the volume.
    pub wish: Wish,
    /// Place of the reason in [`Metadata::reasons`]; not read for [`Wish::ByPolicy`].
    pub reason: u32,
}

/// What a reclaimer wants to become of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Wish {
    /// What its reclaim policy says, or a reclaimer that is asked later.
    ByPolicy,
    /// It stays.
    Keep,
    /// It is deleted.
    Delete,
    /// It stays for this number of seconds after its claim was gone, and is deleted then.
    DeleteAfter(u64),
    /// It is scrubbed and offered again.
    Recycle,
    /// It is offered again with its data.
    OfferAgain,
}

/// An answer of a reclaimer that a document allows although it destroys or shows more than the volume's own
/// reclaim policy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Allowed {
    /// To delete a volume whose reclaim policy is not `Delete`.
    Delete,
    /// To scrub a volume whose reclaim policy is not `Recycle`, and to offer it again.
    Recycle,
    /// To offer a volume again with its data.
    OfferAgain,
}

/// The value of [`RECLAIM_POLICY_BEFORE`](bindery_core::RECLAIM_POLICY_BEFORE) by which a person takes a
/// volume with reclaim policy `Retain` from all reclaimers.
const KEPT: &str = "kept";

/// A reclaimer with the document that loads it. Clones count together.
#[derive(Clone)]
pub struct ReclaimRule {
    /// `metadata.name` of the document.
    pub name: Text,
    /// Rules of lower order are asked first; those of equal order by name.
    pub order: i32,
    /// The volumes that it applies to, by their class and what is known of their claim.
    pub matches: Matches,
    /// The reclaimer, or why it could not be loaded.
    pub reclaimer: Result<Arc<dyn Reclaimer>, String>,
    /// Its settings: a JSON object that has passed the schema of the reclaimer.
    pub settings: String,
    /// What it may do beyond the reclaim policies of volumes.
    pub allow: Vec<Allowed>,
    /// What becomes of a volume when the reclaimer fails.
    pub on_failure: OnFailure,
    /// What it has done since the start of the process.
    pub metrics: PolicyMetrics,
}

/// What becomes of a volume, and what the guard needs to know of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// What the engine is told.
    pub verdict: ReclaimVerdict,
    /// Whether the document allows it, whatever the volume's reclaim policy is.
    pub is_allowed: bool,
}

impl Judged {
    /// Checks an answer by what the reclaimer declares.
    ///
    /// # Errors
    ///
    /// The reason is not declared.
    pub fn check(self, metadata: &Metadata) -> Result<Self, PolicyFault> {
        let declared = metadata.reasons.len();
        if self.wish != Wish::ByPolicy && self.reason as usize >= declared {
            let why = format!("it gives reason {}, from 0; {declared} are declared", self.reason);
            return Err(PolicyFault::BadAnswer(why));
        }
        Ok(self)
    }
}

impl Chain {
    /// What becomes of a volume whose claim is gone: what the first reclaimer says that does not leave it to
    /// the reclaim policy. `last` is the claim as it was last seen, where that is known.
    ///
    /// Where a person has set another reclaim policy since a reclaimer changed it, or has annotated the
    /// volume as kept, the person has decided.
    ///
    /// # Errors
    ///
    /// [`Stop::Judge`]: a reclaimer has to be asked first ([`Rounds::perform`]). [`Stop::Waits`]: the volume
    /// waits, because a policy gives no answer.
    pub fn reclaimed(
        &self,
        volume: &Volume,
        last: Option<&FormerClaim>,
        now: Timestamp,
        rounds: &mut Rounds,
    ) -> Result<Reclaimed, Stop> {
        rounds.collected = CollectedEvidence::default();
        let by_person = match volume.policy {
            ReclaimPolicy::Retain => {
                volume.noted_policy().is_some_and(|noted| **noted == *KEPT)
                    || volume.policy_before() == Some(ReclaimPolicy::Retain)
            }
            _ => volume.policy_before().is_some(),
        };
        if by_person {
            return Ok(Reclaimed::default());
        }
        let mut unsure = None;
        for (place, rule) in self.reclaimers().iter().enumerate() {
            let applies = rule.applies(volume, last);
            if applies == Some(false) {
                continue;
            }
            let Some((judged, shown, metadata)) = rule.answered(place, volume, last, rounds)? else {
                continue;
            };
            let (fate, is_allowed) = rule.fate(judged.wish, volume, now, applies.is_some());
            if fate == Fate::ByPolicy {
                continue;
            }
            let claim = ClaimView { request: Quantity::ZERO, facts: shown.claim.unwrap_or_default() };
            let reason = sentence(metadata, judged.reason, &claim, volume);
            let verdict = ReclaimVerdict { fate, policy: rule.name.clone(), reason };
            let reclaimed = Reclaimed { verdict, is_allowed };
            if applies.is_some() || matches!(fate, Fate::Keep | Fate::KeepFor(_)) {
                return Ok(reclaimed);
            }
            // A rule that may not apply takes no volume from one that keeps it.
            unsure.get_or_insert(reclaimed);
        }
        Ok(unsure.unwrap_or_default())
    }

    /// Whether a reclaimer has kept a released volume, and none that is loaded applies to it any more: it
    /// stays until a person decides.
    pub fn has_left(&self, volume: &Volume, last: Option<&FormerClaim>) -> bool {
        let is_kept = volume.phase == VolumePhase::Released && volume.policy == ReclaimPolicy::Retain;
        is_kept
            && volume.policy_before().is_some()
            && !self.reclaimers().iter().any(|rule| rule.applies(volume, last) != Some(false))
    }
}

impl ReclaimRule {
    /// The facts of claims that it declares or selects by, without those that claimRef has.
    pub(crate) fn claim_facts(&self) -> BTreeSet<ClaimFact> {
        let declared = self.reclaimer.iter().flat_map(|reclaimer| &reclaimer.metadata().claim_facts).cloned();
        let labels = self.matches.claim.iter().map(|needed| ClaimFact::Label(needed.key.clone()));
        let namespace = self.matches.namespace.iter();
        let of_namespace = namespace.map(|needed| ClaimFact::NamespaceLabel(needed.key.clone()));
        let mut facts: BTreeSet<ClaimFact> = declared.chain(labels).chain(of_namespace).collect();
        facts.retain(|fact| !matches!(fact, ClaimFact::Namespace | ClaimFact::Name));
        facts
    }

    /// What the reclaimer says, with what it was shown; `None` if it fails and is skipped.
    fn answered(
        &self,
        place: usize,
        volume: &Volume,
        last: Option<&FormerClaim>,
        rounds: &mut Rounds,
    ) -> Result<Option<(Judged, Released, &Metadata)>, Stop> {
        let why = match &self.reclaimer {
            Err(why) => why.clone(),
            Ok(reclaimer) => {
                let metadata = reclaimer.metadata();
                let work = ReclaimWork { place, shown: shown(metadata, volume, last) };
                match rounds.reclaimed(&work) {
                    None => return Err(rounds.stop_reclaim(work)),
                    Some((Err(fault), _)) => fault.to_string(),
                    Some((Ok(judged), fuel)) => {
                        let (judged, fuel) = (*judged, *fuel);
                        let (volume, shown) = (volume.name.clone(), work.shown.clone());
                        let told = ReclaimerAnswer { place, volume, shown, judged, fuel };
                        rounds.collected.reclaimed.push(told);
                        return Ok(Some((judged, work.shown, metadata)));
                    }
                }
            }
        };
        self.on_failure.fail(&self.name, &why)?;
        rounds.collected.skip(&self.name, why);
        Ok(None)
    }

    /// Whether the rule applies to a volume; `None` where that depends on facts of the claim that are not
    /// known.
    pub fn applies(&self, volume: &Volume, last: Option<&FormerClaim>) -> Option<bool> {
        let matches = &self.matches;
        let selects = |needed: &Requirement, fact: fn(Text) -> ClaimFact| {
            last.and_then(|last| last.fact(&fact(needed.key.clone())))
                .map(|value| needed.matches(value.as_deref()))
        };
        let of_claim = matches.claim.iter().map(|needed| selects(needed, ClaimFact::Label));
        let of_namespace = matches.namespace.iter().map(|needed| selects(needed, ClaimFact::NamespaceLabel));
        let class = Some(matches.has_class(&volume.class));
        of_claim.chain(of_namespace).fold(class, |all, one| match (all, one) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), one) => one,
            (None, _) => None,
        })
    }

    /// What a wish makes of a volume, and whether the document allows it. A wish that destroys or shows more
    /// than the volume's own reclaim policy does, and that the document does not allow, counts for nothing.
    /// So does one of a rule that may not apply.
    fn fate(&self, wish: Wish, volume: &Volume, now: Timestamp, applies: bool) -> (Fate, bool) {
        let own = volume.policy_before().unwrap_or(volume.policy);
        let (fate, allowed, own) = match wish {
            Wish::ByPolicy => return (Fate::ByPolicy, false),
            Wish::Keep => return (Fate::Keep, false),
            Wish::Delete => (Fate::Delete, Allowed::Delete, own == ReclaimPolicy::Delete),
            Wish::DeleteAfter(seconds) => {
                (due(volume, own, seconds, now), Allowed::Delete, own == ReclaimPolicy::Delete)
            }
            Wish::Recycle => (Fate::Recycle, Allowed::Recycle, own == ReclaimPolicy::Recycle),
            Wish::OfferAgain => (Fate::OfferAgain, Allowed::OfferAgain, false),
        };
        let is_allowed = applies && self.allow.contains(&allowed);
        if own || is_allowed { (fate, is_allowed) } else { (Fate::ByPolicy, false) }
    }
}

/// A volume that is deleted so many seconds after its claim was gone.
fn due(volume: &Volume, own: ReclaimPolicy, seconds: u64, now: Timestamp) -> Fate {
    let since = match volume.phase {
        // A deletion has begun, and failed.
        VolumePhase::Failed if own == ReclaimPolicy::Delete => return Fate::Delete,
        VolumePhase::Released | VolumePhase::Failed => {
            match volume.facts.get(&VolumeFact::PhaseTransition).and_then(|since| since.parse().ok()) {
                Some(since) => since,
                // An API server before 1.28 does not say when the claim was gone.
                None => return Fate::Keep,
            }
        }
        _ => now,
    };
    let passed = u64::try_from(now.saturating_sub(since)).unwrap_or(0);
    match seconds.saturating_sub(passed) {
        0 => Fate::Delete,
        left => Fate::KeepFor(left.saturating_mul(1_000)),
    }
}

/// What a reclaimer is shown.
pub fn shown(metadata: &Metadata, volume: &Volume, last: Option<&FormerClaim>) -> Released {
    Released {
        capacity: volume.capacity.unwrap_or_default(),
        columns: metadata.columns.iter().map(|fact| volume.fact(fact)).collect(),
        claim: last.and_then(|last| metadata.claim_facts.iter().map(|fact| last.fact(fact)).collect()),
    }
}

/// Stands between the store and the recorder of a decision about a volume, and answers what the reclaimers
/// say. None is called here, because the store is locked; see [`crate::Filtered`].
pub struct Reclaims<'a> {
    index: &'a mut dyn VolumeIndex,
    volume: &'a Volume,
    chain: &'a Chain,
    now: Timestamp,
    rounds: &'a mut Rounds,
}

impl<'a> Reclaims<'a> {
    /// The cluster for a decision about `volume`.
    pub fn new(
        index: &'a mut dyn VolumeIndex,
        volume: &'a Volume,
        chain: &'a Chain,
        now: Timestamp,
        rounds: &'a mut Rounds,
    ) -> Self {
        // What an earlier try has heard does not count.
        rounds.collected = CollectedEvidence::default();
        Self { index, volume, chain, now, rounds }
    }

    /// What the reclaimers have said, as far as the answers rest on it; `None` if no policy applies.
    pub fn into_collected(self) -> Option<CollectedEvidence> {
        let collected = std::mem::take(&mut self.rounds.collected);
        (!collected.is_empty()).then_some(collected)
    }

    fn reclaimed(&mut self, name: &Text) -> Result<ReclaimVerdict, Stop> {
        if *name != self.volume.name {
            return Err(Stop::Nonsense("what becomes of a volume that is not the one that is decided"));
        }
        let last = FormerClaim::of_volume(self.chain, self.volume, &*self.index);
        Ok(self.chain.reclaimed(self.volume, last.as_ref(), self.now, self.rounds)?.verdict)
    }
}

impl Cluster for Reclaims<'_> {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        match question {
            Question::Reclaim(volume) => Ok(Answer::Reclaim(self.reclaimed(&volume)?)),
            question => self.index.ask(question),
        }
    }
}
