//! The result of a look-up.

use serde::{Deserialize, Serialize};

use crate::Text;

/// The result of a look-up. An object that cannot be parsed is unreadable, never absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lookup<T> {
    /// The object.
    Found(T),
    /// No object has that name.
    Absent,
    /// The object cannot be parsed: why.
    Unreadable(Text),
    /// The look-up failed: the error.
    Failed(Text),
}

impl<T> Lookup<T> {
    /// The object, where it does not matter why there is none.
    pub fn found(self) -> Option<T> {
        match self {
            Self::Found(found) => Some(found),
            Self::Absent | Self::Unreadable(_) | Self::Failed(_) => None,
        }
    }

    /// The same with what `of` makes of the object.
    pub fn map<U>(self, of: impl FnOnce(T) -> U) -> Lookup<U> {
        match self {
            Self::Found(found) => Lookup::Found(of(found)),
            Self::Absent => Lookup::Absent,
            Self::Unreadable(why) => Lookup::Unreadable(why),
            Self::Failed(why) => Lookup::Failed(why),
        }
    }

    /// The same with a reference to the object.
    pub fn as_ref(&self) -> Lookup<&T> {
        match self {
            Self::Found(found) => Lookup::Found(found),
            Self::Absent => Lookup::Absent,
            Self::Unreadable(why) => Lookup::Unreadable(why.clone()),
            Self::Failed(why) => Lookup::Failed(why.clone()),
        }
    }
}
