//! Decisions and operations: the interfaces `actions`, `events` and `decide`.

use bindery_core::{
    AccessMode, Action, CapacityChange, Claim, Clear, Decision, Edit, Event, EventKind, Failure,
    FinalizerEdit, Finding, Follows, Message, Mismatch, Operation, Outcome, PluginFound, Point, Progress,
    Regarding, Returned, Rule, Step, Subject, Text, Volume,
};

use super::super::bindings::bindery::policy::{actions, events};
use super::super::bindings::exports::bindery::policy::decide;
use super::{Carry, IllTyped};

cases! {
    events::Mismatch { Deleting, TooSmall, Class, AttributesClass, VolumeMode, AccessModes }
    actions::FinalizerEdit { Keep, Add, Remove }
    actions::Clear { Whole, Uid }
    actions::Follows { Success, Tolerated, Regardless }
    actions::Rule {
        VolumeTooSmall, ClassDiffers, VolumeModeDiffers, AttributesClassDiffers, AccessModesMissing,
        VolumeOfOther, BreaksPair, VolumeMissing, VolumeReserved, VolumeLeaving, VolumeOversized,
        ClassMissing, ProvisionerUnknown, NameDefeatsWait, NameDefeatsAffinity, PolicyRecycle, PairMismatch;
        VolumeRejected => VolumeReserved
    }
}

records! {
    events::Event { regarding, kind }
    actions::Operation { kind, plugin, uid }
    actions::Step { action, follows }
    actions::Finding { rule, volume, claim, found, wanted }
    actions::Decision { wait_ms, steps, outcome, tallies, findings, requeue_after_ms }
}

variants! {
    PluginFound = events::PluginFound { plain: None, Unable; value: Several; }
    Regarding = events::Regarding { value: Claim, Volume; }
    Edit<Text> = actions::TextEdit { plain: Keep, Remove; value: Set; }
    Edit<Vec<AccessMode>> = actions::AccessModesEdit { plain: Keep, Remove; value: Set; }
    CapacityChange = actions::CapacityChange { plain: Keep, Remove; value: Storage, Whole; }
    Outcome = actions::Outcome { plain: Done; value: Failed, Continue; }
    Returned = decide::Returned { plain: Success, AlreadyExists; value: InUse, Failed; }
    Message = events::Message {
        plain: Empty, UnknownReclaimPolicy, NoRecycler;
        value: NoPlugin, DeleteFailed, RecycleFailed;
        fields: NoDeleter = events::NoDeleter { volume, found },
            DeleterNotReady = events::DeleterNotReady { volume, error };
    }
    Failure = events::Failure {
        value: Read, Unreadable, BindingModeUnset, SelectorInvalid, NoCapacity, VolumeOfOther, NoPlugin,
            DataSource, MountOptions, NotReady, Plugin, Untranslatable, Write;
        fields: Class = events::NamedError { name, error }, Node = events::NamedError { name, error };
    }
    Action = actions::Action {
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
        newer: SetReclaimPolicy = actions::SetReclaimPolicy { volume, policy };
    }
    EventKind = events::EventKind {
        plain: NoVolumeFits, WaitForFirstConsumer, ClaimLostReference, UnknownReclaimPolicy, VolumeRecycled;
        value: VolumeOfOther, WaitForPodScheduled, ClaimLostVolume, ClaimMisbound, ExternalProvisioning,
            ProvisioningFailed, ProvisioningCleanupFailed, VolumeInUse, VolumeFailedDelete,
            RecycleWaitsForPods, VolumeFailedRecycle, Unreadable;
        field: ClaimModeMismatch(volume), VolumeModeMismatch(claim);
        fields: ClaimMismatch = events::ClaimMismatch { volume, mismatch },
            ProvisioningSucceeded = events::Provisioned { volume, plugin };
        newer: VolumeRejected = events::VolumeRejected { volume, policy, reason },
            ReclaimPolicySet = events::ReclaimPolicySet { to, policy, reason };
    }
    Point = actions::Point {
        plain: Start, Annotated, Provisioned, Deleted, FinalizerRemoved, Recycled;
        field: Created(attempt), CleanedUp(attempt);
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
