//! A small cluster that answers from lists.

use std::sync::Arc;

use bindery_core::{
    AccessModes, Answer, Claim, ClaimKey, Class, Cluster, Fate, Handle, Lookup, MatchVerdict, Migration,
    OperationState, Page, Plugin, PluginMatch, Pod, Query, Question, Reason, ReclaimVerdict, Slot, Source,
    Stop, Tally, Text, Volume, VolumePhase,
};

/// A cluster of lists. Live reads see the lists of the overlay unless they have lists of their own.
pub(crate) struct ListCluster {
    pub(crate) volumes: Vec<Volume>,
    pub(crate) claims: Vec<Claim>,
    /// Claims that the watch cache has beside those of the overlay.
    pub(crate) cached_claims: Vec<Claim>,
    pub(crate) live_volumes: Option<Vec<Volume>>,
    pub(crate) live_claims: Option<Vec<Claim>>,
    /// Error of every live read.
    pub(crate) live_error: Option<&'static str>,
    /// Names of objects that cannot be read.
    pub(crate) unreadable: Vec<String>,
    pub(crate) classes: Vec<Class>,
    pub(crate) pods: Result<Vec<Pod>, Text>,
    pub(crate) plugins: Vec<Plugin>,
    /// The plugins that support every source; those of `plugins` where `None`.
    pub(crate) plugin_match: Option<PluginMatch>,
    /// Error with which plugins refuse to be constructed.
    pub(crate) not_ready: Option<String>,
    pub(crate) migration: Migration,
    pub(crate) dynamic_provisioning: bool,
    pub(crate) operation: OperationState,
    /// Names of volumes that decisions in flight have picked.
    pub(crate) in_flight: Vec<Text>,
    /// Names of volumes that a policy rejects, and whose claims wait for another.
    pub(crate) rejected: Vec<Text>,
    /// What the reclaimers say about every volume.
    pub(crate) fate: Fate,
    /// The questions of the last decision.
    pub(crate) asked: Vec<String>,
    handles: Vec<Text>,
}

impl ListCluster {
    pub(crate) fn new(volumes: impl Into<Vec<Volume>>, claims: impl Into<Vec<Claim>>) -> Self {
        Self {
            volumes: volumes.into(),
            claims: claims.into(),
            cached_claims: Vec::new(),
            live_volumes: None,
            live_claims: None,
            live_error: None,
            unreadable: Vec::new(),
            classes: Vec::new(),
            pods: Ok(Vec::new()),
            plugins: Vec::new(),
            plugin_match: None,
            not_ready: None,
            migration: Migration::Off,
            dynamic_provisioning: true,
            operation: OperationState::Idle,
            in_flight: Vec::new(),
            rejected: Vec::new(),
            fate: Fate::ByPolicy,
            asked: Vec::new(),
            handles: Vec::new(),
        }
    }

    fn lookup<T: Clone>(&self, source: Source, name: &str, found: Option<&T>) -> Lookup<Arc<T>> {
        match self.live_error {
            Some(error) if source == Source::Live => Lookup::Failed(error.into()),
            _ if self.unreadable.iter().any(|unreadable| unreadable == name) => {
                Lookup::Unreadable("spec.capacity is no quantity".into())
            }
            _ => found.map_or(Lookup::Absent, |found| Lookup::Found(Arc::new(found.clone()))),
        }
    }

    fn claim(&self, source: Source, key: &ClaimKey) -> Lookup<Arc<Claim>> {
        let is = |claim: &&Claim| claim.key == *key;
        let found = match source {
            Source::Overlay => self.claims.iter().find(is),
            Source::Cache => self.claims.iter().chain(&self.cached_claims).find(is),
            Source::Live => self.live_claims.as_ref().unwrap_or(&self.claims).iter().find(is),
        };
        self.lookup(source, &key.name, found)
    }

    fn volume(&self, source: Source, name: &Text) -> Lookup<Arc<Volume>> {
        let volumes = match source {
            Source::Overlay | Source::Cache => &self.volumes,
            Source::Live => self.live_volumes.as_ref().unwrap_or(&self.volumes),
        };
        self.lookup(source, name, volumes.iter().find(|volume| volume.name == *name))
    }

    fn default_classes(&self) -> Vec<Text> {
        let mut defaults: Vec<_> = self.classes.iter().filter(|class| class.default).collect();
        defaults.sort_by_key(|class| (-class.created, class.name.clone()));
        defaults.into_iter().map(|class| class.name.clone()).collect()
    }

    fn plugin_match(&self) -> PluginMatch {
        match (&self.plugin_match, self.plugins.as_slice()) {
            (Some(found), _) => found.clone(),
            (None, []) => PluginMatch::None,
            (None, [plugin]) => PluginMatch::One(plugin.clone()),
            (None, plugins) => {
                PluginMatch::Several(plugins.iter().map(|plugin| plugin.name.clone()).collect())
            }
        }
    }

    fn sorted(&self, is: impl Fn(&Volume) -> bool) -> Vec<Volume> {
        let mut volumes: Vec<_> = self.volumes.iter().filter(|volume| is(volume)).cloned().collect();
        volumes.sort_by_key(|volume| (volume.capacity, volume.name.clone()));
        volumes
    }

    fn access_sets(&self, containing: AccessModes) -> Vec<AccessModes> {
        let mut sets: Vec<_> =
            self.volumes.iter().map(Volume::access_set).filter(|set| set.contains(containing)).collect();
        sets.sort_by_key(|set| (set.len(), set.bits()));
        sets.dedup();
        sets
    }

    fn page(&mut self, query: &Query, after: Option<Handle>, limit: u32) -> Page {
        let rows = self.sorted(|volume| {
            volume.phase == VolumePhase::Available
                && volume.claim_ref.is_none()
                && !volume.deleting
                && volume.class == query.class
                && volume.mode == query.mode
                && *volume.attributes_class_or_empty() == *query.attributes_class
                && volume.access_set() == query.access_set
                && volume.capacity >= Some(query.at_least)
                && query.labels.iter().all(|r| r.matches(volume.labels.get(&r.key).map(AsRef::as_ref)))
        });
        let after = after.map(|handle| self.handles[handle.0 as usize].clone());
        let start = after.map_or(0, |name| rows.iter().take_while(|row| row.name != name).count() + 1);
        let end = rows.len().min(start + limit as usize);
        let mut page = Page { more: end < rows.len(), ..Page::default() };
        for row in &rows[start..end] {
            let capacity = row.capacity.unwrap_or_default();
            page.handles.push(self.handle(&row.name));
            page.whole.push(capacity.whole);
            page.nanos.push(capacity.nanos);
            page.slots.push(match &row.name {
                name if self.in_flight.contains(name) => Slot::InFlight,
                name if self.rejected.contains(name) => Slot::Withheld,
                _ => Slot::Free,
            });
        }
        page
    }

    fn handle(&mut self, name: &Text) -> Handle {
        let known = self.handles.iter().position(|handle| handle == name);
        let index = known.unwrap_or_else(|| {
            self.handles.push(name.clone());
            self.handles.len() - 1
        });
        Handle(u32::try_from(index).expect("few volumes"))
    }

    fn described(&self, handle: Handle) -> &Volume {
        let name = &self.handles[handle.0 as usize];
        self.volumes.iter().find(|volume| volume.name == *name).expect("a handle of a volume")
    }
}

impl Cluster for ListCluster {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        Ok(match question {
            Question::Claim(source, key) => Answer::Claim(self.claim(source, &key)),
            Question::Volume(source, name) => Answer::Volume(self.volume(source, &name)),
            Question::Pods(_) => Answer::Pods(self.pods.clone()),
            Question::Node(name) if &*name == "node1" => Answer::Node(Lookup::Found(())),
            Question::Node(_) => Answer::Node(Lookup::Absent),
            Question::Class(name) => {
                let found = self.classes.iter().find(|class| class.name == name);
                Answer::Class(self.lookup(Source::Overlay, &name, found))
            }
            Question::DefaultClasses => Answer::DefaultClasses(Ok(self.default_classes())),
            Question::Plugin(name) => {
                Answer::Plugin(self.plugins.iter().find(|plugin| plugin.name == name).cloned())
            }
            Question::PluginForVolume(_) => Answer::PluginMatch(self.plugin_match()),
            Question::PluginReady(..) => {
                Answer::Ready(self.not_ready.as_deref().map_or(Ok(()), |error| Err(error.into())))
            }
            Question::Migration(_) => Answer::Migration(self.migration.clone()),
            Question::DynamicProvisioning => Answer::DynamicProvisioning(self.dynamic_provisioning),
            Question::Operation(..) => Answer::Operation(self.operation),
            Question::AccessSets(containing) => Answer::AccessSets(self.access_sets(containing)),
            Question::Candidates { query, after, limit } => Answer::Page(self.page(&query, after, limit)),
            Question::ReservedFor { key, uid } => {
                let rows = self.sorted(|volume| {
                    volume.claim_ref.as_ref().is_some_and(|claim_ref| {
                        (&claim_ref.namespace, &claim_ref.name) == (&key.namespace, &key.name)
                            && claim_ref.uid.as_ref().is_none_or(|bound| *bound == uid)
                    })
                });
                Answer::Reserved(rows.iter().map(|row| self.handle(&row.name)).collect())
            }
            Question::Identify(handle) => Answer::Identity(self.described(handle).target()),
            Question::Describe(handle) => Answer::Described(Arc::new(self.described(handle).clone())),
            Question::Verdict(name) if self.rejected.contains(&name) => {
                Answer::Verdict(MatchVerdict::Rejected {
                    policy: "p".into(),
                    reason: "it is reserved".into(),
                })
            }
            Question::Verdict(_) => Answer::Verdict(MatchVerdict::Allowed),
            Question::Reclaim(_) => {
                let (policy, reason) = ("p".into(), "it is labelled".into());
                Answer::Reclaim(ReclaimVerdict { fate: self.fate, policy, reason })
            }
            Question::Tallies(_) => {
                Answer::Tallies(vec![Tally { reason: Reason::TooSmall, count: 1, nearest: Vec::new() }])
            }
        })
    }
}
