//! The labels of the free volumes of a bucket and the facts that policies declare, as posting lists: which
//! ordinals have a column, and which a value.

use std::borrow::Cow;
use std::collections::HashMap;

use bindery_core::{ColumnRequirement, Requirement, SelectorOperator, Text, Volume, VolumeFact};
use roaring::RoaringBitmap;

use super::ids::Ids;
use super::rows::Rows;

/// Posting lists of columns. A requirement costs an operation on bitmaps for each value that it names (about
/// a microsecond at 100,000 ordinals), whatever it matches.
#[derive(Debug, Default)]
pub(super) struct Columns {
    columns: HashMap<VolumeFact, Postings>,
    /// What policies are shown of each ordinal.
    pub(super) rows: Rows,
}

#[derive(Debug)]
struct Postings {
    /// Ordinals that have the column.
    any: Ids,
    /// Ordinals that have it with a value.
    values: HashMap<Text, Ids>,
}

/// Whether a column of this kind is indexed, beside labels. A time is different for each volume.
fn is_indexed(column: &VolumeFact) -> bool {
    matches!(
        column,
        VolumeFact::Label(_) | VolumeFact::Annotation(_) | VolumeFact::Topology(_) | VolumeFact::Driver
    )
}

/// The indexed columns of a volume.
fn columns_of(volume: &Volume) -> impl Iterator<Item = (VolumeFact, &Text)> {
    let labels = volume.labels.iter().map(|(key, value)| (VolumeFact::Label(key.clone()), value));
    let facts = volume.facts.iter().filter(|(fact, _)| is_indexed(fact));
    labels.chain(facts.map(|(fact, value)| (fact.clone(), value)))
}

impl Columns {
    pub(super) fn insert(&mut self, ordinal: u32, volume: &Volume) {
        self.rows.insert(ordinal, volume);
        for (column, value) in columns_of(volume) {
            let Some(postings) = self.columns.get_mut(&column) else {
                let values = HashMap::from([(value.clone(), Ids::one(ordinal))]);
                self.columns.insert(column, Postings { any: Ids::one(ordinal), values });
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

    /// Takes an ordinal out, which was inserted with this volume.
    pub(super) fn remove(&mut self, ordinal: u32, volume: &Volume) {
        self.rows.remove(ordinal);
        for (column, value) in columns_of(volume) {
            let Some(postings) = self.columns.get_mut(&column) else { continue };
            if postings.any.remove(ordinal) {
                self.columns.remove(&column);
            } else if postings.values.get_mut(value).is_some_and(|ids| ids.remove(ordinal)) {
                postings.values.remove(value);
            }
        }
    }

    /// The ordinals, out of `all`, that meet every requirement on labels and on indexed columns; `None` if
    /// none is given.
    pub(super) fn matching(
        &self,
        labels: &[Requirement],
        columns: &[ColumnRequirement],
        all: &RoaringBitmap,
    ) -> Option<RoaringBitmap> {
        let labels = labels
            .iter()
            .map(|needed| (VolumeFact::Label(needed.key.clone()), needed.operator, &needed.values));
        let columns = columns.iter().filter(|needed| is_indexed(&needed.column));
        let columns = columns.map(|needed| (needed.column.clone(), needed.operator, &needed.values));
        let (mut wanted, mut unwanted) = (Vec::new(), Vec::new());
        for (column, operator, values) in labels.chain(columns) {
            let ordinals = self.ordinals(&column, operator, values);
            match operator {
                SelectorOperator::In | SelectorOperator::Exists => wanted.push(ordinals),
                SelectorOperator::NotIn | SelectorOperator::DoesNotExist => unwanted.push(ordinals),
            }
        }
        if wanted.is_empty() && unwanted.is_empty() {
            return None;
        }
        // The shortest list first: what it lacks is not looked at again.
        wanted.sort_by_cached_key(|ordinals| ordinals.len());
        let mut wanted = wanted.into_iter();
        let mut result = wanted.next().map_or_else(|| all.clone(), Cow::into_owned);
        for ordinals in wanted {
            if result.is_empty() {
                return Some(result);
            }
            result &= &*ordinals;
        }
        for ordinals in unwanted {
            result -= &*ordinals;
        }
        Some(result)
    }

    /// The ordinals that have the column, with one of the values where the operator is about values.
    fn ordinals(
        &self,
        column: &VolumeFact,
        operator: SelectorOperator,
        values: &[Text],
    ) -> Cow<'_, RoaringBitmap> {
        let Some(column) = self.columns.get(column) else { return Cow::default() };
        match (operator, values) {
            (SelectorOperator::Exists | SelectorOperator::DoesNotExist, _) => column.any.bitmap(),
            (SelectorOperator::In | SelectorOperator::NotIn, [value]) => {
                column.values.get(value).map_or_else(Cow::default, Ids::bitmap)
            }
            (SelectorOperator::In | SelectorOperator::NotIn, values) => {
                let mut union = RoaringBitmap::new();
                for ids in values.iter().filter_map(|value| column.values.get(value)) {
                    union |= &*ids.bitmap();
                }
                Cow::Owned(union)
            }
        }
    }
}
