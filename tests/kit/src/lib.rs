//! Test kit: what tests of more than one crate share.
//!
//! - [`volume`], [`claim`] and [`class`] make objects of `bindery-core`; [`json`] makes the same in JSON, for
//!   tests that speak to an API server. A test states only the fields that it is about.
//! - [`Logged`] captures log lines, [`allow_files`] raises the limit of open files, [`resident_kib`] and
//!   [`peak_kib`] read the memory of a process.

mod files;
pub mod json;
mod logged;
mod memory;
mod objects;

pub use files::allow_files;
pub use logged::Logged;
pub use memory::{peak_kib, resident_kib};
pub use objects::{claim, class, gib, volume};
