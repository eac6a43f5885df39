//! One tenant: how it gets a volume, and when it goes.

use std::path::Path;

use bindery_core::ClaimKey;
use bindery_core::steer::steering_key;
use bindery_kit::json;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use rand::RngExt as _;
use rand::rngs::StdRng;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// How a tenant gets a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// A free one fits; it comes before or after the claim.
    Found { volume_first: bool },
    /// The claim names it.
    Named,
    /// It names the claim.
    Reserved,
    /// It is provisioned.
    Made,
}

/// What a tenant does in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Stays,
    /// Goes after it has written data.
    Leaves,
    /// Goes at once, while Bindery may be binding.
    Flees,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Tenant {
    pub(crate) number: usize,
    pub(crate) way: Way,
    pub(crate) fate: Fate,
    pub(crate) policy: &'static str,
    pub(crate) is_steered: bool,
}

impl Tenant {
    /// A tenant whose volume is deleted at the end with this chance.
    pub(crate) fn any(number: usize, deleting: f64, chance: &mut StdRng) -> Self {
        let way = match chance.random_range(0..6) {
            0 | 1 => Way::Found { volume_first: true },
            2 => Way::Found { volume_first: false },
            3 => Way::Named,
            4 => Way::Reserved,
            _ => Way::Made,
        };
        let fate = match chance.random_range(0..5) {
            0 | 1 => Fate::Stays,
            2 | 3 => Fate::Leaves,
            _ => Fate::Flees,
        };
        let policy = if chance.random_bool(deleting) { "Delete" } else { "Retain" };
        Self { number, way, fate, policy, is_steered: false }
    }

    /// The same tenant beside upstream's binder, which provisions no volume here. Every other one is steered,
    /// unless its claim names a volume.
    pub(crate) fn beside_upstream(mut self) -> Self {
        if matches!(self.way, Way::Made) {
            self.way = Way::Found { volume_first: true };
        }
        self.is_steered = self.number.is_multiple_of(2) && !matches!(self.way, Way::Named);
        self
    }

    pub(crate) fn name(&self) -> String {
        format!("t{:05}", self.number)
    }

    /// Volumes that are found or made have a class for each policy, others a class of their own.
    fn class(&self) -> String {
        match self.way {
            Way::Found { .. } => self.policy.to_lowercase(),
            Way::Named | Way::Reserved => self.name(),
            Way::Made => made(self.policy),
        }
    }

    pub(crate) fn volume(&self, folder: &Path) -> Option<PersistentVolume> {
        if matches!(self.way, Way::Made) {
            return None;
        }
        let claim_ref =
            matches!(self.way, Way::Reserved).then(|| json!({"namespace": "default", "name": self.name()}));
        let spec = json!({
            "storageClassName": self.class(),
            "persistentVolumeReclaimPolicy": self.policy,
            "hostPath": {"path": folder.join(self.name())},
            "claimRef": claim_ref,
        });
        Some(object(json::volume(&self.name(), json!({"spec": spec}))))
    }

    pub(crate) fn claim(&self) -> PersistentVolumeClaim {
        let volume_name = matches!(self.way, Way::Named).then(|| self.name());
        let key = steering_key(&ClaimKey::new("default", self.name())).expect("the name fits");
        let steering = json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
        let selector = self.is_steered.then_some(steering);
        let spec = json!({"storageClassName": self.class(), "volumeName": volume_name, "selector": selector});
        object(json::claim(&self.name(), json!({"spec": spec})))
    }
}

/// The class whose volumes are provisioned with this policy.
pub(crate) fn made(policy: &str) -> String {
    format!("made-{}", policy.to_lowercase())
}

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}
