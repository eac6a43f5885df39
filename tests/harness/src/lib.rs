//! What a test needs of processes: what its own has logged, how many files it may open, and what one costs.

mod files;
mod logged;
mod memory;

pub use files::allow_files;
pub use logged::Logged;
pub use memory::{peak_kib, resident_kib};
