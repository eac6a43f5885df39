//! The proxy's certificate.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::Result;
use bindery_kit::Authority;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// An acceptor with a certificate for loopback.
pub(super) fn acceptor(authority: &Authority) -> Result<TlsAcceptor> {
    let (certificate, key) = authority.server(&Ipv4Addr::LOCALHOST.to_string());
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivateKeyDer::from_pem_slice(key.as_bytes())?)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
