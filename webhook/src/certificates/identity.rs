//! What a server shows of itself: a certificate, those that vouch for it, and the key.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{Error as TlsError, InconsistentKeys};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::time::ASN1Time;

/// When a certificate is good, by its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// From when on.
    pub not_before: SystemTime,
    /// Until when.
    pub not_after: SystemTime,
}

impl Validity {
    /// Until when, as people read it.
    pub fn end(&self) -> String {
        jiff::Timestamp::try_from(self.not_after).map_or_else(|_| "never".to_owned(), |end| end.to_string())
    }
}

/// A certificate with its key, ready to be shown.
#[derive(Clone)]
pub struct Identity {
    certified: Arc<CertifiedKey>,
    validity: Validity,
}

/// Why a certificate and a key cannot be shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The text has no certificate.
    #[error("holds no certificate in PEM (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    /// What is called a certificate is none.
    #[error("holds a certificate that cannot be read: {0}")]
    Certificate(String),
    /// The text has no key that can be used.
    #[error("holds no private key in PEM that can be used without a password (PKCS#8, PKCS#1 or SEC1)")]
    NoKey,
    /// The key is of a kind that is not supported, or damaged.
    #[error(
        "holds a private key that cannot be used: {0}; RSA of 2048 bits or more, ECDSA P-256 and P-384, and Ed25519 can"
    )]
    Key(String),
    /// The key is that of another certificate.
    #[error("belongs to another certificate")]
    Mismatch,
}

impl IdentityError {
    /// Whether it is the key that is wrong, and not the certificate.
    pub(crate) fn is_of_key(&self) -> bool {
        matches!(self, Self::NoKey | Self::Key(_) | Self::Mismatch)
    }
}

impl Identity {
    /// The certificate with those that vouch for it, leaf first, and its key; both in PEM.
    ///
    /// # Errors
    ///
    /// One of them cannot be read, or they do not belong together.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
        let chain = certificates(chain)?;
        let leaf = chain.first().ok_or(IdentityError::NoCertificate)?;
        let validity = validity(leaf)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| IdentityError::NoKey)?;
        let certified = CertifiedKey::from_der(chain, key, &ring::default_provider());
        let certified = certified.map_err(|error| match error {
            TlsError::InconsistentKeys(InconsistentKeys::KeyMismatch) => IdentityError::Mismatch,
            TlsError::InvalidCertificate(_) => IdentityError::Certificate(error.to_string()),
            _ => IdentityError::Key(error.to_string()),
        })?;
        Ok(Self { certified: Arc::new(certified), validity })
    }

    /// When it is good.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// The certificates, leaf first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.certified.cert
    }

    /// As rustls takes it.
    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.certified)
    }
}

/// The same certificates; their key is then the same too.
impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.chain() == other.chain()
    }
}

impl Eq for Identity {}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("validity", &self.validity).finish_non_exhaustive()
    }
}

/// The certificates of a PEM text; what else is in it is passed over.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| IdentityError::Certificate(error.to_string()))?;
    if certificates.is_empty() { Err(IdentityError::NoCertificate) } else { Ok(certificates) }
}

/// A certificate's fields.
pub(crate) fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, IdentityError> {
    match X509Certificate::from_der(certificate) {
        Ok((_, parsed)) => Ok(parsed),
        Err(error) => Err(IdentityError::Certificate(error.to_string())),
    }
}

/// When a certificate is good.
pub(crate) fn validity(certificate: &CertificateDer<'_>) -> Result<Validity, IdentityError> {
    let parsed = parse(certificate)?;
    let validity = parsed.validity();
    Ok(Validity { not_before: time(validity.not_before), not_after: time(validity.not_after) })
}

/// A time of a certificate; what lies before 1970 is long past either way.
fn time(time: ASN1Time) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or_default())
}
