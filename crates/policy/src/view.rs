//! What matchers are shown of claims and volumes.

use std::collections::HashMap;
use std::sync::Arc;

use bindery_core::{Claim, ClaimFact, Lookup, Text, Volume, VolumeFact};

use crate::{Candidates, ClaimView, Metadata, Surroundings};

/// A claim as a matcher sees it.
pub fn claim_view(metadata: &Metadata, claim: &Claim, around: &Surroundings) -> ClaimView {
    let facts = metadata.claim_facts.iter().map(|fact| claim_fact(fact, claim, around)).collect();
    ClaimView { request: claim.request, facts }
}

pub(crate) fn claim_fact(fact: &ClaimFact, claim: &Claim, around: &Surroundings) -> Option<Text> {
    match fact {
        ClaimFact::Namespace => Some(claim.key.namespace.clone()),
        ClaimFact::Name => Some(claim.key.name.clone()),
        ClaimFact::Label(_) | ClaimFact::Annotation(_) | ClaimFact::OwnerName | ClaimFact::OwnerOrdinal => {
            claim.facts.get(fact).cloned()
        }
        ClaimFact::NamespaceLabel(key) => match &around.namespace {
            Lookup::Found(labels) => labels.get(key).cloned(),
            Lookup::Absent | Lookup::Unreadable(_) | Lookup::Failed(_) => None,
        },
        ClaimFact::ClassParameter(_) => match &around.class {
            Lookup::Found(class) => class.parameters.get(fact).cloned(),
            Lookup::Absent | Lookup::Unreadable(_) | Lookup::Failed(_) => None,
        },
    }
}

/// The value of a column of a volume.
pub(crate) fn column(fact: &VolumeFact, volume: &Volume) -> Option<Text> {
    match fact {
        VolumeFact::Label(key) => volume.labels.get(key).cloned(),
        VolumeFact::Annotation(_)
        | VolumeFact::Topology(_)
        | VolumeFact::Driver
        | VolumeFact::PhaseTransition => volume.facts.get(fact).cloned(),
        VolumeFact::ClassName => Some(volume.class.clone()),
        VolumeFact::Source => Some(volume.source.clone()).filter(|source| !source.is_empty()),
        VolumeFact::ReclaimPolicy => Some(volume.policy.name().into()).filter(|name: &Text| !name.is_empty()),
    }
}

/// Volumes as the rows that a matcher judges.
pub fn candidates(metadata: &Metadata, volumes: &[Arc<Volume>]) -> Candidates {
    let capacity = |volume: &Arc<Volume>| volume.capacity.unwrap_or_default();
    let mut places: HashMap<Text, u32> = HashMap::new();
    let mut texts = Vec::new();
    let mut place = |text: Text| {
        *places.entry(text).or_insert_with_key(|text| {
            texts.push(text.clone());
            u32::try_from(texts.len()).unwrap_or(u32::MAX)
        })
    };
    let columns = metadata
        .columns
        .iter()
        .map(|fact| volumes.iter().map(|volume| column(fact, volume).map_or(0, &mut place)).collect())
        .collect();
    Candidates {
        whole: volumes.iter().map(|volume| capacity(volume).whole).collect(),
        nanos: volumes.iter().map(|volume| capacity(volume).nanos).collect(),
        columns,
        texts,
        spread: Vec::new(),
    }
}

/// The sentence of a reason, with the facts that it names.
pub(crate) fn sentence(metadata: &Metadata, reason: u32, claim: &ClaimView, volume: &Volume) -> Text {
    let Some(reason) = metadata.reasons.get(reason as usize) else { return "".into() };
    let mut text = reason.text.to_string();
    let mut fill = |place: String, value: Option<&Text>| {
        text = text.replace(&place, value.map_or("none", |value| &**value));
    };
    for (number, fact) in claim.facts.iter().enumerate() {
        fill(format!("{{claim.{number}}}"), fact.as_ref());
    }
    for (number, fact) in metadata.columns.iter().enumerate() {
        fill(format!("{{volume.{number}}}"), column(fact, volume).as_ref());
    }
    text.into()
}
