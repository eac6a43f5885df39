//! The limit of open files, which most shells set far below what the system allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process open so many files.
///
/// # Panics
///
/// The system lets it open fewer: a test of so many connections would show nothing of them.
pub fn allow_files(files: usize) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let allowed = maximum.and_then(|maximum| usize::try_from(maximum).ok()).unwrap_or(usize::MAX);
    assert!(
        files <= allowed,
        "this test opens {files} files, and the system lets its process open {allowed}: raise the hard limit (`ulimit -Hn`, \
         nofile in limits.conf, --ulimit of a container)"
    );
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    raised.expect("a process may raise its limit to the hard one");
}
