//! Sets of numbers, most of which have one member.

use std::borrow::Cow;

use roaring::RoaringBitmap;

/// A set of numbers. Most labels that are unique to a volume, and most claims, stand for one.
#[derive(Clone, Debug)]
pub(crate) enum Ids {
    One(u32),
    Many(RoaringBitmap),
}

impl Ids {
    pub(crate) fn insert(&mut self, number: u32) {
        match self {
            Self::One(one) if *one == number => {}
            Self::One(one) => *self = Self::Many(RoaringBitmap::from_iter([*one, number])),
            Self::Many(many) => {
                many.insert(number);
            }
        }
    }

    /// Takes a number out. Answers whether none is left.
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        match self {
            Self::One(one) => *one == number,
            Self::Many(many) => {
                many.remove(number);
                many.is_empty()
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        let (one, many) = match self {
            Self::One(one) => (Some(*one), None),
            Self::Many(many) => (None, Some(many)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    pub(crate) fn bitmap(&self) -> Cow<'_, RoaringBitmap> {
        match self {
            Self::One(one) => Cow::Owned(RoaringBitmap::from_iter([*one])),
            Self::Many(many) => Cow::Borrowed(many),
        }
    }
}
