//! Redacts what policies were shown and have answered.

use std::collections::{BTreeMap, BTreeSet};

use bindery_core::Text;
use bindery_policy::{AskedPolicy, MatcherEvidence, PolicyEvidence, ReclaimerEvidence, Skipped};

use super::{Pass, Redactor};

impl Redactor {
    /// Whether a policy is shown something that is redacted.
    fn redacts_for(&self, policy: &AskedPolicy) -> bool {
        policy.claim_facts.iter().any(|fact| self.redacts_claim_fact(fact))
            || policy.columns.iter().any(|column| self.redacts_volume_fact(column))
    }

    /// The policies that were shown nothing that is redacted, and the number of others.
    pub(super) fn open_of(&self, policies: &PolicyEvidence) -> (BTreeSet<Text>, usize) {
        let matchers = policies.matchers.iter().map(|it| &it.policy);
        let all = matchers.chain(policies.reclaimers.iter().map(|it| &it.policy));
        let (others, open): (Vec<_>, Vec<_>) = all.partition(|policy| self.redacts_for(policy));
        (open.into_iter().map(|policy| policy.name.clone()).collect(), others.len())
    }
}

impl Pass<'_> {
    /// Redacts what policies have said. Returns whether one was shown something that is redacted: then it
    /// cannot be asked again.
    pub(super) fn policies(&mut self, policies: &mut PolicyEvidence) -> bool {
        let PolicyEvidence {
            matchers,
            reclaimers,
            skipped,
            calls,
            chain: _,
            volumes_left_out: _,
            unscored: _,
        } = policies;
        let mut redacted = BTreeSet::new();
        for matcher in matchers.iter_mut().filter(|it| self.redactor.redacts_for(&it.policy)) {
            self.matcher(matcher);
            redacted.insert(matcher.policy.name.clone());
        }
        for reclaimer in reclaimers.iter_mut().filter(|it| self.redactor.redacts_for(&it.policy)) {
            self.reclaimer(reclaimer);
            redacted.insert(reclaimer.policy.name.clone());
        }
        // They are not called again, and their calls have the rows that they were shown.
        calls.retain(|call| !redacted.contains(&call.policy));
        for Skipped { policy: _, why } in skipped {
            *why = self.redactor.digest(why).to_string();
        }
        !redacted.is_empty()
    }

    /// Redacts what a matcher was shown and what it requires. It computes the values that it requires from
    /// what it was shown.
    fn matcher(&mut self, matcher: &mut MatcherEvidence) {
        let MatcherEvidence { policy, claim, narrowing, rows, volumes: _, verdicts: _ } = matcher;
        self.claim_facts(policy, &mut claim.facts);
        narrowing.requirements.iter_mut().flat_map(|it| &mut it.values).for_each(|value| self.word(value));
        let mut places = BTreeMap::new();
        let mut texts = Vec::new();
        for (column, cells) in policy.columns.iter().zip(&mut rows.columns) {
            let is_redacted = self.redactor.redacts_volume_fact(column);
            for cell in cells {
                // 0 is for no value.
                let text = (*cell as usize).checked_sub(1).and_then(|place| rows.texts.get(place));
                let Some(mut text) = text.cloned() else { continue };
                if is_redacted {
                    self.word(&mut text);
                }
                *cell = *places.entry(text).or_insert_with_key(|text| {
                    texts.push(text.clone());
                    u32::try_from(texts.len()).unwrap_or(u32::MAX)
                });
            }
        }
        rows.texts = texts;
        self.settings(policy);
    }

    fn reclaimer(&mut self, reclaimer: &mut ReclaimerEvidence) {
        let ReclaimerEvidence { policy, shown, volume: _, judged: _ } = reclaimer;
        if let Some(facts) = &mut shown.claim {
            self.claim_facts(policy, facts);
        }
        for (column, value) in policy.columns.iter().zip(&mut shown.columns) {
            if let Some(value) = value.as_mut().filter(|_| self.redactor.redacts_volume_fact(column)) {
                self.word(value);
            }
        }
        self.settings(policy);
    }

    fn claim_facts(&mut self, policy: &AskedPolicy, facts: &mut [Option<Text>]) {
        for (fact, value) in policy.claim_facts.iter().zip(facts) {
            if let Some(value) = value.as_mut().filter(|_| self.redactor.redacts_claim_fact(fact)) {
                self.word(value);
            }
        }
    }

    /// Settings may list the values that the policy looks for.
    fn settings(&mut self, policy: &mut AskedPolicy) {
        policy.settings = self.redactor.digest(&policy.settings).to_string();
    }
}
