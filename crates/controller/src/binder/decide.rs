//! Makes one decision: the engine on a session of the store, live reads, the guard, the reservation.

use std::time::Duration;

use bindery_core::guard::{self, Case, Object, Objection};
use bindery_core::{
    Action, Answer, ClaimKey, Decision, Engine, EngineFault, Evidence, Exchange, Lookup, Question, Recorder,
    Request, Source, Stop, Subject, Text, VolumeTarget,
};
use bindery_store::{Kind, LiveReads, Revision, Store, Topic, topics_of, topics_of_claim};

use super::Binder;
use super::foresee::chosen;
use super::world::{Proofs, Surroundings, Witness};
use crate::intake::{Intake, Role, Subscriber};
use crate::queue::Slot;
use crate::{Key, Mode, Port, Purpose, SyncError, Verdict};

/// Most times that one object is decided in a row because the world moved: after that the key backs off, so
/// that a busy world cannot keep a task for ever.
const ATTEMPTS_MAX: u32 = 4;
/// Most live reads of one decision; the default engine makes at most three.
const LIVE_READS_MAX: usize = 8;
/// Most objects that the guard has read for one decision; a decision names few.
const PROOFS_MAX: usize = 8;
/// Longest that a decision may wait before its first step; the default engine waits 10 s at most, and an
/// engine that answers nonsense must not hold an operation for ever.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A decision that may be carried out.
pub(super) struct Decided<'a> {
    pub(super) request: Request,
    pub(super) exchanges: Vec<Exchange>,
    pub(super) decision: Decision,
    pub(super) hold: Hold<'a>,
}

/// What a decision has to itself until it is carried out.
#[derive(Default)]
pub(super) struct Hold<'a> {
    _reservation: Option<Reservation<'a>>,
    /// Of the volume that a claim's decision writes. The volume's own sync, which writes it too, comes
    /// before or after.
    _slot: Option<Slot>,
}

/// A volume picked by a decision in flight; given back when this is dropped.
struct Reservation<'a> {
    store: &'a Store,
    intake: &'a Intake,
    volume: Text,
    claim: ClaimKey,
}

/// What an engine said in one run.
pub(super) struct Ran {
    pub(super) answer: Result<Decision, EngineFault>,
    pub(super) exchanges: Vec<Exchange>,
    /// The store that it saw.
    since: Revision,
    /// A volume that it could not have because a decision in flight has picked it.
    in_flight: Option<Text>,
}

/// Passes on what the object was asked about, however its decision ends.
struct Asked<'a> {
    intake: &'a Intake,
    subscriber: Subscriber,
}

/// Why a decision cannot be carried out.
enum Setback {
    /// The world has moved: what has changed. It is decided again at once.
    Moved(String),
    /// Deciding again at once would not help.
    Final(SyncError),
}

impl<P: Port> Binder<P> {
    /// Decides the object of a key as it is now; `None` where there is no object that can be decided.
    pub(super) async fn decide_sync(&self, slot: &mut Slot) -> Result<Option<Decided<'_>>, SyncError> {
        let key = slot.key().clone();
        self.decide(slot, Role::Sync, || self.request(&key)).await
    }

    /// Decides a request, and again where the world moves meanwhile: then `request` says what it is now. The
    /// slot is to be kept until the decision is carried out.
    pub(super) async fn decide(
        &self,
        slot: &mut Slot,
        role: Role,
        request: impl Fn() -> Option<Request>,
    ) -> Result<Option<Decided<'_>>, SyncError> {
        if !self.store.synced() {
            return Err(SyncError::NotSynced);
        }
        // Dropped when the volume that the decision picks is reserved.
        let _asked = (role == Role::Sync)
            .then(|| Asked { intake: &self.intake, subscriber: (slot.key().clone(), role) });
        let mut why = String::new();
        for _ in 0..ATTEMPTS_MAX {
            let Some(request) = request() else {
                for role in [Role::Sync, Role::Operation] {
                    self.intake.subscriptions().unsubscribe(&(slot.key().clone(), role));
                }
                return Ok(None);
            };
            match self.attempt(slot, role, request).await {
                Ok(decided) => return Ok(Some(decided)),
                Err(Setback::Moved(what)) => why = what,
                Err(Setback::Final(error)) => return Err(error),
            }
        }
        Err(SyncError::Stale { attempts: ATTEMPTS_MAX, why })
    }

    async fn attempt(&self, slot: &mut Slot, role: Role, request: Request) -> Result<Decided<'_>, Setback> {
        let engine = self.engine();
        let subscriber = (slot.key().clone(), role);
        let (decision, exchanges) =
            self.ask_engine(&*engine, &subscriber, &request).await.map_err(Setback::Final)?;
        // Only operations wait; a sync that wants to is refused. Syncs that are decided meanwhile are as good
        // as other actors: the guard looks at what they left.
        if decision.wait_ms > 0 && role == Role::Operation {
            let wait = Duration::from_millis(decision.wait_ms).min(WAIT_MAX);
            slot.lend_during(tokio::time::sleep(wait)).await;
        }
        let verdict = self.secure(&request, &exchanges, &decision).await;
        self.write_down(slot.key(), &*engine, &request, &exchanges, &decision, &verdict);
        match verdict {
            Ok(hold) => Ok(Decided { request, exchanges, decision, hold }),
            Err(Setback::Final(error)) => {
                match &error {
                    SyncError::Refused(why) => self.report_refusal(&request, why),
                    SyncError::Stale { .. } | SyncError::AwaitsList => self.metrics.stale.count(),
                    _ => {}
                }
                Err(Setback::Final(error))
            }
            Err(setback) => {
                self.metrics.stale.count();
                Err(setback)
            }
        }
    }

    /// Runs the engine, once more after each live read that it needs, and subscribes the key to all that it
    /// asked.
    async fn ask_engine(
        &self,
        engine: &dyn Engine,
        subscriber: &Subscriber,
        request: &Request,
    ) -> Result<(Decision, Vec<Exchange>), SyncError> {
        let mut live = LiveReads::default();
        for _ in 0..=LIVE_READS_MAX {
            let Ran { answer, exchanges, since, in_flight } = self.run_engine(engine, request, &live);
            match answer {
                Ok(decision) => {
                    self.metrics.decisions.count();
                    let mut topics = match &request.subject {
                        Subject::SyncClaim(claim) => topics_of_claim(claim, &exchanges),
                        _ => topics_of(&exchanges),
                    };
                    if chosen(&decision).is_none() {
                        topics.extend(in_flight.map(Topic::Reservation));
                    }
                    if self.intake.subscriptions().subscribe(subscriber.clone(), since, topics) {
                        self.intake.enqueue(subscriber.0.clone());
                    }
                    return Ok((decision, exchanges));
                }
                Err(EngineFault::Stopped(Stop::LiveRead(question))) => {
                    self.metrics.live_reads.count();
                    let answer = self.read_live(&question).await?;
                    live.push(question, answer);
                }
                Err(fault) => {
                    self.metrics.engine_faults.count();
                    return Err(fault.into());
                }
            }
        }
        self.metrics.engine_faults.count();
        Err(SyncError::TooManyReads(LIVE_READS_MAX))
    }

    /// Runs the engine once, on the store as it is now.
    pub(super) fn run_engine(&self, engine: &dyn Engine, request: &Request, live: &LiveReads) -> Ran {
        let surroundings = Surroundings { facts: &self.facts, operations: &self.operations };
        let mut session = self.store.session(&surroundings, live, self.settings.session);
        if let Subject::SyncClaim(claim) = &request.subject {
            session = session.for_claim(claim.key.clone(), claim.uid.clone());
        }
        let mut recorder = Recorder::new(&mut session);
        let answer = engine.decide(request, &mut recorder);
        let exchanges = recorder.into_exchanges();
        // The store's lock ends with the session: a subscription takes another one, and whoever wakes takes
        // both.
        Ran { answer, exchanges, since: session.revision(), in_flight: session.in_flight() }
    }

    /// Has the cluster answer a question that only it can.
    pub(super) async fn read_live(&self, question: &Question) -> Result<Answer, EngineFault> {
        match question {
            Question::Claim(Source::Live, key) => {
                Ok(Answer::Claim(self.port.read_claim(key, Purpose::Engine).await))
            }
            Question::Volume(Source::Live, name) => {
                Ok(Answer::Volume(self.port.read_volume(name, Purpose::Engine).await))
            }
            _ => Err(Stop::Nonsense("only claims and volumes are read live").into()),
        }
    }

    /// Has the guard check a decision, with the live reads that it wants.
    async fn judge(
        &self,
        request: &Request,
        exchanges: &[Exchange],
        decision: &Decision,
    ) -> Result<(), Setback> {
        let mut proofs = Proofs::default();
        for _ in 0..=PROOFS_MAX {
            match self.check(request, exchanges, decision, &proofs) {
                Ok(()) => return Ok(()),
                Err(Objection::Prove(object)) => {
                    self.prove(object, &mut proofs).await.map_err(Setback::Final)?
                }
                Err(stale @ Objection::Stale { .. }) if proofs.len() == 0 => {
                    return Err(Setback::Moved(stale.to_string()));
                }
                // The store has yet to see what a live read shows: at once it would be no wiser.
                Err(stale @ Objection::Stale { .. }) => {
                    let why = stale.to_string();
                    return Err(Setback::Final(SyncError::Stale { attempts: 1, why }));
                }
                Err(contradicted @ Objection::Contradicted { .. }) => {
                    let why = contradicted.to_string();
                    self.want_volumes(&why);
                    return Err(Setback::Final(SyncError::Stale { attempts: 1, why }));
                }
                Err(unproven @ Objection::Unproven { .. }) => {
                    return Err(Setback::Final(SyncError::Unproven(unproven.to_string())));
                }
                Err(Objection::Refused(refusal)) => {
                    return Err(Setback::Final(SyncError::Refused(refusal.to_string())));
                }
            }
        }
        Err(Setback::Final(SyncError::Refused(format!("it needs more than {PROOFS_MAX} live reads"))))
    }

    /// The guard's word on a decision, with these live reads.
    pub(super) fn check(
        &self,
        request: &Request,
        exchanges: &[Exchange],
        decision: &Decision,
        proofs: &Proofs,
    ) -> Result<(), Objection> {
        let world = Witness { store: &self.store, proofs, offer_again: self.facts.offer_again };
        guard::check(&Case { request, exchanges, decision, view: &world })
    }

    /// Reads an object for the guard.
    ///
    /// # Errors
    ///
    /// It is a volume, and a new list of volumes is awaited: it proves as much, in one request for all.
    async fn prove(&self, object: Object, proofs: &mut Proofs) -> Result<(), SyncError> {
        match object {
            Object::Claim(key) => {
                let proof = self.read_for_guard(|| self.port.read_claim(&key, Purpose::Guard)).await;
                proofs.claims.insert(key, proof);
            }
            Object::Volume(_) if self.intake.freshness().is_list_wanted(Kind::Volume) => {
                return Err(SyncError::AwaitsList);
            }
            Object::Volume(name) => {
                let proof = self.read_for_guard(|| self.port.read_volume(&name, Purpose::Guard)).await;
                proofs.volumes.insert(name, proof);
            }
        }
        Ok(())
    }

    /// Makes a live read for the guard; a failure is retried once before the decision is given up.
    async fn read_for_guard<T, F>(&self, read: impl Fn() -> F) -> Lookup<T>
    where
        F: Future<Output = Lookup<T>>,
    {
        self.metrics.guard_reads.count();
        match read().await {
            Lookup::Failed(error) => {
                tracing::debug!(%error, "a live read for the guard failed; it is retried once");
                self.metrics.guard_reads.count();
                read().await
            }
            proof => proof,
        }
    }

    /// Has the volumes listed anew, unless that is under way: a live read contradicts the cache.
    fn want_volumes(&self, why: &str) {
        let freshness = self.intake.freshness();
        if !freshness.is_list_wanted(Kind::Volume) {
            tracing::warn!(why, "the cache of volumes is stale; they are listed anew");
            freshness.want_list(Kind::Volume);
        }
    }

    /// Has the guard check a decision, and takes what it needs to itself.
    async fn secure(
        &self,
        request: &Request,
        exchanges: &[Exchange],
        decision: &Decision,
    ) -> Result<Hold<'_>, Setback> {
        self.judge(request, exchanges, decision).await?;
        // Where nothing is carried out, nothing is taken from others.
        if self.settings.mode == Mode::Observe {
            return Ok(Hold::default());
        }
        let reservation = self.reserve(decision).map_err(|held_by| {
            self.metrics.reservations_lost.count();
            Setback::Moved(held_by)
        })?;
        let written = match &request.subject {
            Subject::SyncClaim(_) => written_volume(decision),
            _ => None,
        };
        let Some(written) = written else { return Ok(Hold { _reservation: reservation, _slot: None }) };
        let slot = self.intake.queue().slot(&Key::Volume(written.name.clone())).await;
        match self.store.volume(Source::Overlay, &written.name) {
            Lookup::Found(volume) if volume.version == written.version => {
                Ok(Hold { _reservation: reservation, _slot: Some(slot) })
            }
            // By its own sync, which had the slot: a write of the version that was read would be a conflict.
            _ => Err(Setback::Moved(format!("volume {:?} has changed", written.name))),
        }
    }

    /// Reserves the volume that a decision picks for a claim.
    ///
    /// # Errors
    ///
    /// Another decision in flight has picked it; says which.
    fn reserve(&self, decision: &Decision) -> Result<Option<Reservation<'_>>, String> {
        let Some((volume, claim)) = decision.actions().find_map(|action| match action {
            Action::ReserveVolume { volume, claim, .. } => Some((&volume.name, &claim.key)),
            _ => None,
        }) else {
            return Ok(None);
        };
        self.store.reserve(volume, claim).map_err(|held_by| held_by.to_string())?;
        Ok(Some(Reservation {
            store: &self.store,
            intake: &self.intake,
            volume: volume.clone(),
            claim: claim.clone(),
        }))
    }

    fn write_down(
        &self,
        key: &Key,
        engine: &dyn Engine,
        request: &Request,
        exchanges: &[Exchange],
        decision: &Decision,
        verdict: &Result<Hold<'_>, Setback>,
    ) {
        let Some(journal) = &self.journal else { return };
        let verdict = match verdict {
            Ok(_) => Verdict::Passed,
            Err(Setback::Moved(why) | Setback::Final(SyncError::Stale { why, .. })) => {
                Verdict::Stale(why.clone())
            }
            Err(Setback::Final(error @ SyncError::AwaitsList)) => Verdict::Stale(error.to_string()),
            Err(Setback::Final(SyncError::Unproven(why))) => Verdict::Unproven(why.clone()),
            Err(Setback::Final(error)) => Verdict::Refused(error.to_string()),
        };
        let evidence = Evidence {
            engine: engine.digest().to_owned(),
            request: request.clone(),
            exchanges: exchanges.to_vec(),
            decision: decision.clone(),
        };
        journal.decided(key, evidence, verdict);
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
        self.intake.pass_on(&self.subscriber);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.intake.unreserved(&self.store.unreserve(&self.volume, &self.claim), &self.claim);
    }
}
