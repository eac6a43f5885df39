//! The generations of certificates that are stored, and when each is made, shown and removed.
//!
//! A generation is made when a third of the previous one's lifetime is left, or when the Secret has lost it.
//! The authorities of all stored generations are trusted. API servers learn of a new authority one after the
//! other, so a replica shows the newest generation whose authority it has seen trusted for a while. If it has
//! seen none trusted for so long, as after its start, it shows the oldest valid one, which has been trusted
//! for longest. This needs no clock but the replica's own.
//!
//! A clock that is wrong by more than an hour misleads its own replica only: that replica makes a generation
//! which others do not show, and nothing is removed because it has expired by one clock.

use std::iter;
use std::time::{Duration, SystemTime};

use bindery_kube::Data;
use tokio_rustls::rustls::pki_types::CertificateDer;

pub use super::generation::SETTLE_MAX;
use super::generation::{Broken, Generation};
use super::identity::{Identity, IdentityError, certificates};
use super::mint::{MintError, Names};

/// How many expired generations are stored: if this replica's clock is far ahead, others show the newest of
/// them, or the one before it while the newest is not trusted yet.
const EXPIRED_MAX: usize = 2;

/// The keys of the Secret for the chain and the key of each generation, the newest first. The first are those
/// of Kubernetes and cert-manager. Two generations are usual; more come from replicas whose clocks differ,
/// and from a person who deletes the Secret again and again.
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
/// The key of the trusted authorities: those of all generations.
const AUTHORITIES: &str = "ca.crt";

/// What certificates are to be.
#[derive(Clone, Debug)]
pub struct CertificateSettings {
    /// The names of the server.
    pub names: Names,
    /// How long a certificate lasts: [`LIFETIME_MIN`](super::LIFETIME_MIN) at least.
    pub lifetime: Duration,
}

/// The stored generations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generations {
    newest: Generation,
    /// Those before it, the newest first.
    earlier: Vec<Generation>,
}

impl Generations {
    /// Reads the Secret. An earlier generation that cannot be read is ignored.
    ///
    /// # Errors
    ///
    /// The newest generation, or the authorities, cannot be read.
    pub fn read(data: &Data) -> Result<Self, Broken> {
        let [newest, earlier @ ..] = KEYS;
        let newest = read(data, newest)?;
        let earlier = earlier.into_iter().filter_map(|keys| read(data, keys).ok()).collect();
        let authorities = data.get(AUTHORITIES).ok_or(Broken::Missing(AUTHORITIES))?;
        let unreadable = |why| Broken::Unreadable { key: AUTHORITIES, why };
        if !certificates(authorities).map_err(unreadable)?.contains(&newest.authority) {
            let why = format!("the authority of {} is not among them", KEYS[0].0);
            return Err(unreadable(IdentityError::Certificate(why)));
        }
        Ok(Self { newest, earlier })
    }

    /// The data to store.
    pub fn data(&self) -> Data {
        let mut data = Data::from([(AUTHORITIES.to_owned(), self.authorities())]);
        for (generation, (chain, key)) in self.all().zip(KEYS) {
            data.insert(chain.to_owned(), generation.chain.clone().into_bytes());
            data.insert(key.to_owned(), generation.key.clone().into_bytes());
        }
        data
    }

    /// The generations to store now; `None` if the stored ones need no change.
    ///
    /// If the Secret was deleted or broken, the new generation is added to `known`, the generations that this
    /// replica has last seen stored, so that clients keep trusting the shown certificate. Missing names are
    /// added to the present ones, so that replicas of two revisions do not take each other's names away.
    ///
    /// # Errors
    ///
    /// A new generation cannot be made.
    pub fn due(
        stored: Option<&Self>,
        known: Option<&Self>,
        settings: &CertificateSettings,
        now: SystemTime,
    ) -> Result<Option<Self>, MintError> {
        let CertificateSettings { names, lifetime } = settings;
        let names = match stored.and_then(|stored| stored.current(now)) {
            Some(current) if !current.is_old(*lifetime, now) => {
                if current.names.contain(names) {
                    return Ok(None);
                }
                current.names.and(names)
            }
            _ => names.clone(),
        };
        let newest = Generation::mint(&names, *lifetime, now)?;
        let earlier = stored.or(known).map(|before| before.beside_another(now));
        Ok(Some(Self { newest, earlier: earlier.unwrap_or_default() }))
    }

    /// A certificate that is not stored.
    ///
    /// # Errors
    ///
    /// It cannot be made.
    pub(super) fn unstored(settings: &CertificateSettings, now: SystemTime) -> Result<Identity, MintError> {
        Ok(Generation::mint(&settings.names, settings.lifetime, now)?.identity)
    }

    /// The generations to store beside a new one, the newest first: those that have not expired, and the
    /// newest expired ones. At the limit the second oldest that has not expired is removed: replicas that
    /// have seen nothing trusted for long show the oldest, and all others the newest.
    fn beside_another(&self, now: SystemTime) -> Vec<Generation> {
        let (mut kept, mut expired) = (Vec::new(), 0);
        for generation in self.all() {
            expired += usize::from(generation.has_expired_for_all(now));
            if !generation.has_expired_for_all(now) || expired <= EXPIRED_MAX {
                kept.push(generation.clone());
            }
        }
        if kept.len() == KEYS.len() {
            let unexpired = (0..kept.len()).rev().filter(|at| !kept[*at].has_expired_for_all(now));
            let second_oldest = unexpired.into_iter().nth(1);
            kept.remove(second_oldest.unwrap_or(KEYS.len() - 1));
        }
        kept
    }

    /// Whether a lost Secret gets these again without a new generation. A new one would remove a generation
    /// that replicas may show because they have not seen the newest trusted for long.
    pub(super) fn is_in_transition(
        &self,
        trusted_for: impl Fn(&CertificateDer<'static>) -> Option<Duration>,
    ) -> bool {
        let shown_by_all = 2 * self.newest.settle();
        let is_shown_by_all = trusted_for(&self.newest.authority).is_some_and(|time| time >= shown_by_all);
        self.all().count() == KEYS.len() && !is_shown_by_all
    }

    /// The newest that is valid by this clock.
    fn current(&self, now: SystemTime) -> Option<&Generation> {
        self.all().find(|generation| generation.is_valid(now))
    }

    /// All, the newest first.
    fn all(&self) -> impl DoubleEndedIterator<Item = &Generation> + Clone {
        iter::once(&self.newest).chain(&self.earlier)
    }

    /// When the next generation is to be made: at once if none is valid.
    pub fn renew_at(&self, now: SystemTime) -> SystemTime {
        self.current(now).map_or(now, Generation::renew_at)
    }

    /// A sign that the clock of this replica, or of one that made a stored generation, is wrong.
    pub fn clock_doubt(&self, now: SystemTime) -> Option<&'static str> {
        if self.all().all(|generation| now >= generation.expires()) {
            return Some("all stored certificates have expired by the clock of this replica");
        }
        let is_ahead = self.all().any(|generation| now < generation.identity.validity().not_before);
        is_ahead.then_some("a stored certificate is not valid yet by the clock of this replica")
    }

    /// The certificate to show. `trusted_for` returns how long this replica has seen an authority trusted, or
    /// `None`.
    pub fn showing(
        &self,
        trusted_for: impl Fn(&CertificateDer<'static>) -> Option<Duration>,
        now: SystemTime,
    ) -> &Identity {
        let is_settled = |generation: &&Generation| {
            trusted_for(&generation.authority).is_some_and(|time| time >= generation.settle())
        };
        let best = |may_be_shown: fn(&Generation, SystemTime) -> bool| {
            let mut valid = self.all().filter(|generation| may_be_shown(generation, now));
            valid.clone().find(is_settled).or_else(|| valid.next_back())
        };
        let shown = best(Generation::is_valid_for_all).or_else(|| best(Generation::is_valid));
        // If none is valid, the newest is as good as any.
        &shown.unwrap_or(&self.newest).identity
    }

    /// How long until time alone changes which certificate is shown, or makes the next one due.
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

    /// The authorities to trust, in PEM.
    pub fn authorities(&self) -> Vec<u8> {
        self.all().map(Generation::authority_pem).collect::<String>().into_bytes()
    }

    /// The authorities one by one, that of the newest generation first.
    pub(super) fn each_authority(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        self.all().map(|generation| &generation.authority)
    }
}

fn read(data: &Data, (chain, key): (&'static str, &'static str)) -> Result<Generation, Broken> {
    let value = |name| match data.get(name) {
        Some(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        None => Err(Broken::Missing(name)),
    };
    Generation::new(value(chain)?, value(key)?, chain, key)
}
