//! The proxy's certificate.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

/// A certificate for loopback, signed by an authority of its own.
pub(super) struct Identity {
    /// The authority's certificate, as PEM.
    pub(super) authority: String,
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

impl Identity {
    pub(super) fn new() -> Result<Self> {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let certificate =
            CertificateParams::new([Ipv4Addr::LOCALHOST.to_string()])?.signed_by(&key, &authority)?;
        Ok(Self { authority: authority.pem(), certificate: certificate.der().clone(), key })
    }

    pub(super) fn acceptor(&self) -> Result<TlsAcceptor> {
        let key = PrivatePkcs8KeyDer::from(self.key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], key.into())?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}
