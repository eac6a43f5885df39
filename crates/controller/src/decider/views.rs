//! The binder's views for the guard, for sessions and for engines.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bindery_core::guard::{Reclaim, SteerView, View};
use bindery_core::{
    Answer, Claim, ClaimKey, Class, Cluster, Exchange, Lookup, MatchVerdict, Migration, OperationKind,
    OperationState, Plugin, PluginMatch, PluginOperation, Question, Source, Stop, Text, Timestamp, Uid,
    Volume,
};
use bindery_policy::{Reclaimed, Rounds};
use bindery_store::{Environment, Store};

use super::Policies;

use crate::Configuration;
use crate::operations::OperationMap;

/// The guard's view: the store, and the guard's live reads.
pub(super) struct GuardView<'a> {
    pub(super) store: &'a Store,
    pub(super) policies: &'a Policies,
    pub(super) proofs: &'a Proofs,
    pub(super) offer_again: bool,
    pub(super) now: Timestamp,
}

/// The live reads and the verdicts of policies for the guard in one decision.
#[derive(Default)]
pub(crate) struct Proofs {
    pub(super) claims: BTreeMap<ClaimKey, Lookup<Arc<Claim>>>,
    pub(super) volumes: BTreeMap<Text, Lookup<Arc<Volume>>>,
    /// Whether volumes are read together with who wrote their claimRef.
    pub(super) reads_reservations: bool,
    /// The volumes that were read whose claimRef Bindery has written.
    pub(super) reserved: BTreeSet<Text>,
    pub(super) rounds: RefCell<Rounds>,
}

impl Proofs {
    /// Whether no object was read.
    pub(super) fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.volumes.is_empty()
    }
}

impl View for GuardView<'_> {
    fn synced(&self) -> bool {
        self.store.synced()
    }

    fn volume(&self, name: &str) -> Lookup<Arc<Volume>> {
        self.store.volume(Source::Overlay, name)
    }

    fn claim(&self, key: &ClaimKey) -> Lookup<Arc<Claim>> {
        self.store.claim(Source::Overlay, key)
    }

    fn class(&self, name: &str) -> Lookup<Arc<Class>> {
        self.store.class(name)
    }

    fn claim_proof(&self, key: &ClaimKey) -> Option<&Lookup<Arc<Claim>>> {
        self.proofs.claims.get(key)
    }

    fn volume_proof(&self, name: &str) -> Option<&Lookup<Arc<Volume>>> {
        self.proofs.volumes.get(name)
    }

    fn allows_offer_again(&self) -> bool {
        self.offer_again
    }

    fn reclaim(&self, volume: &Volume) -> Result<Option<Reclaim>, String> {
        if !self.policies.reclaims() {
            return Ok(Some(Reclaim::default()));
        }
        let mut rounds = self.proofs.rounds.borrow_mut();
        match self.policies.reclaimed(self.store, volume, self.now, &mut rounds) {
            Ok(Reclaimed { verdict, is_allowed }) => Ok(Some(Reclaim { fate: verdict.fate, is_allowed })),
            Err(Stop::Judge) => Ok(None),
            Err(stop) => Err(stop.to_string()),
        }
    }

    fn verdict(&self, claim: &Claim, volume: &Volume) -> Result<Option<MatchVerdict>, String> {
        if self.policies.chain.is_empty() {
            return Ok(Some(MatchVerdict::Allowed));
        }
        match self.policies.verdict(self.store, claim, volume, &mut self.proofs.rounds.borrow_mut()) {
            Ok(verdict) => Ok(Some(verdict)),
            Err(Stop::Judge) => Ok(None),
            Err(stop) => Err(stop.to_string()),
        }
    }

    fn policies_answer(&self, claim: &Claim) -> Result<bool, String> {
        if self.policies.chain.is_empty() {
            return Ok(true);
        }
        match self.policies.answers(self.store, claim, &mut self.proofs.rounds.borrow_mut()) {
            Ok(()) => Ok(true),
            Err(Stop::Judge) => Ok(false),
            Err(stop) => Err(stop.to_string()),
        }
    }
}

impl SteerView for GuardView<'_> {
    fn volumes_naming(&self, claim: &ClaimKey) -> Vec<Arc<Volume>> {
        self.store.volumes_naming(claim)
    }

    fn has_reserved(&self, volume: &str) -> bool {
        self.proofs.reserved.contains(volume)
    }
}

/// The facts of a session that come from no watch.
pub(crate) struct BinderEnvironment<'a, T> {
    pub(crate) configuration: &'a Configuration<T>,
    pub(crate) operations: &'a OperationMap,
}

impl<T> Environment for BinderEnvironment<'_, T> {
    fn plugin(&self, name: &str) -> Option<Plugin> {
        self.configuration.plugins.describe(name)
    }

    fn plugin_for_volume(&self, volume: &Volume) -> PluginMatch {
        self.configuration.plugins.supporting(volume)
    }

    fn plugin_ready(&self, name: &str, operation: PluginOperation) -> Result<(), Text> {
        self.configuration.plugins.ready(name, operation)
    }

    fn migration(&self, name: &str) -> Migration {
        self.configuration.migrations.get(name)
    }

    fn dynamic_provisioning(&self) -> bool {
        self.configuration.dynamic_provisioning
    }

    fn operation(&self, kind: OperationKind, uid: &Uid) -> OperationState {
        self.operations.state(kind, uid)
    }
}

/// A cluster in which claims and volumes are as they were read live, each read once.
pub(super) struct LiveObjects<'a> {
    cluster: &'a mut dyn Cluster,
    told: Vec<Exchange>,
}

impl<'a> LiveObjects<'a> {
    pub(super) fn new(cluster: &'a mut dyn Cluster) -> Self {
        Self { cluster, told: Vec::new() }
    }
}

impl Cluster for LiveObjects<'_> {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        let question = match question {
            Question::Claim(_, key) => Question::Claim(Source::Live, key),
            Question::Volume(_, name) => Question::Volume(Source::Live, name),
            question => return self.cluster.ask(question),
        };
        if let Some(told) = self.told.iter().find(|told| told.question == question) {
            return Ok(told.answer.clone());
        }
        let answer = self.cluster.ask(question.clone())?;
        self.told.push(Exchange { question, answer: answer.clone() });
        Ok(answer)
    }
}
