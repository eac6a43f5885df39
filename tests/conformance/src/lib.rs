//! Recorded cases of upstream's controller, run through the real binder on the simulator or on a real API
//! server ([`Cluster`]).
//!
//! [`case`] reads a corpus, `execution` builds the world of a case and makes its call, [`compare`] compares
//! the result with the recording, `deviations` lists the deliberate differences, and `engines` compares both
//! engines on every decision. [`vary`] makes new worlds out of recorded ones.

pub mod case;
mod cluster;
pub mod compare;
mod deviations;
mod engines;
mod execution;
mod mock;
mod port;
mod run;
mod server;
pub mod vary;

pub use cluster::{Cluster, Refusal};
pub use run::{CaseResult, Engines, run, run_on};
