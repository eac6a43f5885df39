//! A free volume and a pending claim that fit, for tests to change: what a test does not name is nothing that
//! it is about.

use std::collections::BTreeMap;

use bindery_core::{
    AccessMode, Claim, ClaimAnnotations, ClaimKey, ClaimPhase, ClaimStatus, Quantity, ReclaimPolicy, Uid,
    Volume, VolumeAnnotations, VolumeMode, VolumePhase,
};

/// What the volume offers and the claim asks for, in bytes.
const SIZE: u64 = 1 << 30;

/// An available volume of one gibibyte, for one node at a time, without class; its UID is `uid-NAME`.
pub fn volume(name: &str) -> Volume {
    Volume {
        name: name.into(),
        uid: uid(name),
        version: "1".into(),
        deleting: false,
        labels: BTreeMap::new(),
        annotations: VolumeAnnotations::default(),
        finalizers: Vec::new(),
        capacity: Some(Quantity::bytes(SIZE)),
        access_modes: vec![AccessMode::ReadWriteOnce],
        class: "".into(),
        mode: VolumeMode::Filesystem,
        attributes_class: None,
        claim_ref: None,
        policy: ReclaimPolicy::Retain,
        node_affinity: false,
        source: "hostPath".into(),
        phase: VolumePhase::Available,
    }
}

/// A pending claim for one gibibyte on one node at a time, whose class nobody has named; its UID is
/// `uid-NAME`.
pub fn claim(key: ClaimKey) -> Claim {
    Claim {
        uid: uid(&key.name),
        key,
        version: "1".into(),
        deleting: false,
        annotations: ClaimAnnotations::default(),
        request: Quantity::bytes(SIZE),
        access_modes: vec![AccessMode::ReadWriteOnce],
        class: None,
        mode: VolumeMode::Filesystem,
        attributes_class: None,
        selector: None,
        volume_name: None,
        data_source: false,
        status: ClaimStatus {
            phase: ClaimPhase::Pending,
            access_modes: Vec::new(),
            has_capacity: false,
            capacity: None,
            attributes_class: None,
        },
    }
}

fn uid(name: &str) -> Uid {
    Uid::from(&*format!("uid-{name}"))
}
