//! The volumes and claims of one moment, and the rules that hold at any moment.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::object::{Claim, Volume, text};
use crate::{Rule, Violation, fit};

/// Volumes, claims and classes at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub(crate) volumes: BTreeMap<String, Volume>,
    pub(crate) claims: BTreeMap<String, Claim>,
    /// By class name, whether its claims wait for a consumer.
    pub(crate) waits_for_consumer: BTreeMap<String, bool>,
}

impl Snapshot {
    /// Reads PersistentVolumes, PersistentVolumeClaims and StorageClasses, as the API server lists them.
    ///
    /// # Errors
    ///
    /// A field has no quantity; the text names object and field.
    pub fn read(volumes: &[Value], claims: &[Value], classes: &[Value]) -> Result<Self, String> {
        let volumes = volumes.iter().map(|object| Volume::of(object).map(|it| (it.name.clone(), it)));
        let claims = claims.iter().map(|object| Claim::of(object).map(|it| (it.key.clone(), it)));
        let waits = |class: &Value| text(class, "/volumeBindingMode") == "WaitForFirstConsumer";
        Ok(Self {
            volumes: volumes.collect::<Result<_, _>>()?,
            claims: claims.collect::<Result<_, _>>()?,
            waits_for_consumer: classes
                .iter()
                .map(|class| (text(class, "/metadata/name"), waits(class)))
                .collect(),
        })
    }

    /// How many volumes and claims there are.
    pub fn counts(&self) -> (usize, usize) {
        (self.volumes.len(), self.claims.len())
    }

    /// Violations that must not occur at any moment, sorted.
    pub fn harms(&self) -> Vec<Violation> {
        let mut found = Found::default();
        let mut taken = BTreeMap::new();
        for claim in self.claims.values() {
            found.check(claim, Rule::Protected, unprotected(&claim.meta, "kubernetes.io/pvc-protection"));
            // A Lost claim was bound, so its volume matters too.
            if !claim.is_completed() && claim.phase != "Bound" {
                continue;
            }
            let Some(volume) = self.volumes.get(&claim.volume_name) else {
                let why = format!("its volume {:?} does not exist", claim.volume_name);
                found.check(claim, Rule::VolumeKept, Some(why));
                continue;
            };
            let other = taken.insert(&volume.name, &claim.key);
            let shared = other.map(|other| format!("{other} has its volume {} too", volume.name));
            found.check(claim, Rule::OneClaim, shared);
            if volume.claim_uid() == Some(&claim.meta.uid) {
                let misfit = fit::chosen(volume, claim).map(|why| format!("volume {}: {why}", volume.name));
                found.check(claim, Rule::Fits, misfit);
                let is_reclaimed = matches!(volume.phase.as_str(), "Released" | "Failed");
                let why = is_reclaimed.then(|| format!("it is {}, and {} has it", volume.phase, claim.key));
                found.check(volume, Rule::NotReclaimed, why);
            } else {
                let why = format!("its volume {} is reserved for {:?}", volume.name, volume.reservation);
                found.check(claim, Rule::PointsBack, Some(why));
            }
        }
        for volume in self.volumes.values() {
            found.check(volume, Rule::Protected, unprotected(&volume.meta, "kubernetes.io/pv-protection"));
        }
        self.check_steering(&mut found);
        found.sorted()
    }

    fn check_steering(&self, found: &mut Found) {
        let reserved = self.volumes.values().filter_map(|volume| Some((volume.steered_for()?, volume)));
        let reserved: BTreeMap<&str, &Volume> = reserved.collect();
        for volume in self.volumes.values() {
            let uid = volume.steered_for().or(volume.claim_uid());
            let other = uid.and_then(|uid| reserved.get(uid)).filter(|other| other.name != volume.name);
            let why = other.map(|other| format!("it is reserved for {uid:?}, as volume {} is", other.name));
            found.check(volume, Rule::SteeredOnce, why);
        }
    }

    /// Violations that must not occur in a cluster at rest, harms included, sorted.
    pub fn violations(&self) -> Vec<Violation> {
        let mut found = Found(self.harms());
        self.check_rest(&mut found);
        found.sorted()
    }
}

fn unprotected(meta: &crate::object::Meta, finalizer: &str) -> Option<String> {
    let is_unprotected = !meta.is_deleted && !meta.finalizers.contains(finalizer);
    is_unprotected.then(|| format!("the finalizer {finalizer} is gone"))
}

/// Objects that break rules.
pub(crate) trait Named {
    /// As [`Violation::object`] says it.
    fn named(&self) -> String;
}

impl Named for Volume {
    fn named(&self) -> String {
        format!("volume {}", self.name)
    }
}

impl Named for Claim {
    fn named(&self) -> String {
        format!("claim {}", self.key)
    }
}

/// The violations that were found so far.
#[derive(Default)]
pub(crate) struct Found(Vec<Violation>);

impl Found {
    /// Records that an object breaks a rule, if there is a reason.
    pub(crate) fn check(&mut self, object: &impl Named, rule: Rule, why: Option<String>) {
        self.0.extend(why.map(|why| Violation { rule, object: object.named(), why }));
    }

    fn sorted(mut self) -> Vec<Violation> {
        self.0.sort();
        self.0
    }
}
