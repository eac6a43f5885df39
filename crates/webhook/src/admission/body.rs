//! Reads the body of a request: so much of it, within so much time, and of all requests together no more than there is
//! memory for, until each is answered.

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

/// Largest body, in bytes: the API server's own limit of a request (`--max-request-bytes` of etcd is half of it). An
/// update carries its object twice, so this also bounds what is reviewed of very large ones.
pub const BODY_MAX: usize = 3 * 1024 * 1024;

/// Bytes of all bodies that are held at the same time: some ten thousand ordinary ones.
const BODIES_MAX: usize = 64 * 1024 * 1024;

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

/// Room for the bodies that are held at the same time.
pub(super) struct Room(Semaphore);

/// A body that was read. It takes its room until it is dropped.
#[derive(Debug)]
pub(super) struct Held<'a> {
    bytes: Bytes,
    _room: SemaphorePermit<'a>,
}

impl Held<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Default for Room {
    fn default() -> Self {
        Self(Semaphore::new(BODIES_MAX))
    }
}

impl Room {
    /// Reads a body until the deadline.
    ///
    /// # Errors
    ///
    /// There is no room for it, or it is too large, too slow or broken.
    pub(super) async fn read(
        &self,
        headers: &HeaderMap,
        body: Body,
        deadline: Instant,
    ) -> Result<Held<'_>, BodyError> {
        // The API server tells the length. Who does not may send as much as anybody may.
        let told = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let length = told.unwrap_or(BODY_MAX);
        if length > BODY_MAX {
            return Err(BodyError::TooLarge);
        }
        let permits = u32::try_from(length).map_err(|_| BodyError::TooLarge)?;
        let room = self.0.try_acquire_many(permits).map_err(|_| BodyError::Busy)?;
        let collected = timeout_at(deadline, Limited::new(body, BODY_MAX).collect()).await;
        match collected.map_err(|_| BodyError::Overdue)? {
            Ok(whole) => Ok(Held { bytes: whole.to_bytes(), _room: room }),
            Err(error) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge),
            Err(_) => Err(BodyError::Broken),
        }
    }
}
