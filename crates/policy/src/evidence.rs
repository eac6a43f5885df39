//! What policies have said, as far as a decision rests on it, for the journal.
//!
//! Evidence holds everything that was shown, so each answer can be asked for again with the policy's module
//! alone. It is bounded: a decision that rests on more volumes says how many were left out. The calls of
//! policies ([`PolicyCall`]) stand beside it.

use std::collections::BTreeSet;
use std::sync::Arc;

use bindery_core::{Cell, ClaimFact, Spread, Text, Volume, VolumeFact, VolumeRow};
use serde::{Deserialize, Serialize};

use crate::calls::JudgedCalls;
use crate::chain::{Applied, Asked, Rejection};
use crate::kept::{Context, Verdict};
use crate::matcher::REQUIREMENTS_MAX;
use crate::row::Shown;
use crate::view::candidates;
use crate::{
    Candidates, Chain, ClaimView, Judged, Metadata, Narrowing, Policy, PolicyCall, PolicyFunction, Released,
    Unscored,
};

/// The most volumes whose verdicts are written down for one decision: as many as are scored by default.
const VOLUMES_MAX: usize = 4_096;
/// About the most bytes of their rows, of all policies together. A record of the journal has at most 16 MiB.
const BYTES_MAX: usize = 4 << 20;
/// Bytes of a row without its texts.
const ROW_BYTES: usize = 16;
/// The longest name of a policy, a reason or a volume, and the longest digest, in bytes: as of an object.
const NAME_BYTES_MAX: usize = 253;
/// The longest column in words, in bytes: the key of a label has at most 317.
const COLUMN_BYTES_MAX: usize = 1 << 10;

/// What policies have said, as far as a decision rests on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyEvidence {
    /// [`Chain::digest`].
    pub chain: String,
    /// What matchers have said about the claim, in the order of the chain.
    pub matchers: Vec<MatcherEvidence>,
    /// Number of volumes that were judged too, and are not among [`MatcherEvidence::volumes`].
    pub volumes_left_out: usize,
    /// Set if there were more candidates than are scored.
    pub unscored: Option<Unscored>,
    /// What reclaimers have said about the volume, in order.
    pub reclaimers: Vec<ReclaimerEvidence>,
    /// The policies that apply and were not asked.
    pub skipped: Vec<Skipped>,
    /// The fuel of each call: of those that narrowed, although another decision may have made the call, and
    /// of those that this decision has made. None of native policies, and none from earlier versions.
    pub calls: Vec<PolicyCall>,
}

/// A policy as it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedPolicy {
    /// Its name.
    pub name: Text,
    /// Digest of its module.
    pub module: String,
    /// Its settings: a JSON object.
    pub settings: String,
    /// The facts of claims that it declares, in order.
    pub claim_facts: Vec<ClaimFact>,
    /// The columns that it declares, in order.
    pub columns: Vec<VolumeFact>,
    /// How it spreads volumes.
    pub spread: Option<Spread>,
    /// The names of its reasons, in order.
    pub reasons: Vec<Text>,
}

/// What a matcher has said about a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatcherEvidence {
    /// The matcher.
    pub policy: AskedPolicy,
    /// The claim as it was shown.
    pub claim: ClaimView,
    /// What a volume must be.
    pub narrowing: Narrowing,
    /// The names of the volumes that it has judged. It was not shown them.
    pub volumes: Vec<Text>,
    /// The volumes as they were shown.
    pub rows: Candidates,
    /// The verdict of each.
    pub verdicts: Vec<Verdict>,
}

/// What a reclaimer has said about a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReclaimerEvidence {
    /// The reclaimer.
    pub policy: AskedPolicy,
    /// The volume. The reclaimer was not shown its name.
    pub volume: Text,
    /// The volume and its former claim as they were shown.
    pub shown: Released,
    /// The answer.
    pub judged: Judged,
}

/// A policy that has failed, and without which was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Its name.
    pub policy: Text,
    /// Why it gave no answer.
    pub why: String,
}

/// What a decision rests on that policies have said, before it is written down.
#[derive(Default)]
pub struct CollectedEvidence {
    matchers: Vec<MatcherAnswer>,
    /// The volumes that were judged: the first ones, or all.
    volumes: Vec<Arc<Volume>>,
    /// Number of all of them.
    count: usize,
    /// The calls that have judged rows.
    pub(crate) judged: JudgedCalls,
    pub(crate) unscored: Option<Unscored>,
    pub(crate) reclaimed: Vec<ReclaimerAnswer>,
    pub(crate) skipped: Vec<Skipped>,
}

/// What a reclaimer has said about a volume.
pub(crate) struct ReclaimerAnswer {
    /// The place of its rule among the reclaimers.
    pub(crate) place: usize,
    pub(crate) volume: Text,
    pub(crate) shown: Released,
    pub(crate) judged: Judged,
    pub(crate) fuel: Option<u64>,
}

/// What a matcher has said.
struct MatcherAnswer {
    /// The place of its policy in the chain.
    place: usize,
    context: Arc<Context>,
    shown: Shown,
}

/// Volumes that a scan has seen rejected by policies that judge them.
#[derive(Default)]
pub(crate) struct Rejects {
    volumes: Vec<Arc<Volume>>,
    count: usize,
}

impl Rejects {
    pub(crate) fn add(&mut self, by: &Rejection, volume: &Arc<Volume>) {
        self.count += usize::from(by.judged);
        if by.judged && self.volumes.len() < VOLUMES_MAX {
            self.volumes.push(Arc::clone(volume));
        }
    }
}

impl CollectedEvidence {
    /// What the policies of a claim have said. `first` has the volumes that were allowed or asked for by
    /// name.
    pub(crate) fn of_claim<'a>(
        applied: &Applied<'_>,
        first: impl Iterator<Item = &'a Arc<Volume>>,
        rejects: impl Iterator<Item = &'a Rejects>,
    ) -> Self {
        let (skipped, mut count, mut volumes) = (applied.skipped.clone(), 0, Vec::new());
        // Where no policy judges, the narrowings say everything.
        if applied.asked.iter().any(Asked::judges) {
            let mut add = |volume: &Arc<Volume>| {
                if volumes.len() < VOLUMES_MAX {
                    volumes.push(Arc::clone(volume));
                }
            };
            for volume in first {
                count += 1;
                add(volume);
            }
            for rejects in rejects {
                count += rejects.count;
                rejects.volumes.iter().for_each(&mut add);
            }
        }
        let told = |asked: &Asked<'_>| {
            let (context, shown) = (Arc::clone(&asked.context), asked.shown.clone());
            MatcherAnswer { place: asked.place, context, shown }
        };
        let matchers = applied.asked.iter().map(told).collect();
        Self { matchers, volumes, count, skipped, ..Self::default() }
    }

    /// Whether no policy applies.
    pub(crate) fn is_empty(&self) -> bool {
        self.matchers.is_empty() && self.reclaimed.is_empty() && self.skipped.is_empty()
    }

    pub(crate) fn skip(&mut self, policy: &Text, why: String) {
        self.skipped.push(Skipped { policy: policy.clone(), why });
    }

    /// The evidence to write down. `chain` is the one that was asked.
    pub fn evidence(&self, chain: &Chain) -> PolicyEvidence {
        let asked = |told| JudgedRows::new(chain, told);
        let mut judged: Vec<JudgedRows<'_>> = self.matchers.iter().filter_map(asked).collect();
        let (mut written, mut bytes) = (0, 0);
        for volume in &self.volumes {
            if bytes > BYTES_MAX {
                break;
            }
            let cells: Vec<Cell> = chain.columns.cells(volume).collect();
            for rows in &mut judged {
                let added = rows.add(volume, &VolumeRow::new(volume, &cells));
                bytes += added.map_or(0, |(_, bytes)| bytes);
                // Later policies judge only what earlier ones allow.
                if matches!(added, Some((Verdict::Rejected(_), _))) {
                    break;
                }
            }
            written += 1;
        }
        let reclaimers = self.reclaimed.iter().filter_map(|told| told.evidence(chain));
        PolicyEvidence {
            chain: chain.digest().to_owned(),
            matchers: judged.into_iter().map(JudgedRows::into_evidence).collect(),
            volumes_left_out: self.count - written,
            unscored: self.unscored.clone(),
            reclaimers: reclaimers.collect(),
            skipped: self.skipped.clone(),
            calls: self.calls(chain, bytes),
        }
    }

    /// The calls with their fuel. `bytes` has about how many bytes are written already.
    fn calls(&self, chain: &Chain, mut bytes: usize) -> Vec<PolicyCall> {
        let mut calls = Vec::new();
        for MatcherAnswer { place, context, .. } in &self.matchers {
            let Some(policy) = chain.policies().get(*place) else { continue };
            let call = |function, fuel| PolicyCall { policy: policy.name.clone(), function, fuel };
            calls.extend(context.narrowing_fuel().map(|fuel| call(PolicyFunction::Narrow, fuel)));
            for (rows, fuel, added) in self.judged.of(*place, context) {
                bytes += added;
                if bytes <= BYTES_MAX {
                    calls.push(call(PolicyFunction::Judge(rows.clone()), fuel));
                }
            }
        }
        calls.extend(self.reclaimed.iter().filter_map(|told| {
            let policy = chain.reclaimers().get(told.place)?.name.clone();
            Some(PolicyCall { policy, function: PolicyFunction::Reclaim, fuel: told.fuel? })
        }));
        calls
    }
}

impl ReclaimerAnswer {
    fn evidence(&self, chain: &Chain) -> Option<ReclaimerEvidence> {
        let rule = chain.reclaimers().get(self.place)?;
        let reclaimer = rule.reclaimer.as_ref().ok()?;
        let policy = AskedPolicy::new(&rule.name, &rule.settings, reclaimer.metadata(), reclaimer.digest());
        let (volume, shown) = (self.volume.clone(), self.shown.clone());
        Some(ReclaimerEvidence { policy, volume, shown, judged: self.judged })
    }
}

impl PolicyEvidence {
    /// Checks what reports repeat for each volume: a record may come from anywhere, and a long name in it
    /// would make a report of any length.
    ///
    /// # Errors
    ///
    /// What no decision has, as the rest of a sentence about the decision.
    pub fn check(&self) -> Result<(), String> {
        check_policies("matcher", self.matchers.iter().map(|said| &said.policy))?;
        check_policies("reclaimer", self.reclaimers.iter().map(|said| &said.policy))?;
        for MatcherEvidence { policy, narrowing, volumes, .. } in &self.matchers {
            check_count("volumes", volumes.len(), VOLUMES_MAX, policy)?;
            check_count("requirements", narrowing.requirements.len(), REQUIREMENTS_MAX, policy)?;
        }
        self.reclaimers
            .iter()
            .try_for_each(|said| check_bytes("the name of a volume", &said.volume, NAME_BYTES_MAX))
    }
}

/// Checks the policies of one kind. Each of them is asked once.
fn check_policies<'a>(kind: &str, policies: impl Iterator<Item = &'a AskedPolicy>) -> Result<(), String> {
    let mut names = BTreeSet::new();
    for AskedPolicy { name, module, columns, reasons, .. } in policies {
        check_bytes("the name of a policy", name, NAME_BYTES_MAX)?;
        check_bytes("the digest of a module", module, NAME_BYTES_MAX)?;
        reasons.iter().try_for_each(|reason| check_bytes("a reason", reason, NAME_BYTES_MAX))?;
        let check_column =
            |column: &VolumeFact| check_bytes("a column", &column.to_string(), COLUMN_BYTES_MAX);
        columns.iter().try_for_each(check_column)?;
        if !names.insert(name) {
            return Err(format!("has two answers of {kind} {name:?}"));
        }
    }
    Ok(())
}

fn check_bytes(what: &str, text: &str, max: usize) -> Result<(), String> {
    if text.len() <= max {
        return Ok(());
    }
    Err(format!("has {} bytes as {what}; the limit is {max}", text.len()))
}

fn check_count(what: &str, found: usize, max: usize, policy: &AskedPolicy) -> Result<(), String> {
    if found <= max {
        return Ok(());
    }
    Err(format!("has {found} {what} of policy {:?}; the limit is {max}", policy.name))
}

impl AskedPolicy {
    pub(crate) fn new(name: &Text, settings: &str, metadata: &Metadata, digest: &str) -> Self {
        Self {
            name: name.clone(),
            module: digest.to_owned(),
            settings: settings.to_owned(),
            claim_facts: metadata.claim_facts.clone(),
            columns: metadata.columns.clone(),
            spread: metadata.spread.clone(),
            reasons: metadata.reasons.iter().map(|reason| reason.name.clone()).collect(),
        }
    }
}

/// Collects the rows that a matcher has judged.
struct JudgedRows<'a> {
    told: &'a MatcherAnswer,
    narrowing: &'a Narrowing,
    policy: &'a Policy,
    digest: &'a str,
    metadata: &'a Metadata,
    volumes: Vec<Arc<Volume>>,
    spread: Vec<u32>,
    verdicts: Vec<Verdict>,
}

impl<'a> JudgedRows<'a> {
    fn new(chain: &'a Chain, told: &'a MatcherAnswer) -> Option<Self> {
        let (policy, narrowing) = (chain.policies().get(told.place)?, told.context.narrowing()?);
        let matcher = policy.matcher.as_ref().ok()?;
        let (metadata, digest) = (matcher.metadata(), matcher.digest());
        let (volumes, spread, verdicts) = (Vec::new(), Vec::new(), Vec::new());
        Some(Self { told, narrowing, policy, digest, metadata, volumes, spread, verdicts })
    }

    /// Adds a volume if the matcher has judged it; returns the verdict, and about how many bytes it takes.
    fn add(&mut self, volume: &Arc<Volume>, row: &VolumeRow<'_>) -> Option<(Verdict, usize)> {
        if !self.narrowing.judge {
            return None;
        }
        let MatcherAnswer { context, shown, .. } = self.told;
        let verdict = context.verdict(shown.key(row))?;
        self.volumes.push(Arc::clone(volume));
        self.spread.extend(shown.count(row));
        self.verdicts.push(verdict);
        let texts: usize =
            shown.cells(row).filter_map(|cell| cell.value.as_ref()).map(|value| value.len()).sum();
        Some((verdict, ROW_BYTES + volume.name.len() + texts))
    }

    fn into_evidence(self) -> MatcherEvidence {
        let Policy { name, settings, .. } = self.policy;
        MatcherEvidence {
            policy: AskedPolicy::new(name, settings, self.metadata, self.digest),
            claim: self.told.context.view.clone(),
            narrowing: self.narrowing.clone(),
            volumes: self.volumes.iter().map(|volume| volume.name.clone()).collect(),
            rows: candidates(self.metadata, &self.volumes, self.spread),
            verdicts: self.verdicts,
        }
    }
}
