//! Choices drawn from bytes: one generator serves the property tests, whose shrinking then works on bytes,
//! and the fuzz target, whose mutations do. Where the bytes end every choice is the first, the usual one.

/// A source of choices.
pub(crate) struct Choices<'a> {
    bytes: std::slice::Iter<'a, u8>,
}

impl<'a> Choices<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes: bytes.iter() }
    }

    /// A number below `n`, which is at most 256; zero where the bytes have ended.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::from(self.bytes.next().copied().unwrap_or(0)) % n
    }

    /// Yes in so many of a hundred times; no where the bytes have ended.
    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) >= 100 - percent
    }

    /// One of the items; the first where the bytes have ended.
    pub(crate) fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    /// Mostly the first item, else one of the others.
    pub(crate) fn usually<T: Clone>(&mut self, items: &[T]) -> T {
        if self.percent(30) { self.pick(items) } else { items[0].clone() }
    }
}
