//! Random values of the contract's types, from a seed. Names come from small pools, so that objects meet.

use std::collections::BTreeMap;
use std::sync::Arc;

use bindery_core::{
    AccessMode, AccessModes, Action, BindingMode, CapacityChange, Claim, ClaimAnnotations, ClaimKey,
    ClaimPhase, ClaimRef, ClaimStatus, ClaimTarget, Class, Clear, Decision, Edit, Event, EventKind,
    FINALIZER_EXTERNAL, FINALIZER_IN_TREE, Facts, Failure, Fate, FinalizerEdit, Finding, Follows, Handle,
    Lookup, MatchVerdict, Message, Migration, Mismatch, Operation, OperationKind, OperationState, Outcome,
    Page, Plugin, PluginFound, PluginMatch, PluginOperation, Pod, Point, Progress, Quantity, QuantityFormat,
    Query, Reason, ReclaimPolicy, ReclaimVerdict, Regarding, Request, Requirement, Returned, Rule, Selector,
    SelectorOperator, Slot, Source, Step, Subject, Tally, Text, Uid, Version, Volume, VolumeAnnotations,
    VolumeMode, VolumePhase, VolumeTarget,
};

/// A source of values (splitmix64): the same seed gives the same values, on every machine and in every
/// version.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % limit
    }

    /// One of these.
    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        let at = self.below(of.len() as u64);
        of[usize::try_from(at).expect("an index fits")].clone()
    }

    /// A value of any type that has random values.
    pub(crate) fn value<T: Sample>(&mut self) -> T {
        T::sample(self)
    }
}

/// A type that has random values.
pub(crate) trait Sample: Sized {
    /// One of them.
    fn sample(random: &mut Random) -> Self;
}

macro_rules! sample_cases {
    ($($type:ident { $($case:ident),* })*) => {
        $(impl Sample for $type {
            fn sample(random: &mut Random) -> Self {
                random.pick(&[$(Self::$case),*])
            }
        })*
    };
}

macro_rules! sample_records {
    ($($type:ident { $($field:ident),* $(; $($host:ident),*)? })*) => {
        $(impl Sample for $type {
            fn sample(random: &mut Random) -> Self {
                Self { $($field: random.value(),)* $($($host: Default::default(),)*)? }
            }
        })*
    };
}

/// Variants, each with the expressions of its payload.
macro_rules! sample_variants {
    ($($type:ident |$random:ident| { $($make:expr),* $(,)? })*) => {
        $(impl Sample for $type {
            fn sample(random: &mut Random) -> Self {
                let makers: &[fn(&mut Random) -> Self] = &[$(|$random| $make),*];
                random.pick(makers)(random)
            }
        })*
    };
}

/// A type whose values one expression makes.
macro_rules! sample_by {
    ($($type:ty = |$random:ident| $make:expr;)*) => {
        $(impl Sample for $type {
            fn sample($random: &mut Random) -> Self {
                $make
            }
        })*
    };
}

impl<T: Sample> Sample for Option<T> {
    fn sample(random: &mut Random) -> Self {
        (random.below(3) > 0).then(|| random.value())
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(random: &mut Random) -> Self {
        (0..random.below(4)).map(|_| random.value()).collect()
    }
}

impl<T: Sample> Sample for Arc<T> {
    fn sample(random: &mut Random) -> Self {
        Self::new(random.value())
    }
}

impl<T: Sample> Sample for Result<T, Text> {
    fn sample(random: &mut Random) -> Self {
        if random.below(4) > 0 { Ok(random.value()) } else { Err(random.value()) }
    }
}

impl<T: Sample> Sample for Lookup<T> {
    fn sample(random: &mut Random) -> Self {
        match random.below(8) {
            0 => Self::Absent,
            1 => Self::Unreadable(random.value()),
            2 => Self::Failed(random.value()),
            _ => Self::Found(random.value()),
        }
    }
}

impl<T: Sample> Sample for Edit<T> {
    fn sample(random: &mut Random) -> Self {
        match random.below(3) {
            0 => Self::Keep,
            1 => Self::Remove,
            _ => Self::Set(random.value()),
        }
    }
}

impl<T: Sample> Sample for Progress<T> {
    fn sample(random: &mut Random) -> Self {
        Self {
            operation: random.value(),
            object: random.value(),
            fresh: random.value(),
            point: random.value(),
            returned: random.value(),
        }
    }
}

sample_by! {
    () = |_random| ();
    bool = |random| random.below(2) == 1;
    u32 = |random| u32::try_from(random.below(1 << 20)).expect("20 bits fit");
    u64 = |random| random.below(u64::MAX);
    i64 = |random| i64::try_from(random.below(1 << 40)).expect("40 bits fit") - (1 << 20);
    Text = |random| random.pick(&["", "a", "b", "kubernetes.io/host-path", "größe 容量", "csi"]).into();
    Uid = |random| Self::from(random.pick(&["1", "2", "3"]));
    Version = |random| Self::from(random.pick(&["10", "11"]));
    Handle = |random| Self(u32::try_from(random.below(8)).expect("three bits fit"));
    AccessModes = |random| random.value::<Vec<AccessMode>>().iter().collect();
    Quantity = |random| Self {
        whole: random.pick(&[0, 1, 1 << 30, 2 << 30, u64::MAX]),
        nanos: random.pick(&[0, 0, 1, 999_999_999]),
        format: random.value(),
    };
    Reason = |random| random.pick(&Self::ALL);
    Rule = |random| random.pick(&Self::ALL);
    Request = |random| Self { now: random.value(), subject: random.value() };
}

sample_cases! {
    QuantityFormat { DecimalSi, BinarySi, DecimalExponent }
    AccessMode { ReadWriteOnce, ReadOnlyMany, ReadWriteMany, ReadWriteOncePod }
    VolumeMode { Filesystem, Block }
    ReclaimPolicy { Retain, Delete, Recycle, Unknown }
    VolumePhase { Unset, Pending, Available, Bound, Released, Failed }
    SelectorOperator { In, NotIn, Exists, DoesNotExist }
    ClaimPhase { Unset, Pending, Bound, Lost }
    BindingMode { Immediate, WaitForFirstConsumer }
    OperationKind { ProvisionExternal, Provision, Delete, Recycle }
    PluginOperation { Provision, Delete, Recycle }
    Source { Overlay, Cache, Live }
    OperationState { Idle, Running, BackingOff }
    Slot { Free, InFlight, Withheld }
    Mismatch { Deleting, TooSmall, Class, AttributesClass, VolumeMode, AccessModes }
    FinalizerEdit { Keep, Add, Remove }
    Clear { Whole, Uid }
    Follows { Success, Tolerated, Regardless }
}

sample_records! {
    ClaimKey { namespace, name }
    ClaimTarget { key, uid, version }
    VolumeTarget { name, uid, version }
    ClaimRef { namespace, name, uid }
    VolumeAnnotations {
        bound_by_controller, provisioned_by, migrated_to, pre_resize_capacity; reserved_for, fence
    }
    Requirement { key, operator, values }
    ClaimAnnotations {
        bind_completed, bound_by_controller, selected_node, storage_provisioner, beta_storage_provisioner,
        migrated_to
    }
    ClaimStatus { phase, access_modes, has_capacity, capacity, attributes_class }
    Claim {
        key, uid, version, deleting, annotations, request, access_modes, class, mode, attributes_class,
        selector, volume_name, data_source, status; steered, choice, facts
    }
    Class { name, provisioner, binding_mode, mount_options, default, created; parameters }
    Tally { reason, count, nearest }
    ReclaimVerdict { fate, policy, reason }
    Pod { name, scheduled, terminated }
    Plugin { name, provisions, deletes, recycles, mount_options }
    Query { class, mode, attributes_class, access_set, at_least, labels }
    Event { regarding, kind }
    Operation { kind, plugin, uid }
    Step { action, follows }
    Finding { rule, volume, claim, found, wanted }
    Decision { wait_ms, steps, outcome, tallies, findings, requeue_after_ms }
}

sample_variants! {
    Selector |r| { Self::Requirements(r.value()), Self::Invalid(r.value()) }
    PluginMatch |r| { r.pick(&[Self::None]), Self::One(r.value()), Self::Several(r.value()) }
    MatchVerdict |r| {
        r.pick(&[Self::Allowed]), Self::Rejected { policy: r.value(), reason: r.value() },
    }
    Fate |r| {
        r.pick(&[Self::ByPolicy, Self::Keep, Self::Delete, Self::Recycle, Self::OfferAgain]),
        Self::KeepFor(r.value()),
    }
    Migration |r| { r.pick(&[Self::Off, Self::Untranslatable]), Self::On(r.value()) }
    PluginFound |r| { r.pick(&[Self::None, Self::Unable]), Self::Several(r.value()) }
    Regarding |r| { Self::Claim(r.value()), Self::Volume(r.value()) }
    CapacityChange |r| {
        r.pick(&[Self::Keep, Self::Remove]), Self::Storage(r.value()), Self::Whole(r.value()),
    }
    Outcome |r| { r.pick(&[Self::Done]), Self::Failed(r.value()), Self::Continue(r.value()) }
    Returned |r| {
        r.pick(&[Self::Success, Self::AlreadyExists]), Self::InUse(r.value()), Self::Failed(r.value()),
    }
    Message |r| {
        r.pick(&[Self::Empty, Self::UnknownReclaimPolicy, Self::NoRecycler]),
        Self::NoDeleter { volume: r.value(), found: r.value() },
        Self::NoPlugin(r.value()),
        Self::DeleterNotReady { volume: r.value(), error: r.value() },
        Self::DeleteFailed(r.value()),
        Self::RecycleFailed(r.value()),
    }
    Failure |r| {
        Self::Read(r.value()), Self::Unreadable(r.value()), Self::BindingModeUnset(r.value()),
        Self::SelectorInvalid(r.value()), Self::NoCapacity(r.value()), Self::VolumeOfOther(r.value()),
        Self::Class { name: r.value(), error: r.value() }, Self::NoPlugin(r.value()),
        Self::DataSource(r.value()), Self::MountOptions(r.value()), Self::NotReady(r.value()),
        Self::Node { name: r.value(), error: r.value() }, Self::Plugin(r.value()),
        Self::Untranslatable(r.value()), Self::Write(r.value()),
    }
    EventKind |r| {
        r.pick(&[
            Self::NoVolumeFits, Self::WaitForFirstConsumer, Self::ClaimLostReference,
            Self::UnknownReclaimPolicy, Self::VolumeRecycled,
        ]),
        Self::VolumeOfOther(r.value()), Self::WaitForPodScheduled(r.value()),
        Self::ClaimMismatch { volume: r.value(), mismatch: r.value() },
        Self::VolumeRejected { volume: r.value(), policy: r.value(), reason: r.value() },
        Self::ClaimModeMismatch { volume: r.value() }, Self::VolumeModeMismatch { claim: r.value() },
        Self::ClaimLostVolume(r.value()), Self::ClaimMisbound(r.value()),
        Self::ExternalProvisioning(r.value()), Self::ProvisioningFailed(r.value()),
        Self::ProvisioningSucceeded { volume: r.value(), plugin: r.value() },
        Self::ProvisioningCleanupFailed(r.value()), Self::VolumeInUse(r.value()),
        Self::VolumeFailedDelete(r.value()), Self::RecycleWaitsForPods(r.value()),
        Self::VolumeFailedRecycle(r.value()), Self::Unreadable(r.value()),
    }
    Point |r| {
        r.pick(&[
            Self::Start, Self::Annotated, Self::Provisioned, Self::Deleted, Self::FinalizerRemoved,
            Self::Recycled,
        ]),
        Self::Created { attempt: r.value() }, Self::CleanedUp { attempt: r.value() },
    }
    Action |r| {
        Self::ReserveVolume { volume: r.value(), claim: r.value(), mark: r.value() },
        Self::SetVolumePhase { volume: r.value(), phase: r.value(), message: r.value() },
        Self::BindClaim { claim: r.value(), volume: r.value(), set_volume_name: r.value(), mark: r.value() },
        Self::SetClaimStatus {
            claim: r.value(), phase: r.value(), access_modes: r.value(), capacity: r.value(),
            attributes_class: r.value(),
        },
        Self::SetClaimClass { claim: r.value(), class: r.value() },
        Self::AnnotateClaim { claim: r.value(), provisioner: r.value(), migrated_to: r.value() },
        Self::RemoveSelectedNode { claim: r.value() },
        Self::AnnotateVolume {
            volume: r.value(), migrated_to: r.value(), in_tree_finalizer: r.value(),
            external_finalizer: r.value(),
        },
        Self::SetReclaimPolicy { volume: r.value(), policy: r.value() },
        Self::UnbindVolume { volume: r.value(), clear: r.value() },
        Self::CreateVolume { claim: r.value(), name: r.value(), class: r.value(), plugin: r.value() },
        Self::DeleteVolume { volume: r.value() },
        Self::Emit(r.value()), Self::EnqueueClaim(r.value()), Self::StartOperation(r.value()),
        Self::CallPlugin { plugin: r.value(), operation: r.value() },
    }
    Subject |r| {
        Self::SyncClaim(r.value()), Self::SyncVolume(r.value()), Self::SyncClaimOperation(r.value()),
        Self::SyncVolumeOperation(r.value()), Self::ReviewClaim { new: r.value(), old: r.value() },
        Self::ReviewVolume { new: r.value(), old: r.value() },
    }
}

impl Sample for Page {
    fn sample(random: &mut Random) -> Self {
        let handles: Vec<Handle> = random.value();
        let mut column = || handles.iter().map(|_| random.value::<Quantity>()).collect::<Vec<_>>();
        let capacities = column();
        Self {
            whole: capacities.iter().map(|capacity| capacity.whole).collect(),
            nanos: capacities.iter().map(|capacity| capacity.nanos).collect(),
            slots: handles.iter().map(|_| random.value()).collect(),
            more: random.below(8) == 0,
            handles,
        }
    }
}

impl Sample for Volume {
    /// Without what stays on the host: labels, and finalizers of others.
    fn sample(random: &mut Random) -> Self {
        let finalizers = [FINALIZER_IN_TREE, FINALIZER_EXTERNAL];
        Self {
            name: random.value(),
            uid: random.value(),
            version: random.value(),
            deleting: random.value(),
            labels: BTreeMap::new(),
            annotations: random.value(),
            finalizers: finalizers.into_iter().filter(|_| random.value()).map(Text::from).collect(),
            capacity: random.value(),
            access_modes: random.value(),
            class: random.value(),
            mode: random.value(),
            attributes_class: random.value(),
            claim_ref: random.value(),
            policy: random.value(),
            node_affinity: random.value(),
            topology: None,
            source: random.value(),
            phase: random.value(),
            facts: Facts::default(),
        }
    }
}
