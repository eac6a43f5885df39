//! How core types cross the contract: one line per type, each with both directions.
//!
//! This file is compiled twice, with the component's bindings and with the host's, which name the same types
//! of `wit/` alike. So the two sides cannot disagree, and the round trip can be tested without WebAssembly.
//! `super::bindings` is the side's bindings module.
//!
//! What does not cross: the labels of a volume (the host evaluates selectors) and finalizers other than the
//! two that decisions read.

use std::collections::BTreeMap;
use std::sync::Arc;

use bindery_core::{
    AccessMode, AccessModes, Action, BindingMode, CapacityChange, Claim, ClaimAnnotations, ClaimKey,
    ClaimPhase, ClaimRef, ClaimStatus, ClaimTarget, Class, Clear, Decision, Edit, Event, EventKind,
    FINALIZER_EXTERNAL, FINALIZER_IN_TREE, Failure, FinalizerEdit, Finding, Follows, Handle, Lookup, Message,
    Migration, Mismatch, Operation, OperationKind, OperationState, Outcome, Page, Plugin, PluginFound,
    PluginMatch, PluginOperation, Pod, Point, Progress, Quantity, QuantityFormat, Query, Reason,
    ReclaimPolicy, Regarding, Requirement, Returned, Rule, Selector, SelectorOperator, Slot, Source, Step,
    Subject, Tally, Text, Uid, Version, Volume, VolumeAnnotations, VolumeMode, VolumePhase, VolumeTarget,
};

use super::bindings::bindery::policy::{actions, cluster, events, types};
use super::bindings::exports::bindery::policy::decide;

/// A type of core that crosses the contract.
pub(crate) trait Carry: Sized {
    /// Its type in the bindings.
    type Wit;

    /// To the contract's type.
    fn lower(&self) -> Self::Wit;

    /// From the contract's type.
    fn lift(wit: Self::Wit) -> Result<Self, IllTyped>;
}

/// A value of the contract's type that stands for nothing: what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IllTyped(pub(crate) &'static str);

/// Types that are the same on both sides.
macro_rules! same {
    ($($type:ty),* $(,)?) => {
        $(impl Carry for $type {
            type Wit = $type;
            fn lower(&self) -> $type {
                *self
            }
            fn lift(wit: $type) -> Result<Self, IllTyped> {
                Ok(wit)
            }
        })*
    };
}

/// Enums: the same cases, by name.
macro_rules! cases {
    ($($module:ident::$type:ident { $($case:ident),* $(,)? })*) => {
        $(impl Carry for $type {
            type Wit = $module::$type;
            fn lower(&self) -> $module::$type {
                match self {
                    $(Self::$case => $module::$type::$case,)*
                }
            }
            fn lift(wit: $module::$type) -> Result<Self, IllTyped> {
                Ok(match wit {
                    $($module::$type::$case => Self::$case,)*
                })
            }
        })*
    };
}

/// Records: the same fields, by name.
macro_rules! records {
    ($($module:ident::$type:ident { $($field:ident),* $(,)? })*) => {
        $(impl Carry for $type {
            type Wit = $module::$type;
            fn lower(&self) -> $module::$type {
                $module::$type { $($field: self.$field.lower(),)* }
            }
            fn lift(wit: $module::$type) -> Result<Self, IllTyped> {
                Ok(Self { $($field: Carry::lift(wit.$field)?,)* })
            }
        })*
    };
}

/// Variants: the same cases, by name. `plain` ones carry nothing, `value` ones one value, `field` ones one
/// value that core names, `fields` ones several, which the contract puts into a record.
macro_rules! variants {
    ($($type:ty = $module:ident::$wit:ident {
        plain: $($plain:ident),*;
        value: $($value:ident),*;
        field: $($single:ident($name:ident)),*;
        fields: $($case:ident = $record_module:ident::$record:ident { $($field:ident),* }),*;
    })*) => {
        $(impl Carry for $type {
            type Wit = $module::$wit;
            fn lower(&self) -> $module::$wit {
                match self {
                    $(Self::$plain => $module::$wit::$plain,)*
                    $(Self::$value(value) => $module::$wit::$value(value.lower()),)*
                    $(Self::$single { $name } => $module::$wit::$single($name.lower()),)*
                    $(Self::$case { $($field),* } => {
                        $module::$wit::$case($record_module::$record { $($field: $field.lower()),* })
                    })*
                }
            }
            fn lift(wit: $module::$wit) -> Result<Self, IllTyped> {
                Ok(match wit {
                    $($module::$wit::$plain => Self::$plain,)*
                    $($module::$wit::$value(value) => Self::$value(Carry::lift(value)?),)*
                    $($module::$wit::$single($name) => Self::$single { $name: Carry::lift($name)? },)*
                    $($module::$wit::$case(record) => {
                        Self::$case { $($field: Carry::lift(record.$field)?),* }
                    })*
                })
            }
        })*
    };
}

/// Types that wrap one value of the contract.
macro_rules! newtypes {
    ($($type:ident($wit:ty) = $read:expr, $make:expr;)*) => {
        $(impl Carry for $type {
            type Wit = $wit;
            fn lower(&self) -> $wit {
                let read: fn(&Self) -> $wit = $read;
                read(self)
            }
            fn lift(wit: $wit) -> Result<Self, IllTyped> {
                let make: fn($wit) -> Result<Self, IllTyped> = $make;
                make(wit)
            }
        })*
    };
}

same!(bool, u32, u64, i64, ());

newtypes! {
    Text(String) = |text| String::from(&**text), |text| Ok(text.into());
    Uid(String) = |uid| uid.0.lower(), |text| Ok(Self(text.into()));
    Version(String) = |version| version.0.lower(), |text| Ok(Self(text.into()));
    Handle(u32) = |handle| handle.0, |number| Ok(Self(number));
    AccessModes(u32) = |set| set.bits(),
        |bits| Self::from_bits(bits).ok_or(IllTyped("an access-set with a bit of no access mode"));
}

impl<T: Carry> Carry for Arc<T> {
    type Wit = T::Wit;
    fn lower(&self) -> T::Wit {
        (**self).lower()
    }
    fn lift(wit: T::Wit) -> Result<Self, IllTyped> {
        T::lift(wit).map(Self::new)
    }
}

impl<T: Carry> Carry for Vec<T> {
    type Wit = Vec<T::Wit>;
    fn lower(&self) -> Self::Wit {
        self.iter().map(T::lower).collect()
    }
    fn lift(wit: Self::Wit) -> Result<Self, IllTyped> {
        wit.into_iter().map(T::lift).collect()
    }
}

impl<T: Carry> Carry for Option<T> {
    type Wit = Option<T::Wit>;
    fn lower(&self) -> Self::Wit {
        self.as_ref().map(T::lower)
    }
    fn lift(wit: Self::Wit) -> Result<Self, IllTyped> {
        wit.map(T::lift).transpose()
    }
}

impl<T: Carry, E: Carry> Carry for Result<T, E> {
    type Wit = Result<T::Wit, E::Wit>;
    fn lower(&self) -> Self::Wit {
        self.as_ref().map(T::lower).map_err(E::lower)
    }
    fn lift(wit: Self::Wit) -> Result<Self, IllTyped> {
        Ok(match wit {
            Ok(value) => Ok(T::lift(value)?),
            Err(error) => Err(E::lift(error)?),
        })
    }
}

cases! {
    types::QuantityFormat { DecimalSi, BinarySi, DecimalExponent }
    types::AccessMode { ReadWriteOnce, ReadOnlyMany, ReadWriteMany, ReadWriteOncePod }
    types::VolumeMode { Filesystem, Block }
    types::ReclaimPolicy { Retain, Delete, Recycle, Unknown }
    types::VolumePhase { Unset, Pending, Available, Bound, Released, Failed }
    types::SelectorOperator { In, NotIn, Exists, DoesNotExist }
    types::ClaimPhase { Unset, Pending, Bound, Lost }
    types::BindingMode { Immediate, WaitForFirstConsumer }
    types::Reason {
        Unreadable, ReservedForOther, Deleting, ClassDiffers, VolumeModeDiffers, AttributesClassDiffers,
        AccessModesMissing, NotAvailable, TooSmall, SelectorDiffers, InFlight, WaitsForConsumer,
    }
    types::OperationKind { ProvisionExternal, Provision, Delete, Recycle }
    types::PluginOperation { Provision, Delete, Recycle }
    cluster::Source { Overlay, Cache, Live }
    cluster::OperationState { Idle, Running, BackingOff }
    cluster::Slot { Free, InFlight }
    events::Mismatch { Deleting, TooSmall, Class, AttributesClass, VolumeMode, AccessModes }
    actions::FinalizerEdit { Keep, Add, Remove }
    actions::Clear { Whole, Uid }
    actions::Follows { Success, Tolerated, Regardless }
    actions::Rule {
        VolumeTooSmall, ClassDiffers, VolumeModeDiffers, AttributesClassDiffers, AccessModesMissing,
        VolumeOfOther, BreaksPair, VolumeMissing, VolumeReserved, VolumeLeaving, VolumeOversized,
        ClassMissing, ProvisionerUnknown, NameDefeatsWait, NameDefeatsAffinity, PolicyRecycle, PairMismatch,
    }
}

records! {
    types::ClaimKey { namespace, name }
    types::ClaimTarget { key, uid, version }
    types::VolumeTarget { name, uid, version }
    types::ClaimRef { namespace, name, uid }
    types::VolumeAnnotations { bound_by_controller, provisioned_by, migrated_to, pre_resize_capacity }
    types::Requirement { key, operator, values }
    types::ClaimAnnotations {
        bind_completed, bound_by_controller, selected_node, storage_provisioner, beta_storage_provisioner,
        migrated_to,
    }
    types::ClaimStatus { phase, access_modes, has_capacity, capacity, attributes_class }
    types::Claim {
        key, uid, version, deleting, annotations, request, access_modes, class, mode, attributes_class,
        selector, volume_name, data_source, status,
    }
    types::Class { name, provisioner, binding_mode, mount_options, default, created }
    types::Tally { reason, count, nearest }
    cluster::Pod { name, scheduled, terminated }
    cluster::Plugin { name, provisions, deletes, recycles, mount_options }
    cluster::Query { class, mode, attributes_class, access_set, at_least, labels }
    cluster::Page { handles, whole, nanos, slots, more }
    events::Event { regarding, kind }
    actions::Operation { kind, plugin, uid }
    actions::Step { action, follows }
    actions::Finding { rule, volume, claim, found, wanted }
    actions::Decision { wait_ms, steps, outcome, tallies, findings, requeue_after_ms }
}

variants! {
    Selector = types::Selector { plain: ; value: Requirements, Invalid; field: ; fields: ; }
    Lookup<Arc<Claim>> = cluster::ClaimLookup {
        plain: Absent; value: Found, Unreadable, Failed; field: ; fields: ;
    }
    Lookup<Arc<Volume>> = cluster::VolumeLookup {
        plain: Absent; value: Found, Unreadable, Failed; field: ; fields: ;
    }
    Lookup<Arc<Class>> = cluster::ClassLookup {
        plain: Absent; value: Found, Unreadable, Failed; field: ; fields: ;
    }
    PluginMatch = cluster::PluginMatch { plain: None; value: One, Several; field: ; fields: ; }
    Migration = cluster::Migration { plain: Off, Untranslatable; value: On; field: ; fields: ; }
    PluginFound = events::PluginFound { plain: None, Unable; value: Several; field: ; fields: ; }
    Regarding = events::Regarding { plain: ; value: Claim, Volume; field: ; fields: ; }
    Edit<Text> = actions::TextEdit { plain: Keep, Remove; value: Set; field: ; fields: ; }
    Edit<Vec<AccessMode>> = actions::AccessModesEdit { plain: Keep, Remove; value: Set; field: ; fields: ; }
    CapacityChange = actions::CapacityChange {
        plain: Keep, Remove; value: Storage, Whole; field: ; fields: ;
    }
    Outcome = actions::Outcome { plain: Done; value: Failed, Continue; field: ; fields: ; }
    Returned = decide::Returned { plain: Success, AlreadyExists; value: InUse, Failed; field: ; fields: ; }
    Message = events::Message {
        plain: Empty, UnknownReclaimPolicy, NoRecycler;
        value: NoPlugin, DeleteFailed, RecycleFailed;
        field: ;
        fields: NoDeleter = events::NoDeleter { volume, found },
            DeleterNotReady = events::DeleterNotReady { volume, error };
    }
    Failure = events::Failure {
        plain: ;
        value: Read, Unreadable, BindingModeUnset, SelectorInvalid, NoCapacity, VolumeOfOther, NoPlugin,
            DataSource, MountOptions, NotReady, Plugin, Untranslatable, Write;
        field: ;
        fields: Class = events::NamedError { name, error }, Node = events::NamedError { name, error };
    }
    Action = actions::Action {
        plain: ;
        value: Emit, EnqueueClaim, StartOperation;
        field: RemoveSelectedNode(claim), DeleteVolume(volume);
        fields: ReserveVolume = actions::ReserveVolume { volume, claim, mark },
            SetVolumePhase = actions::SetVolumePhase { volume, phase, message },
            BindClaim = actions::BindClaim { claim, volume, set_volume_name, mark },
            SetClaimStatus = actions::SetClaimStatus {
                claim, phase, access_modes, capacity, attributes_class
            },
            SetClaimClass = actions::SetClaimClass { claim, class },
            AnnotateClaim = actions::AnnotateClaim { claim, provisioner, migrated_to },
            AnnotateVolume = actions::AnnotateVolume {
                volume, migrated_to, in_tree_finalizer, external_finalizer
            },
            UnbindVolume = actions::UnbindVolume { volume, clear },
            CreateVolume = actions::CreateVolume { claim, name, class, plugin },
            CallPlugin = actions::CallPlugin { plugin, operation };
    }
    EventKind = events::EventKind {
        plain: NoVolumeFits, WaitForFirstConsumer, ClaimLostReference, UnknownReclaimPolicy, VolumeRecycled;
        value: VolumeOfOther, WaitForPodScheduled, ClaimLostVolume, ClaimMisbound, ExternalProvisioning,
            ProvisioningFailed, ProvisioningCleanupFailed, VolumeInUse, VolumeFailedDelete,
            RecycleWaitsForPods, VolumeFailedRecycle, Unreadable;
        field: ClaimModeMismatch(volume), VolumeModeMismatch(claim);
        fields: ClaimMismatch = events::ClaimMismatch { volume, mismatch },
            ProvisioningSucceeded = events::Provisioned { volume, plugin };
    }
    Point = actions::Point {
        plain: Start, Annotated, Provisioned, Deleted, FinalizerRemoved, Recycled;
        value: ;
        field: Created(attempt), CleanedUp(attempt);
        fields: ;
    }
}

impl Carry for Lookup<()> {
    type Wit = cluster::NodeLookup;
    fn lower(&self) -> cluster::NodeLookup {
        match self {
            Self::Found(()) => cluster::NodeLookup::Found,
            Self::Absent => cluster::NodeLookup::Absent,
            Self::Unreadable(what) => cluster::NodeLookup::Unreadable(what.lower()),
            Self::Failed(error) => cluster::NodeLookup::Failed(error.lower()),
        }
    }
    fn lift(wit: cluster::NodeLookup) -> Result<Self, IllTyped> {
        Ok(match wit {
            cluster::NodeLookup::Found => Self::Found(()),
            cluster::NodeLookup::Absent => Self::Absent,
            cluster::NodeLookup::Unreadable(what) => Self::Unreadable(what.into()),
            cluster::NodeLookup::Failed(error) => Self::Failed(error.into()),
        })
    }
}

impl Carry for Quantity {
    type Wit = types::Quantity;
    fn lower(&self) -> types::Quantity {
        types::Quantity { whole: self.whole, nanos: self.nanos, format: self.format.lower() }
    }
    fn lift(wit: types::Quantity) -> Result<Self, IllTyped> {
        if wit.nanos >= 1_000_000_000 {
            return Err(IllTyped("a quantity with 10^9 or more nanos"));
        }
        Ok(Self { whole: wit.whole, nanos: wit.nanos, format: QuantityFormat::lift(wit.format)? })
    }
}

impl Carry for Volume {
    type Wit = types::Volume;
    fn lower(&self) -> types::Volume {
        types::Volume {
            name: self.name.lower(),
            uid: self.uid.lower(),
            version: self.version.lower(),
            deleting: self.deleting,
            annotations: self.annotations.lower(),
            finalizers: types::VolumeFinalizers {
                in_tree: self.has_finalizer(FINALIZER_IN_TREE),
                external: self.has_finalizer(FINALIZER_EXTERNAL),
            },
            capacity: self.capacity.lower(),
            access_modes: self.access_modes.lower(),
            class: self.class.lower(),
            mode: self.mode.lower(),
            attributes_class: self.attributes_class.lower(),
            claim_ref: self.claim_ref.lower(),
            policy: self.policy.lower(),
            node_affinity: self.node_affinity,
            source: self.source.lower(),
            phase: self.phase.lower(),
        }
    }
    fn lift(wit: types::Volume) -> Result<Self, IllTyped> {
        let known =
            [(wit.finalizers.in_tree, FINALIZER_IN_TREE), (wit.finalizers.external, FINALIZER_EXTERNAL)];
        Ok(Self {
            name: wit.name.into(),
            uid: Carry::lift(wit.uid)?,
            version: Carry::lift(wit.version)?,
            deleting: wit.deleting,
            labels: BTreeMap::new(),
            annotations: Carry::lift(wit.annotations)?,
            finalizers: known.into_iter().filter(|(there, _)| *there).map(|(_, name)| name.into()).collect(),
            capacity: Carry::lift(wit.capacity)?,
            access_modes: Carry::lift(wit.access_modes)?,
            class: wit.class.into(),
            mode: Carry::lift(wit.mode)?,
            attributes_class: Carry::lift(wit.attributes_class)?,
            claim_ref: Carry::lift(wit.claim_ref)?,
            policy: Carry::lift(wit.policy)?,
            node_affinity: wit.node_affinity,
            source: wit.source.into(),
            phase: Carry::lift(wit.phase)?,
        })
    }
}

/// An operation on an object, which is a claim or a volume.
pub(crate) fn lower_progress<T>(progress: &Progress<T>, object: decide::Operated) -> decide::Progress {
    decide::Progress {
        operation: progress.operation.lower(),
        object,
        fresh: progress.fresh.lower(),
        point: progress.point.lower(),
        returned: progress.returned.lower(),
    }
}

/// The subject that an operation on an object is.
pub(crate) fn lift_progress(wit: decide::Progress) -> Result<Subject, IllTyped> {
    let operation = Carry::lift(wit.operation)?;
    let fresh = Carry::lift(wit.fresh)?;
    let point = Carry::lift(wit.point)?;
    let returned = Carry::lift(wit.returned)?;
    Ok(match wit.object {
        decide::Operated::Claim(claim) => {
            let object = Claim::lift(claim)?;
            Subject::SyncClaimOperation(Progress { operation, object, fresh, point, returned })
        }
        decide::Operated::Volume(volume) => {
            let object = Volume::lift(volume)?;
            Subject::SyncVolumeOperation(Progress { operation, object, fresh, point, returned })
        }
    })
}
