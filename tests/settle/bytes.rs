//! What a world is made of: a few bytes for each object and each deed, so that a failing world is shrunk
//! object by object, and each byte towards zero, the usual choice.

use proptest::array::{uniform4, uniform24};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any};

/// The bytes of one world.
#[derive(Clone, Debug)]
pub(crate) struct Genes {
    /// Of the claims, up to four.
    pub(crate) claims: Vec<[u8; 24]>,
    /// Of the volumes, up to four.
    pub(crate) volumes: Vec<[u8; 24]>,
    /// What others do meanwhile, one after the other.
    pub(crate) deeds: Vec<[u8; 4]>,
    /// Classes, plugin, and how slow everything is.
    pub(crate) surroundings: [u8; 24],
}

/// Any world in which nothing fails, nothing lags and nobody else acts.
pub(crate) fn calm() -> impl Strategy<Value = Genes> {
    objects().prop_map(|(claims, volumes, surroundings)| Genes {
        claims,
        volumes,
        deeds: vec![],
        surroundings,
    })
}

/// Any world in which others act, writes fail or lose their answers, and watches lag.
pub(crate) fn rough() -> impl Strategy<Value = Genes> {
    let deeds = vec(uniform4(any::<u8>()), 1..=8);
    (objects(), deeds).prop_map(|((claims, volumes, surroundings), deeds)| Genes {
        claims,
        volumes,
        deeds,
        surroundings,
    })
}

fn objects() -> impl Strategy<Value = (Vec<[u8; 24]>, Vec<[u8; 24]>, [u8; 24])> {
    let object = || uniform24(any::<u8>());
    (vec(object(), 0..=4), vec(object(), 0..=4), object())
}

/// Choices drawn from bytes; where these have ended, each is the first.
pub(crate) struct Choices<'a>(std::slice::Iter<'a, u8>);

impl<'a> Choices<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes.iter())
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % n
    }

    /// Yes in so many of a hundred times; zero is no.
    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) >= 100 - percent
    }

    /// One of the items.
    pub(crate) fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    /// In three of four times the first item, else one of the others.
    pub(crate) fn usually<T: Clone>(&mut self, items: &[T]) -> T {
        match self.below(256) {
            byte @ 192.. => items[byte % items.len()].clone(),
            _ => items[0].clone(),
        }
    }
}
