//! Reads the bodies of requests within a limit of size and time, and within the body budget: the bytes of all
//! bodies that are held at the same time.
//!
//! Decoding a body may take many times its bytes: a label of one letter becomes two texts and an entry of a
//! map. The budget bounds that memory too.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

/// Largest body in bytes: the API server's own limit of a request (`--max-request-bytes` of etcd is half of
/// it). An update carries its object twice, so very large objects may exceed it.
pub const BODY_MAX: usize = 3 * 1024 * 1024;

/// Bytes of all bodies from their first byte to their answer. At the limit the oldest unfinished body is
/// refused: an API server sends a review at once, so that body probably comes from another client.
const BODIES_MAX: usize = 12 * 1024 * 1024;

/// Bytes that bodies of more than [`SMALL_MAX`] leave free, so that large bodies cannot keep out ordinary
/// reviews, which have some 5 KiB: room for 256 of [`SMALL_MAX`].
const SMALL_RESERVE: usize = 4 * 1024 * 1024;
const SMALL_MAX: usize = 16 * 1024;

/// The size that a body counts before its first byte: about the memory of the request until then. So at most
/// some 1,500 requests wait for a body.
const REQUEST_COST: usize = 8 * 1024;

/// How much of a body that is too large is read and thrown away. Closing a connection with unread bytes
/// resets it, and the client may never see its answer.
const DISCARDED_MAX: usize = 8 * 1024 * 1024;

/// Number of parts into which the time for a body is divided.
const AWAKE_PARTS: u32 = 10;

/// Why a body was not read, answered by an HTTP status: the UID that a review's answer must name is unknown.
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

/// The bytes that bodies may still take.
pub(super) struct BodyBudget(Mutex<Budget>);

struct Budget {
    free: usize,
    /// The number of the next body.
    next: u64,
    /// Bodies that are being received, the oldest first.
    receiving: BTreeMap<u64, Receiving>,
}

struct Receiving {
    /// What it has taken of the budget.
    taken: usize,
    given_up: CancellationToken,
}

/// A complete body. It keeps its bytes of the budget until it is dropped.
pub(super) struct HeldBody<'a> {
    bytes: Vec<u8>,
    taken: usize,
    budget: &'a BodyBudget,
}

/// A body that is being received. Dropping it returns its bytes to the budget.
struct Receiver<'a> {
    number: u64,
    budget: &'a BodyBudget,
}

impl HeldBody<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for HeldBody<'_> {
    fn drop(&mut self) {
        self.budget.0.lock().free += self.taken;
    }
}

impl BodyBudget {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Budget { free: BODIES_MAX, next: 0, receiving: BTreeMap::new() }))
    }

    /// Receives a body within this time, and before the deadline.
    pub(super) async fn receive(
        &self,
        body: Body,
        within: Duration,
        deadline: Instant,
    ) -> Result<HeldBody<'_>, BodyError> {
        let (receiver, given_up) = self.begin()?;
        let mut is_too_large = false;
        let received = tokio::select! {
            biased;
            () = given_up.cancelled() => Err(BodyError::Busy),
            received = receiver.read(body, &mut is_too_large) => received,
            _ = timeout_at(deadline, awake_for(within)) => Err(BodyError::Overdue),
        };
        if is_too_large { Err(BodyError::TooLarge) } else { receiver.end(received?) }
    }

    fn begin(&self) -> Result<(Receiver<'_>, CancellationToken), BodyError> {
        let mut budget = self.0.lock();
        let number = budget.next;
        budget.next += 1;
        let given_up = CancellationToken::new();
        budget.receiving.insert(number, Receiving { taken: 0, given_up: given_up.clone() });
        let taken = budget.take(number, REQUEST_COST);
        drop(budget);
        let receiver = Receiver { number, budget: self };
        taken.map(|()| (receiver, given_up))
    }
}

impl<'a> Receiver<'a> {
    /// Reads a body. The rest of one that is too large is read and thrown away.
    async fn read(&self, mut body: Body, is_too_large: &mut bool) -> Result<Vec<u8>, BodyError> {
        let (mut bytes, mut received) = (Vec::new(), 0);
        *is_too_large = body.size_hint().lower() > BODY_MAX as u64;
        while received <= DISCARDED_MAX
            && let Some(frame) = body.frame().await
        {
            // Trailers are ignored.
            let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() else { continue };
            received += data.len();
            *is_too_large |= received > BODY_MAX;
            if *is_too_large {
                bytes = Vec::new();
                self.budget.0.lock().give_back(self.number);
            } else {
                // The request has already taken these bytes.
                let beyond = received.saturating_sub(REQUEST_COST).min(data.len());
                self.budget.0.lock().take(self.number, beyond)?;
                bytes.extend_from_slice(&data);
            }
        }
        Ok(bytes)
    }

    /// Keeps a complete body: it can no longer be refused for a newer one.
    fn end(self, bytes: Vec<u8>) -> Result<HeldBody<'a>, BodyError> {
        let receiving = self.budget.0.lock().receiving.remove(&self.number).ok_or(BodyError::Busy)?;
        Ok(HeldBody { bytes, taken: receiving.taken, budget: self.budget })
    }
}

impl Drop for Receiver<'_> {
    fn drop(&mut self) {
        self.budget.0.lock().give_up(self.number);
    }
}

impl Budget {
    /// Takes bytes for a body; if none are free, from older unfinished bodies. Bodies under review keep
    /// theirs.
    fn take(&mut self, number: u64, bytes: usize) -> Result<(), BodyError> {
        let taken = self.receiving.get(&number).ok_or(BodyError::Busy)?.taken + bytes;
        let reserve = if taken > SMALL_MAX { SMALL_RESERVE } else { 0 };
        while self.free < bytes + reserve {
            let oldest = self.receiving.first_key_value().map(|(oldest, _)| *oldest);
            self.give_up(oldest.filter(|oldest| *oldest < number).ok_or(BodyError::Busy)?);
        }
        self.free -= bytes;
        if let Some(receiving) = self.receiving.get_mut(&number) {
            receiving.taken = taken;
        }
        Ok(())
    }

    fn give_back(&mut self, number: u64) {
        if let Some(receiving) = self.receiving.get_mut(&number) {
            self.free += std::mem::take(&mut receiving.taken);
        }
    }

    fn give_up(&mut self, number: u64) {
        if let Some(receiving) = self.receiving.remove(&number) {
            self.free += receiving.taken;
            receiving.given_up.cancel();
        }
    }
}

/// Waits until this process has run for this time. A pause of the machine counts as one part at most: bytes
/// that came meanwhile wait in the kernel, and are not late.
async fn awake_for(time: Duration) {
    for _ in 0..AWAKE_PARTS {
        sleep(time / AWAKE_PARTS).await;
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::pin;

    use axum::body::Bytes;
    use futures::channel::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_is_not_late_because_the_machine_paused() {
        let budget = BodyBudget::new();
        let (second, deadline) = (Duration::from_secs(1), Instant::now() + Duration::from_secs(60));
        let (sender, receiver) = mpsc::unbounded::<Result<Bytes, Infallible>>();
        let mut received = pin!(budget.receive(Body::from_stream(receiver), second, deadline));
        assert!(futures::poll!(&mut received).is_pending());
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(futures::poll!(&mut received).is_pending());
        sender.unbounded_send(Ok(Bytes::from_static(b"{}"))).expect("the body is being read");
        drop(sender);
        assert_eq!(received.await.map(|held| held.bytes().to_vec()), Ok(b"{}".to_vec()));

        // A body that is missing while the machine runs is late.
        let (_sender, receiver) = mpsc::unbounded::<Result<Bytes, Infallible>>();
        let received = budget.receive(Body::from_stream(receiver), second, deadline).await;
        assert_eq!(received.map(|held| held.bytes().to_vec()), Err(BodyError::Overdue));
    }
}
