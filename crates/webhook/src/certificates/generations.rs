//! Generations of certificates, and when each is made, trusted, shown and forgotten.
//!
//! A generation is a certificate, its key, and an authority that vouches for nothing else. It is made when a third of the
//! lifetime of the one before is left. From then on both authorities are trusted; the certificate is shown only once
//! that has been so for a while ([`Generations::showing`]), because API servers learn of it one after the other. The
//! authority before stays trusted until it expires: replicas change over at different moments.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;

use super::identity::{Identity, IdentityError, certificates, parse, validity};
use super::mint::{MintError, Minted, Names, SKEW, mint};

/// Longest time for which a new authority is trusted before what it vouches for is shown. API servers see a changed
/// webhook configuration within a second; one that is cut off from etcd for longer than this admits nothing anyway.
pub const SETTLE_MAX: Duration = Duration::from_secs(300);
/// The same, in parts of the lifetime, where that is short.
const SETTLE_PARTS: u32 = 10;
/// A new generation is made when this part of the lifetime is left.
const RENEW_PARTS: u32 = 3;
/// The certificate before is not shown in this last part of its lifetime, or in the last hour: a clock that lags behind
/// would show what has expired.
const MARGIN_PARTS: u32 = 6;
/// Most authorities that are trusted at the same time; two are usual. More than that come from somebody who deletes the
/// Secret again and again.
const AUTHORITIES_MAX: usize = 8;

/// The keys of the Secret: the newest generation, by the names that Kubernetes and cert-manager use.
const CHAIN: &str = "tls.crt";
const KEY: &str = "tls.key";
/// The authorities that are to be trusted.
const AUTHORITIES: &str = "ca.crt";
/// The generation before.
const PREVIOUS_CHAIN: &str = "previous.crt";
const PREVIOUS_KEY: &str = "previous.key";

/// What certificates are to be.
#[derive(Clone, Debug)]
pub struct CertificateSettings {
    /// The names of the server.
    pub names: Names,
    /// How long a certificate lasts: [`LIFETIME_MIN`](super::LIFETIME_MIN) at least.
    pub lifetime: Duration,
}

/// What a Secret holds, by key.
pub type Data = BTreeMap<String, Vec<u8>>;

/// The generations that are kept: the newest, and the one that it replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generations {
    newest: Generation,
    previous: Option<Generation>,
    /// In PEM, the newest last.
    authorities: Vec<u8>,
}

/// One certificate, and who vouches for it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Generation {
    identity: Identity,
    names: Names,
    authority: CertificateDer<'static>,
    /// As they are kept.
    chain: Vec<u8>,
    key: Vec<u8>,
}

/// Why what is kept cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// There is nothing under that key.
    #[error("has no {0}")]
    Missing(&'static str),
    /// What is there makes no sense.
    #[error("{key} {why}")]
    Nonsense {
        /// The key.
        key: &'static str,
        /// What is wrong.
        why: IdentityError,
    },
    /// The certificate does not say who vouches for it.
    #[error("{0} holds no certificate of an authority after the first")]
    NoAuthority(&'static str),
}

impl Generations {
    /// Reads what is kept. A previous generation that makes no sense is as good as none.
    ///
    /// # Errors
    ///
    /// The newest generation, or the authorities, make no sense.
    pub fn read(data: &Data) -> Result<Self, Broken> {
        let newest = Generation::read(data, CHAIN, KEY)?;
        let previous = Generation::read(data, PREVIOUS_CHAIN, PREVIOUS_KEY).ok();
        let authorities = data.get(AUTHORITIES).ok_or(Broken::Missing(AUTHORITIES))?.clone();
        let nonsense = |why| Broken::Nonsense { key: AUTHORITIES, why };
        let trusted = certificates(&authorities).map_err(nonsense)?;
        if !trusted.contains(&newest.authority) {
            let why = IdentityError::Certificate(format!("the authority of {CHAIN} is not among them"));
            return Err(nonsense(why));
        }
        Ok(Self { newest, previous, authorities })
    }

    /// What is to be kept.
    pub fn data(&self) -> Data {
        let mut data = Data::from([
            (CHAIN.to_owned(), self.newest.chain.clone()),
            (KEY.to_owned(), self.newest.key.clone()),
            (AUTHORITIES.to_owned(), self.authorities.clone()),
        ]);
        if let Some(previous) = &self.previous {
            data.insert(PREVIOUS_CHAIN.to_owned(), previous.chain.clone());
            data.insert(PREVIOUS_KEY.to_owned(), previous.key.clone());
        }
        data
    }

    /// What is to be kept in the place of what is, at this time; `None` where all is well. `trusted_for` is as for
    /// [`Generations::showing`], of what is kept or else known.
    ///
    /// Where nothing is kept that could be used, `known` is what this replica still shows: the Secret was deleted or
    /// spoilt, and who trusts what is shown goes on doing so. Where names are missing they are added to those that are
    /// there: while replicas with other settings take over from each other, neither takes away what the other needs.
    ///
    /// # Errors
    ///
    /// A new generation cannot be made.
    pub fn due(
        kept: Option<&Self>,
        known: Option<&Self>,
        trusted_for: Option<Duration>,
        settings: &CertificateSettings,
        now: SystemTime,
    ) -> Result<Option<Self>, MintError> {
        let CertificateSettings { names, lifetime } = settings;
        let names = match kept {
            None => names.clone(),
            Some(kept) if kept.renew_at() <= now => names.clone(),
            Some(kept) if !kept.newest.names.contain(names) => kept.newest.names.and(names),
            Some(_) => return Ok(None),
        };
        let minted = mint(&names, *lifetime, now)?;
        let Some(before) = kept.or(known) else { return Self::of(minted, Vec::new(), None).map(Some) };
        // What is shown until the new one is trusted: which need not be the newest, where that is new itself. But what ends
        // before the new one can be trusted, or has been replaced long ago, is not what others show.
        let is_old = before.renew_at() <= now && trusted_for.is_some();
        let ends_soon = before.previous_ends().is_some_and(|end| end <= now + before.settle());
        let shown = if is_old || ends_soon { &before.newest } else { before.shown(trusted_for, now) };
        let previous = (now < shown.expires()).then(|| shown.clone());
        let authorities = before.authorities_at(now, &shown.authority);
        Self::of(minted, authorities, previous).map(Some)
    }

    fn of(minted: Minted, mut authorities: Vec<u8>, previous: Option<Generation>) -> Result<Self, MintError> {
        let Minted { chain, key, authority } = minted;
        authorities.extend(authority.into_bytes());
        let newest = Generation::new(chain.into_bytes(), key.into_bytes(), CHAIN);
        let newest = newest.map_err(|broken| MintError::Crypto(broken.to_string()))?;
        Ok(Self { newest, previous, authorities })
    }

    /// The authorities that have not expired by any clock, in PEM. Where they are too many for one more, those go that
    /// have been there for longest, but never the one that vouches for what is `shown`.
    fn authorities_at(&self, now: SystemTime, shown: &CertificateDer<'_>) -> Vec<u8> {
        let text = String::from_utf8_lossy(&self.authorities);
        let parsed = blocks(&text).filter_map(|pem| Some((pem, certificates(pem.as_bytes()).ok()?.pop()?)));
        let good = parsed.filter(|(_, authority)| {
            validity(authority).is_ok_and(|validity| now < validity.not_after + SKEW)
        });
        let good: Vec<_> = good.collect();
        let mut surplus = (good.len() + 1).saturating_sub(AUTHORITIES_MAX);
        let kept = good.into_iter().filter(|(_, authority)| {
            let goes = surplus > 0 && authority != shown;
            surplus -= usize::from(goes);
            !goes
        });
        kept.map(|(pem, _)| pem).collect::<String>().into_bytes()
    }

    /// When the next generation is to be made.
    pub fn renew_at(&self) -> SystemTime {
        self.newest.expires() - self.newest.lifetime() / RENEW_PARTS
    }

    /// When the certificate before is shown no more, whatever clients trust; `None` where there is none.
    pub fn previous_ends(&self) -> Option<SystemTime> {
        let previous = self.previous.as_ref()?;
        Some(previous.expires() - SKEW.min(previous.lifetime() / MARGIN_PARTS))
    }

    /// For how long the newest authority is trusted before its certificate is shown.
    pub fn settle(&self) -> Duration {
        SETTLE_MAX.min(self.newest.lifetime() / SETTLE_PARTS)
    }

    /// The certificate that is to be shown to clients which, as far as this replica has seen, have trusted the newest
    /// authority for `trusted_for`; `None` where they have not.
    pub fn showing(&self, trusted_for: Option<Duration>, now: SystemTime) -> &Identity {
        &self.shown(trusted_for, now).identity
    }

    fn shown(&self, trusted_for: Option<Duration>, now: SystemTime) -> &Generation {
        let is_settled = trusted_for.is_some_and(|trusted_for| trusted_for >= self.settle());
        match &self.previous {
            Some(previous) if !is_settled && self.previous_ends().is_some_and(|end| now < end) => previous,
            // Also where nobody trusts it: nobody will trust anything else for long.
            _ => &self.newest,
        }
    }

    /// The authorities that are to be trusted, in PEM.
    pub fn authorities(&self) -> &[u8] {
        &self.authorities
    }

    /// The newest authority.
    pub(crate) fn newest_authority(&self) -> &CertificateDer<'static> {
        &self.newest.authority
    }

    /// Whether who trusts these authorities, in PEM, trusts the newest one.
    pub fn is_trusted_by(&self, bundle: &[u8]) -> bool {
        certificates(bundle).is_ok_and(|trusted| trusted.contains(&self.newest.authority))
    }
}

impl Generation {
    fn read(data: &Data, chain: &'static str, key: &'static str) -> Result<Self, Broken> {
        let value = |name| data.get(name).cloned().ok_or(Broken::Missing(name));
        let generation = Self::new(value(chain)?, value(key)?, chain);
        generation.map_err(|broken| match broken {
            Broken::Nonsense { why, .. } if why.is_of_key() => Broken::Nonsense { key, why },
            broken => broken,
        })
    }

    /// The generation of this chain and key; `name` is what errors call the chain.
    fn new(chain: Vec<u8>, key: Vec<u8>, name: &'static str) -> Result<Self, Broken> {
        let nonsense = |why| Broken::Nonsense { key: name, why };
        let identity = Identity::from_pem(&chain, &key).map_err(nonsense)?;
        let [leaf, authority] = identity.chain() else { return Err(Broken::NoAuthority(name)) };
        let (names, authority) = (names(leaf).map_err(nonsense)?, authority.clone());
        Ok(Self { identity, names, authority, chain, key })
    }

    fn expires(&self) -> SystemTime {
        self.identity.validity().not_after
    }

    /// From when it was made.
    fn lifetime(&self) -> Duration {
        let validity = self.identity.validity();
        validity.not_after.duration_since(validity.not_before + SKEW).unwrap_or_default()
    }
}

/// The names of a certificate.
fn names(certificate: &CertificateDer<'_>) -> Result<Names, IdentityError> {
    let parsed = parse(certificate)?;
    let extension = parsed.subject_alternative_name();
    let extension = extension.map_err(|error| IdentityError::Certificate(error.to_string()))?;
    let names = extension.iter().flat_map(|extension| &extension.value.general_names);
    let names = names.filter_map(|name| match name {
        GeneralName::DNSName(host) => Some((*host).to_owned()),
        GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
        _ => None,
    });
    Names::new(names).map_err(|error| IdentityError::Certificate(error.to_string()))
}

fn address(bytes: &[u8]) -> Option<std::net::IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(Into::into);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(Into::into)).ok()
}

/// The blocks of a PEM text, each with its first and last line.
fn blocks(pem: &str) -> impl Iterator<Item = &str> {
    pem.split_inclusive("-----END CERTIFICATE-----\n")
        .filter(|block| block.contains("-----BEGIN CERTIFICATE-----"))
}
