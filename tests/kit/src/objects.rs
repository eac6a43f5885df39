//! Objects of `bindery-core`. A volume and a claim made here fit each other.

use std::collections::BTreeMap;

use bindery_core::{
    AccessMode, BindingMode, Claim, ClaimAnnotations, ClaimKey, ClaimPhase, ClaimStatus, Class, Facts,
    Plugin, Quantity, ReclaimPolicy, Uid, Volume, VolumeAnnotations, VolumeMode, VolumePhase,
};

/// A number of gibibytes.
pub fn gib(number: u64) -> Quantity {
    Quantity::bytes(number << 30)
}

/// An available ReadWriteOnce volume of one gibibyte without a class; its UID is `uid-NAME`.
pub fn volume(name: &str) -> Volume {
    Volume {
        name: name.into(),
        uid: uid(name),
        version: "1".into(),
        deleting: false,
        labels: BTreeMap::new(),
        annotations: VolumeAnnotations::default(),
        finalizers: Vec::new(),
        capacity: Some(gib(1)),
        access_modes: vec![AccessMode::ReadWriteOnce],
        class: "".into(),
        mode: VolumeMode::Filesystem,
        attributes_class: None,
        claim_ref: None,
        policy: ReclaimPolicy::Retain,
        node_affinity: false,
        topology: None,
        source: "hostPath".into(),
        phase: VolumePhase::Available,
        facts: Facts::default(),
    }
}

/// A pending ReadWriteOnce claim for one gibibyte whose class is not set; its UID is `uid-NAME`.
pub fn claim(key: ClaimKey) -> Claim {
    Claim {
        uid: uid(&key.name),
        key,
        version: "1".into(),
        deleting: false,
        annotations: ClaimAnnotations::default(),
        request: gib(1),
        access_modes: vec![AccessMode::ReadWriteOnce],
        class: None,
        mode: VolumeMode::Filesystem,
        attributes_class: None,
        selector: None,
        steered: false,
        choice: None,
        volume_name: None,
        data_source: false,
        status: ClaimStatus {
            phase: ClaimPhase::Pending,
            access_modes: Vec::new(),
            has_capacity: false,
            capacity: None,
            attributes_class: None,
        },
        facts: Facts::default(),
    }
}

/// A class that is not the default.
pub fn class(name: &str, provisioner: &str, mode: Option<BindingMode>) -> Class {
    Class {
        name: name.into(),
        provisioner: provisioner.into(),
        binding_mode: mode,
        mount_options: false,
        default: false,
        created: 0,
        parameters: Facts::default(),
    }
}

/// A plugin that provisions, deletes and recycles.
pub fn plugin(name: &str) -> Plugin {
    Plugin { name: name.into(), provisions: true, deletes: true, recycles: true, mount_options: false }
}

fn uid(name: &str) -> Uid {
    Uid::from(&*format!("uid-{name}"))
}
