//! Sets of numbers, most of which have few members.

use std::borrow::Cow;

use roaring::RoaringBitmap;

/// Members that are kept in place.
const FEW: usize = 4;
/// No member: nothing is ever numbered so high.
const NONE: u32 = u32::MAX;

/// A set of numbers. Most sets have few members: a label that is unique to a volume has one, a claim has one
/// reserved volume, a fact has two keys that depend on it. A bitmap for each would take ten times the memory.
#[derive(Clone, Debug)]
pub(crate) enum Ids {
    /// Members before [`NONE`]s, in no order.
    Few([u32; FEW]),
    Many(RoaringBitmap),
}

impl Ids {
    pub(crate) fn one(number: u32) -> Self {
        let mut few = [NONE; FEW];
        few[0] = number;
        Self::Few(few)
    }

    pub(crate) fn insert(&mut self, number: u32) {
        match self {
            Self::Few(few) if few.contains(&number) => {}
            Self::Few(few) => match few.iter_mut().find(|member| **member == NONE) {
                Some(vacant) => *vacant = number,
                None => *self = Self::Many(few.iter().copied().chain([number]).collect()),
            },
            Self::Many(many) => {
                many.insert(number);
            }
        }
    }

    /// Takes a number out. Returns whether none is left.
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        match self {
            Self::Few(few) => {
                if let Some(at) = few.iter().position(|member| *member == number) {
                    few[at] = NONE;
                    few[at..].rotate_left(1);
                }
                few[0] == NONE
            }
            Self::Many(many) => {
                many.remove(number);
                many.is_empty()
            }
        }
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Few(few) => few.iter().filter(|member| **member != NONE).count() as u64,
            Self::Many(many) => many.len(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        let (few, many) = match self {
            Self::Few(few) => (&few[..], None),
            Self::Many(many) => (&[][..], Some(many)),
        };
        few.iter().copied().filter(|member| *member != NONE).chain(many.into_iter().flatten())
    }

    pub(crate) fn bitmap(&self) -> Cow<'_, RoaringBitmap> {
        match self {
            Self::Few(_) => Cow::Owned(self.iter().collect()),
            Self::Many(many) => Cow::Borrowed(many),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn it_is_a_set_whatever_its_size() {
        let mut ids = Ids::one(7);
        let mut model = BTreeSet::from([7]);
        // Grows past what is kept in place, and shrinks again from the middle.
        for number in [3, 7, 9, 1, 1, 12] {
            ids.insert(number);
            model.insert(number);
            assert_eq!(ids.bitmap().iter().collect::<BTreeSet<u32>>(), model);
            assert_eq!(ids.len(), model.len() as u64);
        }
        assert!(matches!(ids, Ids::Many(_)));
        let mut few = Ids::one(1);
        [2, 3].into_iter().for_each(|number| few.insert(number));
        assert!(!few.remove(2) && !few.remove(9));
        assert_eq!(few.iter().collect::<Vec<_>>(), [1, 3]);
        assert!(!few.remove(1) && few.remove(3));
        for number in [3, 7, 9, 1] {
            assert!(!ids.remove(number));
        }
        assert!(ids.remove(12));
    }

    #[test]
    fn it_is_as_small_as_a_bitmap_without_members() {
        assert_eq!(size_of::<Ids>(), size_of::<RoaringBitmap>());
    }
}
