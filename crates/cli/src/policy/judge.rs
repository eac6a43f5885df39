//! What a policy says in a case: about all volumes at a time, one by one, and in another order.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use bindery_core::{Counted, Volume};
use bindery_host::ComponentPolicy;
use bindery_policy::{
    self as policy, ClaimView, Judged, Matcher, Metadata, PolicyFault, Reclaimer, Wish, candidates,
    check_settings,
};
use serde_json::{Map, Value};

use super::cases::{Case, CaseAnswer, CaseVerdict};
use super::shown::{self, Shown};

/// Most volumes that a policy is asked about in one call, as in the contract.
pub(crate) const ROWS_MAX: usize = 512;

/// A policy that is held against cases.
#[derive(Clone, Copy)]
pub(crate) enum Tested<'a> {
    Matcher(&'a dyn Matcher),
    Reclaimer(&'a dyn Reclaimer),
}

impl<'a> From<&'a ComponentPolicy> for Tested<'a> {
    fn from(policy: &'a ComponentPolicy) -> Self {
        match policy {
            ComponentPolicy::Matcher(matcher) => Self::Matcher(matcher),
            ComponentPolicy::Reclaimer(reclaimer) => Self::Reclaimer(reclaimer),
        }
    }
}

impl Tested<'_> {
    pub(crate) fn metadata(&self) -> &Metadata {
        match self {
            Self::Matcher(matcher) => matcher.metadata(),
            Self::Reclaimer(reclaimer) => reclaimer.metadata(),
        }
    }

    /// Units of fuel that its calls have used.
    pub(crate) fn fuel(&self) -> u64 {
        match self {
            Self::Matcher(matcher) => matcher.fuel(),
            Self::Reclaimer(reclaimer) => reclaimer.fuel(),
        }
    }

    /// Checks settings; the inner error is a sentence about them.
    pub(crate) fn checked(self, settings: &Map<String, Value>) -> Result<Result<(), String>, PolicyFault> {
        check_settings(self.metadata(), settings, |settings| match self {
            Self::Matcher(matcher) => matcher.check(settings),
            Self::Reclaimer(reclaimer) => reclaimer.check(settings),
        })
    }

    /// What the policy says in a case. An error names what the policy did wrong, and in which function.
    pub(crate) fn answer(self, case: &Case) -> Result<CaseAnswer> {
        if let Err(why) = self.checked(&case.settings).context("check")? {
            return Ok(CaseAnswer::Refused(why));
        }
        let settings = Value::Object(case.settings.clone()).to_string();
        match self {
            Self::Matcher(matcher) => judged(matcher, &settings, case),
            Self::Reclaimer(reclaimer) => reclaimed(reclaimer, &settings, case),
        }
    }
}

fn reclaimed(reclaimer: &dyn Reclaimer, settings: &str, case: &Case) -> Result<CaseAnswer> {
    let metadata = reclaimer.metadata();
    let judged = reclaimer.judge(settings, &shown::released(metadata, case)?).context("judge")?;
    let Judged { wish, reason } = judged.check(metadata).context("judge")?;
    let reason = match wish {
        Wish::ByPolicy => None,
        _ => metadata.reasons.get(reason as usize).map(|reason| reason.name.to_string()),
    };
    Ok(CaseAnswer::Reclaimed { fate: wish, reason })
}

fn judged(matcher: &dyn Matcher, settings: &str, case: &Case) -> Result<CaseAnswer> {
    let Shown { claim, volumes, counted } = Shown::new(matcher.metadata(), case)?;
    let asked = Asked { matcher, settings, claim: &claim, counted: counted.as_ref() };
    let whole = asked.verdicts(&volumes, ROWS_MAX)?;
    let mut shuffled = volumes.clone();
    shuffled.sort_by_key(|volume| {
        let mut hasher = DefaultHasher::new();
        volume.name.hash(&mut hasher);
        hasher.finish()
    });
    for (how, volumes, at_a_time) in [("one by one", &volumes, 1), ("in another order", &shuffled, ROWS_MAX)]
    {
        let other = asked.verdicts(volumes, at_a_time)?;
        if let Some(name) = whole.keys().find(|name| whole[*name] != other[*name]) {
            bail!(
                "the verdict of {name} depends on the rows beside it: {:?}, and {:?} when asked {how}",
                whole[name],
                other[name]
            );
        }
    }
    Ok(CaseAnswer::Judged { chosen: chosen(&volumes, &whole), volumes: whole })
}

/// A policy that is asked about a claim.
struct Asked<'a> {
    matcher: &'a dyn Matcher,
    settings: &'a str,
    claim: &'a ClaimView,
    counted: Option<&'a Counted>,
}

impl Asked<'_> {
    /// What the policy says about each volume, by its name.
    fn verdicts(&self, volumes: &[Arc<Volume>], at_a_time: usize) -> Result<BTreeMap<String, CaseVerdict>> {
        let narrowing = self.matcher.narrow(self.settings, self.claim).context("narrow")?;
        let mut verdicts = BTreeMap::new();
        let mut left = Vec::new();
        for volume in volumes {
            let verdict = match narrowing.rejection(self.matcher.metadata(), volume) {
                Some(reason) => self.rejected(reason)?,
                None if narrowing.judge => {
                    left.push(Arc::clone(volume));
                    continue;
                }
                None => self.allowed(0),
            };
            verdicts.insert(volume.name.to_string(), verdict);
        }
        for volumes in left.chunks(at_a_time) {
            verdicts.extend(self.judged(volumes)?);
        }
        Ok(verdicts)
    }

    fn judged(&self, volumes: &[Arc<Volume>]) -> Result<Vec<(String, CaseVerdict)>> {
        let metadata = self.matcher.metadata();
        let spread = volumes.iter().filter_map(|volume| Some(self.counted?.count(volume)));
        let candidates = candidates(metadata, volumes, spread.collect());
        let verdicts = self.matcher.judge(self.settings, self.claim, &candidates).context("judge")?;
        let verdicts = verdicts.verdicts(metadata, volumes.len()).context("judge")?;
        let verdict = |(volume, verdict): (&Arc<Volume>, policy::Verdict)| {
            let verdict = match verdict {
                policy::Verdict::Allowed(score) => self.allowed(score),
                policy::Verdict::Rejected(reason) => self.rejected(reason)?,
            };
            Ok((volume.name.to_string(), verdict))
        };
        volumes.iter().zip(verdicts).map(verdict).collect()
    }

    fn allowed(&self, score: u32) -> CaseVerdict {
        if self.matcher.metadata().scores { CaseVerdict::Score(score) } else { CaseVerdict::Allowed }
    }

    fn rejected(&self, reason: u32) -> Result<CaseVerdict> {
        let reasons = &self.matcher.metadata().reasons;
        let declared = usize::try_from(reason).ok().and_then(|place| reasons.get(place));
        let reason = declared.with_context(|| {
            format!("the answer names reason number {reason} from 0; {} are declared", reasons.len())
        })?;
        Ok(CaseVerdict::Rejected(reason.name.to_string()))
    }
}

/// The volume that the claim gets: of the allowed ones with the highest score the smallest, then by name.
pub(super) fn chosen(volumes: &[Arc<Volume>], verdicts: &BTreeMap<String, CaseVerdict>) -> Option<String> {
    let score = |volume: &Volume| match verdicts[&*volume.name] {
        CaseVerdict::Allowed => Some(0),
        CaseVerdict::Score(score) => Some(score),
        CaseVerdict::Rejected(_) => None,
    };
    let allowed = volumes.iter().filter_map(|volume| {
        Some((Reverse(score(volume)?), volume.capacity.unwrap_or_default(), &volume.name))
    });
    allowed.min().map(|(.., name)| name.to_string())
}
