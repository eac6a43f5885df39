//! The objects that a world begins with. Their names and values are few, so that they meet.

use std::collections::BTreeMap;
use std::sync::Arc;

use bindery_core::{
    AccessMode, BindingMode, Claim, ClaimAnnotations, ClaimFact, ClaimKey, ClaimPhase, ClaimRef, ClaimStatus,
    Class, FINALIZER_EXTERNAL, FINALIZER_IN_TREE, Quantity, RECLAIM_POLICY_BEFORE, ReclaimPolicy,
    Requirement, Selector, SelectorOperator, Text, Uid, Volume, VolumeAnnotations, VolumeFact, VolumeMode,
    VolumePhase,
};

use bindery_kit::{Choices, NOW, VOLUME_PROTECTION, gib};

use crate::bytes::WorldBytes;

/// The in-tree plugin of these worlds, and the source of its volumes.
pub(crate) const PLUGIN: &str = "kubernetes.io/mock";
pub(crate) const SOURCE: &str = "mock";
/// The external provisioner.
pub(crate) const DRIVER: &str = "vendor.example/disk";
/// The in-tree plugin that is migrated, and its driver.
pub(crate) const MIGRATED: (&str, &str) = ("kubernetes.io/old", "csi.old.example");

/// The label of claims, volumes and namespaces, and the parameter of classes, that policies read.
pub(crate) const TIER: &str = "tier";
/// The namespaces.
pub(crate) const NAMESPACES: [&str; 2] = ["d", "e"];

/// The claims. The last one has the name of the first, in another namespace: see [`key`].
pub(crate) const CLAIMS: [&str; 4] = ["c0", "c1", "c2", NAMESAKE];
pub(crate) const VOLUMES: [&str; 4] = ["v0", "v1", "v2", "v3"];
const NAMESAKE: &str = "namesake";

/// Delays and failures of a world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    /// Milliseconds until a watch delivers a volume, and a claim.
    pub(crate) lag: [u64; 2],
    /// How many turns other tasks get before a request is carried out.
    pub(crate) yields: usize,
    /// How many calls of the plugin fail before the first success.
    pub(crate) plugin_failures: usize,
}

/// The key of a claim of these worlds.
pub(crate) fn key(name: &str) -> ClaimKey {
    match name {
        NAMESAKE => ClaimKey::new(NAMESPACES[1], CLAIMS[0]),
        name => ClaimKey::new(NAMESPACES[0], name),
    }
}

/// The UID of one of the claims that had this name.
pub(crate) fn uid_of(name: &str, generation: u32) -> Uid {
    Uid(format!("uid-{name}-{generation}").into())
}

/// Classes and conditions.
pub(crate) fn conditions(bytes: &WorldBytes) -> (Vec<Class>, Conditions) {
    let c = &mut Choices::new(&bytes.conditions);
    let immediate = Some(BindingMode::Immediate);
    let mut classes = vec![
        ("gold", PLUGIN, immediate),
        ("wait", PLUGIN, Some(BindingMode::WaitForFirstConsumer)),
        ("unset", DRIVER, None),
        ("external", DRIVER, immediate),
        ("old", MIGRATED.0, immediate),
        ("nobody", "kubernetes.io/no-provisioner", immediate),
    ];
    if c.percent(20) {
        classes.remove(c.below(6));
    }
    let default = c.pick(&["", "gold", "external", "nobody"]);
    let plugin_failures = c.pick(&[0, 0, 1, 2]);
    let conditions = if bytes.actions.is_empty() {
        Conditions { lag: [0; 2], yields: 0, plugin_failures }
    } else {
        let lags = [0, 1, 30, 2_000];
        Conditions { lag: [c.pick(&lags), c.pick(&lags)], yields: c.below(3), plugin_failures }
    };
    let class = |(name, provisioner, mode)| Class {
        default: name == default,
        parameters: tier(c).map(|tier| (ClaimFact::ClassParameter(TIER.into()), tier)).into_iter().collect(),
        ..bindery_kit::class(name, provisioner, mode)
    };
    (classes.into_iter().map(class).collect(), conditions)
}

/// Any claim of that name.
pub(crate) fn claim(name: &str, bytes: &[u8]) -> Claim {
    let c = &mut Choices::new(bytes);
    let class = match c.usually(&[0, 1, 2, 3]) {
        0 => Some("".into()),
        1 => None,
        _ => Some(c.pick(&["gold", "wait", "external", "old", "nobody", "missing", "unset"]).into()),
    };
    let (request, access_modes) = (size(c), modes(c));
    let volume_name = c.percent(40).then(|| c.pick(&VOLUMES).into());
    let annotations = ClaimAnnotations {
        bind_completed: c.percent(25),
        bound_by_controller: c.percent(25),
        selected_node: c.percent(15).then(|| "node".into()),
        storage_provisioner: c.percent(10).then(|| c.pick(&[PLUGIN, DRIVER, MIGRATED.0]).into()),
        beta_storage_provisioner: None,
        migrated_to: c.percent(5).then(|| c.pick(&[MIGRATED.1, "other"]).into()),
    };
    let phase = c.usually(&[ClaimPhase::Pending, ClaimPhase::Bound, ClaimPhase::Lost, ClaimPhase::Unset]);
    let is_bound = phase == ClaimPhase::Bound;
    Claim {
        uid: uid_of(name, 0),
        deleting: c.percent(5),
        annotations,
        request,
        class,
        mode: c.usually(&[VolumeMode::Filesystem, VolumeMode::Block]),
        attributes_class: c.percent(8).then(|| "slow".into()),
        selector: c.percent(12).then(|| selector(c)),
        volume_name,
        status: ClaimStatus {
            phase,
            access_modes: if is_bound { access_modes.clone() } else { Vec::new() },
            has_capacity: is_bound,
            capacity: is_bound.then_some(request),
            attributes_class: None,
        },
        access_modes,
        ..bindery_kit::claim(key(name))
    }
}

/// Any volume of that name.
pub(crate) fn volume(name: &str, bytes: &[u8]) -> Volume {
    let c = &mut Choices::new(bytes);
    let class = c.usually(&["", "gold", "wait", "external", "nobody"]).into();
    let (capacity, access_modes) = (size(c), modes(c));
    let claim_ref = c.percent(60).then(|| claim_ref(c));
    let phases = [
        VolumePhase::Available,
        VolumePhase::Bound,
        VolumePhase::Released,
        VolumePhase::Failed,
        VolumePhase::Pending,
    ];
    let phase = c.usually(&phases);
    let policy = c.pick(&[
        ReclaimPolicy::Retain,
        ReclaimPolicy::Delete,
        ReclaimPolicy::Recycle,
        ReclaimPolicy::Unknown,
    ]);
    let provisioned_by = c.percent(30).then(|| c.pick(&[PLUGIN, DRIVER, MIGRATED.0]).into());
    let mut finalizers = vec![VOLUME_PROTECTION.into()];
    finalizers.extend(c.percent(25).then(|| c.pick(&[FINALIZER_IN_TREE, FINALIZER_EXTERNAL]).into()));
    Volume {
        uid: uid_of(name, 0),
        deleting: c.percent(5),
        labels: BTreeMap::from([(TIER.into(), c.usually(&["fast", "slow"]).into())]),
        annotations: VolumeAnnotations {
            bound_by_controller: c.percent(35),
            provisioned_by,
            migrated_to: c.percent(5).then(|| MIGRATED.1.into()),
            pre_resize_capacity: None,
            reserved_for: None,
            fence: None,
        },
        finalizers,
        // The API server admits no volume without a policy, but its store may have older ones.
        capacity: (!c.percent(5)).then_some(capacity),
        access_modes,
        class,
        mode: c.usually(&[VolumeMode::Filesystem, VolumeMode::Block]),
        attributes_class: c.percent(8).then(|| "slow".into()),
        claim_ref,
        policy,
        node_affinity: c.percent(10),
        topology: None,
        source: c.usually(&[SOURCE, "csi", "nfs"]).into(),
        phase,
        ..bindery_kit::volume(name)
    }
}

/// Makes pairs of some volumes and claims: complete, or as a crash between two of the four writes of a bind
/// leaves them. Some claims name a free volume that satisfies them.
pub(crate) fn pair(c: &mut Choices<'_>, claim: &mut Claim, volume: &mut Volume) {
    if !c.percent(35) {
        return;
    }
    let Some(writes) = c.pick(&[Some(4), Some(4), Some(1), Some(2), Some(3), None]) else {
        return name_free(claim, volume);
    };
    let key = claim.key.clone();
    volume.claim_ref =
        Some(ClaimRef { namespace: key.namespace, name: key.name, uid: Some(claim.uid.clone()) });
    volume.phase = if writes >= 2 { VolumePhase::Bound } else { VolumePhase::Available };
    claim.annotations.bind_completed = writes >= 3;
    claim.volume_name = (writes >= 3).then(|| volume.name.clone());
    let is_bound = writes >= 4;
    claim.status = ClaimStatus {
        phase: if is_bound { ClaimPhase::Bound } else { ClaimPhase::Pending },
        access_modes: if is_bound { volume.access_modes.clone() } else { Vec::new() },
        has_capacity: is_bound,
        capacity: volume.capacity.filter(|_| is_bound),
        attributes_class: None,
    };
}

fn name_free(claim: &mut Claim, volume: &mut Volume) {
    claim.volume_name = Some(volume.name.clone());
    volume.claim_ref = None;
    volume.phase = VolumePhase::Available;
    volume.capacity = Some(claim.request);
    volume.access_modes = claim.access_modes.clone();
    volume.class = claim.class.clone().unwrap_or_else(|| "".into());
    volume.mode = claim.mode;
    volume.attributes_class = claim.attributes_class.clone();
}

/// A value of the label [`TIER`], or none.
pub(crate) fn tier(c: &mut Choices<'_>) -> Option<Text> {
    c.pick(&[None, Some("fast"), Some("slow")]).map(Text::from)
}

/// The labels of a namespace.
pub(crate) fn labels(c: &mut Choices<'_>) -> Arc<BTreeMap<Text, Text>> {
    Arc::new(tier(c).map(|tier| (TIER.into(), tier)).into_iter().collect())
}

/// The value of [`TIER`] among the parameters of a class.
pub(crate) fn tier_of_class(class: &Class) -> Option<Text> {
    class.parameters.get(&ClaimFact::ClassParameter(TIER.into())).cloned()
}

/// Gives a claim what policies read of it.
pub(crate) fn label(c: &mut Choices<'_>, claim: &mut Claim) {
    claim.facts.set(ClaimFact::Label(TIER.into()), tier(c));
}

/// Gives a volume what reclaimers have noted on it, and when its claim was gone.
pub(crate) fn note(c: &mut Choices<'_>, volume: &mut Volume) {
    let since = c.pick(&[None, Some(NOW - 60 * 60), Some(NOW - 1)]);
    volume.facts.set(VolumeFact::PhaseTransition, since.map(|since| since.to_string().into()));
    if let Some(claim_ref) = &volume.claim_ref
        && c.percent(30)
    {
        let uid = claim_ref.uid.as_ref().filter(|_| !c.percent(20)).map_or("uid-of-another", |uid| &*uid.0);
        let before = format!("{} {uid}", c.pick(&["Delete", "Recycle"]));
        volume.facts.set(VolumeFact::Annotation(RECLAIM_POLICY_BEFORE.into()), Some(before.into()));
    }
}

fn claim_ref(c: &mut Choices<'_>) -> ClaimRef {
    let name = c.pick(&CLAIMS);
    let uid = match c.below(3) {
        0 => None,
        1 => Some("uid-of-a-claim-before".into()),
        _ => Some(uid_of(name, 0)),
    };
    let ClaimKey { namespace, name } = key(name);
    ClaimRef { namespace, name, uid }
}

fn size(c: &mut Choices<'_>) -> Quantity {
    c.pick(&[gib(1), gib(1), gib(2), Quantity::bytes(gib(2).whole + 1)])
}

fn modes(c: &mut Choices<'_>) -> Vec<AccessMode> {
    use AccessMode::{ReadOnlyMany, ReadWriteMany, ReadWriteOnce, ReadWriteOncePod};
    c.usually(&[
        vec![ReadWriteOnce],
        vec![ReadWriteOnce, ReadOnlyMany],
        vec![ReadOnlyMany],
        vec![ReadWriteOnce, ReadWriteMany],
        vec![ReadWriteOncePod],
    ])
}

fn selector(c: &mut Choices<'_>) -> Selector {
    if c.percent(10) {
        return Selector::Invalid("\"!\" is not a valid label selector operator".into());
    }
    let operators = [
        SelectorOperator::In,
        SelectorOperator::NotIn,
        SelectorOperator::Exists,
        SelectorOperator::DoesNotExist,
    ];
    let operator = c.pick(&operators);
    let values: Vec<Text> = match operator {
        SelectorOperator::In | SelectorOperator::NotIn => vec![c.pick(&["fast", "slow"]).into()],
        SelectorOperator::Exists | SelectorOperator::DoesNotExist => Vec::new(),
    };
    Selector::Requirements(vec![Requirement { key: TIER.into(), operator, values }])
}
