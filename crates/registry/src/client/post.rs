//! Posts to an HTTP server, with the TLS, the limits and the address rules of the registry client.

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri};
use tokio::time::Instant;

use super::MESSAGE_MAX;
use super::transport::{Outgoing, Timeouts, Transport};
use crate::error::{Result, invalid};
use crate::limits::ANSWER_MAX;
use crate::reference::is_loopback;

/// A URL that takes bodies by POST: `https://`, or `http://` of this machine. Redirects are not followed, and
/// proxies are not used, so headers may have credentials for it.
pub struct Endpoint {
    transport: Transport,
    uri: Uri,
}

/// An answer to a post.
#[derive(Debug)]
pub struct Posted {
    /// The status.
    pub status: StatusCode,
    /// The header.
    pub headers: HeaderMap,
    /// The printable beginning of the body.
    pub message: String,
}

impl Endpoint {
    /// Posts to `uri`, which is trusted by these certificate authorities, in PEM, or by those of the system.
    pub fn new(uri: Uri, authorities: Option<&[u8]>, timeouts: Timeouts) -> Result<Self> {
        let host = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        match uri.scheme_str() {
            _ if host.contains('@') => return invalid("the URL has a name of a user; give a token instead"),
            Some("https") => {}
            Some("http") if is_loopback(host) => {}
            _ => return invalid(format!("{uri} is neither https:// nor http:// of this machine")),
        }
        Ok(Self { transport: Transport::new(authorities, timeouts)?, uri })
    }

    /// Posts a body, and reads the answer.
    ///
    /// # Errors
    ///
    /// There was no answer in time ([`Unavailable`](crate::RegistryError::Unavailable)), or it breaks a rule
    /// or a limit.
    pub async fn post(&self, headers: HeaderMap, body: Bytes) -> Result<Posted> {
        let (method, uri, max) = (Method::POST, self.uri.clone(), ANSWER_MAX);
        let request = Outgoing { method, uri, headers, body, max, floor: None };
        let deadline = Instant::now() + self.transport.timeouts.request;
        let answer = self.transport.send(request, deadline).await?;
        let text = String::from_utf8_lossy(&answer.body);
        let message = text.chars().filter(|c| !c.is_control()).take(MESSAGE_MAX).collect();
        Ok(Posted { status: answer.status, headers: answer.headers, message })
    }
}
