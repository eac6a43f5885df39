//! Generations of certificates, and when each is made, trusted, shown and forgotten.
//!
//! A generation is a certificate, its key, and an authority that vouches for nothing else. It is made when a third of the
//! lifetime of the one before is left, or when what is kept is lost. All are kept until they have expired, and the
//! authorities of all that are kept are trusted. So an authority that is trusted stays so, and an older one has been
//! trusted for longer.
//!
//! API servers learn one after the other whom to trust, and none may be shown a certificate before it has. So a replica
//! shows the newest generation whose authority it has seen trusted for a while. Where there is none, because it has just
//! started or somebody took the trust away, it shows the oldest one that is good: nothing is trusted for longer. It asks
//! nobody since when that is, and nobody's clock but its own.

use std::collections::BTreeMap;
use std::iter;
use std::time::{Duration, SystemTime};

use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;

use super::identity::{Identity, IdentityError, certificates, parse};
use super::mint::{MintError, Minted, Names, SKEW, mint};

/// Longest time for which a new authority is trusted before what it vouches for is shown. API servers see a changed
/// webhook configuration within a second; one that is cut off from etcd for longer than this admits nothing anyway.
pub const SETTLE_MAX: Duration = Duration::from_secs(300);
/// The same, in parts of the lifetime, where that is short.
const SETTLE_PARTS: u32 = 10;
/// A new generation is made when this part of the lifetime is left.
const RENEW_PARTS: u32 = 3;
/// A certificate is not shown in this last part of its lifetime, or in the last hour, where there is another: a clock
/// that lags behind would show what has expired. By then the next one has been trusted for longer than it takes: for the
/// time between a third and this part of the lifetime.
const MARGIN_PARTS: u32 = 6;

/// The keys of the Secret: the chain and the key of each generation, the newest first, which has the names that
/// Kubernetes and cert-manager use. No more are kept; two are usual, and more than these come from somebody who deletes
/// the Secret again and again.
const KEYS: [(&str, &str); 8] = [
    ("tls.crt", "tls.key"),
    ("earlier-1.crt", "earlier-1.key"),
    ("earlier-2.crt", "earlier-2.key"),
    ("earlier-3.crt", "earlier-3.key"),
    ("earlier-4.crt", "earlier-4.key"),
    ("earlier-5.crt", "earlier-5.key"),
    ("earlier-6.crt", "earlier-6.key"),
    ("earlier-7.crt", "earlier-7.key"),
];
/// The authorities of all of them, which are to be trusted.
const AUTHORITIES: &str = "ca.crt";

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

/// The generations that are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generations {
    newest: Generation,
    /// Those before it that have not expired, the newest first.
    earlier: Vec<Generation>,
}

/// One certificate, and who vouches for it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Generation {
    identity: Identity,
    names: Names,
    authority: CertificateDer<'static>,
    /// As they are kept, in PEM; the authority is the last of the chain.
    chain: String,
    key: String,
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
    /// Reads what is kept. An earlier generation that makes no sense is as good as none.
    ///
    /// # Errors
    ///
    /// The newest generation, or the authorities, make no sense.
    pub fn read(data: &Data) -> Result<Self, Broken> {
        let [newest, earlier @ ..] = KEYS;
        let newest = Generation::read(data, newest)?;
        let earlier = earlier.into_iter().filter_map(|keys| Generation::read(data, keys).ok()).collect();
        let authorities = data.get(AUTHORITIES).ok_or(Broken::Missing(AUTHORITIES))?;
        let nonsense = |why| Broken::Nonsense { key: AUTHORITIES, why };
        if !certificates(authorities).map_err(nonsense)?.contains(&newest.authority) {
            let why = format!("the authority of {} is not among them", KEYS[0].0);
            return Err(nonsense(IdentityError::Certificate(why)));
        }
        Ok(Self { newest, earlier })
    }

    /// What is to be kept.
    pub fn data(&self) -> Data {
        let mut data = Data::from([(AUTHORITIES.to_owned(), self.authorities())]);
        for (generation, (chain, key)) in self.all().zip(KEYS) {
            data.insert(chain.to_owned(), generation.chain.clone().into_bytes());
            data.insert(key.to_owned(), generation.key.clone().into_bytes());
        }
        data
    }

    /// What is to be kept in the place of what is, at this time; `None` where all is well.
    ///
    /// Where nothing is kept that could be used, `known` is what this replica has last seen kept: the Secret was deleted
    /// or spoilt, and who trusts what is shown goes on doing so. Where names are missing they are added to those that are
    /// there: while replicas with other settings take over from each other, neither takes away what the other needs.
    ///
    /// # Errors
    ///
    /// A new generation cannot be made.
    pub fn due(
        kept: Option<&Self>,
        known: Option<&Self>,
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
        let newest = Generation::mint(&names, *lifetime, now)?;
        let earlier = kept.or(known).map(|before| before.beside_another(now));
        Ok(Some(Self { newest, earlier: earlier.unwrap_or_default() }))
    }

    /// A certificate that is not kept.
    ///
    /// # Errors
    ///
    /// It cannot be made.
    pub fn unkept(settings: &CertificateSettings, now: SystemTime) -> Result<Identity, MintError> {
        Ok(Generation::mint(&settings.names, settings.lifetime, now)?.identity)
    }

    /// Those that have not expired by any clock, the newest first. Where they are too many for one more, the second oldest
    /// goes: the oldest is what replicas show that have seen nothing trusted for long, and the newest what all others do.
    fn beside_another(&self, now: SystemTime) -> Vec<Generation> {
        let good = self.all().filter(|generation| now < generation.expires() + SKEW);
        let mut good: Vec<_> = good.cloned().collect();
        if good.len() == KEYS.len() {
            good.remove(KEYS.len() - 2);
        }
        good
    }

    /// All, the newest first.
    fn all(&self) -> impl DoubleEndedIterator<Item = &Generation> + Clone {
        iter::once(&self.newest).chain(&self.earlier)
    }

    /// When the next generation is to be made.
    pub fn renew_at(&self) -> SystemTime {
        self.newest.expires() - self.newest.lifetime() / RENEW_PARTS
    }

    /// The certificate that is to be shown. `trusted_for` tells for how long this replica has seen clients trust an
    /// authority; `None` where it has not.
    pub fn showing(
        &self,
        trusted_for: impl Fn(&CertificateDer<'static>) -> Option<Duration>,
        now: SystemTime,
    ) -> &Identity {
        let mut good = self.all().filter(|generation| now < generation.shown_until());
        let is_settled = |generation: &&Generation| {
            trusted_for(&generation.authority).is_some_and(|time| time >= generation.settle())
        };
        let shown = good.clone().find(is_settled).or_else(|| good.next_back());
        // Also where nobody trusts it: nobody will trust anything else for long.
        &shown.unwrap_or(&self.newest).identity
    }

    /// How long it takes until time alone changes something: which is shown, or that the next is to be made.
    /// `trusted_for` is as for [`Generations::showing`].
    pub fn until_next(
        &self,
        trusted_for: impl Fn(&CertificateDer<'static>) -> Option<Duration>,
        now: SystemTime,
    ) -> Duration {
        let until = |time: SystemTime| time.duration_since(now).unwrap_or_default();
        let settled = self
            .all()
            .filter_map(|generation| generation.settle().checked_sub(trusted_for(&generation.authority)?));
        let ended = self.all().map(|generation| until(generation.shown_until()));
        let ahead = settled.chain(ended).filter(|wait| !wait.is_zero());
        ahead.fold(until(self.renew_at()), Duration::min)
    }

    /// The authorities that are to be trusted, in PEM.
    pub fn authorities(&self) -> Vec<u8> {
        self.all().map(Generation::authority_pem).collect::<String>().into_bytes()
    }

    /// The same, one by one.
    pub(crate) fn each_authority(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        self.all().map(|generation| &generation.authority)
    }
}

impl Generation {
    fn read(data: &Data, (chain, key): (&'static str, &'static str)) -> Result<Self, Broken> {
        let value = |name| match data.get(name) {
            Some(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
            None => Err(Broken::Missing(name)),
        };
        let generation = Self::new(value(chain)?, value(key)?, chain);
        generation.map_err(|broken| match broken {
            Broken::Nonsense { why, .. } if why.is_of_key() => Broken::Nonsense { key, why },
            broken => broken,
        })
    }

    fn mint(names: &Names, lifetime: Duration, now: SystemTime) -> Result<Self, MintError> {
        let Minted { chain, key } = mint(names, lifetime, now)?;
        let (name, _) = KEYS[0];
        Self::new(chain, key, name).map_err(|broken| MintError::Crypto(broken.to_string()))
    }

    /// The generation of this chain and key; `name` is what errors call the chain.
    fn new(chain: String, key: String, name: &'static str) -> Result<Self, Broken> {
        let nonsense = |why| Broken::Nonsense { key: name, why };
        let identity = Identity::from_pem(chain.as_bytes(), key.as_bytes()).map_err(nonsense)?;
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

    /// For how long its authority is trusted before it is shown.
    fn settle(&self) -> Duration {
        SETTLE_MAX.min(self.lifetime() / SETTLE_PARTS)
    }

    /// Until when it is shown, where there is another.
    fn shown_until(&self) -> SystemTime {
        self.expires() - SKEW.min(self.lifetime() / MARGIN_PARTS)
    }

    fn authority_pem(&self) -> &str {
        let at = self.chain.rfind("-----BEGIN CERTIFICATE-----");
        &self.chain[at.unwrap_or_default()..]
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
