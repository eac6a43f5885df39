//! The objects of random worlds.

use std::collections::BTreeMap;
use std::sync::Arc;

use bindery_core::{
    AccessMode, BindingMode, Claim, ClaimAnnotations, ClaimKey, ClaimPhase, ClaimRef, ClaimStatus, Class,
    FINALIZER_EXTERNAL, FINALIZER_IN_TREE, Plugin, Quantity, RECLAIM_POLICY_BEFORE, ReclaimPolicy,
    Requirement, Selector, SelectorOperator, Text, Uid, Volume, VolumeAnnotations, VolumeFact, VolumeMode,
    VolumePhase,
};
use bindery_kit::{Choices, class, plugin};

use super::{CLAIMS, DRIVER, MIGRATED, PLUGIN, VOLUMES};
use crate::model::Objects;

const CLASSES: [&str; 6] = ["", "gold", "wait", "unset", "external", "old"];
const GIB: u64 = 1 << 30;

pub(super) fn plugins(c: &mut Choices<'_>) -> Vec<Plugin> {
    match c.usually(&[0, 1, 2, 3]) {
        0 => vec![plugin(PLUGIN)],
        1 => vec![Plugin { provisions: false, deletes: false, recycles: false, ..plugin(PLUGIN) }],
        2 => vec![],
        _ => vec![plugin(PLUGIN), plugin("kubernetes.io/second")],
    }
}

pub(super) fn classes(c: &mut Choices<'_>) -> BTreeMap<Text, Arc<Class>> {
    let immediate = Some(BindingMode::Immediate);
    let mut classes: Vec<(&str, &str, Option<BindingMode>)> = vec![
        ("gold", PLUGIN, immediate),
        ("wait", PLUGIN, Some(BindingMode::WaitForFirstConsumer)),
        ("unset", DRIVER, None),
        ("external", DRIVER, immediate),
        ("old", MIGRATED.0, immediate),
    ];
    if c.percent(20) {
        classes.remove(c.below(5));
    }
    let default = c.pick(&["", "gold", "external"]);
    let made = classes.into_iter().map(|(name, provisioner, binding_mode)| {
        let class = Class { default: name == default, ..class(name, provisioner, binding_mode) };
        (class.name.clone(), Arc::new(class))
    });
    made.collect()
}

fn modes(c: &mut Choices<'_>) -> Vec<AccessMode> {
    use AccessMode::{ReadOnlyMany, ReadWriteMany, ReadWriteOnce};
    c.usually(&[
        vec![ReadWriteOnce],
        vec![ReadWriteOnce, ReadOnlyMany],
        vec![ReadOnlyMany, ReadWriteOnce],
        vec![ReadWriteMany],
        vec![],
    ])
}

fn size(c: &mut Choices<'_>) -> Quantity {
    Quantity::bytes(c.usually(&[GIB, 2 * GIB, 0, GIB + 1]))
}

pub(super) fn some(c: &mut Choices<'_>, percent: usize, items: &[&str]) -> Option<Text> {
    c.percent(percent).then(|| c.pick(items).into())
}

pub(super) fn uid_of(claim: &str) -> Uid {
    Uid(format!("uid-{claim}").into())
}

pub(super) fn claim(c: &mut Choices<'_>, name: &str) -> Claim {
    let has_capacity = c.percent(20);
    Claim {
        deleting: c.percent(5),
        annotations: ClaimAnnotations {
            bind_completed: c.percent(20),
            bound_by_controller: c.percent(20),
            selected_node: some(c, 20, &["node"]),
            storage_provisioner: some(c, 15, &[PLUGIN, DRIVER, MIGRATED.0, ""]),
            beta_storage_provisioner: some(c, 10, &[PLUGIN, MIGRATED.0]),
            migrated_to: some(c, 10, &[MIGRATED.1, "other", ""]),
        },
        request: size(c),
        access_modes: modes(c),
        class: match c.usually(&[0, 1, 2]) {
            0 => Some("".into()),
            1 => None,
            _ => Some(c.pick(&CLASSES).into()),
        },
        mode: c.usually(&[VolumeMode::Filesystem, VolumeMode::Block]),
        attributes_class: some(c, 10, &["slow", ""]),
        selector: c.percent(15).then(|| selector(c)),
        volume_name: some(c, 30, &VOLUMES),
        status: ClaimStatus {
            phase: c.usually(&[ClaimPhase::Pending, ClaimPhase::Bound, ClaimPhase::Lost, ClaimPhase::Unset]),
            access_modes: if c.percent(20) { modes(c) } else { vec![] },
            has_capacity,
            capacity: if has_capacity { Some(size(c)) } else { None },
            attributes_class: some(c, 10, &["slow"]),
        },
        ..bindery_kit::claim(ClaimKey::new("d", name))
    }
}

fn selector(c: &mut Choices<'_>) -> Selector {
    if c.percent(10) {
        return Selector::Invalid("not an operator".into());
    }
    let operator = c.pick(&[
        SelectorOperator::In,
        SelectorOperator::NotIn,
        SelectorOperator::Exists,
        SelectorOperator::DoesNotExist,
    ]);
    let values = match operator {
        SelectorOperator::In | SelectorOperator::NotIn => vec!["a".into()],
        SelectorOperator::Exists | SelectorOperator::DoesNotExist => vec![],
    };
    Selector::Requirements(vec![Requirement { key: "tier".into(), operator, values }])
}

pub(super) fn volume(c: &mut Choices<'_>, name: &str, objects: &Objects) -> Volume {
    let claim_ref = c.percent(50).then(|| {
        let claim = c.pick(&CLAIMS);
        let uid = match c.below(4) {
            0 => None,
            1 => Some(Uid("uid-former".into())),
            _ => Some(uid_of(claim)),
        };
        ClaimRef { namespace: "d".into(), name: claim.into(), uid }
    });
    let finalizers = [("other", 20), (FINALIZER_IN_TREE, 30), (FINALIZER_EXTERNAL, 15)];
    let uid = claim_ref.as_ref().and_then(|claim_ref: &ClaimRef| claim_ref.uid.as_ref());
    let noted_for = uid.map_or("u-earlier", |uid| if c.percent(20) { "u-earlier" } else { &*uid.0 });
    let noted_policy =
        some(c, 15, &["Delete", "Recycle", "Retain"]).map(|policy| format!("{policy} {noted_for}").into());
    Volume {
        deleting: c.percent(8),
        labels: some(c, 50, &["a", "b"]).map(|tier| ("tier".into(), tier)).into_iter().collect(),
        annotations: VolumeAnnotations {
            bound_by_controller: c.percent(40),
            provisioned_by: some(c, 40, &[PLUGIN, DRIVER, MIGRATED.0, "", "kubernetes.io/none"]),
            migrated_to: some(c, 10, &[MIGRATED.1, ""]),
            pre_resize_capacity: if c.percent(10) { Some(size(c)) } else { None },
            reserved_for: None,
            fence: None,
        },
        finalizers: finalizers
            .into_iter()
            .filter(|(_, percent)| c.percent(*percent))
            .map(|(name, _)| name.into())
            .collect(),
        capacity: if c.percent(4) { None } else { Some(size(c)) },
        access_modes: modes(c),
        class: match c.usually(&[0, 1]) {
            0 => objects.claims.values().next().and_then(|c| c.class.clone()).unwrap_or_default(),
            _ => c.pick(&CLASSES).into(),
        },
        mode: c.usually(&[VolumeMode::Filesystem, VolumeMode::Block]),
        attributes_class: some(c, 10, &["slow", ""]),
        claim_ref,
        policy: c.pick(&[
            ReclaimPolicy::Retain,
            ReclaimPolicy::Delete,
            ReclaimPolicy::Recycle,
            ReclaimPolicy::Delete,
            ReclaimPolicy::Unknown,
        ]),
        node_affinity: c.percent(10),
        topology: None,
        source: c.usually(&["hostPath", "csi"]).into(),
        phase: volume_phase(c),
        facts: noted_policy
            .map(|noted| (VolumeFact::Annotation(RECLAIM_POLICY_BEFORE.into()), noted))
            .into_iter()
            .collect(),
        ..bindery_kit::volume(name)
    }
}

/// Any phase of a volume.
pub(crate) fn volume_phase(c: &mut Choices<'_>) -> VolumePhase {
    c.pick(&[
        VolumePhase::Available,
        VolumePhase::Bound,
        VolumePhase::Released,
        VolumePhase::Failed,
        VolumePhase::Pending,
        VolumePhase::Unset,
    ])
}
