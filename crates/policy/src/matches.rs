//! Which claims a policy applies to.

use std::collections::BTreeMap;

use bindery_core::{Claim, ClaimFact, Lookup, Requirement, Text};
use serde::Serialize;

use crate::{Metadata, Policy, RelatedObjects, Waits};

/// The claims that a policy applies to: those that meet every field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
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
    pub fn has_class(&self, class: &str) -> bool {
        self.classes.is_empty() || self.classes.iter().any(|name| **name == *class)
    }
}

impl Policy {
    /// Whether the policy applies to a claim.
    pub fn applies(&self, claim: &Claim, related: &RelatedObjects<'_>) -> Result<bool, Waits> {
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
        let labels = self.labels(claim, related).map_err(|why| self.waits("whether it applies", &why))?;
        Ok(matches
            .namespace
            .iter()
            .all(|needed| needed.matches(labels.get(&needed.key).map(|label| &**label))))
    }

    /// Whether the facts of the claim that the matcher declares are known. What is not known must not count
    /// as absent.
    pub(crate) fn knows(
        &self,
        metadata: &Metadata,
        claim: &Claim,
        related: &RelatedObjects<'_>,
    ) -> Result<(), Waits> {
        let reads = |is: fn(&ClaimFact) -> bool| metadata.claim_facts.iter().any(is);
        if reads(|fact| matches!(fact, ClaimFact::NamespaceLabel(_))) {
            self.labels(claim, related).map_err(|why| self.waits("what it decides", &why))?;
        }
        match &related.class {
            Lookup::Unreadable(why) | Lookup::Failed(why)
                if reads(|fact| matches!(fact, ClaimFact::ClassParameter(_))) =>
            {
                let why = format!("the parameters of class {}: {why}", claim.class_or_empty());
                Err(self.waits("what it decides", &why))
            }
            _ => Ok(()),
        }
    }

    /// The labels of the claim's namespace; the error says what is not known.
    fn labels<'a>(
        &self,
        claim: &Claim,
        related: &'a RelatedObjects<'_>,
    ) -> Result<&'a BTreeMap<Text, Text>, String> {
        let why = match &related.namespace {
            Lookup::Found(labels) => return Ok(labels),
            Lookup::Absent => "it is not known yet",
            Lookup::Unreadable(why) | Lookup::Failed(why) => why,
        };
        Err(format!("the labels of namespace {}: {why}", claim.key.namespace))
    }

    fn waits(&self, what: &str, why: &str) -> Waits {
        Waits { policy: self.name.clone(), why: format!("{what} depends on {why}") }
    }
}
