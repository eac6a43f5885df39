//! What a policy says in a case: about all volumes at a time, one by one, and in another order.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use anyhow::{Context as _, Result, bail};
use bindery_policy::{self as policy, ClaimView, Matcher, Narrowing, SettingsSchema};
use serde_json::Value;

use super::cases::{Answer, Case, Verdict};
use super::shown::{self, Row};

/// Most volumes that a policy is asked about in one call, as in the contract.
const ROWS_MAX: usize = 512;

/// What a policy says in a case. An error names what the policy did wrong.
pub(crate) fn answer(matcher: &dyn Matcher, case: &Case) -> Result<Answer> {
    let settings = Value::Object(case.settings.clone());
    let schema = SettingsSchema::parse(&matcher.metadata().settings_schema).map_err(anyhow::Error::msg)?;
    if let Err(why) = schema.check(&settings) {
        return Ok(Answer::Refused(why));
    }
    let settings = settings.to_string();
    if let Err(why) = matcher.check(&settings)? {
        return Ok(Answer::Refused(why));
    }
    let claim = shown::claim(matcher.metadata(), case)?;
    let rows = shown::rows(matcher.metadata(), case, &claim)?;
    let asked = Asked { matcher, settings: &settings, claim: &claim };
    let whole = asked.verdicts(&rows.iter().collect::<Vec<_>>(), ROWS_MAX)?;
    let mut shuffled: Vec<&Row> = rows.iter().collect();
    shuffled.sort_by_key(|row| {
        let mut hasher = DefaultHasher::new();
        row.name.hash(&mut hasher);
        hasher.finish()
    });
    for (how, rows, at_a_time) in
        [("one by one", rows.iter().collect(), 1), ("in another order", shuffled, ROWS_MAX)]
    {
        let other = asked.verdicts(&rows, at_a_time)?;
        if let Some(name) = whole.keys().find(|name| whole[*name] != other[*name]) {
            bail!(
                "the verdict of {name} depends on the rows beside it: {:?}, and {:?} when asked {how}",
                whole[name],
                other[name]
            );
        }
    }
    Ok(Answer::Judged { chosen: chosen(&rows, &whole), volumes: whole })
}

/// A policy that is asked about a claim.
struct Asked<'a> {
    matcher: &'a dyn Matcher,
    settings: &'a str,
    claim: &'a ClaimView,
}

impl Asked<'_> {
    /// What the policy says about each row, by its name.
    fn verdicts(&self, rows: &[&Row], at_a_time: usize) -> Result<BTreeMap<String, Verdict>> {
        let narrowing = self.matcher.narrow(self.settings, self.claim)?;
        let mut verdicts = BTreeMap::new();
        let mut left = Vec::new();
        for row in rows {
            match rejection(&narrowing, row) {
                Some(reason) => {
                    verdicts.insert(row.name.clone(), self.rejected(reason)?);
                }
                None if narrowing.judge => left.push(*row),
                None => {
                    verdicts.insert(row.name.clone(), self.allowed(0));
                }
            }
        }
        for rows in left.chunks(at_a_time) {
            verdicts.extend(self.judged(rows)?);
        }
        Ok(verdicts)
    }

    fn judged(&self, rows: &[&Row]) -> Result<Vec<(String, Verdict)>> {
        let metadata = self.matcher.metadata();
        let candidates = shown::candidates(metadata, rows);
        let verdicts = self.matcher.judge(self.settings, self.claim, &candidates)?;
        let verdicts = verdicts.verdicts(metadata, rows.len())?;
        let verdict = |(row, verdict): (&&Row, policy::Verdict)| {
            let verdict = match verdict {
                policy::Verdict::Allowed(score) => self.allowed(score),
                policy::Verdict::Rejected(reason) => self.rejected(reason)?,
            };
            Ok((row.name.clone(), verdict))
        };
        rows.iter().zip(verdicts).map(verdict).collect()
    }

    fn allowed(&self, score: u32) -> Verdict {
        if self.matcher.metadata().scores { Verdict::Score(score) } else { Verdict::Allowed }
    }

    fn rejected(&self, reason: u32) -> Result<Verdict> {
        let reasons = &self.matcher.metadata().reasons;
        let declared = usize::try_from(reason).ok().and_then(|place| reasons.get(place));
        let reason = declared.with_context(|| {
            format!("the answer names reason number {reason} from 0; {} are declared", reasons.len())
        })?;
        Ok(Verdict::Rejected(reason.name.to_string()))
    }
}

/// Why a narrowing rejects a row.
fn rejection(narrowing: &Narrowing, row: &Row) -> Option<u32> {
    let unmet = narrowing.requirements.iter().find(|needed| {
        let value = row.columns.get(needed.column as usize).and_then(|value| value.as_deref());
        !needed.operator.matches(&needed.values, value)
    });
    let too_large = narrowing.at_most.as_ref().filter(|bound| row.capacity > bound.quantity);
    unmet.map(|needed| needed.reason).or(too_large.map(|bound| bound.reason))
}

/// The volume that the claim gets: of the allowed ones with the highest score the smallest, then by name.
fn chosen(rows: &[Row], verdicts: &BTreeMap<String, Verdict>) -> Option<String> {
    let score = |row: &&Row| match verdicts[&row.name] {
        Verdict::Allowed => Some(0),
        Verdict::Score(score) => Some(score),
        Verdict::Rejected(_) => None,
    };
    let allowed = rows.iter().filter_map(|row| Some((Reverse(score(&row)?), row.capacity, &row.name)));
    allowed.min().map(|(.., name)| name.clone())
}
