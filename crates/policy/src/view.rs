//! What matchers are shown of claims and volumes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bindery_core::{Claim, ClaimFact, Class, Lookup, Text, Volume};

use crate::{Candidates, ClaimView, Metadata, RelatedObjects};

/// The most characters of a fact in a sentence.
const VALUE_CHARS_MAX: usize = 128;

/// The labels of a namespace.
pub type NamespaceLabels = Lookup<Arc<BTreeMap<Text, Text>>>;

/// A claim as a matcher sees it.
pub fn claim_view(metadata: &Metadata, claim: &Claim, related: &RelatedObjects<'_>) -> ClaimView {
    let facts = claim_facts(metadata, claim, &related.namespace, &related.class);
    ClaimView { request: claim.request, facts }
}

/// The declared facts of a claim.
pub fn claim_facts(
    metadata: &Metadata,
    claim: &Claim,
    namespace: &NamespaceLabels,
    class: &Lookup<Arc<Class>>,
) -> Vec<Option<Text>> {
    let value = |fact: &ClaimFact| -> Option<Text> {
        match fact {
            ClaimFact::NamespaceLabel(key) => namespace.as_ref().found()?.get(key).cloned(),
            ClaimFact::ClassParameter(_) => class.as_ref().found()?.parameters.get(fact).cloned(),
            fact => claim.fact(fact).cloned(),
        }
    };
    metadata.claim_facts.iter().map(value).collect()
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

/// The sentence of a reason, with the facts that it names. Users write facts, so a placeholder in a fact is
/// text.
pub(crate) fn sentence(metadata: &Metadata, reason: u32, claim: &ClaimView, volume: &Volume) -> Text {
    let Some(reason) = metadata.reasons.get(reason as usize) else { return "".into() };
    let value = |place: &str| -> Option<Option<Text>> {
        let (of, number) = place.split_once('.')?;
        let number: usize = number.parse().ok()?;
        match of {
            "claim" => claim.facts.get(number).cloned(),
            "volume" => metadata.columns.get(number).map(|fact| volume.fact(fact)),
            _ => None,
        }
    };
    let (mut text, mut rest) = (String::new(), &*reason.text);
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        rest = after;
        match after.split_once('}').and_then(|(place, after)| Some((value(place)?, after))) {
            Some((value, after)) => {
                push_value(&mut text, value.as_deref().unwrap_or("none"));
                rest = after;
            }
            None => text.push('{'),
        }
    }
    text.push_str(rest);
    text.into()
}

/// Adds a value to a sentence, at most [`VALUE_CHARS_MAX`] characters of it.
fn push_value(text: &mut String, value: &str) {
    match value.char_indices().nth(VALUE_CHARS_MAX) {
        None => text.push_str(value),
        Some((end, _)) => text.extend([&value[..end], "…"]),
    }
}
