//! The store: the objects that watches deliver, the binder's own writes laid over them, reservations, the
//! volume index that engines ask, and the subscriptions that wake a key when an answer changes.
//!
//! Read in this order:
//!
//! 1. [`Delivery`]: what a watch delivers. [`Store`] takes it, and the results of own writes, and answers
//!    with what changed ([`Change`]).
//! 2. [`Session`]: the conversation of one decision; the store and an [`Environment`] behind
//!    [`bindery_core::Cluster`].
//!    [`AsOf`]: the same again, later, as it was then.
//! 3. [`Subscriptions`]: every fact of the store that a decision asked for wakes its key again, and a free
//!    volume wakes one key after the other. The state of operations is not a fact of the store: an
//!    operation that ends wakes its object itself.
//!
//! # Guarantees
//!
//! - An own write is only ever laid over an object that the watch knows, and only until the watch has caught
//!   up: a late write cannot bring a deleted object back. A list that was requested after the write was
//!   answered ends it too: versions that went back, as after a restore of etcd, do not hide what the list
//!   says.
//! - A volume is offered only where the overlay says that it is free.
//! - What cannot be parsed is [`Unreadable`], never absent.
//! - No IO, no clock, no randomness; answers depend on the objects alone, never on the order in which they
//!   came, so every replica answers alike.

mod as_of;
mod cached;
mod change;
mod delivery;
mod environment;
mod explain;
mod index;
mod intern;
mod live;
mod session;
mod state;
mod store;
mod subscriptions;
mod version;

pub use as_of::AsOf;
pub use change::{
    Change, Changed, Fact, ObjectChange, Revision, Wanted, WantedSets, facts_of, facts_of_claim,
};
pub use delivery::{
    Author, Authors, Delivered, Delivery, Kind, LazyAuthors, Object, ObjectKey, Observed, ObservedPod,
    PodContent, Unreadable,
};
pub use environment::Environment;
pub use explain::{Explanation, Obstacle, VolumeObstacles};
pub use live::LiveReads;
pub use session::Session;
pub use store::{NotReserved, Store};
pub use subscriptions::{Dispatcher, Offer, Subscriptions};
pub use version::is_newer;
