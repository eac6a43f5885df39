//! Reads batches, sends each until it is accepted, and keeps the position.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bindery_journal::{Follower, Position, may_log};
use bindery_registry::{Endpoint, Posted, RegistryError};
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::SendingCounts;
use super::batch::Batch;

/// The file of the positions, in the folder of the journal.
const POSITIONS: &str = "sent.json";
/// The file that the process locks that sends: it sends all journals of the folder.
const LOCK: &str = "sent.lock";
/// Both are for the user of the process alone, as the journal is.
const FILE_MODE: u32 = 0o600;
/// The longest `Retry-After` that is waited for: one answer shall not end the sending for good.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);

type Positions = BTreeMap<String, Position>;

/// How long the thread pauses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pauses {
    /// When there is nothing to send, and so how long a record may wait for others.
    pub(super) idle: Duration,
    /// After a first failure; doubled by each further one.
    pub(super) first: Duration,
    /// At most after a failure, and after each refusal.
    pub(super) longest: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        let [idle, first, longest] = [1, 1, 60].map(Duration::from_secs);
        Self { idle, first, longest }
    }
}

/// What the thread does.
pub(super) struct Worker {
    pub(super) folder: PathBuf,
    pub(super) endpoint: Endpoint,
    /// The file of the token.
    pub(super) token: Option<PathBuf>,
    pub(super) pauses: Pauses,
    pub(super) counts: Arc<SendingCounts>,
    pub(super) ending: CancellationToken,
}

/// Why a batch was not accepted.
enum Failure {
    /// It may be soon: the endpoint was not reached, or is overloaded.
    Passing { why: String, retry_after: Option<Duration> },
    /// Nothing but a change of the settings or of the endpoint helps.
    Refused(String),
}

impl Worker {
    /// Sends until it is told to end.
    pub(super) async fn run(self) {
        let Some(_lock) = self.lock().await else { return };
        let mut saved = self.positions();
        let mut follower = Follower::new(&self.folder, saved.clone());
        loop {
            // What was written before the end began is seen by this look.
            let is_last = self.ending.is_cancelled();
            self.look(&mut follower);
            // All that was read is accepted here.
            let positions = follower.positions();
            if positions != saved {
                self.save(&positions);
                saved = positions;
            }
            let batch = Batch::read(&mut follower);
            self.counts.lost_files.store(follower.lost_files(), Ordering::Relaxed);
            self.counts.oldest_ms.store(batch.oldest_ms, Ordering::Relaxed);
            if batch.records == 0 {
                if is_last {
                    return;
                }
                self.pause(self.pauses.idle).await;
            } else if !self.deliver(&batch, &mut follower).await {
                return;
            }
        }
    }

    /// Waits until no other process sends the journals of the folder; `None` if this one ends before.
    async fn lock(&self) -> Option<File> {
        let mut logged = None;
        loop {
            let path = self.folder.join(LOCK);
            let opened = OpenOptions::new().create(true).append(true).mode(FILE_MODE).open(&path);
            match opened.map_err(TryLockError::Error).and_then(|file| file.try_lock().map(|()| file)) {
                Ok(lock) => return Some(lock),
                // Another replica sends.
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) if may_log(&mut logged) => {
                    tracing::error!(%error, file = %path.display(), "the journal cannot be sent");
                }
                Err(TryLockError::Error(_)) => {}
            }
            if self.ending.is_cancelled() {
                return None;
            }
            self.pause(self.pauses.longest).await;
        }
    }

    /// The positions that were kept; none if there are none yet. Where they cannot be read, everything that
    /// is there is sent again.
    fn positions(&self) -> Positions {
        let path = self.folder.join(POSITIONS);
        let read = fs::read(&path);
        let read = read.and_then(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::from));
        match read {
            Ok(positions) => positions,
            Err(error) if error.kind() == ErrorKind::NotFound => Positions::new(),
            Err(error) => {
                let file = path.display();
                tracing::error!(%error, %file, "the journal is sent from its oldest file, so records repeat");
                Positions::new()
            }
        }
    }

    /// Replaces the file of positions. It is not forced to the disk, which others share: after a power loss
    /// an older position repeats records.
    fn save(&self, positions: &Positions) {
        let [path, new] = [POSITIONS, "sent.json.new"].map(|name| self.folder.join(name));
        let write = || {
            let file =
                OpenOptions::new().create(true).write(true).truncate(true).mode(FILE_MODE).open(&new)?;
            serde_json::to_writer(file, positions)?;
            fs::rename(&new, &path)
        };
        if let Err(error) = write() {
            tracing::warn!(%error, "how far the journal was sent cannot be kept; a restart repeats records");
        }
    }

    /// Finds new files and missing ones.
    fn look(&self, follower: &mut Follower) {
        if let Err(error) = follower.look() {
            tracing::warn!(%error, folder = %self.folder.display(), "the journal cannot be read to be sent");
        }
        self.counts.lost_files.store(follower.lost_files(), Ordering::Relaxed);
    }

    /// Sends a batch until it is accepted; returns whether it was before this thread has to end.
    async fn deliver(&self, batch: &Batch, follower: &mut Follower) -> bool {
        let (mut pause, mut logged) = (self.pauses.first, None);
        loop {
            let is_last = self.ending.is_cancelled();
            let Err(failure) = self.send(batch).await else { break };
            self.counts.failures.inc();
            if may_log(&mut logged) {
                failure.tell();
            }
            if is_last {
                return false;
            }
            // Files that are removed meanwhile are told of at once.
            self.look(follower);
            self.pause(failure.pause(pause, self.pauses.longest)).await;
            pause = (pause * 2).min(self.pauses.longest);
        }
        self.counts.records.inc_by(batch.records);
        if logged.is_some() {
            tracing::warn!("the journal is sent again");
        }
        true
    }

    async fn send(&self, batch: &Batch) -> Result<(), Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        if let Some(path) = &self.token {
            let token = fs::read_to_string(path).map_err(|error| error.to_string());
            let value = token.and_then(|token| bearer(&token));
            let wrong = |why| Failure::Refused(format!("--journal-send-token {}: {why}", path.display()));
            headers.insert(AUTHORIZATION, value.map_err(wrong)?);
        }
        let Posted { status, headers, message } = match self.endpoint.post(headers, batch.lines.clone()).await
        {
            Ok(posted) => posted,
            Err(RegistryError::Unavailable(why)) => return Err(Failure::Passing { why, retry_after: None }),
            Err(error) => return Err(Failure::Refused(error.to_string())),
        };
        let why = || format!("the endpoint answered with status {}: {message:?}", status.as_u16());
        let is_busy = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
        if status.is_success() {
            Ok(())
        } else if is_busy || status.is_server_error() {
            Err(Failure::Passing { why: why(), retry_after: retry_after(&headers) })
        } else {
            Err(Failure::Refused(why()))
        }
    }

    /// Pauses, but not once the end has begun.
    async fn pause(&self, pause: Duration) {
        // Cancelled or over, it goes on.
        _ = tokio::time::timeout(pause, self.ending.cancelled()).await;
    }
}

impl Failure {
    fn tell(&self) {
        match self {
            Self::Passing { why, .. } => {
                tracing::warn!(%why, "the journal is not sent; what is not sent stays in its files");
            }
            Self::Refused(why) => {
                tracing::error!(%why, "the endpoint refuses the journal, which is tried again every minute");
            }
        }
    }

    fn pause(&self, grown: Duration, longest: Duration) -> Duration {
        match self {
            Self::Passing { retry_after, .. } => {
                retry_after.map_or(grown, |asked| asked.clamp(grown, RETRY_AFTER_MAX.max(grown)))
            }
            Self::Refused(_) => longest,
        }
    }
}

/// The header of a token.
fn bearer(token: &str) -> Result<HeaderValue, String> {
    let token = token.trim();
    if token.is_empty() {
        return Err("the file is empty".to_owned());
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| "the file has characters that no token has".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

/// How long the endpoint asks to be left alone: seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    until.duration_since(Timestamp::now()).try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, text.parse().unwrap());
        retry_after(&headers)
    }

    #[test]
    fn retry_after_is_obeyed_within_bounds_and_a_refusal_pauses_longest() {
        let seconds = Duration::from_secs;
        assert_eq!(asked("120"), Some(seconds(120)));
        assert!(asked("Fri, 31 Dec 2399 23:59:59 GMT").unwrap() > seconds(86_400));
        for text in ["Sun, 06 Nov 1994 08:49:37 GMT", "soon", "-1"] {
            assert_eq!(asked(text), None, "{text}");
        }
        for (retry_after, pause) in [(None, 2), (Some(0), 2), (Some(120), 120), (Some(999_999), 3_600)] {
            let failure = Failure::Passing { why: String::new(), retry_after: retry_after.map(seconds) };
            assert_eq!(failure.pause(seconds(2), seconds(60)), seconds(pause));
        }
        assert_eq!(Failure::Refused(String::new()).pause(seconds(2), seconds(60)), seconds(60));
    }

    #[test]
    fn a_token_is_trimmed_and_one_that_no_header_can_have_is_refused() {
        assert_eq!(bearer(" a.b-c\n").unwrap(), "Bearer a.b-c");
        for token in ["", "\n", "a\nb"] {
            assert!(bearer(token).is_err(), "{token:?}");
        }
    }
}
