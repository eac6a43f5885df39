//! What a policy is shown of a volume.

use bindery_core::{Cell, ColumnSet, Counted, Text, VolumeRow};

use crate::Metadata;
use crate::kept::RowKey;

/// What a policy is shown of each volume, beside its capacity.
#[derive(Clone)]
pub(crate) struct Shown {
    /// The places of its columns in rows.
    columns: Vec<usize>,
    /// The volumes of the claim's siblings, where the policy spreads.
    pub(crate) counted: Option<Counted>,
    /// The place of the column by which it spreads.
    by: Option<usize>,
}

impl Shown {
    /// `columns` has those of the policy.
    pub(crate) fn new(columns: &ColumnSet, metadata: &Metadata, counted: Option<Counted>) -> Self {
        let place = |column| columns.place(column).expect("a chain has the columns of its policies");
        let by = metadata.spread.as_ref().map(|spread| place(&spread.by));
        Self { columns: metadata.columns.iter().map(place).collect(), counted, by }
    }

    /// The cells of its columns, in its order.
    pub(crate) fn cells<'a>(&self, row: &VolumeRow<'a>) -> impl Iterator<Item = &'a Cell> {
        let cells = row.cells;
        self.columns.iter().map(move |place| &cells[*place])
    }

    /// The value of the policy's column of that number.
    pub(crate) fn value<'a>(&self, column: u32, row: &VolumeRow<'a>) -> Option<&'a Text> {
        row.cells[*self.columns.get(column as usize)?].value.as_ref()
    }

    /// The value of the column by which it spreads.
    pub(crate) fn spread_value(&self, row: &VolumeRow<'_>) -> Option<Text> {
        row.cells[self.by?].value.clone()
    }

    /// How many volumes of siblings share a volume's value, where the policy spreads.
    pub(crate) fn count(&self, row: &VolumeRow<'_>) -> Option<u32> {
        Some(self.counted.as_ref()?.count_of(&row.cells[self.by?].value))
    }

    /// Names what the policy is shown of a volume.
    pub(crate) fn key(&self, row: &VolumeRow<'_>) -> RowKey {
        RowKey::new(row.capacity, self.count(row), self.cells(row).map(|cell| cell.hash))
    }
}
