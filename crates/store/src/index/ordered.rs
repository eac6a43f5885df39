//! Volumes in ascending (capacity, name), in chunks.

use std::cmp::Ordering;
use std::ops::Range;

use bindery_core::{Quantity, Text, Volume};

use crate::state::VolumeId;

/// Rows of a chunk at most. An insertion moves half of them (20 KB) and a search that skips a chunk saves
/// looking at all of them; at 100,000 rows there are 200 to 400 chunks.
pub(super) const CHUNK: usize = 512;

/// Words of the bit mask of a chunk's ordinals.
const WORDS: usize = CHUNK / 64;

/// A volume.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) whole: u64,
    pub(crate) nanos: u32,
    pub(crate) id: VolumeId,
    pub(crate) name: Text,
    /// Number of the row within the list, for bitmaps. Stable while the row stays in its chunk.
    pub(super) ordinal: u32,
}

/// A row was given another ordinal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) id: VolumeId,
    pub(super) from: u32,
    pub(super) to: u32,
}

/// A sorted list. Chunks own disjoint, aligned ranges of ordinals, so that a bitmap of ordinals tells by one
/// range whether a chunk has anything of interest, and the first match in order is found without sorting.
#[derive(Debug, Default)]
pub(super) struct Ordered {
    chunks: Vec<Chunk>,
    len: usize,
    /// Numbers of chunks that were dropped.
    vacant: Vec<u32>,
    /// Numbers of chunks that were ever given.
    numbers: u32,
}

#[derive(Debug)]
struct Chunk {
    /// Sorted, never empty.
    rows: Vec<Row>,
    /// Its ordinals are `number * CHUNK ..`.
    number: u32,
    used: [u64; WORDS],
}

/// A place between rows; the default is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    chunk: usize,
    row: usize,
}

impl Row {
    pub(super) fn new(id: VolumeId, volume: &Volume) -> Self {
        let capacity = volume.capacity.unwrap_or(Quantity::ZERO);
        Self { whole: capacity.whole, nanos: capacity.nanos, id, name: volume.name.clone(), ordinal: 0 }
    }

    /// Whether its capacity is less than this.
    pub(super) fn is_below(&self, quantity: Quantity) -> bool {
        (self.whole, self.nanos) < (quantity.whole, quantity.nanos)
    }
}

/// Capacity first: the name lies elsewhere in memory, and is looked at only on ties.
pub(super) fn compare(a: &Row, b: &Row) -> Ordering {
    (a.whole, a.nanos).cmp(&(b.whole, b.nanos)).then_with(|| a.name.cmp(&b.name))
}

impl Ordered {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Before the first row of at least this capacity.
    pub(super) fn at_least(&self, quantity: Quantity) -> Position {
        self.position(|row| row.is_below(quantity))
    }

    /// After this row, which need not be in the list.
    pub(super) fn after(&self, row: &Row) -> Position {
        self.position(|other| compare(other, row) != Ordering::Greater)
    }

    /// After the rows for which `before` holds; they come first.
    fn position(&self, before: impl Fn(&Row) -> bool) -> Position {
        let chunk = self.chunks.partition_point(|chunk| chunk.rows.last().is_some_and(&before));
        let row = self.chunks.get(chunk).map_or(0, |chunk| chunk.rows.partition_point(&before));
        Position { chunk, row }
    }

    /// The later of two places.
    pub(super) fn later(a: Position, b: Position) -> Position {
        if (a.chunk, a.row) < (b.chunk, b.row) { b } else { a }
    }

    /// How many rows are before a place.
    pub(super) fn rank(&self, position: Position) -> usize {
        self.chunks[..position.chunk].iter().map(|chunk| chunk.rows.len()).sum::<usize>() + position.row
    }

    /// The rows after a place, ascending, by chunks, each with the range of its ordinals.
    pub(super) fn chunks_from(&self, from: Position) -> impl Iterator<Item = (&[Row], Range<u32>)> {
        self.chunks[from.chunk..].iter().enumerate().map(move |(index, chunk)| {
            let skipped = if index == 0 { from.row } else { 0 };
            (&chunk.rows[skipped..], chunk.ordinals())
        })
    }

    /// The rows after a place, ascending.
    pub(super) fn rows_from(&self, from: Position) -> impl Iterator<Item = &Row> {
        self.chunks_from(from).flat_map(|(rows, _)| rows)
    }

    /// The rows before a place, descending.
    pub(super) fn rows_before(&self, position: Position) -> impl Iterator<Item = &Row> {
        let partial = self.chunks.get(position.chunk).map_or(&[][..], |chunk| &chunk.rows[..position.row]);
        let full = self.chunks[..position.chunk].iter().rev().flat_map(|chunk| chunk.rows.iter().rev());
        partial.iter().rev().chain(full)
    }

    /// The row that is equal to this one.
    pub(super) fn find(&self, row: &Row) -> Option<&Row> {
        let at = self.position(|other| compare(other, row) == Ordering::Less);
        let found = self.chunks.get(at.chunk)?.rows.get(at.row)?;
        (compare(found, row) == Ordering::Equal).then_some(found)
    }

    /// Puts a row in its place and returns its ordinal. Tells first which rows are given other ordinals.
    pub(super) fn insert(&mut self, mut row: Row, moved: impl FnMut(Move)) -> u32 {
        let mut at = self.position(|other| compare(other, &row) == Ordering::Less);
        if at.chunk == self.chunks.len() {
            // Behind everything: it goes to the last chunk while there is room, so that a list that arrives
            // in order fills its chunks.
            at = self.end_of_last_chunk();
        } else if self.chunks[at.chunk].rows.len() == CHUNK {
            self.split(at.chunk, moved);
            at = self.position(|other| compare(other, &row) == Ordering::Less);
        }
        let chunk = &mut self.chunks[at.chunk];
        row.ordinal = chunk.take_ordinal();
        let ordinal = row.ordinal;
        chunk.rows.insert(at.row, row);
        self.len += 1;
        ordinal
    }

    /// Takes out the row that is equal to this one and returns its ordinal. Tells afterwards which rows are
    /// given other ordinals.
    pub(super) fn remove(&mut self, row: &Row, moved: impl FnMut(Move)) -> Option<u32> {
        let at = self.position(|other| compare(other, row) == Ordering::Less);
        let chunk = self.chunks.get_mut(at.chunk)?;
        if chunk.rows.get(at.row).is_none_or(|found| compare(found, row) != Ordering::Equal) {
            return None;
        }
        let ordinal = chunk.rows.remove(at.row).ordinal;
        chunk.free_ordinal(ordinal);
        self.len -= 1;
        if chunk.rows.is_empty() {
            self.drop_chunk(at.chunk);
        } else if chunk.rows.len() < CHUNK / 4 {
            self.merge(at.chunk, moved);
        }
        Some(ordinal)
    }

    fn end_of_last_chunk(&mut self) -> Position {
        if self.chunks.last().is_none_or(|chunk| chunk.rows.len() == CHUNK) {
            let number = self.number();
            self.chunks.push(Chunk::new(number));
        }
        let chunk = self.chunks.len() - 1;
        Position { chunk, row: self.chunks[chunk].rows.len() }
    }

    /// Makes room in a full chunk: its upper half becomes a chunk of its own.
    fn split(&mut self, index: usize, mut moved: impl FnMut(Move)) {
        let mut upper = Chunk::new(self.number());
        let lower = &mut self.chunks[index];
        for row in lower.rows.drain(CHUNK / 2..) {
            lower.used[word(row.ordinal)] &= !bit(row.ordinal);
            upper.adopt(row, &mut moved);
        }
        self.chunks.insert(index + 1, upper);
    }

    /// Gives the rows of a nearly empty chunk to a neighbour, if that stays at most three quarters full.
    fn merge(&mut self, index: usize, mut moved: impl FnMut(Move)) {
        let rows = self.chunks[index].rows.len();
        let fits = |other: &Chunk| other.rows.len() + rows <= CHUNK / 4 * 3;
        if index > 0 && fits(&self.chunks[index - 1]) {
            let emptied = self.drop_chunk(index);
            for row in emptied.rows {
                self.chunks[index - 1].adopt(row, &mut moved);
            }
        } else if self.chunks.get(index + 1).is_some_and(fits) {
            let emptied = self.drop_chunk(index + 1);
            for row in emptied.rows {
                self.chunks[index].adopt(row, &mut moved);
            }
        }
    }

    fn number(&mut self) -> u32 {
        self.vacant.pop().unwrap_or_else(|| {
            self.numbers += 1;
            self.numbers - 1
        })
    }

    fn drop_chunk(&mut self, index: usize) -> Chunk {
        let chunk = self.chunks.remove(index);
        self.vacant.push(chunk.number);
        chunk
    }
}

impl Chunk {
    fn new(number: u32) -> Self {
        Self { rows: Vec::new(), number, used: [0; WORDS] }
    }

    fn ordinals(&self) -> Range<u32> {
        let first = self.number * CHUNK as u32;
        first..first + CHUNK as u32
    }

    fn take_ordinal(&mut self) -> u32 {
        let free = self.used.iter().position(|word| *word != u64::MAX).expect("a full chunk is split first");
        let bit = self.used[free].trailing_ones();
        self.used[free] |= 1 << bit;
        self.ordinals().start + free as u32 * 64 + bit
    }

    fn free_ordinal(&mut self, ordinal: u32) {
        self.used[word(ordinal)] &= !bit(ordinal);
    }

    /// Takes a row of another chunk, which comes after its own.
    fn adopt(&mut self, mut row: Row, mut moved: impl FnMut(Move)) {
        let to = self.take_ordinal();
        moved(Move { id: row.id, from: row.ordinal, to });
        row.ordinal = to;
        self.rows.push(row);
    }
}

fn word(ordinal: u32) -> usize {
    ordinal as usize % CHUNK / 64
}

fn bit(ordinal: u32) -> u64 {
    1 << (ordinal % 64)
}
