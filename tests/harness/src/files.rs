//! The limit of open files, which most shells set far below what the system allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many files this process may open, `wanted` at most: the limit is raised as far as the system lets it be.
#[must_use]
pub fn files_up_to(wanted: usize) -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Where it cannot be raised, there are as many as there were.
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let files = if raised.is_ok() { maximum } else { current };
    files.and_then(|files| usize::try_from(files).ok()).map_or(wanted, |files| files.min(wanted))
}
