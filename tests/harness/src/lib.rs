//! What a test needs of processes: what its own has logged, how many files it may open, and what one costs.

mod files;
mod logged;
mod memory;

pub use files::files_besides;
pub use logged::Logged;
pub use memory::resident_kib;
