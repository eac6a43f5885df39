//! One connection to the door, as an API server keeps it to a webhook behind a Service: TLS 1.3, HTTP/1.1,
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

use super::door::Door;
use super::reviews::Review;

/// Where reviews are asked for, with the timeout that an API server tells.
const PATH: &str = "/validate?timeout=3s";
/// A path that there is not: TLS and HTTP and nothing else.
const NOWHERE: &str = "/nowhere?timeout=3s";

/// Where a door is and how to speak to it.
#[derive(Clone)]
pub(crate) struct Target {
    address: SocketAddr,
    config: Arc<ClientConfig>,
    /// Whether it is asked for something that it does not have.
    is_nowhere: bool,
}

/// A connection, with the runtime that it needs.
pub(crate) struct Caller {
    runtime: Runtime,
    sender: SendRequest<Full<Bytes>>,
    target: Target,
}

impl Target {
    /// Reviews of this door.
    pub(crate) fn of(door: &Door) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(&door.authorities) {
            roots.add(authority.context("the door's authority is no certificate")?)?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions()?.with_root_certificates(roots);
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, door.port));
        Ok(Self { address, config: Arc::new(config), is_nowhere: false })
    }

    /// The same door, asked for something that it does not have: what TLS and HTTP cost without a review.
    pub(crate) fn nowhere(&self) -> Self {
        Self { is_nowhere: true, ..self.clone() }
    }

    /// Opens so many connections.
    pub(crate) fn call(&self, connections: usize) -> Result<Vec<Caller>> {
        (0..connections).map(|_| Caller::new(self.clone())).collect()
    }
}

impl Caller {
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

    /// Asks for a review and holds the answer against what it should be.
    ///
    /// # Errors
    ///
    /// None came, or another one.
    pub(crate) fn ask(&mut self, review: &Review) -> Result<()> {
        let Self { runtime, sender, target } = self;
        let path = if target.is_nowhere { NOWHERE } else { PATH };
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
        let is_right = if target.is_nowhere {
            status == StatusCode::NOT_FOUND
        } else {
            status == StatusCode::OK && is_answer(&answer, review.shape.passes())
        };
        ensure!(is_right, "{:?}: {status}: {}", review.shape, String::from_utf8_lossy(&answer));
        Ok(())
    }
}

/// Whether that is the answer to a review: passed or denied as it should be, and without a warning, by which
/// a door also says that it has not looked.
fn is_answer(answer: &[u8], passes: bool) -> bool {
    let has = |text: &str| answer.windows(text.len()).any(|window| window == text.as_bytes());
    has(if passes { "\"allowed\":true" } else { "\"allowed\":false" }) && !has("\"warnings\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_with_a_warning_is_none() {
        assert!(is_answer(br#"{"response":{"uid":"u","allowed":true}}"#, true));
        assert!(!is_answer(br#"{"response":{"uid":"u","allowed":true}}"#, false));
        assert!(is_answer(br#"{"response":{"uid":"u","allowed":false,"status":{}}}"#, false));
        assert!(!is_answer(br#"{"response":{"uid":"u","allowed":true,"warnings":["not checked"]}}"#, true));
    }
}
