//! Mode steer: upstream's binder stays on, and Bindery reserves the volumes of steered claims.
//!
//! A claim's turn makes every write for it, also those of the volumes that name it, so that its key lock
//! orders them. A volume's turn gives turns to the claims that it names.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bindery_core::steer::{Choice, SteerWrite, steering_key};
use bindery_core::{Claim, ClaimKey, ClaimRef, ClaimTarget, Key, Request, Source, Subject, Text, Volume};
use bindery_store::{Fact, Revision};

use super::decide::Decided;
use super::repeats::Repeated;
use super::touches::PASSED_OVER;
use super::{Binder, Mode, Synced};
use crate::decider::Unsound;
use crate::intake::Role;
use crate::queue::KeyLock;
use crate::steer::{ClaimAndVolumes, Next, next, withdrawal};
use crate::{Port, SyncError};

/// Most writes of one turn. A claim without choice takes three; one whose choice has to be withdrawn, five.
const WRITES_MAX: usize = 8;

/// What a claim's turn has found so far.
#[derive(Default)]
struct Found<'a> {
    /// The decision that has chosen its volume, with the locks that keep others from the volume meanwhile.
    decided: Option<Decided<'a>>,
    /// Volumes whose reservation may be a person's.
    kept: BTreeSet<Text>,
    /// The last write: made again, it shows that the caches lag.
    last: Option<SteerWrite>,
    /// Whether the guard has refused a reservation.
    is_refused: bool,
}

impl<P: Port> Binder<P> {
    /// How many claims have names that do not fit into a label that steers; 0 in other modes. It takes some
    /// milliseconds for 100,000 claims.
    pub fn claims_not_steerable(&self) -> usize {
        if self.settings.mode != Mode::Steer {
            return 0;
        }
        self.store.claim_keys().iter().filter(|key| steering_key(key).is_none()).count()
    }

    /// How many claims upstream has not bound long after their volumes were reserved, in mode steer.
    pub fn claims_overdue(&self) -> usize {
        self.touches.overdue()
    }

    /// How many claims get no reservation, choice or label for a while because others were undone.
    pub fn claims_paused(&self) -> usize {
        self.repeats.paused()
    }

    /// Takes the turn of a key in mode steer.
    pub(super) async fn steer(&self, lock: &mut KeyLock) -> Synced {
        match lock.key().clone() {
            Key::Claim(key) => self.steer_claim(lock, &key).await,
            key @ Key::Volume(_) => match self.request(&key).map(|request| request.subject) {
                Some(Subject::SyncVolume(volume)) => {
                    Synced { enqueue: claims_of(&volume), ..Synced::ended(Ok(())) }
                }
                _ => Synced::ended(Ok(())),
            },
        }
    }

    async fn steer_claim(&self, lock: &mut KeyLock, key: &ClaimKey) -> Synced {
        let mut found = Found::default();
        for _ in 0..WRITES_MAX {
            let since = self.store.revision();
            let claim = match self.request(lock.key()) {
                Some(Request { subject: Subject::SyncClaim(claim), .. }) => Some(claim),
                _ if self.unreadable_claim(key).is_some() => return Synced::ended(Ok(())),
                _ => None,
            };
            let claim = claim.as_deref();
            let naming = self.store.volumes_naming(key);
            let chosen = self.chosen_volume(claim);
            let state =
                ClaimAndVolumes { claim, naming: &naming, chosen: chosen.as_deref(), kept: &found.kept };
            let step = next(&state);
            if !matches!(step, Next::Touch(_)) {
                self.touches.forget(key, claim.is_some_and(|claim| is_being_bound(claim, &naming)));
            }
            let wait = self.wait_before(&step, claim);
            if wait.is_some() || matches!(step, Next::Rest | Next::Touch(_)) {
                self.depend_on(key, since, claim);
            }
            let write = match step {
                _ if wait.is_some() => return Synced { requeue_after: wait, ..Synced::ended(Ok(())) },
                Next::Rest => return self.rest(key, claim, &naming),
                Next::Touch(target) => return self.touch(target, &naming).await,
                Next::Choose => match self.choose(lock, &mut found).await {
                    Ok(write) => write,
                    Err(ended) => return *ended,
                },
                Next::Write(write) => write,
            };
            match self.write_for(claim, write, &mut found).await {
                Ok(true) => {}
                Ok(false) => return Synced::ended(Ok(())),
                Err(error) => return self.not_written(key, error),
            }
        }
        let why = "its volumes change all the time".to_owned();
        Synced::ended(Err(SyncError::Stale { attempts: 1, why }))
    }

    /// The volume of a claim's choice.
    fn chosen_volume(&self, claim: Option<&Claim>) -> Option<Arc<Volume>> {
        self.store.volume(Source::Overlay, &claim?.choice.as_deref()?.volume).found()
    }

    /// How long a step waits: others undo the claim's choices or reservations again and again, or upstream is
    /// busy and the claim needs nothing any more.
    fn wait_before(&self, step: &Next, claim: Option<&Claim>) -> Option<Duration> {
        match step {
            Next::Choose => {
                let claim = claim?;
                let choice = Repeated::Choice(claim.key.clone(), claim.uid.clone());
                self.pause_left(claim).or_else(|| self.repeats.due(&choice))
            }
            Next::Write(SteerWrite::Reserve { .. }) => self.pause_left(claim?),
            Next::Write(SteerWrite::Forget { .. }) => {
                let can_wait = self.touches.is_busy() && !claim.is_some_and(Claim::waits_steered);
                can_wait.then_some(PASSED_OVER)
            }
            _ => None,
        }
    }

    /// Gives the claim a turn when its chosen volume changes, or another volume names it. Its last decision
    /// does not count any more.
    fn depend_on(&self, key: &ClaimKey, since: Revision, claim: Option<&Claim>) {
        let waiting = claim.filter(|claim| claim.steered && claim.volume_name.is_none());
        let choice = waiting.and_then(|claim| claim.choice.as_deref()).map(|choice| choice.volume.clone());
        let mut facts = Vec::from_iter(waiting.map(|_| Fact::ReservedFor(key.clone())));
        let volumes = choice.into_iter().chain(self.repeats.volume(key));
        facts.extend(volumes.map(|volume| Fact::Volume(Source::Overlay, volume)));
        self.subscribe(&(Key::Claim(key.clone()), Role::Sync), since, facts);
    }

    /// Has the engine choose a volume. The error is the end of the turn: there is none.
    async fn choose<'a>(
        &'a self,
        lock: &mut KeyLock,
        found: &mut Found<'a>,
    ) -> Result<SteerWrite, Box<Synced>> {
        found.decided = None;
        let decided = match self.decide_sync(lock).await {
            Ok(Some(decided)) => decided,
            Ok(None) => return Err(Synced::ended(Ok(())).into()),
            Err(error) => return Err(Synced::ended(Err(error)).into()),
        };
        let Decided { request, decision, rejections, unscored, .. } = &decided;
        self.report_unscored(request, decision, unscored.as_ref());
        let volume = decision.chosen().and_then(|name| self.store.volume(Source::Overlay, name).found());
        let (Subject::SyncClaim(claim), Some(volume)) = (&request.subject, volume) else {
            let is_told = self.report_rejections(request, decision, rejections.as_ref());
            let refresh_after = is_told.then_some(self.settings.event_refresh);
            let decision = Some(decided.decision);
            return Err(Synced { decision, refresh_after, ..Synced::ended(Ok(())) }.into());
        };
        let (volume, uid) = (volume.name.clone(), volume.uid.clone());
        let choice = Choice { volume, uid, withdrawn: false };
        let write = SteerWrite::Choose { claim: claim.target(), choice };
        found.decided = Some(decided);
        Ok(write)
    }

    /// Makes a write for a claim if the guard passes it. Returns whether the turn goes on.
    async fn write_for(
        &self,
        claim: Option<&Claim>,
        write: SteerWrite,
        found: &mut Found<'_>,
    ) -> Result<bool, SyncError> {
        if found.last.as_ref() == Some(&write) {
            // The watch will give the claim a turn.
            return Ok(false);
        }
        match (self.checked(&write).await, &write, claim) {
            (Ok(()), ..) => found.last = Some(write),
            (Err(SyncError::Refused(why)), SteerWrite::Release { volume }, _) => {
                tracing::warn!(volume = &*volume.name, reason = why, "a reservation is kept");
                self.metrics.steer_kept.inc();
                found.kept.insert(volume.name.clone());
            }
            (Err(SyncError::Refused(why)), SteerWrite::Reserve { .. }, Some(claim)) if !found.is_refused => {
                tracing::info!(why, "the choice is withdrawn");
                found.is_refused = true;
                if let Some(choice) = claim.choice.as_deref() {
                    self.checked(&withdrawal(claim, choice)).await?;
                }
            }
            (Err(error), ..) => return Err(error),
        }
        Ok(true)
    }

    /// The end of a turn by a write that was not made. Tells the user of the claim if it was refused.
    fn not_written(&self, key: &ClaimKey, error: SyncError) -> Synced {
        self.report_refused_write(key, &error);
        Synced::ended(Err(error))
    }

    /// Makes a write if the guard passes it.
    pub(super) async fn checked(&self, write: &SteerWrite) -> Result<(), SyncError> {
        match self.decider.check_steering(write).await {
            Ok(()) => self.executor.steer(write).await?,
            Err(Unsound::Changed(why)) => return Err(SyncError::Stale { attempts: 1, why }),
            // The lists have begun anew since the turn began.
            Err(Unsound::Final(SyncError::Refused(_))) if !self.store.synced() => {
                return Err(SyncError::NotSynced);
            }
            Err(Unsound::Final(error)) => return Err(error),
        }
        self.count(write);
        match write {
            SteerWrite::Reserve { volume, reservation } => self.repeats.reserved(reservation, volume),
            SteerWrite::Choose { claim, choice } if !choice.withdrawn => {
                self.repeats.made(Repeated::Choice(claim.key.clone(), claim.uid.clone()));
            }
            _ => {}
        }
        Ok(())
    }

    /// Nothing is to be done for a claim; tells its user if a reservation keeps it waiting.
    fn rest(&self, key: &ClaimKey, claim: Option<&Claim>, naming: &[Arc<Volume>]) -> Synced {
        let Some(claim) = claim.filter(|claim| claim.waits_steered()) else {
            self.repeats.forget(key);
            return Synced::ended(Ok(()));
        };
        let is_told = self.report_unfit(claim, naming);
        Synced { refresh_after: is_told.then_some(self.settings.event_refresh), ..Synced::ended(Ok(())) }
    }

    /// Touches a claim whose volume is reserved, if it is time. Tells its user if it is overdue.
    async fn touch(&self, claim: ClaimTarget, naming: &[Arc<Volume>]) -> Synced {
        let (key, uid) = (claim.key.clone(), claim.uid.clone());
        let mut due = self.touches.due(&key, &uid);
        if due == Some(Duration::ZERO) {
            if let Err(error) = self.checked(&SteerWrite::Touch { claim: claim.clone() }).await {
                return self.not_written(&key, error);
            }
            due = self.touches.due(&key, &uid);
        }
        let requeue_after = due.or_else(|| self.touches.until_overdue(&key).filter(|left| !left.is_zero()));
        let is_overdue = requeue_after.is_none();
        if is_overdue {
            self.report_overdue(claim, naming);
        }
        let refresh_after = is_overdue.then_some(self.settings.event_refresh);
        Synced { requeue_after, refresh_after, ..Synced::ended(Ok(())) }
    }

    fn count(&self, write: &SteerWrite) {
        match write {
            SteerWrite::Reserve { .. } => _ = self.metrics.steer_reservations.inc(),
            SteerWrite::Touch { .. } => _ = self.metrics.steer_touches.inc(),
            SteerWrite::Release { .. } => _ = self.metrics.steer_releases.inc(),
            SteerWrite::Label { .. } => _ = self.metrics.steer_labels.inc(),
            SteerWrite::Choose { .. }
            | SteerWrite::Fence { .. }
            | SteerWrite::Forget { .. }
            | SteerWrite::Unlabel { .. } => {}
        }
    }
}

/// Whether upstream binds a claim: it writes the volume first, and then the claim.
fn is_being_bound(claim: &Claim, naming: &[Arc<Volume>]) -> bool {
    let mut uids = naming.iter().filter_map(|volume| volume.claim_ref.as_ref()?.uid.as_ref());
    claim.volume_name.is_some() || uids.any(|uid| *uid == claim.uid)
}

/// The claims that a reserved volume concerns: those that its claimRef and Bindery's annotation name.
fn claims_of(volume: &Volume) -> Vec<Key> {
    let named = volume.claim_ref.iter().map(|claim_ref| claim_ref.claim_key());
    let reserved = volume.annotations.reserved_for.iter().map(|reservation| reservation.claim.clone());
    let is_reserved = |claim_ref: &ClaimRef| claim_ref.uid.is_none();
    let concerns = volume.claim_ref.as_ref().is_some_and(is_reserved) || reserved.len() > 0;
    let keys: BTreeSet<ClaimKey> = named.chain(reserved).filter(|_| concerns).collect();
    keys.into_iter().map(Key::Claim).collect()
}
