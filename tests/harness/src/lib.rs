//! What a test needs of its own process: what it has logged, and how many files it may open.

mod files;
mod logged;

pub use files::files_up_to;
pub use logged::Logged;
