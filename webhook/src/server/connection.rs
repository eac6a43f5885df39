//! One connection, from accept to close.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::{CONNECTION, HeaderValue};
use axum::http::{Request, Response, StatusCode, Version};
use axum::response::IntoResponse as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::server::TlsStream;
use tower::ServiceExt as _;

use super::Shared;
use super::limiter::{Connection, Permit};
use crate::tls::{ClientError, Credentials};

/// Most bytes of a request's head by HTTP/1.1, and of further requests read before a slow answer. An API
/// server's head has some 250 bytes, and a token if it sends one.
const BUFFER_BYTES_MAX: usize = 16 * 1024;
/// Most requests in flight on a connection of HTTP/2. API servers speak HTTP/2 only with webhooks whose URL
/// is on loopback (`NextProtos` in `k8s.io/apiserver/pkg/util/webhook/client.go`); Go makes further requests
/// wait, or opens another connection.
const STREAMS_MAX: u32 = 16;
/// Most bytes that a peer may send by HTTP/2 before they are read: of one body, and of all on a connection.
const STREAM_BYTES_MAX: u32 = 64 * 1024;
const STREAMS_BYTES_MAX: u32 = 128 * 1024;
/// Most bytes of a request's headers by HTTP/2, which counts 32 for each field besides its own (RFC 9113,
/// section 6.5.2). An API server's are some 500; there is room for a token. A repeated field costs its
/// sender one byte, and the server twice what it counts here.
const HEADER_BYTES_MAX: u32 = 4 * 1024;
/// How long a new connection may take for its handshake or first request once the server closes connections.
const CLOSING_GRACE: Duration = Duration::from_secs(1);
/// The first byte of a TLS handshake (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;
/// The answer to a request without TLS.
const PLAIN_HTTP: &str = "HTTP/1.1 400 Bad Request\r\n\
    Content-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 47\r\n\
    Connection: close\r\n\
    \r\n\
    This server speaks HTTPS; the request was HTTP.";

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
enum HandshakeError {
    #[error("the handshake took too long")]
    Timeout,
    #[error("the client speaks HTTP without TLS")]
    PlainHttp,
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Failed(#[from] std::io::Error),
}

/// Serves a connection until it ends or is evicted.
pub(super) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    permit: Permit,
    router: Router,
    shared: Arc<Shared>,
) {
    let connection = &permit.connection;
    // An answer is one segment, and its client waits for it.
    let _ = stream.set_nodelay(true);
    let served = async {
        match &shared.credentials {
            None => answer_requests(stream, false, connection, router, &shared).await,
            Some(credentials) => {
                let Some(stream) = handshake(stream, peer, credentials, &shared).await else { return Ok(()) };
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                answer_requests(stream, is_http2, connection, router, &shared).await
            }
        }
    };
    tokio::select! {
        () = connection.evicted.cancelled() => tracing::debug!(%peer, "closed for another connection"),
        ended = served => {
            if let Err(error) = ended {
                tracing::debug!(%peer, error, "the connection broke");
            }
        }
    }
}

/// The stream after a handshake in time; `None`, and counted, if the handshake fails.
async fn handshake(
    stream: TcpStream,
    peer: SocketAddr,
    credentials: &Credentials,
    shared: &Shared,
) -> Option<TlsStream<TcpStream>> {
    let accepted = tokio::select! {
        accepted = timeout(shared.limits.handshake_max, accept_tls(stream, credentials)) => accepted,
        () = closing_grace(shared) => return None,
    };
    match accepted.unwrap_or(Err(HandshakeError::Timeout)) {
        Ok(stream) => Some(stream),
        Err(error) => {
            shared.limiter.stats.handshake_errors.inc();
            tracing::debug!(%peer, %error, "the handshake failed");
            None
        }
    }
}

async fn accept_tls(
    mut stream: TcpStream,
    credentials: &Credentials,
) -> Result<TlsStream<TcpStream>, HandshakeError> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE && first[0].is_ascii_uppercase() {
        // Closing with unread bytes would reset the connection and lose the answer.
        let _ = stream.read(&mut vec![0; BUFFER_BYTES_MAX]).await?;
        stream.write_all(PLAIN_HTTP.as_bytes()).await?;
        stream.shutdown().await?;
        return Err(HandshakeError::PlainHttp);
    }
    let (acceptor, clients) = credentials.acceptor();
    let stream = acceptor.accept(stream).await?;
    if let Some(clients) = clients {
        clients.check_name(stream.get_ref().1.peer_certificates())?;
    }
    Ok(stream)
}

/// Answers requests until the client closes, is idle for too long, or the server closes.
async fn answer_requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    is_http2: bool,
    connection: &Arc<Connection>,
    router: Router,
    shared: &Arc<Shared>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .max_buf_size(BUFFER_BYTES_MAX)
        // The idle limit covers the head too.
        .header_read_timeout(None)
        // Some probes, busybox's `nc` among them, close their sending half after the request and still want
        // the answer.
        .half_close(true);
    builder
        .http2()
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .initial_stream_window_size(STREAM_BYTES_MAX)
        .initial_connection_window_size(STREAMS_BYTES_MAX);
    let builder = if is_http2 { builder.http2_only() } else { builder.http1_only() };
    let service =
        service_fn(|request| answer(request, Arc::clone(connection), router.clone(), Arc::clone(shared)));
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // A request that has arrived is answered before the connection closes.
        biased;
        ended = served.as_mut() => return ended,
        () = idle_for(connection, shared.limits.idle_max) => return Ok(()),
        () = told_to_leave(is_http2, connection, shared) => served.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        ended = served => ended,
        () = idle_for(connection, CLOSING_GRACE) => Ok(()),
    }
}

/// Answers one request.
async fn answer(
    request: Request<Incoming>,
    connection: Arc<Connection>,
    router: Router,
    shared: Arc<Shared>,
) -> Result<Response<Body>, Infallible> {
    let (in_flight, unread) = connection.begin();
    let is_http1 = request.version() <= Version::HTTP_11;
    let request = request.map(|body| {
        Body::new(body.map_frame(move |frame| {
            // Handlers drop the body when they have read it, and `unread` with it.
            let _ = &unread;
            frame
        }))
    });
    let answered = timeout(shared.limits.request_max, router.oneshot(request)).await;
    let is_late = answered.is_err();
    let late = || (StatusCode::REQUEST_TIMEOUT, "The request took too long.\n").into_response();
    let mut response = answered.map_or_else(|_| late(), |Ok(response)| response);
    if response.status().is_success() {
        in_flight.succeeded();
    }
    // The rest of a late request is not read.
    if is_http1 && (is_late || shared.draining.is_cancelled()) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// Waits until the client is to be told to reconnect elsewhere. HTTP/2 does that by GOAWAY without losing a
/// request, but not before the first request: Go takes such a connection for broken and does not try another.
/// HTTP/1.1 does it in an answer, so idle connections are left alone until the drain has ended.
async fn told_to_leave(is_http2: bool, connection: &Connection, shared: &Shared) {
    if !is_http2 {
        return shared.closing.cancelled().await;
    }
    shared.draining.cancelled().await;
    tokio::select! {
        () = connection.has_asked.cancelled() => {}
        () = closing_grace(shared) => {}
    }
}

/// Waits until a moment after connections begin to close.
async fn closing_grace(shared: &Shared) {
    shared.closing.cancelled().await;
    sleep(CLOSING_GRACE).await;
}

/// Waits until the connection has had no request in flight for this long.
async fn idle_for(connection: &Connection, time: Duration) {
    loop {
        let now = Instant::now();
        let until = connection.idle_since().unwrap_or(now) + time;
        if until <= now {
            return;
        }
        sleep_until(until).await;
    }
}
