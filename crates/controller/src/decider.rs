//! Makes decisions: runs the engine on a session of the store, with the live reads that it needs, and has the
//! guard check the result.
//!
//! Syncs, steps of operations, reviews and the foresight of observe mode all decide here. A decider writes
//! nothing and locks nothing.

mod allowed;
mod policies;
mod views;

use std::sync::Arc;

use bindery_core::guard::{self, Case, Objection};
use bindery_core::steer::SteerWrite;
use bindery_core::{
    Answer, Cluster, Decision, DecisionLimits, Engine, EngineFault, Exchange, Key, Lookup, Narrowed,
    Question, Recorder, Request, Source, Stop, Subject, Text, Timestamp,
};
use bindery_policy::{CollectedEvidence, Filtered, Reclaims, Rejections, Rounds, SpreadCounts, Unscored};
use bindery_store::{Kind, LiveReads, Revision, Store};
use parking_lot::RwLock;

pub use self::policies::Policies;
pub(crate) use self::policies::{ActivePolicies, note};
use self::views::LiveObjects;
pub(crate) use self::views::{BinderEnvironment, GuardView, Objects, Proofs};
use crate::freshness::Freshness;
use crate::intake::Intake;
use crate::operations::OperationMap;
use crate::{Configuration, Metrics, Port, Purpose, SyncError};

/// Most live reads of one decision; the default engine makes at most three.
const LIVE_READS_MAX: u64 = 8;
/// Most objects that the guard has read for one decision; a decision names few.
pub(crate) const PROOFS_MAX: usize = 8;

/// The engine and the guard, over the store and live reads.
pub(crate) struct Decider<P: Port> {
    pub(crate) store: Arc<Store>,
    pub(crate) port: Arc<P>,
    pub(crate) engine: RwLock<Arc<dyn Engine>>,
    pub(crate) configuration: Arc<Configuration<P::Template>>,
    pub(crate) policies: ActivePolicies,
    pub(crate) operations: Arc<OperationMap>,
    pub(crate) limits: DecisionLimits,
    /// Whether a journal records what policies have said.
    pub(crate) records: bool,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) intake: Intake,
}

/// Where a decision reads claims and volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reads {
    /// From the watched store with own writes over it. It costs no request, and may be a moment old.
    Cached,
    /// From the API server, each object for this decision; classes are read from the store.
    Live,
}

/// The evidence of one run of an engine.
pub(crate) struct EngineRun {
    /// Its questions and answers. A review of cached objects needs none.
    pub(crate) exchanges: Vec<Exchange>,
    /// Units of fuel that it used; `None` where none are counted.
    pub(crate) fuel: Option<u64>,
    /// The policies that were asked.
    pub(crate) policies: Arc<Policies>,
    /// The store that its first run saw: a change since may concern it.
    pub(crate) since: Revision,
    /// The store that it saw.
    pub(crate) at: Revision,
    /// A volume that was not available because a decision in flight has picked it.
    pub(crate) in_flight: Option<Text>,
    /// How many volumes the policies reject, as far as the engine has asked.
    pub(crate) rejections: Option<Rejections>,
    /// Set if there were more candidates than the policies score.
    pub(crate) unscored: Option<Unscored>,
    /// The numbers of siblings' volumes that policies have read.
    pub(crate) spread_counts: SpreadCounts,
    /// The answers of the policies that apply, for the journal; `None` without a journal, policy or decision.
    pub(crate) collected: Option<CollectedEvidence>,
    /// What policies require of volumes before they judge any.
    pub(crate) required: Option<Arc<Narrowed>>,
}

/// Why a decision cannot be carried out.
pub(crate) enum Unsound {
    /// The cluster has changed meanwhile; the text says how. The object is decided again at once.
    Changed(String),
    /// Deciding again at once would not help.
    Final(SyncError),
}

impl<P: Port> Decider<P> {
    pub(crate) fn swap_engine(&self, engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
        std::mem::replace(&mut *self.engine.write(), engine)
    }

    pub(crate) fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(&self.engine.read())
    }

    /// Runs the engine, makes the live reads that it asks for, has the policies asked, and runs it again with
    /// the answers, until it decides. It may ask for [`LIVE_READS_MAX`] live reads.
    pub(crate) async fn decide(
        &self,
        engine: &dyn Engine,
        request: &Request,
        reads: Reads,
    ) -> Result<(Decision, EngineRun), EngineFault> {
        let (mut live, mut rounds) = (LiveReads::default(), Rounds::of(request));
        let policies = self.policies.get();
        let mut live_reads = 0;
        while live_reads <= LIVE_READS_MAX {
            let (answer, run) = self.run(engine, &policies, request, reads, &live, &mut rounds);
            match answer {
                Ok(decision) => return Ok((decision, run)),
                Err(EngineFault::Stopped(Stop::Judge)) => rounds = policies.judge(rounds).await?,
                Err(EngineFault::Stopped(Stop::LiveRead(question))) => {
                    live_reads += 1;
                    // Reviews are not counted, whatever they ask.
                    if !is_review(request) {
                        self.metrics.live_reads.inc();
                    }
                    let answer = self.read(&question).await?;
                    live.push(question, answer);
                }
                Err(fault) => return Err(fault),
            }
        }
        Err(Stop::TooMany { what: "live reads", max: LIVE_READS_MAX }.into())
    }

    /// Runs the engine once, on the current store and the live reads.
    pub(crate) fn run(
        &self,
        engine: &dyn Engine,
        policies: &Arc<Policies>,
        request: &Request,
        reads: Reads,
        live: &LiveReads,
        rounds: &mut Rounds,
    ) -> (Result<Decision, EngineFault>, EngineRun) {
        let environment =
            BinderEnvironment { configuration: &self.configuration, operations: &self.operations };
        // The session locks the store.
        let policed = (policies.claim(&self.store, request), policies.volume(request));
        let mut session = self.store.session(&environment, live, self.limits);
        if let Subject::SyncClaim(claim) = &request.subject {
            session = session.for_claim(claim.key.clone(), claim.uid.clone());
        }
        let (mut rejections, mut unscored, mut spread_counts) = (None, None, SpreadCounts::default());
        let (mut collected, mut required) = (None, None);
        let EngineAnswer { answer, exchanges, fuel } = match policed {
            (None, None) => told(engine, request, reads, &mut session),
            (None, Some(volume)) => {
                let chain = &policies.chain;
                let mut reclaims = Reclaims::new(&mut session, volume, chain, request.now, rounds);
                let answer = told(engine, request, reads, &mut reclaims);
                collected = reclaims.into_collected();
                answer
            }
            (Some(claim), _) => {
                let (chain, kept) = (&policies.chain, &policies.kept);
                match Filtered::new(&mut session, claim, chain, kept, rounds) {
                    Some(mut filtered) => {
                        let answer = told(engine, request, reads, &mut filtered);
                        (rejections, unscored) = (filtered.rejections(), filtered.unscored());
                        collected = (self.records && answer.answer.is_ok()).then(|| filtered.collected());
                        required = filtered.required().map(Arc::new);
                        spread_counts = filtered.into_spread_counts();
                        answer
                    }
                    None => told(engine, request, reads, &mut session),
                }
            }
        };
        // The store's lock ends with the session: subscriptions take another lock, and a wake takes both.
        let (since, at, in_flight) = (session.revision(), session.at(), session.in_flight());
        let policies = Arc::clone(policies);
        let run = EngineRun {
            exchanges,
            fuel,
            policies,
            since,
            at,
            in_flight,
            rejections,
            unscored,
            spread_counts,
            collected,
            required,
        };
        (answer, run)
    }

    /// Reads the answer to a question that the store cannot answer.
    async fn read(&self, question: &Question) -> Result<Answer, EngineFault> {
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

    /// The guard's answer on a decision, with these live reads.
    pub(crate) fn check(
        &self,
        policies: &Policies,
        request: &Request,
        exchanges: &[Exchange],
        decision: &Decision,
        proofs: &Proofs,
    ) -> Result<(), Objection> {
        let view = self.view(request.now, policies, proofs);
        guard::check(&Case { request, exchanges, decision, view: &view })
    }

    fn view<'a>(
        &'a self,
        now: Timestamp,
        policies: &'a Policies,
        proofs: &'a Proofs,
    ) -> GuardView<'a, Store> {
        let offer_again = self.configuration.offer_again;
        GuardView { objects: &*self.store, policies, proofs, offer_again, now }
    }

    /// Has the guard check a decision, with the live reads and the verdicts of policies that it wants. They
    /// are added to `proofs`.
    pub(crate) async fn check_with_reads(
        &self,
        request: &Request,
        exchanges: &[Exchange],
        decision: &Decision,
        proofs: &mut Proofs,
    ) -> Result<(), Unsound> {
        let policies = self.policies.get();
        let check = |proofs: &Proofs| self.check(&policies, request, exchanges, decision, proofs);
        self.with_reads(&policies, proofs, check).await
    }

    /// Has the guard check a write of mode steer, as [`Decider::check_with_reads`] does a decision.
    pub(crate) async fn check_steering(&self, write: &SteerWrite) -> Result<(), Unsound> {
        let mut proofs = Proofs { reads_reservations: true, ..Proofs::default() };
        let (now, policies) = (self.port.now(), self.policies.get());
        let check = |proofs: &Proofs| guard::check_steering(write, &self.view(now, &policies, proofs));
        self.with_reads(&policies, &mut proofs, check).await
    }

    async fn with_reads(
        &self,
        policies: &Policies,
        proofs: &mut Proofs,
        check: impl Fn(&Proofs) -> Result<(), Objection>,
    ) -> Result<(), Unsound> {
        let mut reads = 0;
        while reads <= PROOFS_MAX {
            match check(proofs) {
                Ok(()) => return Ok(()),
                Err(Objection::Prove(object)) => {
                    reads += 1;
                    self.prove(object, proofs).await.map_err(Unsound::Final)?;
                }
                Err(Objection::Judge) => {
                    let judged = policies.judge(proofs.rounds.take()).await;
                    proofs.rounds = judged.map_err(|fault| Unsound::Final(SyncError::from(fault)))?.into();
                }
                Err(stale @ Objection::Stale { .. }) if proofs.is_empty() => {
                    return Err(Unsound::Changed(stale.to_string()));
                }
                // The store does not have the state that a live read shows, so deciding at once would not
                // help.
                Err(stale @ Objection::Stale { .. }) => {
                    let why = stale.to_string();
                    return Err(Unsound::Final(SyncError::Stale { attempts: 1, why }));
                }
                Err(contradicted @ Objection::Contradicted { .. }) => {
                    let why = contradicted.to_string();
                    self.want_volumes(&why);
                    return Err(Unsound::Final(SyncError::Stale { attempts: 1, why }));
                }
                Err(unproven @ Objection::Unproven { .. }) => {
                    return Err(Unsound::Final(SyncError::Unproven(unproven.to_string())));
                }
                Err(Objection::Refused(refusal)) => {
                    return Err(Unsound::Final(SyncError::Refused(refusal.to_string())));
                }
            }
        }
        Err(Unsound::Final(SyncError::Refused(format!("it needs more than {PROOFS_MAX} live reads"))))
    }

    /// Reads an object for the guard; no volume while a new list of volumes is awaited, which proves as much
    /// in one request for all.
    pub(crate) async fn prove(&self, object: Key, proofs: &mut Proofs) -> Result<(), SyncError> {
        match object {
            Key::Claim(key) => {
                let proof = self.read_for_guard(|| self.port.read_claim(&key, Purpose::Guard)).await;
                proofs.claims.insert(key, proof);
            }
            Key::Volume(_) if self.freshness().is_list_wanted(Kind::Volume) => {
                return Err(SyncError::AwaitsList);
            }
            Key::Volume(name) if proofs.reads_reservations => {
                let proof = self.read_for_guard(|| self.port.read_reservation(&name)).await;
                let proof = proof.map(|(volume, is_own)| {
                    proofs.reserved.extend(is_own.then(|| name.clone()));
                    volume
                });
                proofs.volumes.insert(name, proof);
            }
            Key::Volume(name) => {
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
        self.metrics.guard_reads.inc();
        match read().await {
            Lookup::Failed(error) => {
                tracing::debug!(%error, "a live read for the guard failed; it is retried once");
                self.metrics.guard_reads.inc();
                read().await
            }
            proof => proof,
        }
    }

    /// Requests a new list of volumes, unless one is already requested, because a live read contradicts the
    /// cache.
    fn want_volumes(&self, why: &str) {
        if !self.freshness().is_list_wanted(Kind::Volume) {
            tracing::warn!(why, "the cache of volumes is stale; they are listed again");
            self.freshness().want_list(Kind::Volume);
        }
    }

    fn freshness(&self) -> &Freshness {
        self.intake.freshness()
    }
}

fn is_review(request: &Request) -> bool {
    matches!(request.subject, Subject::ReviewClaim { .. } | Subject::ReviewVolume { .. })
}

/// What an engine has decided, with the evidence.
pub(crate) struct EngineAnswer {
    pub(crate) answer: Result<Decision, EngineFault>,
    pub(crate) exchanges: Vec<Exchange>,
    fuel: Option<u64>,
}

/// Runs an engine on a cluster, with the evidence that its kind of request needs.
fn told(engine: &dyn Engine, request: &Request, reads: Reads, cluster: &mut dyn Cluster) -> EngineAnswer {
    match reads {
        Reads::Cached if is_review(request) => {
            EngineAnswer { answer: engine.decide(request, cluster), exchanges: Vec::new(), fuel: None }
        }
        Reads::Cached => recorded(engine, request, cluster),
        Reads::Live => recorded(engine, request, &mut LiveObjects::new(cluster)),
    }
}

/// Runs an engine, and records its questions and the answers.
pub(crate) fn recorded(engine: &dyn Engine, request: &Request, cluster: &mut dyn Cluster) -> EngineAnswer {
    let mut recorder = Recorder::new(cluster);
    let (answer, fuel) = engine.decide_with_fuel(request, &mut recorder);
    EngineAnswer { answer, exchanges: recorder.into_exchanges(), fuel }
}
