//! The limit of open files, which most shells set far below what the system allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many files this process may open besides `others`, `wanted` at most: the limit is raised as far as the system lets it be.
#[must_use]
pub fn files_besides(others: usize, wanted: usize) -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Where it cannot be raised, there are as many as there were.
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let files = if raised.is_ok() { maximum } else { current };
    let files = files.and_then(|files| usize::try_from(files).ok());
    files.map_or(wanted, |files| files.saturating_sub(others).min(wanted))
}
