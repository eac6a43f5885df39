//! Makes one decision of a sync or of a step of an operation: decider, key locks, reservation, journal.

use std::time::Duration;

use bindery_core::{
    Action, ClaimKey, Counted, Decision, Engine, Evidence, Exchange, GuardVerdict, Key, Lookup, Request,
    Source, Subject, Text, Volume, VolumeTarget,
};
use bindery_policy::{Rejections, Unscored};
use bindery_store::{Fact, Kind, NotReserved, Revision, Store, facts_of, facts_of_claim};

use super::Binder;
use crate::decider::{EngineRun, Proofs, Reads, Unsound};
use crate::executor::STALE_AFTER;
use crate::intake::{Intake, Role, Subscriber};
use crate::queue::{KeyLock, Timer};
use crate::{DecidedRecord, Mode, Port, SyncError};

/// Most attempts at one decision if the cluster changes each time. Then the key backs off, so that a busy
/// cluster cannot occupy a task for ever.
const ATTEMPTS_MAX: u32 = 4;
/// Longest time that a decision may wait before its first step. The default engine waits 10 s at most; a
/// faulty engine must not hold an operation for ever.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A decision that may be carried out.
pub(super) struct Decided<'a> {
    pub(super) request: Request,
    pub(super) exchanges: Vec<Exchange>,
    pub(super) decision: Decision,
    /// How many volumes the policies reject.
    pub(super) rejections: Option<Rejections>,
    /// Set if there were more candidates than the policies score.
    pub(super) unscored: Option<Unscored>,
    pub(super) locks: Locks<'a>,
}

/// The volume and the key that are reserved for this decision until it is carried out.
#[derive(Default)]
pub(super) struct Locks<'a> {
    _reservation: Option<HeldReservation<'a>>,
    /// The key lock of the volume that a claim's decision writes. The volume's own sync, which writes it too,
    /// comes before or after.
    _lock: Option<KeyLock>,
}

/// A volume picked by a decision in flight; free again when this is dropped.
struct HeldReservation<'a> {
    store: &'a Store,
    intake: &'a Intake,
    volume: Text,
    claim: ClaimKey,
}

/// Offers the volume that woke the object to the next claim, however the decision ends.
pub(super) struct Asked<'a> {
    pub(super) intake: &'a Intake,
    pub(super) subscriber: Subscriber,
}

impl<P: Port> Binder<P> {
    /// Decides the object of a key as it is now; `None` if there is no object that can be decided.
    pub(super) async fn decide_sync(&self, lock: &mut KeyLock) -> Result<Option<Decided<'_>>, SyncError> {
        let key = lock.key().clone();
        self.decide(lock, Role::Sync, || self.request(&key)).await
    }

    /// The request to decide the object of a key, as it is now; `None` if the object does not exist, or its
    /// deletion is accepted.
    pub(super) fn request(&self, key: &Key) -> Option<Request> {
        let now = self.port.now();
        let subject = match key {
            Key::Claim(key) => match self.store.claim(Source::Overlay, key) {
                Lookup::Found(claim) => Some(Subject::SyncClaim(claim)),
                Lookup::Unreadable(why) => {
                    self.report_unreadable(self.unreadable_claim(key), why);
                    None
                }
                Lookup::Absent | Lookup::Failed(_) => None,
            },
            Key::Volume(name) => match self.store.volume(Source::Overlay, name) {
                Lookup::Found(volume) if self.intake.deletions().is_accepted(&volume) => {
                    self.list_if_overdue(&volume);
                    None
                }
                Lookup::Found(volume) => Some(Subject::SyncVolume(volume)),
                Lookup::Unreadable(why) => {
                    self.report_unreadable(self.unreadable_volume(name), why);
                    None
                }
                Lookup::Absent => {
                    self.intake.deletions().forget(name);
                    None
                }
                Lookup::Failed(_) => None,
            },
        };
        subject.map(|subject| Request { now, subject })
    }

    /// Lists the volumes again if the watch does not report the deletion of this one.
    fn list_if_overdue(&self, volume: &Volume) {
        if !self.intake.deletions().is_overdue(volume, &self.store) {
            return;
        }
        let freshness = self.intake.freshness();
        if freshness.is_listing(Kind::Volume) {
            // The watch that begins after this list may report the deletion.
            let key = Key::Volume(volume.name.clone());
            self.intake.queue().add_after(key, Timer::Operation, STALE_AFTER);
        } else if !freshness.is_list_wanted(Kind::Volume) {
            let (object, uid) = (&*volume.name, &*volume.uid.0);
            tracing::warn!(object, uid, "the watch does not report the deletion; listing again");
            freshness.want_list(Kind::Volume);
        }
    }

    /// Decides a request. If the cluster changes meanwhile, `request` returns the new request, and it is
    /// decided again. The caller keeps the lock until the decision is carried out.
    pub(super) async fn decide(
        &self,
        lock: &mut KeyLock,
        role: Role,
        request: impl Fn() -> Option<Request>,
    ) -> Result<Option<Decided<'_>>, SyncError> {
        if !self.store.synced() {
            return Err(SyncError::NotSynced);
        }
        // Dropped when the volume that the decision picks is reserved.
        let _asked = (role == Role::Sync)
            .then(|| Asked { intake: &self.intake, subscriber: (lock.key().clone(), role) });
        let mut why = String::new();
        for _ in 0..ATTEMPTS_MAX {
            let Some(request) = request() else {
                for role in [Role::Sync, Role::Operation] {
                    self.intake.turns().subscriptions.unsubscribe(&(lock.key().clone(), role));
                }
                return Ok(None);
            };
            match self.attempt(lock, role, request).await {
                Ok(decided) => return Ok(Some(decided)),
                Err(Unsound::Changed(what)) => why = what,
                Err(Unsound::Final(error)) => return Err(error),
            }
        }
        Err(SyncError::Stale { attempts: ATTEMPTS_MAX, why })
    }

    async fn attempt(
        &self,
        lock: &mut KeyLock,
        role: Role,
        request: Request,
    ) -> Result<Decided<'_>, Unsound> {
        let engine = self.decider.engine();
        let subscriber = (lock.key().clone(), role);
        // Until the volume is reserved.
        let _siblings =
            self.sibling_locks.lock(self.decider.policies.get().siblings(&self.store, &request)).await;
        let (decision, run) =
            self.ask_engine(&*engine, &subscriber, &request).await.map_err(Unsound::Final)?;
        // Only operations wait; a sync that wants to wait is refused. Syncs that are decided meanwhile are
        // like other actors: the guard checks the objects as they left them.
        if decision.wait_ms > 0 && role == Role::Operation {
            let wait = Duration::from_millis(decision.wait_ms).min(WAIT_MAX);
            lock.release_during(tokio::time::sleep(wait)).await;
        }
        let mut proofs = Proofs::default();
        let outcome =
            self.secure(&request, &run.exchanges, &decision, &run.spread_counts.counted, &mut proofs).await;
        let outcome = outcome.map_err(|unsound| match unsound {
            // The guard has checked with other policies than the engine was told of.
            Unsound::Final(SyncError::Refused(why)) if !self.decider.policies.are(&run.policies) => {
                Unsound::Changed(why)
            }
            unsound => unsound,
        });
        self.write_down(&*engine, &request, &run, &decision, &proofs, &outcome);
        if outcome.is_ok() {
            self.shadows.offer_decision(&engine, &request, &run, &decision);
        }
        let EngineRun { exchanges, rejections, unscored, .. } = run;
        match outcome {
            Ok(locks) => Ok(Decided { request, exchanges, decision, rejections, unscored, locks }),
            Err(Unsound::Final(error)) => {
                match &error {
                    SyncError::Refused(why) => self.report_refusal(&request, why),
                    SyncError::Policy { policy, .. } => self.report_policy(&request, policy, &error),
                    SyncError::Stale { .. } | SyncError::AwaitsList => {
                        self.metrics.stale.inc();
                    }
                    _ => {}
                }
                Err(Unsound::Final(error))
            }
            Err(unsound) => {
                self.metrics.stale.inc();
                Err(unsound)
            }
        }
    }

    /// Has the engine decide, and subscribes the key to every fact that it asked for.
    async fn ask_engine(
        &self,
        engine: &dyn Engine,
        subscriber: &Subscriber,
        request: &Request,
    ) -> Result<(Decision, EngineRun), SyncError> {
        let since = self.store.revision();
        let (decision, run) = self.decider.decide(engine, request, Reads::Cached).await.map_err(|error| {
            let error = SyncError::from(error);
            match &error {
                SyncError::Policy { policy, .. } => {
                    self.report_policy(request, policy, &error);
                    // The policy may not apply any more once its namespace or class changes.
                    self.subscribe(subscriber, since, self.decider.policies.get().facts(request));
                }
                _ => _ = self.metrics.engine_faults.inc(),
            }
            error
        })?;
        self.metrics.decisions.inc();
        let mut facts = match &request.subject {
            Subject::SyncClaim(claim) => facts_of_claim(claim, &run.exchanges),
            _ => facts_of(&run.exchanges),
        };
        if let Some(required) = &run.required {
            facts.iter_mut().for_each(|fact| fact.narrow(required));
        }
        facts.extend(self.decider.policies.get().facts(request));
        if decision.chosen().is_none() {
            facts.extend(run.in_flight.clone().map(Fact::Reservation));
            let numbers = run.spread_counts.rejected.iter().cloned();
            facts.extend(numbers.map(|(siblings, value)| Fact::Siblings(siblings.into(), value)));
        }
        self.subscribe(subscriber, run.since, facts);
        Ok((decision, run))
    }

    /// Gives the key a turn when one of the facts changes. Those of its last turn do not count any more.
    pub(super) fn subscribe(&self, subscriber: &Subscriber, since: Revision, facts: Vec<Fact>) {
        if self.intake.turns().subscriptions.subscribe(subscriber.clone(), since, facts) {
            self.intake.enqueue(subscriber.0.clone());
        }
    }

    /// Has the guard check a decision, and reserves the volume and the key that it needs.
    async fn secure(
        &self,
        request: &Request,
        exchanges: &[Exchange],
        decision: &Decision,
        counted: &[Counted],
        proofs: &mut Proofs,
    ) -> Result<Locks<'_>, Unsound> {
        if let Err(unsound) = self.decider.check_with_reads(request, exchanges, decision, proofs).await {
            return Err(match (unsound, &request.subject) {
                // Its policies judge by other numbers than the engine was told.
                (Unsound::Final(SyncError::Refused(why)), Subject::SyncClaim(claim))
                    if !self.store.is_as_counted(&claim.key, counted) =>
                {
                    Unsound::Changed(why)
                }
                (unsound, _) => unsound,
            });
        }
        // A decision that is not carried out reserves nothing.
        if self.settings.mode == Mode::Observe {
            return Ok(Locks::default());
        }
        self.check_unanswered(request, decision, proofs).await?;
        let reservation = self.reserve(decision, counted).map_err(|why| {
            self.metrics.reservations_lost.inc();
            Unsound::Changed(why.to_string())
        })?;
        let written = match &request.subject {
            Subject::SyncClaim(_) => written_volume(decision),
            _ => None,
        };
        let Some(written) = written else { return Ok(Locks { _reservation: reservation, _lock: None }) };
        let lock = self.intake.queue().lock(&Key::Volume(written.name.clone())).await;
        match self.store.volume(Source::Overlay, &written.name) {
            Lookup::Found(volume) if volume.version == written.version => {
                Ok(Locks { _reservation: reservation, _lock: Some(lock) })
            }
            // The volume's own sync had the lock and changed it: a write with the version that was read would
            // conflict.
            _ => Err(Unsound::Changed(format!("volume {:?} has changed", written.name))),
        }
    }

    /// Reserves the volume that a decision picks for a claim.
    fn reserve(
        &self,
        decision: &Decision,
        counted: &[Counted],
    ) -> Result<Option<HeldReservation<'_>>, NotReserved> {
        let Some((volume, claim)) = decision.actions().find_map(|action| match action {
            Action::ReserveVolume { volume, claim, .. } => Some((&volume.name, &claim.key)),
            _ => None,
        }) else {
            return Ok(None);
        };
        self.intake.changed(&self.store.reserve(volume, claim, counted)?);
        Ok(Some(HeldReservation {
            store: &self.store,
            intake: &self.intake,
            volume: volume.clone(),
            claim: claim.clone(),
        }))
    }

    fn write_down(
        &self,
        engine: &dyn Engine,
        request: &Request,
        run: &EngineRun,
        decision: &Decision,
        proofs: &Proofs,
        outcome: &Result<Locks<'_>, Unsound>,
    ) {
        let Some(journal) = &self.journal else { return };
        let guard = match outcome {
            Ok(_) => GuardVerdict::Passed,
            Err(Unsound::Changed(why) | Unsound::Final(SyncError::Stale { why, .. })) => {
                GuardVerdict::Stale(why.clone())
            }
            Err(Unsound::Final(error @ SyncError::AwaitsList)) => GuardVerdict::Stale(error.to_string()),
            Err(Unsound::Final(SyncError::Unproven(why))) => GuardVerdict::Unproven(why.clone()),
            Err(Unsound::Final(error)) => GuardVerdict::Refused(error.to_string()),
        };
        let evidence = Evidence {
            engine: engine.digest().to_owned(),
            request: request.clone(),
            exchanges: run.exchanges.clone(),
            decision: decision.clone(),
        };
        let chain = &run.policies.chain;
        let policies = run.collected.as_ref().map(|collected| collected.evidence(chain));
        let chain = chain.digest().to_owned();
        let reads = proofs.reads();
        journal.decided(DecidedRecord { evidence, chain, policies, fuel: run.fuel, reads, guard });
    }
}

/// The volume that a decision about a claim writes.
fn written_volume(decision: &Decision) -> Option<&VolumeTarget> {
    decision.actions().find_map(|action| match action {
        Action::ReserveVolume { volume, .. } | Action::SetVolumePhase { volume, .. } => Some(volume),
        _ => None,
    })
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.intake.turns().pass_on(&self.subscriber);
    }
}

impl Drop for HeldReservation<'_> {
    fn drop(&mut self) {
        let change = self.store.unreserve(&self.volume, &self.claim);
        self.intake.turns().unreserved(&change, &self.claim);
    }
}
