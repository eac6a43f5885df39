//! The columns that policies are shown, by row: what a scan of many volumes reads, in one place of memory.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};

use crate::{Quantity, Text, Volume, VolumeFact};

/// The columns that the policies of a chain are shown, and how their values are hashed.
#[derive(Debug)]
pub struct ColumnSet {
    /// In ascending order.
    columns: Vec<VolumeFact>,
    keys: [RandomState; 2],
}

/// The value of a column of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The value; `None` where the volume has none.
    pub value: Option<Text>,
    /// Hash of the value, the same in all columns of one [`ColumnSet`].
    pub hash: u128,
}

/// A volume as policies are shown it.
#[derive(Clone, Copy, Debug)]
pub struct VolumeRow<'a> {
    /// Its capacity; zero where it has none.
    pub capacity: Quantity,
    /// A cell for each column of the [`ColumnSet`], in its order.
    pub cells: &'a [Cell],
}

impl ColumnSet {
    /// These columns. Where the keys are random, users cannot create two values with the same hash.
    pub fn new(columns: BTreeSet<VolumeFact>, keys: [RandomState; 2]) -> Self {
        Self { columns: columns.into_iter().collect(), keys }
    }

    /// Number of cells of each row.
    pub fn width(&self) -> usize {
        self.columns.len()
    }

    /// The place of a column in each row.
    pub fn place(&self, column: &VolumeFact) -> Option<usize> {
        self.columns.binary_search(column).ok()
    }

    /// The row of a volume.
    pub fn cells(&self, volume: &Volume) -> impl Iterator<Item = Cell> {
        self.columns.iter().map(|column| {
            let value = volume.fact(column);
            let [first, second] = self.keys.each_ref().map(|keys| u128::from(keys.hash_one(&value)));
            Cell { value, hash: first << 64 | second }
        })
    }
}

impl<'a> VolumeRow<'a> {
    /// The row of a volume with these cells, which are its [`ColumnSet::cells`].
    pub fn new(volume: &Volume, cells: &'a [Cell]) -> Self {
        Self { capacity: volume.capacity.unwrap_or_default(), cells }
    }
}
