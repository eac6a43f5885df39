//! The bytes that a world is made of: a few for each object and each action, so that a failing world shrinks
//! object by object, and each byte shrinks towards zero, the usual choice.

use proptest::array::{uniform4, uniform24};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any};

/// The bytes of one world.
#[derive(Clone, Debug)]
pub(crate) struct WorldBytes {
    /// Up to four claims.
    pub(crate) claims: Vec<[u8; 24]>,
    /// Up to four volumes.
    pub(crate) volumes: Vec<[u8; 24]>,
    /// What other actors do, in order. None in a calm world.
    pub(crate) actions: Vec<[u8; 4]>,
    /// Classes, plugin and delays.
    pub(crate) conditions: [u8; 24],
}

/// Worlds in which nothing fails, nothing lags and only the binder acts.
pub(crate) fn calm() -> impl Strategy<Value = WorldBytes> {
    worlds(0..=0)
}

/// Worlds in which others act, writes fail or lose their answers, and watches lag.
pub(crate) fn rough() -> impl Strategy<Value = WorldBytes> {
    worlds(1..=8)
}

fn worlds(actions: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = WorldBytes> {
    let object = || uniform24(any::<u8>());
    let parts = (vec(object(), 0..=4), vec(object(), 0..=4), vec(uniform4(any::<u8>()), actions), object());
    parts.prop_map(|(claims, volumes, actions, conditions)| WorldBytes {
        claims,
        volumes,
        actions,
        conditions,
    })
}
