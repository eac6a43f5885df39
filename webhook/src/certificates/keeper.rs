//! Keeps generations of certificates: makes and stores them, has them trusted, and says which is to be shown.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::generations::{CertificateSettings, Data, Generations};
use super::identity::{Identity, certificates};
use super::mint::MintError;
use super::record::CertificateRecord;

/// How often a round is begun again because somebody else had written.
const CONFLICTS_MAX: u32 = 10;
/// How long a replica waits for its first certificate, which has more to do than to show one.
const OPENING_MAX: Duration = Duration::from_secs(5);
/// First pause after a failure, doubled by each that follows.
const BACKOFF: Duration = Duration::from_secs(1);
/// Longest pause.
const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// Longest time after which the time of day is looked at, which may have been set: no request is made for it.
const LOOK_MAX: Duration = Duration::from_secs(600);

/// Where generations are kept for all replicas, and where clients learn whom to trust.
pub trait Vault: Send + Sync + 'static {
    /// What tells one version of an object from another.
    type Version: Send + Sync;
    /// Why the vault cannot be used; names the object and the remedy.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Whether somebody has set it wrongly, rather than that it cannot be used now.
    fn is_misset(error: &Self::Error) -> bool;

    /// What is kept now, not what was a moment ago; `None` where nothing ever was.
    fn stored(&self) -> impl Future<Output = Result<Option<Stored<Self::Version>>, Self::Error>> + Send;

    /// Keeps this in the place of the version that was read, or where nothing was kept.
    fn store(
        &self,
        data: &Data,
        over: Option<&Self::Version>,
    ) -> impl Future<Output = Result<Written, Self::Error>> + Send;

    /// Whom clients trust now; `None` where there are no clients.
    fn trust(&self) -> impl Future<Output = Result<Option<Trust<Self::Version>>, Self::Error>> + Send;

    /// Has all clients trust these authorities, in PEM, in the place of those in the version that was read.
    fn entrust(
        &self,
        authorities: &[u8],
        over: &Trust<Self::Version>,
    ) -> impl Future<Output = Result<Written, Self::Error>> + Send;
}

/// What is kept.
pub struct Stored<V> {
    /// The data; empty where somebody has made the place and nothing is in it.
    pub data: Data,
    /// In which version.
    pub version: V,
}

/// Whom clients trust.
pub struct Trust<V> {
    /// By the name of each webhook, the authorities that are trusted with it, in PEM.
    pub bundles: BTreeMap<String, Vec<u8>>,
    /// In which version.
    pub version: V,
}

/// How a write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is done.
    Done,
    /// Somebody else was faster: what was read is no more.
    Conflict,
}

/// Why certificates cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError<E: std::error::Error + 'static> {
    /// The vault cannot be used.
    #[error(transparent)]
    Vault(E),
    /// No certificate can be made.
    #[error(transparent)]
    Mint(#[from] MintError),
    /// No answer has come for long.
    #[error("they were not read and written within {OPENING_MAX:?}")]
    Overdue,
    /// Others write all the time.
    #[error("somebody else wrote in the last {CONFLICTS_MAX} moments when Bindery wanted to")]
    Conflicts,
}

/// The time of day.
type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// One replica's keeper. All replicas have one, and none is special: each makes what is missing, and of two
/// that make the same the vault lets one.
pub struct Keeper<V> {
    vault: V,
    settings: CertificateSettings,
    clock: Clock,
    record: Arc<CertificateRecord>,
    /// What was kept when it was last read.
    known: Option<Generations>,
    /// Whether the last round has failed.
    has_failed: bool,
    /// The authorities that clients trust, and since when they were seen to.
    trusted: HashMap<CertificateDer<'static>, Instant>,
}

impl<V: Vault> Keeper<V> {
    /// A keeper, and the certificate to show first. Makes one where none is kept.
    ///
    /// Where none can be read or kept now, one is shown that nobody trusts until it is: a replica has more to
    /// do than to answer clients, and it is tried again.
    ///
    /// # Errors
    ///
    /// The vault was set wrongly, or no certificate can be made.
    pub async fn open(
        vault: V,
        settings: CertificateSettings,
        clock: impl Fn() -> SystemTime + Send + Sync + 'static,
        record: Arc<CertificateRecord>,
    ) -> Result<(Self, Identity), KeeperError<V::Error>> {
        let mut keeper = Self {
            vault,
            settings,
            clock: Arc::new(clock),
            record,
            known: None,
            has_failed: false,
            trusted: HashMap::new(),
        };
        // Nobody is known to, until somebody is.
        keeper.record.tell_trusted(false);
        let outcome = tokio::time::timeout(OPENING_MAX, keeper.round()).await;
        match outcome.unwrap_or(Err(KeeperError::Overdue)) {
            Err(KeeperError::Vault(error)) if V::is_misset(&error) => return Err(KeeperError::Vault(error)),
            outcome => keeper.told(outcome),
        }
        let identity = match keeper.showing() {
            Some(identity) => identity,
            None => Generations::unkept(&keeper.settings, (keeper.clock)())?,
        };
        keeper.record.show(&identity);
        Ok((keeper, identity))
    }

    /// Keeps certificates for as long as it is polled, and tells each that is to be shown from then on.
    /// `changes` says that something in the vault has changed.
    pub async fn run(mut self, changes: Arc<Notify>, show: impl Fn(&Identity)) {
        let mut shown = self.showing();
        let mut pause = BACKOFF;
        loop {
            let wait = if self.has_failed { pause } else { self.until_next() };
            let has_changed = tokio::select! {
                () = changes.notified() => true,
                () = tokio::time::sleep(wait) => false,
            };
            if has_changed || self.has_failed || self.is_due() {
                pause = if self.has_failed { (pause * 2).min(BACKOFF_MAX) } else { BACKOFF };
                let outcome = self.round().await;
                self.told(outcome);
            }
            let showing = self.showing();
            if showing != shown {
                if let Some(identity) = &showing {
                    tracing::info!(
                        expires = identity.validity().end(),
                        "another certificate is shown from now on"
                    );
                    show(identity);
                    // Afterwards: who reads what is told may rely on it.
                    self.record.show(identity);
                }
                shown = showing;
            }
        }
    }

    /// Sees to it that what is kept is as it should be now, and trusted.
    async fn round(&mut self) -> Result<(), KeeperError<V::Error>> {
        for _ in 0..CONFLICTS_MAX {
            // Before what is kept is read: what is trusted was kept when it was written. So what is read next
            // is not older, and no replica takes back what another has just had trusted.
            let trust = self.vault.trust().await;
            if self.keep().await? == Written::Conflict {
                continue;
            }
            let written = self.entrust(trust.map_err(KeeperError::Vault)?).await?;
            if written == Written::Done {
                return Ok(());
            }
        }
        Err(KeeperError::Conflicts)
    }

    /// Reads what is kept, and keeps a new generation where that is due.
    async fn keep(&mut self) -> Result<Written, KeeperError<V::Error>> {
        let stored = self.vault.stored().await.map_err(KeeperError::Vault)?;
        let kept = stored.as_ref().and_then(|stored| self.read(&stored.data));
        let now = (self.clock)();
        let due = Generations::due(kept.as_ref(), self.known.as_ref(), &self.settings, now)?;
        if let (Some(_), Some(doubt)) = (&due, kept.as_ref().and_then(|kept| kept.doubt(now))) {
            tracing::warn!("{doubt}: another one is made; are the clocks of the nodes right?");
        }
        let Some(due) = due else {
            self.known = kept;
            return Ok(Written::Done);
        };
        let over = stored.as_ref().map(|stored| &stored.version);
        let written = self.vault.store(&due.data(), over).await.map_err(KeeperError::Vault)?;
        if written == Written::Done {
            tracing::info!(names = %self.settings.names, "a certificate was made");
            self.known = Some(due);
        }
        Ok(written)
    }

    fn read(&self, data: &Data) -> Option<Generations> {
        if data.is_empty() {
            return None;
        }
        match Generations::read(data) {
            Ok(generations) => Some(generations),
            Err(error) => {
                tracing::warn!("the Secret of certificates {error}; they are made anew");
                self.record.fail();
                None
            }
        }
    }

    /// Has clients trust what is kept, and remembers since when they do.
    async fn entrust(&mut self, trust: Option<Trust<V::Version>>) -> Result<Written, KeeperError<V::Error>> {
        let (Some(known), Some(trust)) = (&self.known, trust) else {
            self.trusted.clear();
            self.record.tell_trusted(false);
            return Ok(Written::Done);
        };
        let authorities = known.authorities();
        let bundles: Vec<_> =
            trust.bundles.values().map(|bundle| certificates(bundle).unwrap_or_default()).collect();
        let was_trusted =
            |authority: &CertificateDer<'static>| bundles.iter().all(|bundle| bundle.contains(authority));
        if trust.bundles.values().any(|bundle| *bundle != authorities) {
            // Where it cannot be written, this is what stays.
            let shown = self.showing();
            let vouched = shown.is_some_and(|shown| shown.chain().iter().skip(1).any(was_trusted));
            self.record.tell_trusted(vouched);
            let written = self.vault.entrust(&authorities, &trust).await;
            if written.map_err(KeeperError::Vault)? == Written::Conflict {
                return Ok(Written::Conflict);
            }
            tracing::info!("the webhook configuration trusts the authority of the certificate");
        }
        let now = Instant::now();
        let trusted = known.each_authority().map(|authority| {
            let since = self.trusted.get(authority).filter(|_| was_trusted(authority));
            (authority.clone(), since.copied().unwrap_or(now))
        });
        self.trusted = trusted.collect();
        self.record.tell_trusted(true);
        Ok(Written::Done)
    }

    /// The certificate to show now; `None` before one is kept.
    fn showing(&self) -> Option<Identity> {
        let known = self.known.as_ref()?;
        Some(known.showing(|authority| self.trusted_for(authority), (self.clock)()).clone())
    }

    /// For how long clients have trusted this authority.
    fn trusted_for(&self, authority: &CertificateDer<'static>) -> Option<Duration> {
        self.trusted.get(authority).map(Instant::elapsed)
    }

    /// Whether a new generation is to be made.
    fn is_due(&self) -> bool {
        let now = (self.clock)();
        self.known.as_ref().is_none_or(|known| known.renew_at(now) <= now)
    }

    /// How long nothing changes by time alone.
    fn until_next(&self) -> Duration {
        let Some(known) = &self.known else { return LOOK_MAX };
        known.until_next(|authority| self.trusted_for(authority), (self.clock)()).min(LOOK_MAX)
    }

    /// Takes note of how a round went.
    fn told(&mut self, outcome: Result<(), KeeperError<V::Error>>) {
        self.has_failed = outcome.is_err();
        if let Err(error) = outcome {
            tracing::warn!(
                %error,
                "certificates cannot be kept as they should; those in use stay, and it is tried again"
            );
            self.record.fail();
        }
    }
}
