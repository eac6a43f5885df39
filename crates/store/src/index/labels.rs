//! The labels of the free volumes of a bucket, as posting lists: which ordinals carry a key, and which a
//! value.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use bindery_core::{Requirement, SelectorOperator, Text};
use roaring::RoaringBitmap;

use super::ids::Ids;

/// Posting lists of labels. A selector costs an operation on bitmaps for each value that it names (about a
/// microsecond at 100,000 ordinals), whatever it matches.
#[derive(Debug, Default)]
pub(super) struct Labels {
    keys: HashMap<Text, Postings>,
}

#[derive(Debug)]
struct Postings {
    /// Ordinals that carry the key.
    any: Ids,
    /// Ordinals that carry it with a value.
    values: HashMap<Text, Ids>,
}

impl Labels {
    pub(super) fn insert(&mut self, ordinal: u32, labels: &BTreeMap<Text, Text>) {
        for (key, value) in labels {
            let Some(postings) = self.keys.get_mut(key) else {
                let values = HashMap::from([(value.clone(), Ids::one(ordinal))]);
                self.keys.insert(key.clone(), Postings { any: Ids::one(ordinal), values });
                continue;
            };
            postings.any.insert(ordinal);
            match postings.values.get_mut(value) {
                Some(ids) => ids.insert(ordinal),
                None => {
                    postings.values.insert(value.clone(), Ids::one(ordinal));
                }
            }
        }
    }

    /// Takes a ordinal out, which was inserted with these labels.
    pub(super) fn remove(&mut self, ordinal: u32, labels: &BTreeMap<Text, Text>) {
        for (key, value) in labels {
            let Some(postings) = self.keys.get_mut(key) else { continue };
            if postings.any.remove(ordinal) {
                self.keys.remove(key);
            } else if postings.values.get_mut(value).is_some_and(|ids| ids.remove(ordinal)) {
                postings.values.remove(value);
            }
        }
    }

    /// The ordinals, out of `all`, whose labels meet every requirement.
    pub(super) fn matching(&self, requirements: &[Requirement], all: &RoaringBitmap) -> RoaringBitmap {
        let (mut wanted, mut unwanted) = (Vec::new(), Vec::new());
        for requirement in requirements {
            let ordinals = self.ordinals(requirement);
            match requirement.operator {
                SelectorOperator::In | SelectorOperator::Exists => wanted.push(ordinals),
                SelectorOperator::NotIn | SelectorOperator::DoesNotExist => unwanted.push(ordinals),
            }
        }
        // The shortest list first: what it lacks is not looked at again.
        wanted.sort_by_cached_key(|ordinals| ordinals.len());
        let mut wanted = wanted.into_iter();
        let mut result = wanted.next().map_or_else(|| all.clone(), Cow::into_owned);
        for ordinals in wanted {
            if result.is_empty() {
                return result;
            }
            result &= &*ordinals;
        }
        for ordinals in unwanted {
            result -= &*ordinals;
        }
        result
    }

    /// The ordinals that carry the key of the requirement, with one of its values where it is about values.
    fn ordinals(&self, requirement: &Requirement) -> Cow<'_, RoaringBitmap> {
        let Some(key) = self.keys.get(&requirement.key) else { return Cow::default() };
        match (requirement.operator, &*requirement.values) {
            (SelectorOperator::Exists | SelectorOperator::DoesNotExist, _) => key.any.bitmap(),
            (SelectorOperator::In | SelectorOperator::NotIn, [value]) => {
                key.values.get(value).map_or_else(Cow::default, Ids::bitmap)
            }
            (SelectorOperator::In | SelectorOperator::NotIn, values) => {
                let mut union = RoaringBitmap::new();
                for ids in values.iter().filter_map(|value| key.values.get(value)) {
                    union |= &*ids.bitmap();
                }
                Cow::Owned(union)
            }
        }
    }
}
