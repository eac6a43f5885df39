//! Reads the body of a request: so much of it, within so much time, and of all requests together no more than
//! there is memory for, until each is answered. Nor are there more requests than that whose body has still to
//! come.
//!
//! What a body says may take many times the memory of its bytes while it is reviewed: a label of one letter
//! is two texts and a place in a map. So of the bodies that are larger than usual, no more are reviewed at
//! the same time than one of the largest that there may be; others wait for their turn.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

/// Largest body, in bytes: the API server's own limit of a request (`--max-request-bytes` of etcd is half of
/// it). An update carries its object twice, so this also bounds what is reviewed of very large ones.
pub const BODY_MAX: usize = 3 * 1024 * 1024;

/// Bytes of all bodies that are held at the same time: some five thousand ordinary ones. Where they do not
/// suffice, the body that has been coming for longest is given up: the API server sends a review at once, so
/// it is somebody else's.
const BODIES_MAX: usize = 32 * 1024 * 1024;

/// Longest body that is reviewed whatever else is. An ordinary review has some 5 KiB, and as many of these as
/// there may be reviews at the same time are 4 MiB.
const SMALL_MAX: usize = 16 * 1024;

/// Bytes of all longer ones that are reviewed at the same time: one of the largest.
const LARGE_MAX: usize = BODY_MAX;

/// Longest piece in which a body is kept while it comes.
const PIECE: usize = SMALL_MAX;

/// How much is read of what is too large, and thrown away. A connection that is closed over what was not read
/// is reset, and its sender may never see the answer.
const DISCARDED_MAX: usize = 8 * 1024 * 1024;

/// Requests whose body has not come whole at the same time, on all connections: as many as there are
/// connections, as it comes with the head. Where there is one more, that which has waited for longest is
/// given up.
const COMING_MAX: usize = 1_000;

/// Into how many parts the time for a body is divided, each waited for by itself.
const AWAKE_PARTS: u32 = 10;

/// Why a body was not read. Answered as an HTTP status: nobody knows the UID that a review's answer must
/// name.
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
pub(super) struct Room {
    books: Mutex<Books>,
    /// Bytes of large bodies that may still be reviewed beside those that are.
    large: Semaphore,
    /// How long one may be in coming.
    within: Duration,
}

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

/// What has come of a body. One vector that grows leaves its former selves behind, which together are larger
/// than it is.
#[derive(Default)]
struct Pieces {
    /// All but the first have the same room; only the last has some left.
    pieces: Vec<Vec<u8>>,
    length: usize,
}

impl Pieces {
    fn extend(&mut self, mut data: &[u8]) {
        self.length += data.len();
        while !data.is_empty() {
            let left = self.pieces.last().map_or(0, |piece| PIECE - piece.len());
            if left == 0 {
                // Most bodies are one piece, and most of these come at once.
                let room = if self.pieces.is_empty() { data.len().min(PIECE) } else { PIECE };
                self.pieces.push(Vec::with_capacity(room));
                continue;
            }
            let (next, rest) = data.split_at(left.min(data.len()));
            if let Some(piece) = self.pieces.last_mut() {
                piece.extend_from_slice(next);
            }
            data = rest;
        }
    }

    fn joined(mut self) -> Vec<u8> {
        if self.pieces.len() == 1 {
            return self.pieces.remove(0);
        }
        let mut bytes = Vec::with_capacity(self.length);
        self.pieces.into_iter().for_each(|piece| bytes.extend_from_slice(&piece));
        bytes
    }
}

/// A body that was read. It takes its room until it is dropped.
pub(super) struct Held<'a> {
    bytes: Vec<u8>,
    turn: Turn<'a>,
    room: &'a Room,
}

/// Whether a body may be reviewed beside all that are.
enum Turn<'a> {
    /// Whatever else is, it is small.
    Always,
    /// For as long as this is held.
    Now { _permit: SemaphorePermit<'a> },
    /// It has not come in time.
    Never,
}

impl Held<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether there is memory to review it; it has waited for that.
    pub(super) fn may_be_reviewed(&self) -> bool {
        !matches!(self.turn, Turn::Never)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.room.books().free += self.bytes.len();
    }
}

impl Room {
    /// Room for bodies of which each comes within so much time.
    pub(super) fn new(within: Duration) -> Self {
        let books = Books { free: BODIES_MAX, next: 0, coming: BTreeMap::new() };
        Self { books: Mutex::new(books), large: Semaphore::new(LARGE_MAX), within }
    }

    /// Reads a body that is said to have so many bytes, no longer than one may take, and waits until the
    /// deadline for the turn of one that is large. While it waits it can still be given up, so those that
    /// wait keep nobody's room.
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
        let incoming = self.enter();
        let read = async {
            let late = timeout_at(deadline, awake_for(self.within));
            let pieces = incoming.read(length, body, late).await?;
            let turn = self.turn(pieces.length, deadline).await;
            Ok((pieces, turn))
        };
        let read = incoming.given_up.run_until_cancelled(read).await;
        let (pieces, turn) = read.unwrap_or(Err(BodyError::Busy))?;
        incoming.end(pieces, turn)
    }

    /// Waits until so many bytes may be reviewed beside all that are.
    async fn turn(&self, bytes: usize, deadline: Instant) -> Turn<'_> {
        if bytes <= SMALL_MAX {
            return Turn::Always;
        }
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        match timeout_at(deadline, self.large.acquire_many(permits)).await {
            Ok(Ok(permit)) => Turn::Now { _permit: permit },
            _ => Turn::Never,
        }
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
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Incoming<'a> {
    /// Reads it until it is late. Of what is too large, the rest is read too, and thrown away.
    async fn read(
        &self,
        length: Option<usize>,
        mut body: Body,
        late: impl Future,
    ) -> Result<Pieces, BodyError> {
        let mut late = pin!(late);
        let is_too_large = length.is_some_and(|length| length > BODY_MAX);
        let read =
            async { if is_too_large { Err(BodyError::TooLarge) } else { self.pieces(&mut body).await } };
        let read = tokio::select! {
            biased;
            read = read => read,
            _ = &mut late => Err(BodyError::Overdue),
        };
        if matches!(read, Err(BodyError::TooLarge)) {
            self.room.books().give_back(self.number);
            // Answered whether or not all of it has come.
            tokio::select! {
                biased;
                () = discard(&mut body) => {}
                _ = late => {}
            }
        }
        read
    }

    async fn pieces(&self, body: &mut Body) -> Result<Pieces, BodyError> {
        let mut pieces = Pieces::default();
        while let Some(frame) = body.frame().await {
            // Trailers say nothing.
            let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() else { continue };
            if pieces.length + data.len() > BODY_MAX {
                return Err(BodyError::TooLarge);
            }
            self.room.books().take(self.number, data.len())?;
            pieces.extend(&data);
        }
        Ok(pieces)
    }

    /// It has come whole, and cannot be given up any more.
    fn end(self, pieces: Pieces, turn: Turn<'a>) -> Result<Held<'a>, BodyError> {
        self.room.books().coming.remove(&self.number).ok_or(BodyError::Busy)?;
        Ok(Held { bytes: pieces.joined(), turn, room: self.room })
    }
}

/// Ends after so much time in which this process ran. Of a time in which the machine gave it no processor no
/// more than a part counts: what came meanwhile lies in the kernel, and is not late.
async fn awake_for(time: Duration) {
    for _ in 0..AWAKE_PARTS {
        sleep(time / AWAKE_PARTS).await;
    }
}

/// Reads a body that nobody wants, but for one without end.
async fn discard(body: &mut Body) {
    let mut left = DISCARDED_MAX;
    while let Some(Ok(frame)) = body.frame().await {
        match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        self.room.books().give_up(self.number);
    }
}

impl Books {
    /// Takes room for more of a body, from those that have been coming for longer where there is none. Where
    /// none of these has any, because all of it is under review, there is none for this one.
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

    /// Nothing of it is kept, though more of it may come.
    fn give_back(&mut self, number: u64) {
        if let Some(coming) = self.coming.get_mut(&number) {
            self.free += std::mem::take(&mut coming.bytes);
        }
    }

    /// Its memory is free in a moment, when whoever reads it hears of it.
    fn give_up(&mut self, number: u64) {
        if let Some(coming) = self.coming.remove(&number) {
            self.free += coming.bytes;
            coming.given_up.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::channel::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_is_not_late_because_the_machine_stood_still() {
        let room = Room::new(Duration::from_secs(1));
        let deadline = Instant::now() + Duration::from_secs(60);
        let (sender, receiver) = mpsc::unbounded::<Result<Bytes, Infallible>>();
        let mut read = pin!(room.read(None, Body::from_stream(receiver), deadline));
        assert!(futures::poll!(&mut read).is_pending());
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(futures::poll!(&mut read).is_pending());
        sender.unbounded_send(Ok(Bytes::from_static(b"{}"))).expect("the body is being read");
        drop(sender);
        assert_eq!(read.await.map(|held| held.bytes().to_vec()), Ok(b"{}".to_vec()));

        // But one that does not come while the machine runs.
        let (_sender, receiver) = mpsc::unbounded::<Result<Bytes, Infallible>>();
        let read = room.read(None, Body::from_stream(receiver), deadline).await;
        assert_eq!(read.map(|held| held.bytes().to_vec()), Err(BodyError::Overdue));
    }
}
