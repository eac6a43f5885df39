//! A small world in three states: as the engine saw it, as the overlay has it at the time of the check, and
//! as the API server has it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bindery_core::guard::{Reclaim, View};
use bindery_core::{
    AccessModes, Answer, BindingMode, Claim, ClaimKey, Class, Cluster, Fate, Handle, Key, Lookup,
    MatchVerdict, Migration, OperationState, Page, Plugin, PluginMatch, Pod, Query, Question, ReclaimPolicy,
    ReclaimVerdict, Slot, Source, Stop, Text, Volume, VolumePhase,
};

/// The objects at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Objects {
    pub(crate) volumes: BTreeMap<Text, Arc<Volume>>,
    pub(crate) claims: BTreeMap<ClaimKey, Arc<Claim>>,
}

/// A world.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// As the engine saw it. The request is made from it.
    pub(crate) seen: Objects,
    /// The overlay at the time of the check.
    pub(crate) now: Objects,
    /// The API server.
    pub(crate) truth: Objects,
    pub(crate) classes: BTreeMap<Text, Arc<Class>>,
    pub(crate) migrations: BTreeMap<Text, Migration>,
    pub(crate) plugins: Vec<Plugin>,
    pub(crate) pod_runs: bool,
    pub(crate) provisioning: bool,
    pub(crate) synced: bool,
    pub(crate) offers_again: bool,
    pub(crate) live_fails: bool,
    pub(crate) unreadable: Option<Unreadable>,
    /// What the reclaimers say about volumes, by their names.
    pub(crate) reclaims: BTreeMap<Text, Reclaim>,
    /// The objects that were read live for the guard.
    pub(crate) claim_proofs: BTreeMap<ClaimKey, Lookup<Arc<Claim>>>,
    pub(crate) volume_proofs: BTreeMap<Text, Lookup<Arc<Volume>>>,
}

/// The one object that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    Volume(Text),
    Claim(ClaimKey),
}

impl Model {
    /// Whether the overlay is the truth.
    pub(crate) fn is_current(&self) -> bool {
        self.now == self.truth
    }

    /// Whether the object was read live for the guard.
    pub(crate) fn has_proof(&self, object: &Key) -> bool {
        match object {
            Key::Claim(key) => self.claim_proofs.contains_key(key),
            Key::Volume(name) => self.volume_proofs.contains_key(name),
        }
    }

    /// Carries out the live read that the guard asks for.
    pub(crate) fn prove(&mut self, object: Key) {
        match object {
            Key::Claim(key) => {
                let proof = self.claim_in(Source::Live, &key);
                self.claim_proofs.insert(key, proof);
            }
            Key::Volume(name) => {
                let proof = self.volume_in(Source::Live, &name);
                self.volume_proofs.insert(name, proof);
            }
        }
    }

    /// What the reclaimers say about a volume.
    pub(crate) fn reclaim_of(&self, volume: &str) -> Reclaim {
        self.reclaims.get(volume).copied().unwrap_or_default()
    }

    /// What an engine is told: a wish that destroys more counts only where the document allows it.
    fn told_fate(&self, name: &str) -> Fate {
        let Reclaim { fate, is_allowed } = self.reclaim_of(name);
        let own = self.seen.volumes.get(name).map(|volume| volume.policy_before().unwrap_or(volume.policy));
        let is_own = match fate {
            Fate::Delete => own == Some(ReclaimPolicy::Delete),
            Fate::Recycle => own == Some(ReclaimPolicy::Recycle),
            _ => true,
        };
        if is_own || is_allowed { fate } else { Fate::ByPolicy }
    }

    fn claim_in(&self, source: Source, key: &ClaimKey) -> Lookup<Arc<Claim>> {
        match source {
            Source::Live if self.live_fails => Lookup::Failed("the API server is away".into()),
            Source::Live => self.claim_of(&self.truth, key),
            Source::Overlay | Source::Cache => self.claim_of(&self.seen, key),
        }
    }

    fn claim_of(&self, objects: &Objects, key: &ClaimKey) -> Lookup<Arc<Claim>> {
        if self.unreadable == Some(Unreadable::Claim(key.clone())) {
            return Lookup::Unreadable("spec is not an object".into());
        }
        lookup(objects.claims.get(key))
    }

    fn volume_in(&self, source: Source, name: &str) -> Lookup<Arc<Volume>> {
        match source {
            Source::Live if self.live_fails => Lookup::Failed("the API server is away".into()),
            Source::Live => self.volume_of(&self.truth, name),
            Source::Overlay | Source::Cache => self.volume_of(&self.seen, name),
        }
    }

    fn volume_of(&self, objects: &Objects, name: &str) -> Lookup<Arc<Volume>> {
        if self.unreadable == Some(Unreadable::Volume(name.into())) {
            return Lookup::Unreadable("spec is not an object".into());
        }
        lookup(objects.volumes.get(name))
    }

    fn handle(&self, handle: Handle) -> Result<&Arc<Volume>, Stop> {
        let index = usize::try_from(handle.0).unwrap_or(usize::MAX);
        self.seen.volumes.values().nth(index).ok_or(Stop::Nonsense("a handle that was not given"))
    }

    /// The volumes that the pick takes, in ascending (capacity, name).
    fn handles(&self, pick: impl Fn(&Volume) -> bool) -> Vec<Handle> {
        let mut rows: Vec<_> = (0_u32..).zip(self.seen.volumes.values()).filter(|(_, v)| pick(v)).collect();
        rows.sort_by_key(|(_, volume)| (volume.capacity, volume.name.clone()));
        rows.into_iter().map(|(index, _)| Handle(index)).collect()
    }

    fn access_sets(&self, wanted: AccessModes) -> Vec<AccessModes> {
        let all = self.seen.volumes.values().map(|volume| volume.access_set());
        let mut sets: Vec<_> = all.filter(|set| set.contains(wanted)).collect();
        sets.sort_by_key(|set| (set.len(), set.bits()));
        sets.dedup();
        sets
    }

    fn candidates(&self, query: &Query) -> Page {
        let handles = self.handles(|volume| {
            let labels = query.labels.iter();
            volume.claim_ref.is_none()
                && volume.phase == VolumePhase::Available
                && !volume.deleting
                && volume.class == query.class
                && volume.mode == query.mode
                && volume.attributes_class_or_empty() == &*query.attributes_class
                && volume.access_set() == query.access_set
                && volume.capacity.unwrap_or_default() >= query.at_least
                && labels.into_iter().all(|r| r.matches(volume.labels.get(&r.key).map(|value| &**value)))
        });
        let (rows, slots) = (handles.len(), vec![Slot::Free; handles.len()]);
        Page { handles, whole: vec![0; rows], nanos: vec![0; rows], slots, more: false }
    }

    /// Whether the class makes a claim wait for the scheduler; `None` if the class has no binding mode.
    pub(crate) fn waits(&self, class: &str) -> Option<bool> {
        match self.classes.get(class) {
            None => Some(false),
            Some(class) => class.binding_mode.map(|mode| mode == BindingMode::WaitForFirstConsumer),
        }
    }
}

fn lookup<T>(object: Option<&Arc<T>>) -> Lookup<Arc<T>> {
    object.cloned().map_or(Lookup::Absent, Lookup::Found)
}

impl Cluster for Model {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        Ok(match question {
            Question::Claim(source, key) => Answer::Claim(self.claim_in(source, &key)),
            Question::Volume(source, name) => Answer::Volume(self.volume_in(source, &name)),
            Question::Pods(_) => {
                let pod = Pod { name: "p".into(), scheduled: true, terminated: false };
                Answer::Pods(Ok(if self.pod_runs { vec![pod] } else { Vec::new() }))
            }
            Question::Node(_) => Answer::Node(Lookup::Found(())),
            Question::Class(name) => Answer::Class(self.class(&name)),
            Question::DefaultClasses => Answer::DefaultClasses(Ok(self
                .classes
                .values()
                .filter(|class| class.default)
                .map(|class| class.name.clone())
                .collect())),
            Question::Plugin(name) => Answer::Plugin(self.plugins.iter().find(|p| p.name == name).cloned()),
            Question::PluginForVolume(_) => Answer::PluginMatch(match self.plugins.as_slice() {
                [] => PluginMatch::None,
                [plugin] => PluginMatch::One(plugin.clone()),
                plugins => PluginMatch::Several(plugins.iter().map(|p| p.name.clone()).collect()),
            }),
            Question::PluginReady(..) => Answer::Ready(Ok(())),
            Question::Migration(plugin) => {
                Answer::Migration(self.migrations.get(&plugin).cloned().unwrap_or(Migration::Off))
            }
            Question::DynamicProvisioning => Answer::DynamicProvisioning(self.provisioning),
            Question::Operation(..) => Answer::Operation(OperationState::Idle),
            Question::AccessSets(wanted) => Answer::AccessSets(self.access_sets(wanted)),
            Question::Identify(handle) => Answer::Identity(self.handle(handle)?.target()),
            Question::Describe(handle) => Answer::Described(Arc::clone(self.handle(handle)?)),
            Question::Candidates { query, after: None, .. } => Answer::Page(self.candidates(&query)),
            Question::Candidates { .. } => Answer::Page(Page::default()),
            Question::ReservedFor { key, .. } => Answer::Reserved(self.handles(|volume| {
                volume.claim_ref.as_ref().is_some_and(|r| r.name == key.name && r.namespace == key.namespace)
            })),
            Question::Tallies(_) => Answer::Tallies(Vec::new()),
            Question::Verdict(_) => Answer::Verdict(MatchVerdict::Allowed),
            Question::Reclaim(name) => {
                let (policy, reason) = ("p".into(), "r".into());
                Answer::Reclaim(ReclaimVerdict { fate: self.told_fate(&name), policy, reason })
            }
        })
    }
}

impl View for Model {
    fn synced(&self) -> bool {
        self.synced
    }

    fn volume(&self, name: &str) -> Lookup<Arc<Volume>> {
        self.volume_of(&self.now, name)
    }

    fn claim(&self, key: &ClaimKey) -> Lookup<Arc<Claim>> {
        self.claim_of(&self.now, key)
    }

    fn class(&self, name: &str) -> Lookup<Arc<Class>> {
        lookup(self.classes.get(name))
    }

    fn claim_proof(&self, key: &ClaimKey) -> Option<&Lookup<Arc<Claim>>> {
        self.claim_proofs.get(key)
    }

    fn volume_proof(&self, name: &str) -> Option<&Lookup<Arc<Volume>>> {
        self.volume_proofs.get(name)
    }

    fn reclaim(&self, volume: &Volume) -> Result<Option<Reclaim>, String> {
        Ok(Some(self.reclaim_of(&volume.name)))
    }

    fn allows_offer_again(&self) -> bool {
        self.offers_again
    }
}
