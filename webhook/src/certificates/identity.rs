//! A certificate with its key, and the authorities that sign certificates.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{Error as TlsError, InconsistentKeys, RootCertStore};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::time::ASN1Time;

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Its begin.
    pub not_before: SystemTime,
    /// Its end.
    pub not_after: SystemTime,
}

impl Validity {
    /// The end as people read it.
    pub fn end(&self) -> String {
        jiff::Timestamp::try_from(self.not_after).map_or_else(|_| "never".to_owned(), |end| end.to_string())
    }
}

/// A certificate with its authorities and its key.
#[derive(Clone)]
pub struct Identity {
    certified: Arc<CertifiedKey>,
    validity: Validity,
}

/// Authorities that sign client certificates: at least one.
#[derive(Clone, Debug)]
pub struct Authorities(Arc<RootCertStore>);

/// Why a certificate, or a certificate and a key, cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// There is no certificate.
    #[error("holds no certificate in PEM (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    /// The certificate cannot be read.
    #[error("holds a certificate that cannot be read: {0}")]
    Certificate(String),
    /// The PEM holds no private key that is usable without a password.
    #[error("holds no private key in PEM that can be used without a password (PKCS#8, PKCS#1 or SEC1)")]
    NoKey,
    /// The key is of a kind that is not supported, or damaged.
    #[error(
        "holds a private key that cannot be used: {0}; RSA of 2048 bits or more, ECDSA P-256 and \
         P-384, and Ed25519 can"
    )]
    Key(String),
    /// The key is that of another certificate.
    #[error("belongs to another certificate")]
    Mismatch,
}

impl IdentityError {
    /// Whether the key is wrong, and not the certificate.
    pub(crate) fn is_of_key(&self) -> bool {
        matches!(self, Self::NoKey | Self::Key(_) | Self::Mismatch)
    }
}

impl Identity {
    /// Reads a certificate, followed by its authorities, and its key, in PEM.
    ///
    /// # Errors
    ///
    /// One cannot be read, or they do not belong together.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
        let chain = certificates(chain)?;
        let leaf = chain.first().ok_or(IdentityError::NoCertificate)?;
        let validity = parse(leaf)?.validity().clone();
        let validity =
            Validity { not_before: time(validity.not_before), not_after: time(validity.not_after) };
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| IdentityError::NoKey)?;
        let certified = CertifiedKey::from_der(chain, key, &ring::default_provider());
        let certified = certified.map_err(|error| match error {
            TlsError::InconsistentKeys(InconsistentKeys::KeyMismatch) => IdentityError::Mismatch,
            TlsError::InvalidCertificate(_) => IdentityError::Certificate(error.to_string()),
            _ => IdentityError::Key(error.to_string()),
        })?;
        Ok(Self { certified: Arc::new(certified), validity })
    }

    /// When the certificate is valid.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// The certificates, leaf first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.certified.cert
    }

    /// The form that rustls takes.
    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.certified)
    }
}

impl Authorities {
    /// Reads the certificates of authorities, in PEM.
    ///
    /// # Errors
    ///
    /// There is none, or one cannot be read.
    pub fn from_pem(pem: &[u8]) -> Result<Self, IdentityError> {
        let mut store = RootCertStore::empty();
        for authority in certificates(pem)? {
            store.add(authority).map_err(|error| IdentityError::Certificate(error.to_string()))?;
        }
        Ok(Self(Arc::new(store)))
    }

    /// The form that rustls takes.
    pub(crate) fn store(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.0)
    }
}

/// Equal certificates have equal keys.
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

/// The certificates of a PEM text; anything else in it is ignored.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| IdentityError::Certificate(error.to_string()))?;
    if certificates.is_empty() { Err(IdentityError::NoCertificate) } else { Ok(certificates) }
}

/// The fields of a certificate.
pub(crate) fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, IdentityError> {
    match X509Certificate::from_der(certificate) {
        Ok((_, parsed)) => Ok(parsed),
        Err(error) => Err(IdentityError::Certificate(error.to_string())),
    }
}

/// Whether clients that trust this authority accept this server certificate at that time.
pub(super) fn check_signature(
    certificate: &CertificateDer<'_>,
    authority: &CertificateDer<'static>,
    at: SystemTime,
) -> Result<(), TlsError> {
    let mut trusted = RootCertStore::empty();
    trusted.add(authority.clone())?;
    let at = UnixTime::since_unix_epoch(at.duration_since(UNIX_EPOCH).unwrap_or_default());
    let certificate = ParsedCertificate::try_from(certificate)?;
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(&certificate, &trusted, &[], at, algorithms)
}

/// A time of a certificate; all times before 1970 are long past.
fn time(time: ASN1Time) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or_default())
}
