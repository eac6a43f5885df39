//! The limit of open files. Most shells set it far below what the system allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process open `files` files.
///
/// # Panics
///
/// The hard limit is lower: the test could not open its connections.
pub fn allow_files(files: usize) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let allowed = maximum.and_then(|maximum| usize::try_from(maximum).ok()).unwrap_or(usize::MAX);
    assert!(
        files <= allowed,
        "this test opens {files} files and the system allows {allowed}: raise the hard limit (`ulimit -Hn`, \
         nofile in limits.conf, --ulimit of a container)"
    );
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    raised.expect("a process may raise its limit to the hard one");
}
