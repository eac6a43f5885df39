//! Removing what processes use that have just been killed.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// How long they may still be in the way, and the pause between two tries.
const BUSY_MAX: Duration = Duration::from_secs(10);
const BUSY_EVERY: Duration = Duration::from_millis(20);

/// Tries to remove something until nothing is in the way any more.
///
/// # Errors
/// When it fails for another reason, or something stays in the way.
pub(super) fn insist(in_the_way: ErrorKind, remove: impl Fn() -> io::Result<()>) -> io::Result<()> {
    let give_up = Instant::now() + BUSY_MAX;
    loop {
        match remove() {
            Err(error) if error.kind() == in_the_way && Instant::now() < give_up => {
                std::thread::sleep(BUSY_EVERY);
            }
            removed => return removed,
        }
    }
}
