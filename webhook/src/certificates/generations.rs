//! Generations of certificates, and when each is made, trusted, shown and forgotten.
//!
//! A generation is a certificate, its key, and an authority that vouches for nothing else. It is made when a
//! third of the lifetime of the one before is left, or when what is kept is lost. All are kept until they
//! have expired, and the authorities of all that are kept are trusted. So an authority that is trusted stays
//! so, and an older one has been trusted for longer.
//!
//! API servers learn one after the other whom to trust, and none may be shown a certificate before it has. So
//! a replica shows the newest generation whose authority it has seen trusted for a while. Where there is
//! none, because it has just started or somebody took the trust away, it shows the oldest one that is good:
//! nothing is trusted for longer. It asks nobody since when that is, and nobody's clock but its own.
//!
//! A clock that is wrong by more than an hour misleads its own replica only. What that one has made, and what
//! is not good yet or any more by the clock of another, the other does not show, and makes one that is good;
//! and what has expired by one clock is not forgotten for that. None of them can tell whose clock is wrong,
//! so each leaves alone what others have made.

use std::collections::BTreeMap;
use std::iter;
use std::time::{Duration, SystemTime};

use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;

use super::identity::{Identity, IdentityError, Validity, certificates, parse};
use super::mint::{MintError, Minted, Names, SKEW, mint};
use super::signature::{SignatureError, check_signature};

/// Longest time for which a new authority is trusted before what it vouches for is shown. API servers see a
/// changed webhook configuration within a second; one that is cut off from etcd for longer than this admits
/// nothing anyway.
pub const SETTLE_MAX: Duration = Duration::from_secs(300);
/// The same, in parts of the lifetime, where that is short.
const SETTLE_PARTS: u32 = 10;
/// A new generation is made when this part of the lifetime is left.
const RENEW_PARTS: u32 = 3;
/// A certificate is not shown in this last part of its lifetime, or in the last hour, where there is another:
/// a clock that lags behind would show what has expired. By then the next one has been trusted for longer
/// than it takes: for the time between a third and this part of the lifetime. Nor is it shown for as long
/// after it has begun to be good, which was an hour before it was made: only who takes it from a replica
/// whose clock goes ahead has to wait for that.
const MARGIN_PARTS: u32 = 6;
/// How many of those that have expired are kept. Where it is this replica's clock that has gone far ahead,
/// they are what others show: the newest of them, or the one before it where that has just been made.
const EXPIRED_MAX: usize = 2;

/// The keys of the Secret: the chain and the key of each generation, the newest first, which has the names
/// that Kubernetes and cert-manager use. No more are kept; two are usual, and more than these come from
/// somebody who deletes the Secret again and again.
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
    /// Those before it, the newest first.
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
    /// Somebody else vouches for it than it says.
    #[error("{key} holds a certificate that the authority after it has not signed: {why}")]
    Unsigned {
        /// The key.
        key: &'static str,
        /// What is wrong.
        why: SignatureError,
    },
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
    /// Where nothing is kept that could be used, `known` is what this replica has last seen kept: the Secret
    /// was deleted or spoilt, and who trusts what is shown goes on doing so. Where names are missing they are
    /// added to those that are there: while replicas with other settings take over from each other, neither
    /// takes away what the other needs.
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
        let names = match kept.map(|kept| kept.current(now)) {
            Some(Some(current)) if !current.is_old(*lifetime, now) => {
                if current.names.contain(names) {
                    return Ok(None);
                }
                current.names.and(names)
            }
            // Nothing is kept, or nothing that is good by this clock, or it ends.
            _ => names.clone(),
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

    /// What is kept beside a new one, the newest first: those that have not expired, and the newest of those
    /// that have. Where these are too many for one more, the second oldest of the good goes: the oldest is
    /// what replicas show that have seen nothing trusted for long, and the newest what all others do.
    fn beside_another(&self, now: SystemTime) -> Vec<Generation> {
        let has_expired = |generation: &Generation| now >= generation.expires() + SKEW;
        let (mut kept, mut expired) = (Vec::new(), 0);
        for generation in self.all() {
            expired += usize::from(has_expired(generation));
            if !has_expired(generation) || expired <= EXPIRED_MAX {
                kept.push(generation.clone());
            }
        }
        if kept.len() == KEYS.len() {
            let mut good = kept.iter().enumerate().rev().filter(|(_, generation)| !has_expired(generation));
            let second_oldest = good.nth(1).map_or(KEYS.len() - 1, |(at, _)| at);
            kept.remove(second_oldest);
        }
        kept
    }

    /// The newest that is good by this clock.
    fn current(&self, now: SystemTime) -> Option<&Generation> {
        self.all().find(|generation| generation.is_good(now))
    }

    /// All, the newest first.
    fn all(&self) -> impl DoubleEndedIterator<Item = &Generation> + Clone {
        iter::once(&self.newest).chain(&self.earlier)
    }

    /// When the next generation is to be made: at once where none is good now.
    pub fn renew_at(&self, now: SystemTime) -> SystemTime {
        self.current(now).map_or(now, Generation::renew_at)
    }

    /// Why the clock of this replica, or of one that has made what is kept, may be wrong; `None` where
    /// nothing says so.
    pub fn doubt(&self, now: SystemTime) -> Option<&'static str> {
        if self.all().all(|generation| now >= generation.expires()) {
            return Some("all certificates that are kept have expired by the clock of this replica");
        }
        let is_ahead = self.all().any(|generation| now < generation.identity.validity().not_before);
        is_ahead.then_some(
            "a certificate that is kept begins to be good only later, by the clock of this replica",
        )
    }

    /// The certificate that is to be shown. `trusted_for` tells for how long this replica has seen clients
    /// trust an authority; `None` where it has not.
    pub fn showing(
        &self,
        trusted_for: impl Fn(&CertificateDer<'static>) -> Option<Duration>,
        now: SystemTime,
    ) -> &Identity {
        let is_settled = |generation: &&Generation| {
            trusted_for(&generation.authority).is_some_and(|time| time >= generation.settle())
        };
        let best = |may_be_shown: fn(&Generation, SystemTime) -> bool| {
            let mut good = self.all().filter(|generation| may_be_shown(generation, now));
            good.clone().find(is_settled).or_else(|| good.next_back())
        };
        let shown = best(Generation::is_good_by_all).or_else(|| best(Generation::is_good));
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
        let turns = self.all().flat_map(Generation::turns).map(until);
        let ahead = settled.chain(turns).filter(|wait| !wait.is_zero());
        ahead.fold(until(self.renew_at(now)), Duration::min)
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
        // Somebody may have put together what does not belong together: whoever trusts the one would not
        // accept the other.
        check_signature(leaf, authority, identity.validity().not_before)
            .map_err(|why| Broken::Unsigned { key: name, why })?;
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

    /// When the next one is to be made.
    fn renew_at(&self) -> SystemTime {
        self.expires() - self.lifetime() / RENEW_PARTS
    }

    /// Whether another one is to take its place: it ends, or it lasts longer than certificates are to by now.
    /// Not the reverse: of replicas with other settings, as there are during a release, one would then undo
    /// what the other has done, without end. So a shorter lifetime holds at once, as whoever asks for it
    /// wants to be rid of what lasts for long, and a longer one from the next renewal on.
    fn is_old(&self, lifetime: Duration, now: SystemTime) -> bool {
        self.renew_at() <= now || self.lifetime() > lifetime
    }

    /// For how long it is shown neither after it begins to be good nor before it expires, where there is
    /// another.
    fn margin(&self) -> Duration {
        SKEW.min(self.lifetime() / MARGIN_PARTS)
    }

    /// Whether it is good now.
    fn is_good(&self, now: SystemTime) -> bool {
        let Validity { not_before, not_after } = self.identity.validity();
        (not_before..not_after).contains(&now)
    }

    /// Whether it is good now for all clients whose clocks are no further off than can be expected.
    fn is_good_by_all(&self, now: SystemTime) -> bool {
        let Validity { not_before, not_after } = self.identity.validity();
        (not_before + self.margin()..not_after - self.margin()).contains(&now)
    }

    /// When time alone changes whether it is shown.
    fn turns(&self) -> [SystemTime; 4] {
        let Validity { not_before, not_after } = self.identity.validity();
        [not_before, not_before + self.margin(), not_after - self.margin(), not_after]
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
