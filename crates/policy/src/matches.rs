//! Which claims a policy applies to.

use bindery_core::{Claim, ClaimFact, Lookup, Requirement, Text};

use crate::{Policy, Surroundings, Waits};

/// The claims that a policy applies to: those that meet every field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matches {
    /// The names of their classes, `""` for none; all if it is empty.
    pub classes: Vec<Text>,
    /// Requirements on the labels of their namespace.
    pub namespace: Vec<Requirement>,
    /// Requirements on their own labels.
    pub claim: Vec<Requirement>,
}

impl Matches {
    /// Whether objects of a class can meet it.
    pub(crate) fn has_class(&self, class: &str) -> bool {
        self.classes.is_empty() || self.classes.iter().any(|name| **name == *class)
    }
}

impl Policy {
    /// Whether the policy applies to a claim.
    pub(crate) fn applies(&self, claim: &Claim, around: &Surroundings<'_>) -> Result<bool, Waits> {
        let matches = &self.matches;
        if !matches.has_class(claim.class_or_empty()) {
            return Ok(false);
        }
        let label = |key: &Text| claim.facts.get(&ClaimFact::Label(key.clone())).cloned();
        if !matches.claim.iter().all(|requirement| requirement.matches(label(&requirement.key).as_deref())) {
            return Ok(false);
        }
        if matches.namespace.is_empty() {
            return Ok(true);
        }
        match &around.namespace {
            Lookup::Found(labels) => Ok(matches
                .namespace
                .iter()
                .all(|needed| needed.matches(labels.get(&needed.key).map(|label| &**label)))),
            Lookup::Absent => self.unknown(claim, "it is not known yet"),
            Lookup::Unreadable(why) | Lookup::Failed(why) => self.unknown(claim, why),
        }
    }

    fn unknown(&self, claim: &Claim, why: &str) -> Result<bool, Waits> {
        let namespace = &claim.key.namespace;
        let why = format!("whether it applies depends on the labels of namespace {namespace}: {why}");
        Err(Waits { policy: self.name.clone(), why })
    }
}
