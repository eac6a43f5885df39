//! Which clients are let in: those with a certificate of a certain authority, and of certain names.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::X509Certificate;

use crate::certificates::{Authorities, parse};

/// Which clients are let in.
#[derive(Clone, Debug)]
pub struct Clients {
    /// Who vouches for them.
    pub authorities: Authorities,
    /// Of whom one must be the common name or a DNS name of the client's certificate; all clients where there
    /// are none.
    pub names: BTreeSet<String>,
}

impl Clients {
    /// As rustls takes them.
    pub(super) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(self.authorities.store(), provider);
        let vouched = verifier.build().expect("there is one authority at least");
        Arc::new(Verifier { vouched, names: self.names.clone() })
    }
}

#[derive(Debug)]
struct Verifier {
    vouched: Arc<dyn ClientCertVerifier>,
    names: BTreeSet<String>,
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.vouched.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.vouched.verify_client_cert(end_entity, intermediates, now)?;
        if self.names.is_empty() {
            return Ok(verified);
        }
        let certificate = parse(end_entity).map_err(|_| CertificateError::BadEncoding)?;
        let names = names(&certificate);
        if names.iter().any(|name| self.names.contains(*name)) {
            return Ok(verified);
        }
        tracing::warn!(?names, "a client with another name is turned away");
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.vouched.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.vouched.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.vouched.supported_verify_schemes()
    }
}

/// The common names of a certificate, and its DNS names.
fn names<'a>(certificate: &'a X509Certificate<'a>) -> Vec<&'a str> {
    let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let alternative = alternative.map_or(&[][..], |names| &names.value.general_names);
    let hosts = alternative.iter().filter_map(|name| match name {
        GeneralName::DNSName(host) => Some(*host),
        _ => None,
    });
    common.chain(hosts).collect()
}
