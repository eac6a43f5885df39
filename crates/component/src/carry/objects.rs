//! Objects and what they are made of: the interface `types`.

use std::collections::BTreeMap;

use bindery_core::{
    AccessMode, BindingMode, Claim, ClaimAnnotations, ClaimKey, ClaimPhase, ClaimRef, ClaimStatus,
    ClaimTarget, Class, FINALIZER_EXTERNAL, FINALIZER_IN_TREE, Facts, OperationKind, PluginOperation,
    Quantity, QuantityFormat, Reason, ReclaimPolicy, Requirement, Selector, SelectorOperator, Tally, Volume,
    VolumeAnnotations, VolumeMode, VolumePhase, VolumeTarget,
};

use super::super::bindings::bindery::policy::types;
use super::{Carry, IllTyped};

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
        AccessModesMissing, NotAvailable, TooSmall, SelectorDiffers, InFlight, WaitsForConsumer;
        Rejected => SelectorDiffers
    }
    types::OperationKind { ProvisionExternal, Provision, Delete, Recycle }
    types::PluginOperation { Provision, Delete, Recycle }
}

records! {
    types::ClaimKey { namespace, name }
    types::ClaimTarget { key, uid, version }
    types::VolumeTarget { name, uid, version }
    types::ClaimRef { namespace, name, uid }
    types::VolumeAnnotations {
        bound_by_controller, provisioned_by, migrated_to, pre_resize_capacity;
        reserved_for, fence
    }
    types::Requirement { key, operator, values }
    types::ClaimAnnotations {
        bind_completed, bound_by_controller, selected_node, storage_provisioner, beta_storage_provisioner,
        migrated_to,
    }
    types::ClaimStatus { phase, access_modes, has_capacity, capacity, attributes_class }
    types::Claim {
        key, uid, version, deleting, annotations, request, access_modes, class, mode, attributes_class,
        selector, volume_name, data_source, status; steered, choice, facts
    }
    types::Class { name, provisioner, binding_mode, mount_options, default, created; parameters }
    types::Tally { reason, count, nearest }
}

variants! {
    Selector = types::Selector { value: Requirements, Invalid; }
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
            topology: None,
            source: wit.source.into(),
            phase: Carry::lift(wit.phase)?,
            facts: Facts::default(),
        })
    }
}
