//! One request on one connection, within limits.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

use super::address::{Reach, resolve};
use crate::error::{RegistryError, Result, invalid, too_large};
use crate::limits::{ANSWER_MAX, HEADERS_MAX};
use crate::reference::{is_loopback, without_port};

/// Bytes of a connection's buffer, which the header of an answer must fit.
const BUFFER: usize = 64 << 10;

/// How long a registry may take.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// To find the address and to make a connection.
    pub connect: Duration,
    /// From a request that was sent to the header of its answer, and from one piece of a body to the next.
    pub answer: Duration,
    /// For one request as a whole.
    pub request: Duration,
    /// For all requests of a push, pull, or verification together.
    pub operation: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(15),
            request: Duration::from_secs(120),
            operation: Duration::from_secs(300),
        }
    }
}

/// Makes connections.
#[derive(Clone)]
pub(super) struct Transport {
    tls: TlsConnector,
    pub(super) timeouts: Timeouts,
}

/// A request.
pub(super) struct Outgoing {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// The most bytes of the body of a successful answer.
    pub(super) max: usize,
    /// The nearest address that may be connected to.
    pub(super) floor: Option<Reach>,
}

/// An answer.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// The body. That of an error is cut to the limit.
    pub(super) body: Bytes,
    /// Where it came from.
    pub(super) reach: Reach,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Ends the task of a connection.
struct Connection(AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Transport {
    /// Trusts these authorities, in PEM, or those of the system.
    pub(super) fn new(authorities: Option<&[u8]>, timeouts: Timeouts) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        match authorities {
            Some(pem) => {
                for certificate in CertificateDer::pem_slice_iter(pem) {
                    let added = certificate
                        .map_err(|error| format!("{error:?}"))
                        .and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()));
                    added.or_else(|why| {
                        invalid(format!("the certificate authorities cannot be used: {why}"))
                    })?;
                }
                if roots.is_empty() {
                    return invalid("the certificate authorities have no certificate in PEM");
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if roots.is_empty() {
                    // The image has none.
                    roots.add_parsable_certificates(TLS_SERVER_ROOT_CERTS.iter().cloned());
                }
            }
        }
        let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .or_else(|error| invalid(format!("TLS cannot be used: {error}")))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { tls: TlsConnector::from(Arc::new(config)), timeouts })
    }

    /// Sends a request, and reads its answer by `deadline`.
    pub(super) async fn send(&self, request: Outgoing, deadline: Instant) -> Result<Answer> {
        let host = request.uri.authority().map(ToString::to_string).unwrap_or_default();
        let until = deadline.min(Instant::now() + self.timeouts.request);
        match timeout_at(until, self.exchange(request, &host)).await {
            Ok(answer) => answer,
            Err(_) => Err(RegistryError::Unavailable(format!("{host} did not end its answer in time"))),
        }
    }

    async fn exchange(&self, request: Outgoing, host: &str) -> Result<Answer> {
        let connected = timeout(self.timeouts.connect, self.connect(&request, host)).await;
        let (stream, reach) = connected.unwrap_or_else(|_| {
            Err(RegistryError::Unavailable(format!("{host} cannot be connected to: no answer in time")))
        })?;
        let failed = |error: hyper::Error| {
            RegistryError::Unavailable(format!("{host} gave no answer by HTTP: {error}"))
        };
        let mut builder = http1::Builder::new();
        builder.max_buf_size(BUFFER).max_headers(HEADERS_MAX);
        let (mut sender, connection) =
            builder.handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await.map_err(failed)?;
        let _connection = Connection(tokio::spawn(connection).abort_handle());
        let max = request.max;
        // The answer to an upload comes after its body.
        let is_upload = request.body.len() > ANSWER_MAX;
        let within = if is_upload { self.timeouts.request } else { self.timeouts.answer };
        let answered = timeout(within, sender.send_request(message(request, host)?));
        let answer = answered.await.map_err(|_| late(host))?.map_err(failed)?;
        self.read(answer, host, max, reach).await
    }

    async fn connect(&self, request: &Outgoing, host: &str) -> Result<(Box<dyn Stream>, Reach)> {
        let name = without_port(host);
        let is_plain = request.uri.scheme_str() == Some("http");
        if is_plain && !is_loopback(host) {
            return invalid(format!("{host} would be asked without TLS; only this machine may be"));
        }
        let port = request.uri.port_u16().unwrap_or(if is_plain { 80 } else { 443 });
        let mut why = None;
        for (address, reach) in resolve(name, port, request.floor).await? {
            let stream = match TcpStream::connect(address).await {
                Ok(stream) => stream,
                Err(error) => {
                    why = Some(format!("{host} cannot be connected to: {error}"));
                    continue;
                }
            };
            if is_plain {
                return Ok((Box::new(stream), reach));
            }
            let server = ServerName::try_from(name.to_owned());
            let server = server.or_else(|_| invalid(format!("{name} is no name of a server")))?;
            match self.tls.connect(server, stream).await {
                Ok(stream) => return Ok((Box::new(stream), reach)),
                Err(error) => why = Some(format!("{host} cannot be trusted by TLS: {error}")),
            }
        }
        Err(RegistryError::Unavailable(why.unwrap_or_else(|| format!("{host} has no address"))))
    }

    async fn read(
        &self,
        answer: http::Response<Incoming>,
        host: &str,
        max: usize,
        reach: Reach,
    ) -> Result<Answer> {
        let (head, mut body) = answer.into_parts();
        let encoding = head.headers.get(CONTENT_ENCODING);
        if let Some(encoding) =
            encoding.filter(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
        {
            return invalid(format!(
                "{host} sent an answer encoded as {encoding:?}, which was not asked for"
            ));
        }
        let is_success = head.status.is_success();
        let max = if is_success { max } else { ANSWER_MAX };
        let mut bytes = Vec::new();
        while let Some(frame) = timeout(self.timeouts.answer, body.frame()).await.map_err(|_| late(host))? {
            let frame = frame.map_err(|error| {
                RegistryError::Unavailable(format!("{host} broke its answer off: {error}"))
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > max {
                if is_success {
                    return Err(too_large(&format!("an answer of {host}"), max));
                }
                break;
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Answer { status: head.status, headers: head.headers, body: bytes.into(), reach })
    }
}

fn late(host: &str) -> RegistryError {
    RegistryError::Unavailable(format!("{host} did not answer in time"))
}

/// The request as it is sent: path and query, with the headers that all have.
fn message(request: Outgoing, host: &str) -> Result<http::Request<Full<Bytes>>> {
    let path = request.uri.path_and_query().map_or("/", |path| path.as_str());
    let built = http::Request::builder().method(request.method).uri(path).body(Full::new(request.body));
    let mut message = built.or_else(|error| invalid(format!("a request to {host}: {error}")))?;
    let headers = message.headers_mut();
    *headers = request.headers;
    let value = HeaderValue::from_str(host).or_else(|error| invalid(format!("{host}: {error}")))?;
    headers.insert(HOST, value);
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("bindery/", env!("CARGO_PKG_VERSION"))));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    Ok(message)
}
