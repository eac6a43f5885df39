//! What policies are shown of the free volumes of a bucket, by ordinal, so that a scan reads memory in order.

use std::sync::Arc;

use bindery_core::{Cell, ColumnSet, Volume};

#[derive(Debug, Default)]
pub(super) struct Rows {
    /// `None` where no policies are loaded.
    columns: Option<Arc<ColumnSet>>,
    /// The cells of each ordinal, one after the other.
    cells: Vec<Cell>,
}

impl Rows {
    pub(super) fn new(columns: Option<Arc<ColumnSet>>) -> Self {
        Self { columns, cells: Vec::new() }
    }

    pub(super) fn insert(&mut self, ordinal: u32, volume: &Volume) {
        let Some(columns) = &self.columns else { return };
        let from = ordinal as usize * columns.width();
        let to = from + columns.width();
        if self.cells.len() < to {
            self.cells.resize(to, Cell::default());
        }
        self.cells[from..to].iter_mut().zip(columns.cells(volume)).for_each(|(cell, now)| *cell = now);
    }

    /// Drops the values of an ordinal.
    pub(super) fn remove(&mut self, ordinal: u32) {
        let (from, columns) = self.place(ordinal);
        self.cells.iter_mut().skip(from).take(columns).for_each(|cell| *cell = Cell::default());
    }

    /// The cells of an ordinal.
    pub(super) fn get(&self, ordinal: u32) -> &[Cell] {
        let (from, columns) = self.place(ordinal);
        self.cells.get(from..from + columns).unwrap_or_default()
    }

    /// The first cell of an ordinal, and the number of its cells.
    fn place(&self, ordinal: u32) -> (usize, usize) {
        let columns = self.columns.as_ref().map_or(0, |columns| columns.width());
        (ordinal as usize * columns, columns)
    }
}
