//! What matchers are shown of claims and volumes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bindery_core::{Claim, ClaimFact, Class, Lookup, Text, Volume};

use crate::{Candidates, ClaimView, Metadata, Surroundings};

/// The labels of a namespace.
pub type NamespaceLabels = Lookup<Arc<BTreeMap<Text, Text>>>;

/// A claim as a matcher sees it.
pub fn claim_view(metadata: &Metadata, claim: &Claim, around: &Surroundings<'_>) -> ClaimView {
    let facts = claim_facts(metadata, claim, &around.namespace, &around.class);
    ClaimView { request: claim.request, facts }
}

/// The declared facts of a claim.
pub fn claim_facts(
    metadata: &Metadata,
    claim: &Claim,
    namespace: &NamespaceLabels,
    class: &Lookup<Arc<Class>>,
) -> Vec<Option<Text>> {
    metadata.claim_facts.iter().map(|fact| claim_fact(fact, claim, namespace, class)).collect()
}

pub(crate) fn claim_fact(
    fact: &ClaimFact,
    claim: &Claim,
    namespace: &NamespaceLabels,
    class: &Lookup<Arc<Class>>,
) -> Option<Text> {
    match fact {
        ClaimFact::NamespaceLabel(key) => match namespace {
            Lookup::Found(labels) => labels.get(key).cloned(),
            Lookup::Absent | Lookup::Unreadable(_) | Lookup::Failed(_) => None,
        },
        ClaimFact::ClassParameter(_) => match class {
            Lookup::Found(class) => class.parameters.get(fact).cloned(),
            Lookup::Absent | Lookup::Unreadable(_) | Lookup::Failed(_) => None,
        },
        fact => claim.fact(fact).cloned(),
    }
}

/// Volumes as the rows that a matcher judges. `spread` has how many volumes of siblings share the value of
/// each; it is empty without spread.
pub fn candidates(metadata: &Metadata, volumes: &[Arc<Volume>], spread: Vec<u32>) -> Candidates {
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
        .map(|fact| volumes.iter().map(|volume| volume.fact(fact).map_or(0, &mut place)).collect())
        .collect();
    Candidates {
        whole: volumes.iter().map(|volume| capacity(volume).whole).collect(),
        nanos: volumes.iter().map(|volume| capacity(volume).nanos).collect(),
        columns,
        texts,
        spread,
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
        fill(format!("{{volume.{number}}}"), volume.fact(fact).as_ref());
    }
    text.into()
}
