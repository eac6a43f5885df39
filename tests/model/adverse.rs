//! The worlds of an engine that proposes anything: a bound pair beside a volume and a claim that are free,
//! and volumes that must not be given away, taken away or destroyed.

use bindery_core::{
    AccessMode, Claim, ClaimPhase, ClaimRef, FINALIZER_IN_TREE, ReclaimPolicy, Requirement, Selector,
    SelectorOperator, Uid, Volume, VolumeMode, VolumePhase,
};
use bindery_kit::gib;

use crate::objects::{Each, Id, NAMESPACE, Stored};
use crate::replay::PLUGIN;
use crate::world::{Budget, C1, C2, V1, V2, World, volume};

type Change = fn(&mut Volume, &mut Claim);

/// What keeps v1 from c1, or from being destroyed.
const CHANGES: [(&str, Change); 14] = [
    ("the volume is too small", |_, claim| claim.request = gib(2)),
    ("the volume lacks an access mode", |_, claim| claim.access_modes.push(AccessMode::ReadWriteMany)),
    ("the volume has another class", |volume, _| volume.class = "gold".into()),
    ("the volume has another mode", |volume, _| volume.mode = VolumeMode::Block),
    ("the volume has another attributes class", |volume, _| volume.attributes_class = Some("slow".into())),
    ("the volume lacks a label", |_, claim| claim.selector = Some(has_label("zone"))),
    ("the volume is not offered", |volume, _| volume.phase = VolumePhase::Pending),
    ("the volume is being deleted", |volume, _| volume.deleting = true),
    ("the volume is reserved for another claim", |volume, _| volume.claim_ref = Some(reference("c2", None))),
    ("the claim has lost its volume", |_, claim| claim.annotations.bind_completed = true),
    ("the volume may be a namesake's", |volume, claim| {
        bind(volume, claim);
        volume.claim_ref = Some(reference("c1", None));
    }),
    ("the volume is to be kept", |volume, _| release(volume, ReclaimPolicy::Retain, PLUGIN)),
    ("another plugin has made the volume", |volume, _| release(volume, ReclaimPolicy::Delete, "other")),
    ("the volume has migrated", |volume, _| {
        release(volume, ReclaimPolicy::Delete, PLUGIN);
        volume.annotations.migrated_to = Some("csi.example.com".into());
    }),
];

/// The worlds, each with the number of states that are visited.
pub(crate) fn worlds(states_max: usize) -> Vec<(World, usize)> {
    let claim = |id: Id| bindery_kit::claim(id.claim_key());
    let (mut first, second, mut owner) = (volume(V1), volume(V2), claim(C1));
    first.annotations.provisioned_by = Some(PLUGIN.into());
    first.finalizers.push(FINALIZER_IN_TREE.into());
    bind(&mut first, &mut owner);
    let surplus = Volume { claim_ref: first.claim_ref.clone(), ..second.clone() };
    let parted = [first.clone().into(), second.into(), owner.clone().into(), claim(C2).into()];
    let kept = [first.into(), surplus.into(), owner.into(), Stored::Absent];
    let changed = CHANGES.into_iter().map(|(name, change)| {
        let (mut volume, mut claim) = (volume(V1), claim(C1));
        change(&mut volume, &mut claim);
        (world(name, [volume.into(), Stored::Absent, claim.into(), Stored::Absent]), states_max / 10)
    });
    let kept = (world("a user has reserved a second volume for a claim", kept), states_max / 10);
    let parted = (world("an engine wants to part a pair", parted), states_max);
    changed.chain([kept, parted]).collect()
}

fn world(name: &'static str, objects: Each<Stored>) -> World {
    let budget = Budget { deletions: 1, creations: 1, ..Budget::default() };
    World { name, objects, edits: Vec::new(), budget, comes_to_rest: false }
}

/// Makes the two a complete pair.
fn bind(volume: &mut Volume, claim: &mut Claim) {
    claim.volume_name = Some(volume.name.clone());
    claim.annotations.bind_completed = true;
    claim.annotations.bound_by_controller = true;
    claim.status.phase = ClaimPhase::Bound;
    claim.status.access_modes.clone_from(&volume.access_modes);
    (claim.status.capacity, claim.status.has_capacity) = (volume.capacity, true);
    volume.claim_ref = Some(reference(&claim.key.name, Some(claim.uid.clone())));
    volume.annotations.bound_by_controller = true;
    volume.phase = VolumePhase::Bound;
}

/// Makes it a volume of that policy and provisioner whose claim is gone.
fn release(volume: &mut Volume, policy: ReclaimPolicy, provisioner: &str) {
    volume.claim_ref = Some(reference("c2", Some("uid-gone".into())));
    volume.phase = VolumePhase::Released;
    volume.policy = policy;
    volume.annotations.provisioned_by = Some(provisioner.into());
}

fn reference(name: &str, uid: Option<Uid>) -> ClaimRef {
    ClaimRef { namespace: NAMESPACE.into(), name: name.into(), uid }
}

fn has_label(key: &str) -> Selector {
    let operator = SelectorOperator::Exists;
    Selector::Requirements(vec![Requirement { key: key.into(), operator, values: Vec::new() }])
}
