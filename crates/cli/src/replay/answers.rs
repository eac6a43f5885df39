//! What policies answer when they are asked again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Result, bail};
use bindery_host::ComponentPolicy;
use bindery_journal::Record;
use bindery_policy::{AskedAgain, Effect, PolicyDifference, PolicyEvidence};
use serde::Serialize;

use super::of_records;
use crate::output::counted;

/// What policies answer when they are asked again.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answers {
    /// Digest of the loaded policies.
    loaded: String,
    pub(crate) same: usize,
    pub(crate) different: usize,
    pub(crate) not_asked: usize,
    not_recorded: usize,
    /// Calls whose fuel was compared.
    fuel_compared: usize,
    /// Records whose policies were shown something that is redacted, and are not asked again.
    pub(crate) redacted: usize,
    /// How many decisions the answers would change, if other policies are asked.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    effects: BTreeMap<Effect, usize>,
    /// How the loaded policies are others than the recorded ones.
    notes: BTreeSet<String>,
    differences: Vec<Answered>,
    /// Bytes of the notes, which are kept even after what was printed is forgotten.
    #[serde(skip)]
    pub(crate) kept: usize,
}

/// A policy answers otherwise, or uses other fuel.
#[derive(Serialize)]
struct Answered {
    record: usize,
    /// The object that was decided.
    object: String,
    #[serde(flatten)]
    difference: PolicyDifference,
}

/// Asks a module again what the policy of that name was asked, with the recorded settings.
pub(crate) fn ask(policy: &ComponentPolicy, name: &str, recorded: &PolicyEvidence) -> AskedAgain {
    match policy {
        ComponentPolicy::Matcher(matcher) => recorded.ask_matcher(name, matcher),
        ComponentPolicy::Reclaimer(reclaimer) => recorded.ask_reclaimer(name, reclaimer),
    }
}

impl Answers {
    /// Of the policies with this digest.
    pub(super) fn of(loaded: &str) -> Self {
        Self { loaded: loaded.to_owned(), ..Self::default() }
    }

    /// Says how many decisions would change, even if none would.
    pub(super) fn with_effects(self) -> Self {
        let effects = [Effect::Rejected, Effect::Otherwise, Effect::Unknown];
        Self { effects: effects.map(|effect| (effect, 0)).into(), ..self }
    }

    /// Asks the policies of a record again and counts their answers; returns the lines to print.
    /// `counts_alike` says whether its fuel was counted as this program counts.
    pub(crate) fn ask(
        &mut self,
        number: usize,
        record: &Record,
        counts_alike: bool,
        ask: impl FnOnce(&PolicyEvidence) -> AskedAgain,
    ) -> String {
        let Some(policies) = &record.policies else { return String::new() };
        if record.redacted.policies {
            self.redacted += 1;
            return String::new();
        }
        let (object, asked) = (record.evidence.request.subject.key().to_string(), ask(policies));
        let given = record.evidence.decision.chosen();
        let effect = policies.effect(&asked, &record.evidence, given).filter(|_| !self.effects.is_empty());
        let mut text = self.add(number, &object, asked, counts_alike);
        if let Some(effect) = effect {
            *self.effects.entry(effect).or_default() += 1;
            text += &format!("record {number}, {object}: {}\n", in_words(effect));
        }
        text
    }

    fn add(&mut self, record: usize, object: &str, asked: AskedAgain, counts_alike: bool) -> String {
        let AskedAgain { same, mut differences, fuel_same, fuel_differences, .. } = asked;
        let mut text = String::new();
        for note in asked.notes {
            if !self.notes.contains(&note) {
                text += &format!("{note}\n");
                self.kept += note.len();
                self.notes.insert(note);
            }
        }
        if counts_alike {
            self.fuel_compared += fuel_same + fuel_differences.len();
            differences.extend(fuel_differences);
        }
        self.same += same;
        self.not_asked += asked.not_asked;
        self.not_recorded = self.not_recorded.saturating_add(asked.not_recorded);
        self.different += differences.len();
        for difference in differences {
            let PolicyDifference { policy, volume, then, now } = &difference;
            let about = volume.as_ref().map_or_else(String::new, |volume| format!(", volume {volume}"));
            text +=
                &format!("record {record}, {object}: policy {policy}{about}\n  then {then}\n  now  {now}\n");
            self.differences.push(Answered { record, object: object.to_owned(), difference });
        }
        text
    }

    /// Forgets what was printed: a journal may have any number of differences.
    pub(crate) fn forget_differences(&mut self) {
        self.differences.clear();
    }

    /// Fails if the journal has nothing that a policy of that name could be asked.
    pub(crate) fn check_asked(&self, journal: &Path, name: &str) -> Result<()> {
        if self.same + self.different + self.not_asked == 0 {
            bail!(
                "{} has nothing of a policy {name:?} of that kind; name one that it has",
                journal.display()
            );
        }
        Ok(())
    }

    pub(super) fn summary(&self) -> String {
        let Self { same, different, not_asked, not_recorded, fuel_compared, redacted, .. } = self;
        let mut text = format!(
            "answers of policies: {same} the same, {different} different, {not_asked} not asked for again, \
             {not_recorded} not recorded\n"
        );
        if *fuel_compared > 0 {
            let calls = counted(*fuel_compared, "call", "calls");
            text += &format!("the fuel of {calls} of policies was compared\n");
        }
        if *redacted > 0 {
            text += &format!(
                "{}: policies are not asked again, they saw what is redacted\n",
                of_records(*redacted)
            );
        }
        for (effect, records) in &self.effects {
            text += &format!("{}: {}\n", of_records(*records), in_words(*effect));
        }
        text
    }
}

fn in_words(effect: Effect) -> &'static str {
    match effect {
        Effect::Rejected => "the volume that the claim was given would be rejected",
        Effect::Otherwise => "another volume would be chosen, or the volume kept",
        Effect::Unknown => "what would be decided is not known, it rests on what is not recorded",
    }
}
