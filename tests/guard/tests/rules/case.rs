//! A decision with all that the guard checks it by.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bindery_core::guard::{self, Case, Objection, Reclaim, SteerView, View};
use bindery_core::{
    AccessMode, Answer, Claim, ClaimKey, Class, Decision, Exchange, Key, Lookup, MatchVerdict, Quantity,
    Question, Request, Source, Text, Volume,
};

/// A decision and all that it is checked by.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TestCase {
    pub(crate) request: Request,
    pub(crate) exchanges: Vec<Exchange>,
    pub(crate) decision: Decision,
    pub(crate) world: World,
}

/// What the guard itself sees.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct World {
    pub(crate) unsynced: bool,
    pub(crate) offers_again: bool,
    pub(crate) volumes: BTreeMap<Text, Lookup<Arc<Volume>>>,
    pub(crate) claims: BTreeMap<ClaimKey, Lookup<Arc<Claim>>>,
    pub(crate) classes: BTreeMap<Text, Lookup<Arc<Class>>>,
    pub(crate) claim_proofs: BTreeMap<ClaimKey, Lookup<Arc<Claim>>>,
    pub(crate) volume_proofs: BTreeMap<Text, Lookup<Arc<Volume>>>,
    /// What the policies say about each volume; volumes that are missing are allowed.
    pub(crate) verdicts: BTreeMap<Text, Result<Option<MatchVerdict>, String>>,
    /// Whether the policies of the claim answer; `None` if they do.
    pub(crate) answers: Option<Result<bool, String>>,
    /// The volumes whose claimRef Bindery has written, as managedFields say.
    pub(crate) own: BTreeSet<Text>,
    /// What the reclaimers say about each volume; the reclaim policies of the others decide.
    pub(crate) reclaims: BTreeMap<Text, Result<Option<Reclaim>, String>>,
}

impl TestCase {
    /// The engine was told this.
    pub(crate) fn tell(&mut self, question: Question, answer: Answer) {
        self.exchanges.push(Exchange { question, answer });
    }

    /// The engine read the claim, and the world has it.
    pub(crate) fn read_claim(&mut self, claim: Claim) {
        let (key, found) = (claim.key.clone(), Lookup::Found(Arc::new(claim)));
        self.world.claims.insert(key.clone(), found.clone());
        self.tell(Question::Claim(Source::Overlay, key), Answer::Claim(found));
    }

    /// The engine read the volume, and the world has it.
    pub(crate) fn read_volume(&mut self, volume: Volume) {
        let (name, found) = (volume.name.clone(), Lookup::Found(Arc::new(volume)));
        self.world.volumes.insert(name.clone(), found.clone());
        self.tell(Question::Volume(Source::Overlay, name), Answer::Volume(found));
    }

    pub(crate) fn check(&self) -> Result<(), Objection> {
        let Self { request, exchanges, decision, world } = self;
        guard::check(&Case { request, exchanges, decision, view: world })
    }

    /// What the guard says, as the tables write it: a breach by its name.
    pub(crate) fn response(&self) -> &'static str {
        word(&self.check())
    }
}

/// An answer of the guard, as the tables write it.
pub(crate) fn word(answer: &Result<(), Objection>) -> &'static str {
    match answer {
        Ok(()) => "allowed",
        Err(Objection::Prove(Key::Claim(_))) => "prove-claim",
        Err(Objection::Prove(Key::Volume(_))) => "prove-volume",
        Err(Objection::Judge) => "judge",
        Err(Objection::Stale { .. }) => "stale",
        Err(Objection::Contradicted { .. }) => "contradicted",
        Err(Objection::Unproven { .. }) => "unproven",
        Err(Objection::Refused(refusal)) => refusal.breach.name(),
    }
}

impl SteerView for World {
    fn volumes_naming(&self, claim: &ClaimKey) -> Vec<Arc<Volume>> {
        let names = |volume: &Volume| volume.claim_ref.as_ref().is_some_and(|by| by.claim_key() == *claim);
        let found = self.volumes.values().filter_map(|found| match found {
            Lookup::Found(volume) => Some(Arc::clone(volume)),
            _ => None,
        });
        found.filter(|volume| names(volume)).collect()
    }

    fn has_reserved(&self, volume: &str) -> bool {
        self.own.contains(volume)
    }
}

impl View for World {
    fn synced(&self) -> bool {
        !self.unsynced
    }

    fn volume(&self, name: &str) -> Lookup<Arc<Volume>> {
        self.volumes.get(name).cloned().unwrap_or(Lookup::Absent)
    }

    fn claim(&self, key: &ClaimKey) -> Lookup<Arc<Claim>> {
        self.claims.get(key).cloned().unwrap_or(Lookup::Absent)
    }

    fn class(&self, name: &str) -> Lookup<Arc<Class>> {
        self.classes.get(name).cloned().unwrap_or(Lookup::Absent)
    }

    fn claim_proof(&self, key: &ClaimKey) -> Option<&Lookup<Arc<Claim>>> {
        self.claim_proofs.get(key)
    }

    fn volume_proof(&self, name: &str) -> Option<&Lookup<Arc<Volume>>> {
        self.volume_proofs.get(name)
    }

    fn allows_offer_again(&self) -> bool {
        self.offers_again
    }

    fn reclaim(&self, volume: &Volume) -> Result<Option<Reclaim>, String> {
        self.reclaims.get(&volume.name).cloned().unwrap_or(Ok(Some(Reclaim::default())))
    }

    fn verdict(&self, _: &Claim, volume: &Volume) -> Result<Option<MatchVerdict>, String> {
        self.verdicts.get(&volume.name).cloned().unwrap_or(Ok(Some(MatchVerdict::Allowed)))
    }

    fn policies_answer(&self, _: &Claim) -> Result<bool, String> {
        self.answers.clone().unwrap_or(Ok(true))
    }
}

/// An unbound claim of five bytes in namespace `ns`, with the empty class.
pub(crate) fn claim(name: &str) -> Claim {
    Claim {
        uid: format!("u-{name}").as_str().into(),
        version: "c1".into(),
        request: Quantity::bytes(5),
        class: Some("".into()),
        ..bindery_kit::claim(ClaimKey::new("ns", name))
    }
}

/// A free volume that fits the claim.
pub(crate) fn volume(name: &str) -> Volume {
    Volume {
        uid: format!("u-{name}").as_str().into(),
        version: "v1".into(),
        capacity: Some(Quantity::bytes(5)),
        access_modes: vec![AccessMode::ReadWriteOnce, AccessMode::ReadOnlyMany],
        ..bindery_kit::volume(name)
    }
}
