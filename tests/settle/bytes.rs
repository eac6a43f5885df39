//! The bytes that a world is made of: a few for each object and each action, so that a failing world shrinks
//! object by object, and each byte shrinks towards zero, the usual choice.

use std::fmt::{self, Debug, Formatter};
use std::ops::RangeInclusive;

use proptest::array::{uniform4, uniform24};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any};

/// The bytes of one world.
#[derive(Clone)]
pub(crate) struct WorldBytes {
    /// Up to four claims.
    pub(crate) claims: Vec<[u8; 24]>,
    /// Up to four volumes.
    pub(crate) volumes: Vec<[u8; 24]>,
    /// What other actors do, in order. None in a calm world.
    pub(crate) actions: Vec<[u8; 4]>,
    /// The policies.
    pub(crate) policies: Vec<[u8; 24]>,
    /// Labels of claims and namespaces, for the policies.
    pub(crate) labels: [u8; 24],
    /// Classes, plugin and delays.
    pub(crate) conditions: [u8; 24],
}

/// On one line: a failed world would be a thousand lines otherwise, and logs are cut.
impl Debug for WorldBytes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { claims, volumes, actions, policies, labels, conditions } = self;
        write!(f, "claims: {claims:?}, volumes: {volumes:?}, actions: {actions:?}, ")?;
        write!(f, "policies: {policies:?}, labels: {labels:?}, conditions: {conditions:?}")
    }
}

/// The numbers of actions of worlds in which nothing fails, nothing lags and only the binder acts.
pub(crate) const CALM: RangeInclusive<usize> = 0..=0;
/// Of those in which others act, writes fail or lose their answers, and watches lag.
pub(crate) const ROUGH: RangeInclusive<usize> = 1..=8;
/// The numbers of policies of worlds with policies, and of those without.
pub(crate) const POLICED: RangeInclusive<usize> = 1..=4;
pub(crate) const UNPOLICED: RangeInclusive<usize> = 0..=0;

/// Worlds with such numbers of actions and policies.
pub(crate) fn worlds(
    actions: RangeInclusive<usize>,
    policies: RangeInclusive<usize>,
) -> impl Strategy<Value = WorldBytes> {
    let object = || uniform24(any::<u8>());
    let objects = (vec(object(), 0..=4), vec(object(), 0..=4), object());
    let parts = (objects, vec(uniform4(any::<u8>()), actions), vec(object(), policies), object());
    parts.prop_map(|((claims, volumes, conditions), actions, policies, labels)| WorldBytes {
        claims,
        volumes,
        actions,
        policies,
        labels,
        conditions,
    })
}
