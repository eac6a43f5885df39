//! Connections and requests.

use std::future::pending;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use bytes::{Bytes, BytesMut};
use futures::stream;
use http::header::{ACCEPT, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, TRANSFER_ENCODING};
use http::{HeaderValue, StatusCode};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::{Faults, Held, Request, RequestFault, Response, ResponseFault, Shared, lock};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// An answer to a client. An error of its body ends the connection.
type Answer = http::Response<BoxBody<Bytes, io::Error>>;

/// The error that ends a connection without an answer.
#[derive(Clone, Copy, Debug)]
struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection is cut")
    }
}

impl std::error::Error for Cut {}

/// Serves connections for ever.
pub(super) async fn run(shared: Arc<Shared>, listener: TcpListener, acceptor: TlsAcceptor) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let until_cut = lock(&shared.connections).clone();
        let serving = serve(Arc::clone(&shared), stream, acceptor.clone());
        tokio::spawn(until_cut.run_until_cancelled_owned(serving));
    }
}

async fn serve(shared: Arc<Shared>, stream: TcpStream, acceptor: TlsAcceptor) {
    // Requests and answers are small and alternate, so none should wait for more data.
    let _ = stream.set_nodelay(true);
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let connection = shared.connections_count.fetch_add(1, Ordering::Relaxed);
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { shared.answer(connection, request).await }
    });
    // An error is an intended cut, or the client has closed the connection.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

impl Shared {
    async fn answer(&self, connection: u64, request: http::Request<Incoming>) -> Result<Answer, Cut> {
        let (parts, body) = request.into_parts();
        let request = Request {
            number: self.count.fetch_add(1, Ordering::Relaxed),
            method: parts.method,
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            headers: parts.headers,
            body: body.collect().await.map_err(|_| Cut)?.to_bytes(),
        };
        if connection < self.dead.load(Ordering::Relaxed) {
            // The client closes the connection.
            pending::<()>().await;
        }
        let faults = Arc::clone(&self.faults.read().unwrap_or_else(PoisonError::into_inner));
        match faults.on_request(&request) {
            RequestFault::None => {}
            // The client under test waits, not the test.
            RequestFault::Delay(delay) => tokio::time::sleep_until(Instant::now() + delay).await,
            RequestFault::Refuse { status, retry_after } => return Ok(refusal(status, retry_after)),
            RequestFault::Answer(answer) => return Ok(json_answer(answer)),
            RequestFault::Cut => return Err(Cut),
            RequestFault::CutAll => {
                self.cut();
                return Err(Cut);
            }
        }
        lock(&self.forwarded).push(request.clone());
        let response = self.upstream.send(self.forwarded(&request)).await.map_err(|_| Cut)?;
        if request.is_watch() && response.status().is_success() {
            return Ok(self.watch(request, faults, response));
        }
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
        let response = Response { status: parts.status, body };
        let body = match faults.on_response(&request, &response) {
            ResponseFault::None => response.body,
            ResponseFault::Lose => return Err(Cut),
            ResponseFault::Replace(body) => body,
        };
        Ok(sent_back(parts, Full::new(body).map_err(io::Error::other).boxed()))
    }

    fn forwarded(&self, request: &Request) -> http::Request<Body> {
        let query = if request.query.is_empty() { String::new() } else { format!("?{}", request.query) };
        let mut forwarded = http::Request::new(Body::from(request.body.clone()));
        *forwarded.method_mut() = request.method.clone();
        *forwarded.uri_mut() = format!("{}{query}", request.path).parse().expect("a received path is valid");
        *forwarded.headers_mut() = request.headers.clone();
        if self.in_json {
            forwarded.headers_mut().insert(ACCEPT, JSON);
        }
        for name in [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
            forwarded.headers_mut().remove(name);
        }
        forwarded
    }

    fn watch(&self, request: Request, faults: Arc<dyn Faults>, response: http::Response<Body>) -> Answer {
        let (parts, events) = response.into_parts();
        let (sender_of_test, lines_of_test) = mpsc::unbounded_channel();
        lock(&self.watches).push((request.path.clone(), sender_of_test));
        let (sender, mut lines) = mpsc::channel::<io::Result<Bytes>>(1);
        let pump = Pump { request, faults, in_json: self.in_json, begun: BytesMut::new() };
        tokio::spawn(pump.run(events, lines_of_test, self.held.subscribe(), sender));
        let frames = stream::poll_fn(move |context| {
            lines.poll_recv(context).map(|lines| lines.map(|lines| lines.map(Frame::data)))
        });
        sent_back(parts, BoxBody::new(StreamBody::new(frames)))
    }
}

/// Sends the events of a watch back, in JSON as whole lines, and lines of the test between them.
struct Pump {
    request: Request,
    faults: Arc<dyn Faults>,
    in_json: bool,
    /// The beginning of a line whose end has not arrived.
    begun: BytesMut,
}

impl Pump {
    async fn run(
        mut self,
        mut events: Body,
        mut lines_of_test: mpsc::UnboundedReceiver<Bytes>,
        mut held: watch::Receiver<Held>,
        to: mpsc::Sender<io::Result<Bytes>>,
    ) {
        loop {
            let lines = tokio::select! {
                () = to.closed() => return,
                Some(line) = lines_of_test.recv() => Ok(line),
                frame = events.frame() => match frame.map(|frame| frame.map(Frame::into_data)) {
                    None => return,
                    Some(Ok(Ok(data))) => Ok(if self.in_json { self.lines(&data) } else { data }),
                    // Trailers.
                    Some(Ok(Err(_))) => continue,
                    Some(Err(error)) => Err(io::Error::other(error)),
                },
            };
            let is_end = lines.is_err();
            // After an error the proxy has ended.
            let has_ended = tokio::select! {
                () = to.closed() => return,
                flows = held.wait_for(|held| !held.holds(&self.request)) => flows.is_err(),
            };
            if has_ended || to.send(lines).await.is_err() || is_end {
                return;
            }
        }
    }

    /// The lines that end in this data, after the faults.
    fn lines(&mut self, data: &[u8]) -> Bytes {
        self.begun.extend_from_slice(data);
        let whole = self.begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let whole = self.begun.split_to(whole).freeze();
        let lines = whole.split_inclusive(|byte| *byte == b'\n').map(|line| whole.slice_ref(line));
        lines.flat_map(|line| self.faults.on_event(&self.request, line)).collect()
    }
}

fn sent_back(mut parts: http::response::Parts, body: BoxBody<Bytes, io::Error>) -> Answer {
    for name in [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
        parts.headers.remove(name);
    }
    http::Response::from_parts(parts, body)
}

fn json_answer(Response { status, body }: Response) -> Answer {
    let mut answer = http::Response::new(Full::new(body).map_err(io::Error::other).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, JSON);
    answer
}

fn refusal(status: StatusCode, retry_after: Option<u32>) -> Answer {
    let reason = match status {
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::GONE => "Expired",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        _ => "InternalError",
    };
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": status.as_u16(), "reason": reason, "message": "made by the test's proxy",
    });
    let mut answer = json_answer(Response { status, body: body.to_string().into() });
    if let Some(seconds) = retry_after {
        answer.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    answer
}
