//! Makes certificates: an authority, and the one certificate that it signs.
//!
//! The authority's key is dropped as soon as it has signed. A reader of the Secret can pose as this server
//! while the certificate lasts, but cannot make certificates. And each renewal is the same procedure: the
//! authority needs none of its own.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use bindery_core::is_dns_label;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// How long before it is made a certificate becomes valid: the clocks of nodes differ by minutes.
pub const SKEW: Duration = Duration::from_secs(3600);
/// The shortest lifetime that leaves time to renew.
pub const LIFETIME_MIN: Duration = Duration::from_secs(30);
/// Longest DNS name (RFC 1035).
const NAME_BYTES_MAX: usize = 253;

/// The names of a server: DNS names and IP addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(BTreeSet<String>);

/// Why a certificate cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    /// It is neither a DNS name nor an IP address.
    #[error("{0:?} is neither the name of a host, such as bindery.kube-system.svc, nor an IP address")]
    Name(String),
    /// The cryptography failed, as without random numbers.
    #[error("no certificate can be made: {0}")]
    Crypto(String),
}

impl From<rcgen::Error> for MintError {
    fn from(error: rcgen::Error) -> Self {
        Self::Crypto(error.to_string())
    }
}

impl Names {
    /// These names.
    ///
    /// # Errors
    ///
    /// One is neither a DNS name nor an IP address.
    pub fn new(names: impl IntoIterator<Item = String>) -> Result<Self, MintError> {
        let mut known = BTreeSet::new();
        for name in names {
            // An address can be written in several ways.
            let name = match name.parse::<IpAddr>() {
                Ok(address) => address.to_string(),
                Err(_) if is_host(&name) => name,
                Err(_) => return Err(MintError::Name(name)),
            };
            known.insert(name);
        }
        Ok(Self(known))
    }

    /// The names of a Service: API servers use `NAME.NAMESPACE.svc`, people the others.
    ///
    /// # Errors
    ///
    /// The names of the Service and its namespace do not form a DNS name.
    pub fn of_service(name: &str, namespace: &str) -> Result<Self, MintError> {
        Self::new([
            format!("{name}.{namespace}.svc"),
            format!("{name}.{namespace}.svc.cluster.local"),
            format!("{name}.{namespace}"),
        ])
    }

    /// The union.
    #[must_use]
    pub fn and(&self, others: &Self) -> Self {
        Self(self.0.union(&others.0).cloned().collect())
    }

    /// Whether all of `others` are among these.
    pub fn contain(&self, others: &Self) -> bool {
        others.0.is_subset(&self.0)
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
    }
}

fn is_host(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX && name.split('.').all(is_dns_label)
}

/// Makes a certificate of these names, valid for `lifetime` from `now`. Returns the certificate, followed by
/// that of its authority, and its key, in PEM.
pub(super) fn mint(
    names: &Names,
    lifetime: Duration,
    now: SystemTime,
) -> Result<(String, String), MintError> {
    let authority_key = KeyPair::generate()?;
    let mut authority = CertificateParams::default();
    let identifier = authority.key_identifier(&authority_key);
    let fingerprint: String = identifier.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    // Clients tell authorities apart by their names.
    authority.distinguished_name.push(DnType::CommonName, format!("bindery-webhook-ca-{fingerprint}"));
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    authority.not_before = (now - SKEW).into();
    authority.not_after = (now + lifetime).into();

    let key = KeyPair::generate()?;
    let mut leaf = CertificateParams::new(names.0.iter().cloned().collect::<Vec<_>>())?;
    leaf.distinguished_name.push(DnType::CommonName, "bindery-webhook");
    leaf.is_ca = IsCa::ExplicitNoCa;
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.use_authority_key_identifier_extension = true;
    leaf.not_before = authority.not_before;
    leaf.not_after = authority.not_after;

    let authority_certificate = authority.self_signed(&authority_key)?;
    let leaf = leaf.signed_by(&key, &Issuer::from_params(&authority, authority_key))?;
    Ok((leaf.pem() + &authority_certificate.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_names_and_addresses_are_names() {
        for name in ["bindery.kube-system.svc", "a", "10.0.0.1", "::1", "a-1.b"] {
            assert!(Names::new([name.to_owned()]).is_ok(), "{name}");
        }
        for name in ["", "a..b", "-a", "a_b", "A", "*.svc", "a/b", "ä", &"a".repeat(64), &"a.".repeat(200)] {
            let error = Names::new([name.to_owned()]).unwrap_err();
            assert_eq!(error, MintError::Name(name.to_owned()));
        }
    }

    #[test]
    fn an_address_written_differently_is_the_same_name() {
        let written = Names::new(["0:0:0:0:0:0:0:1".to_owned()]).unwrap();
        assert_eq!(written, Names::new(["::1".to_owned()]).unwrap());
    }
}
