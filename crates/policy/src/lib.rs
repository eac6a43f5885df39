//! Policies: what matchers and reclaimers declare and answer.
//!
//! A matcher is asked about a claim twice. [`Matcher::narrow`] answers requirements on columns of the
//! volumes, which the host evaluates over its index. [`Matcher::judge`] is asked only where requirements do
//! not say everything, about rows that are left. A matcher sees the facts that it declares
//! ([`Metadata`]) and nothing else, so a verdict can be kept for as long as those facts stay the same.
//!
//! A reclaimer is asked about a volume whose claim is gone ([`Reclaimer`]). What it reads of the claim is
//! noted on the volume while the claim is bound ([`FormerClaim`]).

mod calls;
mod chain;
mod digest;
mod document;
mod effect;
mod evidence;
mod filtered;
mod former_claim;
mod kept;
mod matcher;
mod matches;
mod metadata;
mod metrics;
mod probation;
mod pull;
mod reclaim;
mod rejections;
mod related;
mod replay;
mod required;
mod rounds;
mod row;
mod said;
mod selector;
mod settings;
mod shadow;
mod spread;
mod status;
mod view;

pub use calls::{PolicyCall, PolicyFunction};
pub use chain::{Chain, OnFailure, Otherwise, Policy, Waits};
pub use document::{
    API_VERSION, ENGINE, EffectMode, EngineDocument, EngineSpec, MATCH_POLICY, MatchClaims, MatchPolicy,
    MatchPolicySpec, ObjectMeta, PolicyDocument, RECLAIM_POLICY, ReclaimPolicy, ReclaimPolicySpec,
};
pub use effect::{Effect, volume_read};
pub use evidence::{
    AskedPolicy, CollectedEvidence, MatcherEvidence, PolicyEvidence, ReclaimerEvidence, Skipped,
};
pub use filtered::{AllowedVolumes, Filtered, Scored, allowed};
pub use former_claim::FormerClaim;
pub use kept::{AnswerCache, Verdict};
pub use matcher::{
    Bound, Candidates, ClaimView, Fueled, Matcher, Narrowing, PolicyFault, Requirement, SCORE_MAX, Verdicts,
};
pub use matches::Matches;
pub use metadata::{Metadata, Reason};
pub use metrics::{Activity, FaultCause, LatestFault, PolicyMetrics};
pub use probation::{ObservedEngine, Probation, ProbationOutcome};
pub use pull::Pull;
pub use reclaim::{Allowed, Judged, ReclaimRule, Reclaimed, Reclaimer, Reclaims, Released, Wish, shown};
pub use rejections::{Rejections, Unscored};
pub use related::RelatedObjects;
pub use replay::{AskedAgain, PolicyDifference};
pub use rounds::Rounds;
pub use said::{Said, Says};
pub use selector::{LabelSelector, MatchExpression};
pub use settings::{SettingsSchema, check_settings};
pub use shadow::{ALL_PERCENT, DIFFERENCES_MAX, Difference, DifferenceKind, ShadowMetrics, is_sampled};
pub use spread::SpreadCounts;
pub use status::{
    Condition, LastFault, LastGood, ObjectStatus, ReplicaStatus, RolledBack, ShadowAnswer, ShadowDifference,
    ShadowReleased, ShadowStatus,
};
pub use view::{NamespaceLabels, candidates, claim_facts, claim_view};
