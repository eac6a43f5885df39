//! Receives the body of a request within bounds of size, time and memory.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::status::{ApiError, ApiResult};

/// The largest body, as on the real server.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;
/// The longest time for a body to arrive. The real server lets a client take a minute for a request.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);
/// The most bytes of all bodies that are held at one time.
const BODIES_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A received body, which takes room until it is dropped.
pub(super) struct Received {
    pub(super) bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

/// Room for the bodies that are held at one time: a permit for each byte.
pub(crate) fn room() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(BODIES_BYTES_MAX))
}

/// Receives a body.
///
/// # Errors
///
/// It is too large (413), arrives too slowly (408) or cannot be read (400), or the bodies of other requests
/// take all room (429).
pub(super) async fn receive<B>(body: B, room: &Arc<Semaphore>) -> ApiResult<Received>
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    timeout(BODY_TIME_MAX, collect(body, room)).await.unwrap_or_else(|_| {
        let message = format!("the body did not arrive within {} s", BODY_TIME_MAX.as_secs());
        Err(ApiError::new(408, "Timeout", message))
    })
}

async fn collect<B>(body: B, room: &Arc<Semaphore>) -> ApiResult<Received>
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (mut body, mut bytes) = (pin!(body), BytesMut::new());
    let mut taken = take(room, 0)?;
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| ApiError::bad_request(format!("the body cannot be read: {}", error.into())))?;
        // Trailers are ignored.
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > BODY_BYTES_MAX {
            return Err(too_large());
        }
        taken.merge(take(room, data.len())?);
        bytes.extend_from_slice(&data);
    }
    Ok(Received { bytes: bytes.freeze(), _room: taken })
}

/// Takes room for that many bytes, without waiting: a client that stalls would keep others waiting.
fn take(room: &Arc<Semaphore>, bytes: usize) -> ApiResult<OwnedSemaphorePermit> {
    let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
    Arc::clone(room).try_acquire_many_owned(permits).map_err(|_| {
        let message = format!(
            "the bodies of other requests take {BODIES_BYTES_MAX} bytes, which is the limit: try again"
        );
        ApiError::new(429, "TooManyRequests", message).with_details(json!({"retryAfterSeconds": 1}))
    })
}

fn too_large() -> Box<ApiError> {
    ApiError::too_large(format!("limit is {BODY_BYTES_MAX}"))
}
