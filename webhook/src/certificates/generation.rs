//! One generation: a certificate, its key, and the authority that has signed only this certificate.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;

use super::identity::{Identity, IdentityError, Validity, check_signature, parse};
use super::mint::{MintError, Names, SKEW, mint};

/// How long a new authority is trusted before its certificate is shown. API servers see a changed webhook
/// configuration within a second; one that is cut off from etcd for longer admits nothing anyway.
pub const SETTLE_MAX: Duration = Duration::from_secs(300);
/// The same as a part of a short lifetime.
const SETTLE_PARTS: u32 = 10;
/// A new generation is made when this part of the lifetime is left.
const RENEW_PARTS: u32 = 3;
/// If there is another certificate, one is not shown in this last part of its lifetime, or in the last hour:
/// a replica whose clock lags would show an expired one. The next one has been trusted for long by then. Nor
/// is it shown for as long after its validity begins, an hour before it was made: this concerns only
/// certificates of a replica whose clock is ahead.
const MARGIN_PARTS: u32 = 6;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Generation {
    pub(super) identity: Identity,
    pub(super) names: Names,
    pub(super) authority: CertificateDer<'static>,
    /// The certificate and its authority, in PEM.
    pub(super) chain: String,
    /// The certificate's key, in PEM.
    pub(super) key: String,
}

/// Why stored certificates cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The Secret lacks a key.
    #[error("has no {0}")]
    Missing(&'static str),
    /// A value cannot be read.
    #[error("{key} {why}")]
    Unreadable {
        /// The key in the Secret.
        key: &'static str,
        /// What is wrong.
        why: IdentityError,
    },
    /// The certificate comes without its authority.
    #[error("{0} holds no certificate of an authority after the first")]
    NoAuthority(&'static str),
    /// The certificate comes with another authority.
    #[error("{key} holds a certificate that the authority after it has not signed: {why}")]
    Unsigned {
        /// The key in the Secret.
        key: &'static str,
        /// What is wrong.
        why: String,
    },
}

impl Generation {
    pub(super) fn mint(names: &Names, lifetime: Duration, now: SystemTime) -> Result<Self, MintError> {
        let (chain, key) = mint(names, lifetime, now)?;
        Self::new(chain, key, "tls.crt", "tls.key").map_err(|broken| MintError::Crypto(broken.to_string()))
    }

    /// The generation of this chain and key, which errors call by these names.
    pub(super) fn new(
        chain: String,
        key: String,
        chain_name: &'static str,
        key_name: &'static str,
    ) -> Result<Self, Broken> {
        let unreadable = |why: IdentityError| {
            let key = if why.is_of_key() { key_name } else { chain_name };
            Broken::Unreadable { key, why }
        };
        let identity = Identity::from_pem(chain.as_bytes(), key.as_bytes()).map_err(unreadable)?;
        let [leaf, authority] = identity.chain() else { return Err(Broken::NoAuthority(chain_name)) };
        // A person may have combined a certificate with another authority; clients would refuse it.
        check_signature(leaf, authority, identity.validity().not_before)
            .map_err(|error| Broken::Unsigned { key: chain_name, why: error.to_string() })?;
        let (names, authority) = (names(leaf).map_err(unreadable)?, authority.clone());
        Ok(Self { identity, names, authority, chain, key })
    }

    pub(super) fn expires(&self) -> SystemTime {
        self.identity.validity().not_after
    }

    pub(super) fn has_expired_for_all(&self, now: SystemTime) -> bool {
        now >= self.expires() + SKEW
    }

    /// The lifetime from when it was made.
    fn lifetime(&self) -> Duration {
        let Validity { not_before, not_after } = self.identity.validity();
        not_after.duration_since(not_before + SKEW).unwrap_or_default()
    }

    /// How long its authority is trusted before it is shown.
    pub(super) fn settle(&self) -> Duration {
        SETTLE_MAX.min(self.lifetime() / SETTLE_PARTS)
    }

    /// When the next generation is to be made.
    pub(super) fn renew_at(&self) -> SystemTime {
        self.expires() - self.lifetime() / RENEW_PARTS
    }

    /// Whether another one must replace it: it ends, or it lasts longer than the setting. A longer lifetime
    /// in the settings waits for the next renewal: otherwise replicas of two revisions would undo each
    /// other's work without end.
    pub(super) fn is_old(&self, lifetime: Duration, now: SystemTime) -> bool {
        self.renew_at() <= now || self.lifetime() > lifetime
    }

    pub(super) fn is_valid(&self, now: SystemTime) -> bool {
        let Validity { not_before, not_after } = self.identity.validity();
        (not_before..not_after).contains(&now)
    }

    /// Whether it is valid for clocks that are off by the margin too.
    pub(super) fn is_valid_for_all(&self, now: SystemTime) -> bool {
        let [_, from, until, _] = self.turns();
        (from..until).contains(&now)
    }

    /// The times at which it becomes valid, or expires, by this clock and by all clocks.
    pub(super) fn turns(&self) -> [SystemTime; 4] {
        let Validity { not_before, not_after } = self.identity.validity();
        let margin = SKEW.min(self.lifetime() / MARGIN_PARTS);
        [not_before, not_before + margin, not_after - margin, not_after]
    }

    pub(super) fn authority_pem(&self) -> &str {
        let at = self.chain.rfind("-----BEGIN CERTIFICATE-----");
        &self.chain[at.unwrap_or_default()..]
    }
}

/// The names of a certificate.
fn names(certificate: &CertificateDer<'_>) -> Result<Names, IdentityError> {
    let parsed = parse(certificate)?;
    let unreadable = |error: &dyn std::error::Error| IdentityError::Certificate(error.to_string());
    let extension = parsed.subject_alternative_name().map_err(|error| unreadable(&error))?;
    let names = extension.iter().flat_map(|extension| &extension.value.general_names);
    let names = names.filter_map(|name| match name {
        GeneralName::DNSName(host) => Some((*host).to_owned()),
        GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
        _ => None,
    });
    Names::new(names).map_err(|error| unreadable(&error))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}
