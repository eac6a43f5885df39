//! The binder's views for the guard, for sessions and for engines.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bindery_core::guard::{Reclaim, SteerView, View};
use bindery_core::{
    Answer, Claim, ClaimKey, Class, Cluster, Exchange, GuardRead, Key, Lookup, MatchVerdict, Migration,
    OperationKind, OperationState, Plugin, PluginMatch, PluginOperation, Question, RelatedLookup, Source,
    Stop, Text, Timestamp, Uid, Version, Volume,
};
use bindery_policy::{Reclaimed, Rounds};
use bindery_store::{Environment, Store};

use super::Policies;

use crate::Configuration;
use crate::operations::OperationMap;

/// The objects that the guard and policies look up: those of the store, or those of an earlier decision.
pub(crate) trait Objects: RelatedLookup {
    /// Whether all initial lists are complete.
    fn synced(&self) -> bool;
    /// A volume as the overlay has it.
    fn volume(&self, name: &str) -> Lookup<Arc<Volume>>;
    /// A claim as the overlay has it.
    fn claim(&self, key: &ClaimKey) -> Lookup<Arc<Claim>>;
}

impl Objects for Store {
    fn synced(&self) -> bool {
        self.synced()
    }

    fn volume(&self, name: &str) -> Lookup<Arc<Volume>> {
        self.volume(Source::Overlay, name)
    }

    fn claim(&self, key: &ClaimKey) -> Lookup<Arc<Claim>> {
        self.claim(Source::Overlay, key)
    }
}

/// The guard's view: the objects, and the guard's live reads.
pub(crate) struct GuardView<'a, O> {
    pub(crate) objects: &'a O,
    pub(crate) policies: &'a Policies,
    pub(crate) proofs: &'a Proofs,
    pub(crate) offer_again: bool,
    pub(crate) now: Timestamp,
}

/// The live reads and the verdicts of policies for the guard in one decision.
#[derive(Default)]
pub(crate) struct Proofs {
    pub(super) claims: BTreeMap<ClaimKey, Lookup<Arc<Claim>>>,
    pub(crate) volumes: BTreeMap<Text, Lookup<Arc<Volume>>>,
    /// Whether volumes are read together with the writers of their claimRef.
    pub(super) reads_reservations: bool,
    /// The volumes that were read whose claimRef Bindery has written.
    pub(super) reserved: BTreeSet<Text>,
    pub(crate) rounds: RefCell<Rounds>,
}

impl Proofs {
    /// Whether no object was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.volumes.is_empty()
    }

    /// What the live reads have found.
    pub(crate) fn reads(&self) -> Vec<GuardRead> {
        let claims = self.claims.iter().map(|(key, found)| GuardRead {
            key: Key::Claim(key.clone()),
            found: identity(found, |claim| (claim.uid.clone(), claim.version.clone())),
        });
        let volumes = self.volumes.iter().map(|(name, found)| GuardRead {
            key: Key::Volume(name.clone()),
            found: identity(found, |volume| (volume.uid.clone(), volume.version.clone())),
        });
        claims.chain(volumes).collect()
    }

    /// Takes an object as these have it for one that was read live.
    pub(crate) fn assume(&mut self, object: Key, objects: &impl Objects) {
        match object {
            Key::Claim(key) => {
                let found = objects.claim(&key);
                self.claims.insert(key, found);
            }
            Key::Volume(name) => {
                let found = objects.volume(&name);
                self.volumes.insert(name, found);
            }
        }
    }
}

/// UID and version of an object that was read; `None` if it does not exist. The error says why it could not
/// be read.
fn identity<T>(
    read: &Lookup<Arc<T>>,
    of: impl FnOnce(&T) -> (Uid, Version),
) -> Result<Option<(Uid, Version)>, String> {
    match read {
        Lookup::Found(object) => Ok(Some(of(object))),
        Lookup::Absent => Ok(None),
        Lookup::Unreadable(why) | Lookup::Failed(why) => Err(why.to_string()),
    }
}

impl<O: Objects> View for GuardView<'_, O> {
    fn synced(&self) -> bool {
        self.objects.synced()
    }

    fn volume(&self, name: &str) -> Lookup<Arc<Volume>> {
        self.objects.volume(name)
    }

    fn claim(&self, key: &ClaimKey) -> Lookup<Arc<Claim>> {
        self.objects.claim(key)
    }

    fn class(&self, name: &str) -> Lookup<Arc<Class>> {
        self.objects.class_of(name)
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
        match self.policies.reclaimed(self.objects, volume, self.now, &mut rounds) {
            Ok(Reclaimed { verdict, is_allowed }) => Ok(Some(Reclaim { fate: verdict.fate, is_allowed })),
            Err(Stop::Judge) => Ok(None),
            Err(stop) => Err(stop.to_string()),
        }
    }

    fn verdict(&self, claim: &Claim, volume: &Volume) -> Result<Option<MatchVerdict>, String> {
        if self.policies.chain.is_empty() {
            return Ok(Some(MatchVerdict::Allowed));
        }
        match self.policies.verdict(self.objects, claim, volume, &mut self.proofs.rounds.borrow_mut()) {
            Ok(verdict) => Ok(Some(verdict)),
            Err(Stop::Judge) => Ok(None),
            Err(stop) => Err(stop.to_string()),
        }
    }

    fn policies_answer(&self, claim: &Claim) -> Result<bool, String> {
        if self.policies.chain.is_empty() {
            return Ok(true);
        }
        match self.policies.answers(self.objects, claim, &mut self.proofs.rounds.borrow_mut()) {
            Ok(()) => Ok(true),
            Err(Stop::Judge) => Ok(false),
            Err(stop) => Err(stop.to_string()),
        }
    }
}

impl SteerView for GuardView<'_, Store> {
    fn volumes_naming(&self, claim: &ClaimKey) -> Vec<Arc<Volume>> {
        self.objects.volumes_naming(claim)
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
