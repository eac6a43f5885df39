//! What other answers of policies make of a decision, as far as a journal tells.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bindery_core::{Answer, Evidence, Exchange, Lookup, Quantity, Question, SelectorOperator, Text, Volume};
use serde::Serialize;

use crate::kept::Verdict;
use crate::{AskedAgain, MatcherEvidence, Narrowing, PolicyEvidence, Wish};

/// What becomes of a decision if policies answer otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Effect {
    /// The volume that the claim was given is rejected.
    Rejected,
    /// The claim gets another volume, or gets one and got none; or the volume is kept and was not.
    Otherwise,
    /// It rests on what is not recorded.
    Unknown,
}

/// What policies answer when they are asked again, by their names. A policy that is in none of these was not
/// asked: what is recorded of it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) matchers: BTreeMap<Text, (Narrowing, Vec<Verdict>)>,
    pub(crate) reclaimers: BTreeMap<Text, Wish>,
    /// The policies that give no answer.
    pub(crate) unknown: BTreeSet<Text>,
}

impl Answers {
    /// Keeps the answer of a matcher; `None` for a fault.
    pub(crate) fn of_matcher(&mut self, name: &Text, answer: Option<(&Narrowing, &Vec<Verdict>)>) {
        match answer {
            Some((narrowing, verdicts)) => {
                self.matchers.insert(name.clone(), (narrowing.clone(), verdicts.clone()));
            }
            None => _ = self.unknown.insert(name.clone()),
        }
    }

    /// As [`Answers::of_matcher`], of a reclaimer.
    pub(crate) fn of_reclaimer(&mut self, name: &Text, answer: Option<Wish>) {
        match answer {
            Some(wish) => _ = self.reclaimers.insert(name.clone(), wish),
            None => _ = self.unknown.insert(name.clone()),
        }
    }

    /// Adds the answers of other policies.
    pub(crate) fn include(&mut self, Self { matchers, reclaimers, unknown }: Self) {
        self.matchers.extend(matchers);
        self.reclaimers.extend(reclaimers);
        self.unknown.extend(unknown);
    }
}

impl PolicyEvidence {
    /// What the answers make of the decision that rests on the recorded ones; `None` for nothing. `given` is
    /// the volume that the decision gives the claim.
    pub fn effect(&self, asked: &AskedAgain, decision: &Evidence, given: Option<&Text>) -> Option<Effect> {
        let answers = &asked.answers;
        self.other_wish(answers).or_else(|| {
            let rests_on_matchers = decision.exchanges.iter().any(|it| rests_on_matchers(&it.question));
            if rests_on_matchers { self.other_choice(answers, decision, given) } else { None }
        })
    }

    /// What the first reclaimer that answers otherwise makes of the volume. Whether its document allows more
    /// than to keep the volume is not recorded, nor what reclaimers after the last recorded one say.
    fn other_wish(&self, answers: &Answers) -> Option<Effect> {
        self.reclaimers.iter().find_map(|then| {
            let now = answers.reclaimers.get(&then.policy.name);
            match now {
                Some(now) if *now == then.judged.wish => None,
                Some(Wish::Keep) => Some(Effect::Otherwise),
                Some(_) => Some(Effect::Unknown),
                None => answers.unknown.contains(&then.policy.name).then_some(Effect::Unknown),
            }
        })
    }

    /// What other verdicts and requirements of matchers make of the choice. Candidates come in the order of
    /// score, capacity and name.
    fn other_choice(&self, answers: &Answers, decision: &Evidence, given: Option<&Text>) -> Option<Effect> {
        let read = given.and_then(|given| volume_read(decision, given));
        let (mut is_known, mut changed) = (true, Vec::new());
        for then in &self.matchers {
            let is_unknown = answers.unknown.contains(&then.policy.name);
            // A record may have a policy twice, and the rows of one may not fit together.
            let now = answers.matchers.get(&then.policy.name).filter(|_| !is_unknown);
            let Some(now) = now else {
                is_known &= !is_unknown;
                continue;
            };
            match given.map_or(Some(false), |given| then.rejects(now, given, read)) {
                Some(true) => return Some(Effect::Rejected),
                Some(false) => is_known &= is_as_strict(&then.narrowing, &now.0),
                None => is_known = false,
            }
            if !then.verdicts.iter().map(score).eq(now.1.iter().map(score)) {
                changed.push((then, &now.1));
            }
        }
        is_known &= changed.is_empty() || self.volumes_left_out == 0 && self.unscored.is_none();
        // Where others are rejected only, the first one stays the first one.
        let is_less = |(then, now): &(&MatcherEvidence, &Vec<Verdict>)| {
            then.verdicts
                .iter()
                .zip(*now)
                .all(|(then, now)| score(now).is_none() || score(then) == score(now))
        };
        if !is_known {
            return Some(Effect::Unknown);
        }
        let (then, now) = changed.iter().find(|it| !is_less(it))?;
        let judging = self.matchers.iter().filter(|it| !it.volumes.is_empty()).count();
        let best = then.best(&then.verdicts);
        if judging > 1 || access_sets(&decision.exchanges) > 1 || best != given {
            return Some(Effect::Unknown);
        }
        (then.best(now) != best).then_some(Effect::Otherwise)
    }
}

impl MatcherEvidence {
    /// Whether these answers reject a volume; `None` where what it has is not recorded.
    fn rejects(
        &self,
        now: &(Narrowing, Vec<Verdict>),
        name: &Text,
        read: Option<&Arc<Volume>>,
    ) -> Option<bool> {
        let (narrowing, verdicts) = now;
        if let Some(at) = self.volumes.iter().position(|volume| volume == name) {
            let value = |column: u32| {
                let place = self.rows.columns.get(column as usize)?[at];
                self.rows.texts.get((place as usize).checked_sub(1)?)
            };
            let capacity =
                Quantity { whole: self.rows.whole[at], nanos: self.rows.nanos[at], ..Quantity::ZERO };
            let is_unmet = narrowing.rejection_of(capacity, value).is_some();
            return Some(is_unmet || verdicts.get(at).and_then(score).is_none());
        }
        if demands(&self.narrowing).eq(demands(narrowing)) && bound(&self.narrowing) == bound(narrowing) {
            return Some(false);
        }
        let value = |volume: &Volume, column: u32| volume.fact(self.policy.columns.get(column as usize)?);
        read.map(|volume| {
            let capacity = volume.capacity.unwrap_or_default();
            narrowing.rejection_of(capacity, |column| value(volume, column)).is_some()
        })
    }

    /// The volume that comes first by these verdicts.
    fn best(&self, verdicts: &[Verdict]) -> Option<&Text> {
        let rows = self.rows.whole.iter().zip(&self.rows.nanos).zip(&self.volumes);
        let allowed = verdicts
            .iter()
            .zip(rows)
            .filter_map(|(verdict, (capacity, name))| Some((Reverse(score(verdict)?), capacity, name)));
        allowed.min().map(|(.., name)| name)
    }
}

/// The score; `None` for a rejection.
fn score(verdict: &Verdict) -> Option<u32> {
    match verdict {
        Verdict::Allowed(score) => Some(*score),
        Verdict::Rejected(_) => None,
    }
}

/// What a volume must be, without the reasons.
fn demands(narrowing: &Narrowing) -> impl Iterator<Item = (u32, SelectorOperator, &[Text])> {
    narrowing.requirements.iter().map(|it| (it.column, it.operator, &*it.values))
}

fn bound(narrowing: &Narrowing) -> Option<Quantity> {
    narrowing.at_most.as_ref().map(|bound| bound.quantity)
}

/// Whether all volumes that meet `now` meet `then` too, and are judged if they were.
fn is_as_strict(then: &Narrowing, now: &Narrowing) -> bool {
    demands(then).all(|needed| demands(now).any(|it| it == needed))
        && bound(then).is_none_or(|most| bound(now).is_some_and(|now| now <= most))
        && (then.judge || !now.judge)
}

/// Whether a decision that asks this rests on what matchers say of candidates.
fn rests_on_matchers(question: &Question) -> bool {
    matches!(
        question,
        Question::Candidates { .. }
            | Question::Tallies(_)
            | Question::Verdict(_)
            | Question::DefaultClasses
            | Question::DynamicProvisioning
    )
}

/// The access-mode sets whose candidates were asked for: those of an earlier one come first.
fn access_sets(exchanges: &[Exchange]) -> usize {
    let sets = exchanges.iter().filter_map(|it| match &it.question {
        Question::Candidates { query, .. } => Some(query.access_set),
        _ => None,
    });
    sets.collect::<BTreeSet<_>>().len()
}

/// The volume of that name as the engine has read it last.
pub fn volume_read<'a>(Evidence { exchanges, .. }: &'a Evidence, name: &Text) -> Option<&'a Arc<Volume>> {
    exchanges.iter().rev().find_map(|it| match &it.answer {
        Answer::Volume(Lookup::Found(volume)) | Answer::Described(volume) if volume.name == *name => {
            Some(volume)
        }
        _ => None,
    })
}
