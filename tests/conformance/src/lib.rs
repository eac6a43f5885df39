//! Recorded cases of upstream's controller, run through the real binder on the simulator.
//!
//! Or on a real API server: [`Cluster`].
//!
//! [`case`] reads a corpus, `world` builds the world of a case and runs its call, [`compare`] holds the
//! result against the recording, `deviations` lists where Bindery differs on purpose, and `twin` holds
//! the two engines against each other on every decision. [`vary`] makes new worlds out of recorded ones.

pub mod case;
mod cluster;
pub mod compare;
mod deviations;
mod mock;
mod port;
mod run;
mod server;
mod twin;
pub mod vary;
mod world;

pub use cluster::{Cluster, Refusal};
pub use run::{CaseResult, Engines, run, run_on};
