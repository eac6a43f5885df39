//! Keeps the certificates of a replica: makes and stores generations, has the webhook configuration trust
//! them, and chooses the one to show.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bindery_kube::{Bundles, CertificateStorage, Data};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::generations::{CertificateSettings, Generations};
use super::identity::{Identity, certificates};
use super::mint::MintError;
use super::status::CertificateStatus;

/// How often a round begins again after another replica has written.
const CONFLICTS_MAX: u32 = 10;
/// How long a starting replica waits for its first certificate.
const OPENING_MAX: Duration = Duration::from_secs(5);
/// First pause after a failure; each further one doubles it.
const BACKOFF: Duration = Duration::from_secs(1);
/// Longest pause.
const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// How often the time of day is looked at, in case it was set. This makes no request.
const CLOCK_CHECK: Duration = Duration::from_secs(600);

/// Why certificates cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError<E: std::error::Error + 'static> {
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] E),
    /// No certificate can be made.
    #[error("{0}")]
    Mint(MintError),
    /// The storage did not answer in time.
    #[error("they were not read and written within {OPENING_MAX:?}")]
    Overdue,
    /// Another program writes all the time.
    #[error("another program wrote each of the last {CONFLICTS_MAX} times when Bindery wanted to")]
    Conflicts,
}

/// The time of day.
type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// The keeper of one replica. All replicas do the same; if two make a generation at the same time, the
/// storage accepts one.
pub struct Keeper<S> {
    storage: S,
    settings: CertificateSettings,
    clock: Clock,
    status: Arc<CertificateStatus>,
    /// The stored generations when they were last read.
    known: Option<Generations>,
    /// Whether the last round failed.
    has_failed: bool,
    /// The trusted authorities, and since when this replica has seen them trusted.
    trusted: HashMap<CertificateDer<'static>, Instant>,
}

impl<S: CertificateStorage> Keeper<S> {
    /// A keeper, and the certificate to show first. Makes one if none is stored. If the storage does not work
    /// now, the first certificate is not trusted and the keeper tries again, because the replica has other
    /// work than reviews.
    ///
    /// # Errors
    ///
    /// A setting is wrong, or no certificate can be made.
    pub async fn open(
        storage: S,
        settings: CertificateSettings,
        clock: impl Fn() -> SystemTime + Send + Sync + 'static,
        status: Arc<CertificateStatus>,
    ) -> Result<(Self, Identity), KeeperError<S::Error>> {
        let (clock, trusted) = (Arc::new(clock), HashMap::new());
        let mut keeper = Self { storage, settings, clock, status, known: None, has_failed: false, trusted };
        keeper.status.set_trusted(false);
        let outcome = timeout(OPENING_MAX, keeper.round()).await;
        match outcome.unwrap_or(Err(KeeperError::Overdue)) {
            Err(KeeperError::Storage(error)) if S::is_permanent(&error) => return Err(error.into()),
            outcome => keeper.note(outcome),
        }
        let identity = match keeper.showing() {
            Some(identity) => identity,
            None => Generations::unstored(&keeper.settings, (keeper.clock)()).map_err(KeeperError::Mint)?,
        };
        keeper.status.show(&identity);
        Ok((keeper, identity))
    }

    /// Keeps certificates for as long as it is polled, and calls `show` with each that is to be shown.
    /// `changes` tells that the Secret or the webhook configuration has changed.
    pub async fn run(mut self, changes: Arc<Notify>, show: impl Fn(&Identity)) {
        let mut shown = self.showing();
        let mut pause = BACKOFF;
        loop {
            let wait = if self.has_failed { pause } else { self.until_next() };
            let has_changed = tokio::select! {
                () = changes.notified() => true,
                () = sleep(wait) => false,
            };
            if has_changed || self.has_failed || self.is_due() {
                pause = if self.has_failed { (pause * 2).min(BACKOFF_MAX) } else { BACKOFF };
                let outcome = self.round().await;
                self.note(outcome);
            }
            let showing = self.showing();
            if let Some(identity) = showing.as_ref().filter(|_| showing != shown) {
                tracing::info!(expires = identity.validity().end(), "another certificate is shown");
                show(identity);
                // After `show`: the metric promises that the certificate is shown.
                self.status.show(identity);
            }
            shown = showing;
        }
    }

    /// Brings the stored generations and their trust up to date.
    async fn round(&mut self) -> Result<(), KeeperError<S::Error>> {
        for _ in 0..CONFLICTS_MAX {
            // Authorities are stored before they are trusted. So the Secret, which is read after the
            // configuration, is not older, and no replica removes an authority that another has just
            // published.
            let bundles = self.storage.read_bundles().await;
            if self.store_due().await? && self.entrust(bundles?).await? {
                return Ok(());
            }
        }
        Err(KeeperError::Conflicts)
    }

    /// Reads the stored generations, and stores a new one if it is due. False on a conflict.
    async fn store_due(&mut self) -> Result<bool, KeeperError<S::Error>> {
        let (data, version) = self.storage.read_secret().await?.unzip();
        let stored = data.and_then(|data| self.read(&data));
        let now = (self.clock)();
        let lost = self.known.as_ref().filter(|_| stored.is_none());
        let due = match lost.filter(|known| known.is_in_transition(|authority| self.trusted_for(authority))) {
            Some(known) => Some(known.clone()),
            None => Generations::due(stored.as_ref(), self.known.as_ref(), &self.settings, now)
                .map_err(KeeperError::Mint)?,
        };
        let Some(due) = due else {
            self.known = stored;
            return Ok(true);
        };
        if let Some(doubt) = stored.and_then(|stored| stored.clock_doubt(now)) {
            tracing::warn!("{doubt}: another one is made; are the clocks of the nodes right?");
        }
        let is_written = self.storage.write_secret(&due.data(), version.as_ref()).await?;
        if is_written {
            tracing::info!(names = %self.settings.names, "the Secret holds new certificates");
            self.known = Some(due);
        }
        Ok(is_written)
    }

    fn read(&self, data: &Data) -> Option<Generations> {
        if data.is_empty() {
            return None;
        }
        match Generations::read(data) {
            Ok(generations) => Some(generations),
            Err(error) => {
                tracing::warn!("the Secret of certificates {error}; they are made anew");
                self.status.count_failure();
                None
            }
        }
    }

    /// Has the webhook configuration trust the stored generations, and records since when it does. False on a
    /// conflict.
    async fn entrust(
        &mut self,
        bundles: Option<(Bundles, S::Version)>,
    ) -> Result<bool, KeeperError<S::Error>> {
        let (Some(known), Some((bundles, version))) = (&self.known, bundles) else {
            self.trusted.clear();
            self.status.set_trusted(false);
            return Ok(true);
        };
        let are_all_there = self.storage.are_all_there(&version);
        let authorities = known.authorities();
        let parsed: Vec<_> = bundles.values().map(|pem| certificates(pem).unwrap_or_default()).collect();
        let was_trusted =
            |authority: &CertificateDer<'static>| parsed.iter().all(|bundle| bundle.contains(authority));
        if bundles.values().any(|bundle| *bundle != authorities) {
            // This stays so if the write fails.
            let is_trusted =
                self.showing().is_some_and(|shown| shown.chain().iter().skip(1).any(was_trusted));
            self.status.set_trusted(are_all_there && is_trusted);
            if !self.storage.write_bundles(&authorities, &version).await? {
                return Ok(false);
            }
            tracing::info!("the webhook configuration trusts the authority of the certificate");
        }
        let now = Instant::now();
        let trusted = known.each_authority().map(|authority| {
            let since = self.trusted.get(authority).filter(|_| was_trusted(authority));
            (authority.clone(), since.copied().unwrap_or(now))
        });
        self.trusted = trusted.collect();
        self.status.set_trusted(are_all_there);
        Ok(true)
    }

    /// The certificate to show now; `None` before one is stored.
    fn showing(&self) -> Option<Identity> {
        let known = self.known.as_ref()?;
        Some(known.showing(|authority| self.trusted_for(authority), (self.clock)()).clone())
    }

    /// How long this replica has seen the authority trusted.
    fn trusted_for(&self, authority: &CertificateDer<'static>) -> Option<Duration> {
        self.trusted.get(authority).map(Instant::elapsed)
    }

    fn is_due(&self) -> bool {
        let now = (self.clock)();
        self.known.as_ref().is_none_or(|known| known.renew_at(now) <= now)
    }

    /// How long until time alone changes anything.
    fn until_next(&self) -> Duration {
        let Some(known) = &self.known else { return CLOCK_CHECK };
        known.until_next(|authority| self.trusted_for(authority), (self.clock)()).min(CLOCK_CHECK)
    }

    /// Notes the outcome of a round.
    fn note(&mut self, outcome: Result<(), KeeperError<S::Error>>) {
        self.has_failed = outcome.is_err();
        if let Err(error) = outcome {
            tracing::warn!(%error, "certificates are not up to date; those in use stay; trying again");
            self.status.count_failure();
        }
    }
}
