//! Lines of JSON that are sent at once.

use bindery_journal::{Followed, Follower};
use bytes::Bytes;

use crate::journal::export::{Line, RecordId};

/// A batch of more bytes is sent: it is what a slow endpoint costs of memory, with one record more.
const BYTES_MAX: usize = 1 << 20;
/// A batch of as many records is sent: endpoints bound the lines of a request too.
const RECORDS_MAX: u64 = 1_000;

/// What one request has.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) lines: Bytes,
    pub(super) records: u64,
    /// When the first was recorded, in milliseconds since the Unix epoch.
    pub(super) oldest_ms: u64,
}

impl Batch {
    /// The next records that are in the files.
    pub(super) fn read(follower: &mut Follower) -> Self {
        let (mut lines, mut records, mut oldest_ms) = (Vec::new(), 0, 0);
        while lines.len() < BYTES_MAX && records < RECORDS_MAX {
            let Some(followed) = follower.next() else { break };
            if records == 0 {
                oldest_ms = followed.entry.at_ms;
            }
            let Followed { journal, file, header, number, replica, ref entry } = followed;
            let id = RecordId { id: format!("{header:016x}-{number}"), journal, file, number };
            let line = lines.len();
            if let Err(error) = Line::new(Some(id), replica, entry).write(&mut lines) {
                // Each type of an entry can be written as JSON, and a vector takes all.
                tracing::error!(%error, journal, file, number, "a record cannot be written as JSON");
                lines.truncate(line);
            }
            records += 1;
        }
        Self { lines: lines.into(), records, oldest_ms }
    }
}
