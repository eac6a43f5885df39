//! Refuses requests of web pages to a server on loopback.
//!
//! A browser sends requests to loopback for any page. A page of a stranger is told apart by its `Origin`; a
//! page whose name was made to point to loopback (DNS rebinding) by its `Host`.

use std::net::SocketAddr;

use http::header::{HOST, ORIGIN};
use http::request::Parts;

use crate::status::{ApiError, ApiResult};

/// Refuses a request for another host than the server's own address, or from a page of another origin.
pub(super) fn check(head: &Parts, address: SocketAddr) -> ApiResult<()> {
    let own = [address.to_string(), format!("localhost:{}", address.port())];
    let is_own = |host: &str| own.iter().any(|own| own.eq_ignore_ascii_case(host));
    let header = |name| head.headers.get(name).map(|value| value.to_str().unwrap_or_default());
    // HTTP/2 has the host in the URI.
    let host = head.uri.authority().map(|authority| authority.as_str()).or_else(|| header(HOST));
    let host = host.unwrap_or_default();
    if !is_own(host) {
        let [first, second] = &own;
        return Err(refusal(format!("the host {host:?} is not this server: ask {first} or {second}")));
    }
    match header(ORIGIN) {
        Some(origin) if !origin.strip_prefix("http://").is_some_and(is_own) => {
            Err(refusal(format!("pages of {origin:?} may send no requests here")))
        }
        _ => Ok(()),
    }
}

fn refusal(message: String) -> Box<ApiError> {
    ApiError::new(403, "Forbidden", message)
}
