//! Whether an authority has signed a certificate, as clients judge it.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{Error, RootCertStore};

/// Why a client that trusts an authority does not accept a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SignatureError(String);

impl From<Error> for SignatureError {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

/// Whether a client that trusts this authority accepts this certificate of a server at a time when it is
/// good.
///
/// # Errors
///
/// It does not.
pub(super) fn check_signature(
    certificate: &CertificateDer<'_>,
    authority: &CertificateDer<'static>,
    at: SystemTime,
) -> Result<(), SignatureError> {
    let mut trusted = RootCertStore::empty();
    trusted.add(authority.clone())?;
    let at = UnixTime::since_unix_epoch(at.duration_since(UNIX_EPOCH).unwrap_or_default());
    let certificate = ParsedCertificate::try_from(certificate)?;
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    Ok(verify_server_cert_signed_by_trust_anchor(&certificate, &trusted, &[], at, algorithms)?)
}
