//! The binder over a cluster in memory: what it writes, when it does not, and how its loop goes on.

mod disk;
mod double;
mod foreign_writers;
mod looping;
mod observing;
mod operating;
mod proving;
mod reviewing;
mod syncing;
mod wakes;
