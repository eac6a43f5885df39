//! Asks policies again what a decision rests on.

use std::fmt::Write as _;

use bindery_core::Text;
use serde::Serialize;

use crate::effect::Answers;
use crate::evidence::AskedPolicy;
use crate::kept::Verdict;
use crate::{
    Candidates, Chain, Judged, Matcher, MatcherEvidence, Narrowing, Policy, PolicyCall, PolicyEvidence,
    PolicyFault, PolicyFunction, ReclaimRule, Reclaimer, ReclaimerEvidence, Wish,
};

/// What became of recorded answers that were asked for again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AskedAgain {
    /// Number of answers that are the same.
    pub same: usize,
    /// The answers that are others.
    pub differences: Vec<PolicyDifference>,
    /// Number of calls, with the recorded module and settings, that used the same fuel.
    pub fuel_same: usize,
    /// The calls, with the recorded module and settings, that used other fuel. They tell nothing where fuel
    /// is counted otherwise than it was.
    pub fuel_differences: Vec<PolicyDifference>,
    /// Number of answers that could not be asked for.
    pub not_asked: usize,
    /// Number of volumes whose verdicts are not recorded.
    pub not_recorded: usize,
    /// How the loaded policies are others than those that were asked, as sentences.
    pub notes: Vec<String>,
    pub(crate) answers: Answers,
}

/// A policy answers otherwise than it did, or uses other fuel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyDifference {
    /// The policy.
    pub policy: Text,
    /// The volume; `None` for what a volume must be, and for the fuel of a matcher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<Text>,
    /// The recorded answer.
    pub then: String,
    /// The answer of the loaded policy.
    pub now: String,
}

impl PolicyEvidence {
    /// Asks the loaded policies again, with the settings that they are loaded with.
    pub fn ask_again(&self, chain: &Chain) -> AskedAgain {
        let mut asked = AskedAgain { not_recorded: self.volumes_left_out, ..AskedAgain::default() };
        if self.chain != chain.digest() {
            let (then, now) = (&self.chain, chain.digest());
            asked.notes.push(format!("the loaded policies are {now}, and the recorded ones are {then}"));
        }
        for evidence in &self.matchers {
            let loaded = chain.policies().iter().find(|policy| policy.name == evidence.policy.name);
            let loaded = loaded.and_then(|Policy { name, settings, matcher, .. }| {
                Some(Loaded { name, settings, module: &**matcher.as_ref().ok()? })
            });
            asked.matcher(evidence, &self.calls, loaded);
        }
        for evidence in &self.reclaimers {
            let loaded = chain.reclaimers().iter().find(|rule| rule.name == evidence.policy.name);
            let loaded = loaded.and_then(|ReclaimRule { name, settings, reclaimer, .. }| {
                Some(Loaded { name, settings, module: &**reclaimer.as_ref().ok()? })
            });
            asked.reclaimer(evidence, &self.calls, loaded);
        }
        asked
    }

    /// Asks a module again what the policy of this name was asked, with the recorded settings.
    pub fn ask_matcher(&self, name: &str, module: &dyn Matcher) -> AskedAgain {
        let mut asked = AskedAgain::default();
        for evidence in self.matchers.iter().filter(|evidence| *evidence.policy.name == *name) {
            let AskedPolicy { name, settings, .. } = &evidence.policy;
            asked.matcher(evidence, &self.calls, Some(Loaded { name, settings, module }));
        }
        asked
    }

    /// As [`PolicyEvidence::ask_matcher`], of a reclaimer.
    pub fn ask_reclaimer(&self, name: &str, module: &dyn Reclaimer) -> AskedAgain {
        let mut asked = AskedAgain::default();
        for evidence in self.reclaimers.iter().filter(|evidence| *evidence.policy.name == *name) {
            let AskedPolicy { name, settings, .. } = &evidence.policy;
            asked.reclaimer(evidence, &self.calls, Some(Loaded { name, settings, module }));
        }
        asked
    }
}

/// A policy that can be asked.
struct Loaded<'a, M: ?Sized> {
    name: &'a Text,
    settings: &'a str,
    module: &'a M,
}

impl AskedAgain {
    /// Counts other answers too.
    pub fn include(&mut self, other: Self) {
        let Self { same, differences, fuel_same, fuel_differences, not_asked, not_recorded, notes, answers } =
            other;
        self.same += same;
        self.differences.extend(differences);
        self.fuel_same += fuel_same;
        self.fuel_differences.extend(fuel_differences);
        self.not_asked += not_asked;
        self.not_recorded = self.not_recorded.saturating_add(not_recorded);
        self.notes.extend(notes);
        self.answers.include(answers);
    }

    fn matcher(
        &mut self,
        evidence: &MatcherEvidence,
        calls: &[PolicyCall],
        loaded: Option<Loaded<'_, dyn Matcher + '_>>,
    ) {
        let (then, answers) = (&evidence.policy, 1 + evidence.volumes.len());
        if !evidence.is_whole() {
            return self.not_whole(then);
        }
        let now = loaded.as_ref().map(|Loaded { name, settings, module }| {
            AskedPolicy::new(name, settings, module.metadata(), module.digest())
        });
        let (Some(Loaded { settings, module: matcher, .. }), Some(now)) =
            (loaded, self.comparable(then, now, answers))
        else {
            return;
        };
        let (narrowing, fuel) = matcher.narrow_with_fuel(settings, &evidence.claim);
        let judges = narrowing.as_ref().is_ok_and(|narrowing| narrowing.judge);
        let verdicts = judge(matcher, settings, evidence, judges);
        self.answers.of_matcher(&then.name, narrowing.as_ref().ok().zip(verdicts.as_ref().ok()));
        self.compare(
            then,
            None,
            then.narrowing(&evidence.narrowing),
            said(narrowing, |it| now.narrowing(&it)),
        );
        for call in then.calls(calls).filter(|_| then.is_loaded_as(&now)) {
            match &call.function {
                PolicyFunction::Narrow => self.compare_fuel(call, None, fuel),
                PolicyFunction::Judge(rows) if then.fits(rows, rows.whole.len()) => {
                    let (_, fuel) = matcher.judge_with_fuel(settings, &evidence.claim, rows);
                    self.compare_fuel(call, None, fuel);
                }
                PolicyFunction::Judge(_) => self.not_whole(then),
                PolicyFunction::Reclaim => {}
            }
        }
        if evidence.volumes.is_empty() {
            return;
        }
        if !judges {
            self.not_asked += evidence.volumes.len();
            return;
        }
        for (at, (volume, verdict)) in evidence.volumes.iter().zip(&evidence.verdicts).enumerate() {
            let answer = match &verdicts {
                Ok(verdicts) => verdicts.get(at).map_or_else(String::new, |verdict| now.verdict(*verdict)),
                Err(fault) => fault.to_string(),
            };
            self.compare(then, Some(volume), then.verdict(*verdict), answer);
        }
    }

    fn reclaimer(
        &mut self,
        evidence: &ReclaimerEvidence,
        calls: &[PolicyCall],
        loaded: Option<Loaded<'_, dyn Reclaimer + '_>>,
    ) {
        let ReclaimerEvidence { policy: then, volume, shown, judged } = evidence;
        if !evidence.is_whole() {
            return self.not_whole(then);
        }
        let now = loaded.as_ref().map(|Loaded { name, settings, module }| {
            AskedPolicy::new(name, settings, module.metadata(), module.digest())
        });
        let (Some(loaded), Some(now)) = (loaded, self.comparable(then, now, 1)) else { return };
        let (answer, fuel) = loaded.module.judge_with_fuel(loaded.settings, shown);
        for call in then.calls(calls).filter(|_| then.is_loaded_as(&now)) {
            if call.function == PolicyFunction::Reclaim {
                self.compare_fuel(call, Some(volume), fuel);
            }
        }
        let answer = answer.and_then(|judged| judged.check(loaded.module.metadata()));
        self.answers.of_reclaimer(&then.name, answer.as_ref().ok().map(|judged| judged.wish));
        self.compare(then, Some(volume), then.judged(*judged), said(answer, |judged| now.judged(judged)));
    }

    /// The loaded policy, if it can be shown what was shown then. Notes how it is another one.
    fn comparable(
        &mut self,
        then: &AskedPolicy,
        now: Option<AskedPolicy>,
        answers: usize,
    ) -> Option<AskedPolicy> {
        let name = &then.name;
        let Some(now) = now else {
            self.notes.push(format!("policy {name} is not loaded, so it is not asked again"));
            self.not_asked += answers;
            return None;
        };
        if then.module != now.module {
            let (then, now) = (&then.module, &now.module);
            self.notes
                .push(format!("policy {name}: the loaded module is {now}, and the recorded one is {then}"));
        }
        if then.settings != now.settings {
            let (then, now) = (&then.settings, &now.settings);
            self.notes
                .push(format!("policy {name}: the settings are {now}, and the recorded ones are {then}"));
        }
        let shown = |it: &AskedPolicy| (it.claim_facts.clone(), it.columns.clone(), it.spread.clone());
        if shown(then) != shown(&now) {
            self.notes.push(format!(
                "policy {name}: the loaded module declares other facts, columns or spread than the recorded \
                 one, so it is not asked again"
            ));
            self.not_asked += answers;
            self.answers.unknown.insert(name.clone());
            return None;
        }
        Some(now)
    }

    /// A policy cannot be shown a record that no policy was shown.
    fn not_whole(&mut self, policy: &AskedPolicy) {
        self.answers.unknown.insert(policy.name.clone());
        self.compare(
            policy,
            None,
            "a record whose parts do not fit together".to_owned(),
            "not asked".to_owned(),
        );
    }

    fn compare(&mut self, policy: &AskedPolicy, volume: Option<&Text>, then: String, now: String) {
        if then == now {
            self.same += 1;
        } else {
            let (policy, volume) = (policy.name.clone(), volume.cloned());
            self.differences.push(PolicyDifference { policy, volume, then, now });
        }
    }

    /// A module that counts no fuel now is not the recorded one, whatever its digest says.
    fn compare_fuel(&mut self, call: &PolicyCall, volume: Option<&Text>, now: Option<u64>) {
        if now == Some(call.fuel) {
            self.fuel_same += 1;
            return;
        }
        let (policy, volume, then) = (call.policy.clone(), volume.cloned(), call.fuel_in_words());
        let now = now.map_or_else(|| "no fuel is counted".to_owned(), |now| call.in_words(now));
        self.fuel_differences.push(PolicyDifference { policy, volume, then, now });
    }
}

impl AskedPolicy {
    /// Whether what is declared and so many rows fit together. A journal may come from anywhere.
    fn fits(&self, rows: &Candidates, count: usize) -> bool {
        let texts = rows.texts.len();
        let has_rows =
            |column: &Vec<u32>| column.len() == count && column.iter().all(|place| *place as usize <= texts);
        [rows.whole.len(), rows.nanos.len()] == [count; 2]
            && rows.columns.len() == self.columns.len()
            && rows.columns.iter().all(has_rows)
            && rows.spread.len() == self.spread.as_ref().map_or(0, |_| count)
    }

    /// Its calls.
    fn calls<'a>(&'a self, calls: &'a [PolicyCall]) -> impl Iterator<Item = &'a PolicyCall> {
        calls.iter().filter(|call| call.policy == self.name)
    }

    /// Whether module and settings are the same, so that each call uses the same fuel.
    fn is_loaded_as(&self, now: &Self) -> bool {
        (&self.module, &self.settings) == (&now.module, &now.settings)
    }
}

impl MatcherEvidence {
    /// Whether the rows, the verdicts and what is declared fit together.
    pub fn is_whole(&self) -> bool {
        let Self { policy, claim, volumes, rows, verdicts, .. } = self;
        policy.fits(rows, volumes.len())
            && verdicts.len() == volumes.len()
            && claim.facts.len() == policy.claim_facts.len()
    }

    /// What a volume must be, in words.
    pub fn narrowing_in_words(&self) -> String {
        self.policy.narrowing(&self.narrowing)
    }

    /// The names of the volumes that it has judged, each with the verdict in words.
    pub fn verdicts_in_words(&self) -> impl Iterator<Item = (&Text, String)> {
        let words = |verdict: &Verdict| self.policy.verdict(*verdict);
        self.volumes.iter().zip(self.verdicts.iter().map(words))
    }
}

impl ReclaimerEvidence {
    /// As [`MatcherEvidence::is_whole`].
    pub fn is_whole(&self) -> bool {
        let Self { policy, shown, .. } = self;
        let facts = shown.claim.as_ref().map_or(policy.claim_facts.len(), Vec::len);
        facts == policy.claim_facts.len() && shown.columns.len() == policy.columns.len()
    }

    /// The answer in words.
    pub fn answer_in_words(&self) -> String {
        self.policy.judged(self.judged)
    }
}

/// The verdicts about the recorded rows: of a matcher that judges none, all are allowed.
fn judge(
    matcher: &dyn Matcher,
    settings: &str,
    MatcherEvidence { claim, rows, volumes, .. }: &MatcherEvidence,
    judges: bool,
) -> Result<Vec<Verdict>, PolicyFault> {
    if !judges || volumes.is_empty() {
        return Ok(vec![Verdict::Allowed(0); volumes.len()]);
    }
    matcher.judge(settings, claim, rows)?.verdicts(matcher.metadata(), volumes.len())
}

fn said<T>(answer: Result<T, PolicyFault>, words: impl FnOnce(T) -> String) -> String {
    answer.map_or_else(|fault| fault.to_string(), words)
}

/// Answers in words; columns and reasons by their names.
impl AskedPolicy {
    fn reason(&self, place: u32) -> &str {
        self.reasons.get(place as usize).map_or("a reason that it does not declare", |name| name)
    }

    fn narrowing(&self, Narrowing { requirements, at_most, judge }: &Narrowing) -> String {
        let mut text = String::new();
        for needed in requirements {
            let column = self.columns.get(needed.column as usize).map(ToString::to_string);
            let column = column.unwrap_or_else(|| "a column that it does not declare".to_owned());
            let (operator, values, reason) = (needed.operator, &needed.values, self.reason(needed.reason));
            // Writing to a string cannot fail.
            _ = write!(text, "{column} {operator:?} {values:?}, else {reason}; ");
        }
        if let Some(bound) = at_most {
            _ = write!(text, "at most {}, else {}; ", bound.quantity, self.reason(bound.reason));
        }
        text + if *judge { "judges volumes" } else { "judges no volume" }
    }

    fn verdict(&self, verdict: Verdict) -> String {
        match verdict {
            Verdict::Allowed(score) => format!("allowed, score {score}"),
            Verdict::Rejected(reason) => format!("rejected, {}", self.reason(reason)),
        }
    }

    fn judged(&self, Judged { wish, reason }: Judged) -> String {
        match wish {
            Wish::ByPolicy => "by its reclaim policy".to_owned(),
            wish => format!("{wish:?}, {}", self.reason(reason)),
        }
    }
}
