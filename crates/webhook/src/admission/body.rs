//! Reads the body of a request: so much of it, within so much time, and of all requests together no more than there is
//! memory for, until each is answered. Nor are there more requests than that whose body has still to come.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// Largest body, in bytes: the API server's own limit of a request (`--max-request-bytes` of etcd is half of it). An
/// update carries its object twice, so this also bounds what is reviewed of very large ones.
pub const BODY_MAX: usize = 3 * 1024 * 1024;

/// Bytes of all bodies that are held at the same time: some ten thousand ordinary ones. Where they do not suffice, the body
/// that has been coming for longest is given up: the API server sends a review at once, so it is somebody else's.
const BODIES_MAX: usize = 64 * 1024 * 1024;

/// Requests whose body has not come whole at the same time, on all connections: as many as there are connections, as it
/// comes with the head. Where there is one more, that which has waited for longest is given up.
const COMING_MAX: usize = 1_000;

/// Longest time from the head of a request until its body has come whole, however long the caller says that he waits: an
/// API server sends both at once, so it is enough for some packets that are lost on the way.
const COMING_FOR_MAX: Duration = Duration::from_secs(1);

/// Why a body was not read. Answered as an HTTP status: nobody knows the UID that a review's answer must name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the body is larger than {BODY_MAX} bytes")]
    TooLarge,
    #[error("too many requests are under way; this one was not reviewed")]
    Busy,
    #[error("the body did not come in time")]
    Overdue,
    #[error("the body broke off")]
    Broken,
}

impl BodyError {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Overdue => StatusCode::REQUEST_TIMEOUT,
            Self::Broken => StatusCode::BAD_REQUEST,
        }
    }
}

/// How many bytes a request says that its body has.
pub(super) fn told_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Room for the bodies that are held at the same time.
pub(super) struct Room(Mutex<Books>);

struct Books {
    /// Bytes that are held by nobody.
    free: usize,
    /// The number of the next body.
    next: u64,
    /// Bodies that have not come whole, the oldest first.
    coming: BTreeMap<u64, Coming>,
}

#[derive(Default)]
struct Coming {
    /// How much of it has come.
    bytes: usize,
    given_up: CancellationToken,
}

/// A body that comes. Dropped, it gives back what it holds.
struct Incoming<'a> {
    room: &'a Room,
    number: u64,
    given_up: CancellationToken,
}

/// A body that was read. It takes its room until it is dropped.
pub(super) struct Held<'a> {
    bytes: Vec<u8>,
    room: &'a Room,
}

impl Held<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.room.books().free += self.bytes.len();
    }
}

impl Default for Room {
    fn default() -> Self {
        Self(Mutex::new(Books { free: BODIES_MAX, next: 0, coming: BTreeMap::new() }))
    }
}

impl Room {
    /// Reads a body that is said to have so many bytes, until the deadline and no longer than one may take.
    ///
    /// # Errors
    ///
    /// There is no room for it, or it is too large, too slow or broken.
    pub(super) async fn read(
        &self,
        length: Option<usize>,
        body: Body,
        deadline: Instant,
    ) -> Result<Held<'_>, BodyError> {
        if length.is_some_and(|length| length > BODY_MAX) {
            return Err(BodyError::TooLarge);
        }
        let incoming = self.enter();
        let deadline = deadline.min(Instant::now() + COMING_FOR_MAX);
        let read = timeout_at(deadline, incoming.read(body));
        let bytes = incoming.given_up.run_until_cancelled(read).await.ok_or(BodyError::Busy)?;
        incoming.end(bytes.map_err(|_| BodyError::Overdue)??)
    }

    fn enter(&self) -> Incoming<'_> {
        let mut books = self.books();
        if books.coming.len() >= COMING_MAX
            && let Some((&oldest, _)) = books.coming.first_key_value()
        {
            books.give_up(oldest);
        }
        let number = books.next;
        books.next += 1;
        let coming = books.coming.entry(number).or_default();
        Incoming { room: self, number, given_up: coming.given_up.clone() }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // Nothing in here panics between two changes that belong together.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Incoming<'a> {
    async fn read(&self, mut body: Body) -> Result<Vec<u8>, BodyError> {
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            // Trailers say nothing.
            let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() else { continue };
            if bytes.len() + data.len() > BODY_MAX {
                return Err(BodyError::TooLarge);
            }
            self.room.books().take(self.number, data.len())?;
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    }

    /// It has come whole, and cannot be given up any more.
    fn end(self, bytes: Vec<u8>) -> Result<Held<'a>, BodyError> {
        self.room.books().coming.remove(&self.number).ok_or(BodyError::Busy)?;
        Ok(Held { bytes, room: self.room })
    }
}

impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        self.room.books().give_up(self.number);
    }
}

impl Books {
    /// Takes room for more of a body, from those that have been coming for longer where there is none.
    fn take(&mut self, number: u64, bytes: usize) -> Result<(), BodyError> {
        while self.free < bytes {
            let mut holding = self.coming.iter().filter(|(_, coming)| coming.bytes > 0);
            let oldest = holding.next().map(|(oldest, _)| *oldest).filter(|oldest| *oldest < number);
            self.give_up(oldest.ok_or(BodyError::Busy)?);
        }
        let coming = self.coming.get_mut(&number).ok_or(BodyError::Busy)?;
        coming.bytes += bytes;
        self.free -= bytes;
        Ok(())
    }

    /// Its memory is free in a moment, when whoever reads it hears of it.
    fn give_up(&mut self, number: u64) {
        if let Some(coming) = self.coming.remove(&number) {
            self.free += coming.bytes;
            coming.given_up.cancel();
        }
    }
}
