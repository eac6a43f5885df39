//! One connection, from its first byte to its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::Shared;
use super::crowd::{Member, Place};
use super::service::Answering;
use crate::tls::Credentials;

/// Most bytes of the head of a request, and of what is read ahead of a slow answer. An API server's head has
/// some 250; one that it was told to show a token in has that besides.
const BUFFER_BYTES_MAX: usize = 16 * 1024;
/// Most requests at the same time on one connection of HTTP/2. API servers speak HTTP/1.1 with webhooks, but
/// for those that a URL on loopback names (`NextProtos` in `k8s.io/apiserver/pkg/util/webhook/client.go`); Go
/// has what is more than this wait, or opens another connection.
const STREAMS_MAX: u32 = 16;
/// Most bytes of a body, and of all bodies on one connection, that a peer may send by HTTP/2 before somebody
/// reads them.
const STREAM_BYTES_MAX: u32 = 64 * 1024;
const STREAMS_BYTES_MAX: u32 = 128 * 1024;
/// Most bytes of all headers of a request of HTTP/2, 32 for each field besides its own (RFC 9113, section
/// 6.5.2): an API server's are some 500, and a token has room. A field that is repeated costs its sender one
/// byte, and twice as much as it counts here.
const HEADER_BYTES_MAX: u32 = 4 * 1024;
/// How long a connection that has just come may still shake hands or ask when the server ends.
const FAREWELL: Duration = Duration::from_secs(1);
/// The first byte of a TLS handshake (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;
/// What is answered to who speaks HTTP without TLS.
const PLAIN: &str = "HTTP/1.1 400 Bad Request\r\n\
    Content-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 47\r\n\
    Connection: close\r\n\
    \r\n\
    This server speaks HTTPS; the request was HTTP.";

/// Why no handshake came about.
#[derive(Debug, thiserror::Error)]
enum HandshakeError {
    /// The peer took too long.
    #[error("no handshake in time")]
    Late,
    /// The peer spoke HTTP.
    #[error("HTTP without TLS")]
    Plain,
    /// The connection broke, or the two do not agree.
    #[error(transparent)]
    Failed(#[from] std::io::Error),
}

/// Serves one connection to its end, or until it has to go.
pub(super) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    place: Place,
    router: Router,
    shared: Arc<Shared>,
) {
    let member = Arc::clone(place.member());
    tokio::select! {
        () = member.evicted() => tracing::debug!(%peer, "closed: others want to come in"),
        () = converse(stream, peer, &member, router, &shared) => {}
    }
}

async fn converse(
    stream: TcpStream,
    peer: SocketAddr,
    member: &Arc<Member>,
    router: Router,
    shared: &Arc<Shared>,
) {
    // Answers are one segment each, and somebody waits for every one of them.
    let _ = stream.set_nodelay(true);
    let answered = match &shared.credentials {
        None => answer(stream, false, member, router, shared).await,
        Some(credentials) => {
            let Some(stream) = greeted(stream, peer, credentials, shared).await else { return };
            member.greeted();
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            answer(stream, is_http2, member, router, shared).await
        }
    };
    if let Err(error) = answered {
        tracing::debug!(%peer, error, "the connection broke");
    }
}

/// Shakes hands in time; `None` where that comes to nothing.
async fn greeted(
    stream: TcpStream,
    peer: SocketAddr,
    credentials: &Credentials,
    shared: &Shared,
) -> Option<TlsStream<TcpStream>> {
    let greeting = tokio::time::timeout(shared.limits.handshake_max, greet(stream, credentials));
    let greeting = tokio::select! {
        greeting = greeting => greeting,
        () = ended(shared) => return None,
    };
    match greeting.unwrap_or(Err(HandshakeError::Late)) {
        Ok(stream) => Some(stream),
        Err(error) => {
            shared.traffic.fail_handshake();
            tracing::debug!(%peer, %error, "no handshake");
            None
        }
    }
}

/// Shakes hands; who speaks HTTP is told so.
async fn greet(
    mut stream: TcpStream,
    credentials: &Credentials,
) -> Result<TlsStream<TcpStream>, HandshakeError> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE && first[0].is_ascii_uppercase() {
        // What is not read before closing would reset the connection, and the answer with it.
        let _ = stream.read(&mut vec![0; BUFFER_BYTES_MAX]).await?;
        stream.write_all(PLAIN.as_bytes()).await?;
        stream.shutdown().await?;
        return Err(HandshakeError::Plain);
    }
    Ok(TlsAcceptor::from(credentials.config()).accept(stream).await?)
}

/// Answers requests until either side has had enough.
async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    is_http2: bool,
    member: &Arc<Member>,
    router: Router,
    shared: &Arc<Shared>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut builder = Builder::new(TokioExecutor::new());
    // The time until a head is complete is part of the time without a request, which is limited here.
    builder
        .http1()
        .max_buf_size(BUFFER_BYTES_MAX)
        .header_read_timeout(None)
        // busybox's `nc` closes its sending half after the request; without this, hyper then drops the
        // request.
        .half_close(true);
    builder
        .http2()
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .initial_stream_window_size(STREAM_BYTES_MAX)
        .initial_connection_window_size(STREAMS_BYTES_MAX);
    let builder = if is_http2 { builder.http2_only() } else { builder.http1_only() };
    let service = Answering { router, member: Arc::clone(member), shared: Arc::clone(shared) };
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = outstayed(member, shared.limits.idle_max) => return Ok(()),
        () = goodbye(is_http2, member, shared) => connection.as_mut().graceful_shutdown(),
    }
    // Who is about to ask, on a connection that it had just opened, still may.
    tokio::select! {
        ended = connection => ended,
        () = outstayed(member, FAREWELL) => Ok(()),
    }
}

/// Ends when a client is to be told to go. HTTP/2 can do that without losing a request, but not before the
/// first one: Go takes the connection for broken and does not try another. HTTP/1.1 can do it in an answer
/// only, so idle connections are left alone until nobody uses them any more.
async fn goodbye(is_http2: bool, member: &Member, shared: &Shared) {
    if !is_http2 {
        return shared.closing.cancelled().await;
    }
    shared.leaving.cancelled().await;
    tokio::select! {
        () = member.asked() => {}
        () = ended(shared) => {}
    }
}

/// Ends a moment after connections are to be closed.
async fn ended(shared: &Shared) {
    shared.closing.cancelled().await;
    tokio::time::sleep(FAREWELL).await;
}

/// Ends when no request has been under way for too long.
async fn outstayed(member: &Member, idle_max: Duration) {
    loop {
        let now = tokio::time::Instant::now();
        let until = member.idle_since().map_or(now, |since| since) + idle_max;
        if until <= now {
            return;
        }
        tokio::time::sleep_until(until).await;
    }
}
