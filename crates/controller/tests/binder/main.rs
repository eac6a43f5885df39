//! The binder over a cluster in memory: its writes, the cases in which it writes nothing, and its loop.

mod declared;
mod deleting;
mod disk;
mod double;
mod evidence;
mod foreign_writers;
mod labelling;
mod looping;
mod noting;
mod observing;
mod operating;
mod policies;
mod proving;
mod reclaiming;
mod reviewing;
mod shadow_checks;
mod shadowing;
mod spreading;
mod steering;
mod swapping;
mod syncing;
mod tampering;
mod wakes;
