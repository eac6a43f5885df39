//! Connections to the webhook, like those of an API server to a webhook behind a Service: TLS 1.3, HTTP/1.1,
//! kept alive.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::reviews::Review;
use super::webhook::Webhook;

/// The path of reviews, with the timeout that an API server sends.
const REVIEWS: &str = "/validate?timeout=3s";
/// An unknown path, which costs TLS and HTTP only.
const UNKNOWN: &str = "/unknown?timeout=3s";

/// The address of the webhook, and the requested path.
#[derive(Clone)]
pub(crate) struct Target {
    address: SocketAddr,
    config: Arc<ClientConfig>,
    /// Whether requests are for an unknown path instead of reviews.
    is_unknown: bool,
}

pub(crate) struct Connection {
    runtime: Runtime,
    sender: SendRequest<Full<Bytes>>,
    target: Target,
}

impl Target {
    pub(crate) fn of(webhook: &Webhook) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(&webhook.authority) {
            roots.add(authority.context("the webhook's authority is not a certificate")?)?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions()?.with_root_certificates(roots);
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, webhook.port));
        Ok(Self { address, config: Arc::new(config), is_unknown: false })
    }

    /// The same webhook with an unknown path, which measures TLS and HTTP without reviews.
    pub(crate) fn unknown(&self) -> Self {
        Self { is_unknown: true, ..self.clone() }
    }

    pub(crate) fn connect(&self, connections: usize) -> Result<Vec<Connection>> {
        (0..connections).map(|_| Connection::new(self.clone())).collect()
    }
}

impl Connection {
    fn new(target: Target) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let sender = runtime.block_on(async {
            let stream = TcpStream::connect(target.address).await?;
            stream.set_nodelay(true)?;
            let name = ServerName::from(target.address.ip());
            let stream = TlsConnector::from(Arc::clone(&target.config)).connect(name, stream).await?;
            let (sender, connection) = handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            anyhow::Ok(sender)
        })?;
        Ok(Self { runtime, sender, target })
    }

    /// Sends a review and checks the answer.
    pub(crate) fn send(&mut self, review: &Review) -> Result<()> {
        let Self { runtime, sender, target } = self;
        let path = if target.is_unknown { UNKNOWN } else { REVIEWS };
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::HOST, target.address.to_string())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .body(Full::new(review.body.clone()))?;
        let (status, answer) = runtime.block_on(async {
            sender.ready().await?;
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            anyhow::Ok((status, answer.into_body().collect().await?.to_bytes()))
        })?;
        let is_right = if target.is_unknown {
            status == StatusCode::NOT_FOUND
        } else {
            status == StatusCode::OK && is_answer(&answer, review.shape.passes())
        };
        ensure!(is_right, "{:?}: {status}: {}", review.shape, String::from_utf8_lossy(&answer));
        Ok(())
    }
}

/// Whether an answer to a review is correct: passed or denied as expected, and without a warning, which could
/// mean that the webhook did not review.
fn is_answer(answer: &[u8], passes: bool) -> bool {
    let has = |text: &str| answer.windows(text.len()).any(|window| window == text.as_bytes());
    has(if passes { "\"allowed\":true" } else { "\"allowed\":false" }) && !has("\"warnings\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_correct_if_allowed_fits_and_no_warning_is_there() {
        assert!(is_answer(br#"{"response":{"uid":"u","allowed":true}}"#, true));
        assert!(!is_answer(br#"{"response":{"uid":"u","allowed":true}}"#, false));
        assert!(is_answer(br#"{"response":{"uid":"u","allowed":false,"status":{}}}"#, false));
        assert!(!is_answer(br#"{"response":{"uid":"u","allowed":true,"warnings":["not checked"]}}"#, true));
    }
}
