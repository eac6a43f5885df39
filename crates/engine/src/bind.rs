//! The writes of binding, unbinding and phases.

use bindery_core::{
    Action, CapacityChange, Claim, ClaimPhase, Clear, Edit, EventKind, Failure, Follows, Message, Volume,
    VolumePhase,
};

use crate::call::{Call, Halt};

/// Binds `claim` to `volume` in four writes; a write that would change nothing is left out (`bind`). The
/// volume comes first, so that the next sync can complete a bind after a crash.
pub(crate) fn bind(call: &mut Call<'_>, volume: &Volume, claim: &Claim) -> Result<(), Halt> {
    if !is_reserved_for(volume, claim) {
        let mark = !volume.is_bound_to(claim) && !volume.annotations.bound_by_controller;
        call.act(Action::ReserveVolume { volume: volume.target(), claim: claim.target(), mark });
    }
    set_volume_phase(call, volume, VolumePhase::Bound);
    let set_volume_name = claim.volume_name.as_ref() != Some(&volume.name);
    if set_volume_name || !claim.annotations.bind_completed {
        call.act(Action::BindClaim {
            claim: claim.target(),
            volume: volume.target(),
            set_volume_name,
            mark: set_volume_name && !claim.annotations.bound_by_controller,
        });
    }
    set_claim_bound(call, claim, volume)
}

/// Whether claimRef already has the name, the namespace and the UID of the claim.
fn is_reserved_for(volume: &Volume, claim: &Claim) -> bool {
    volume.claim_ref.as_ref().is_some_and(|claim_ref| {
        claim_ref.claim_key() == claim.key && claim_ref.uid.as_ref() == Some(&claim.uid)
    })
}

/// Takes `volume` from the claim that it points at (`unbindVolume`). Where the user reserved it by name, that
/// reservation stays.
pub(crate) fn unbind(call: &mut Call<'_>, volume: &Volume, follows: Follows) {
    let clear = if volume.annotations.bound_by_controller { Clear::Whole } else { Clear::Uid };
    call.push(Action::UnbindVolume { volume: volume.target(), clear }, follows);
    if let Some(action) = phase_change(volume, VolumePhase::Available, Message::Empty) {
        call.push(action, follows);
    }
}

/// Sets the phase of a volume, without message, where it differs (`updateVolumePhase`).
pub(crate) fn set_volume_phase(call: &mut Call<'_>, volume: &Volume, phase: VolumePhase) {
    if let Some(action) = phase_change(volume, phase, Message::Empty) {
        call.act(action);
    }
}

/// Makes a volume Failed, with an event; does nothing where it is Failed already.
pub(crate) fn fail_volume(
    call: &mut Call<'_>,
    volume: &Volume,
    follows: Follows,
    message: Message,
    event: EventKind,
) {
    if let Some(action) = phase_change(volume, VolumePhase::Failed, message) {
        call.push(action, follows);
        call.tell_volume(volume, event);
    }
}

/// `None` where the phase is right: then the message is not updated either.
fn phase_change(volume: &Volume, phase: VolumePhase, message: Message) -> Option<Action> {
    (volume.phase != phase).then(|| Action::SetVolumePhase { volume: volume.target(), phase, message })
}

/// Makes a claim Bound to `volume` (`updateClaimStatus`), where something changes.
fn set_claim_bound(call: &mut Call<'_>, claim: &Claim, volume: &Volume) -> Result<(), Halt> {
    let status = &claim.status;
    let access_modes = if status.access_modes == volume.access_modes {
        Edit::Keep
    } else {
        Edit::Set(volume.access_modes.clone())
    };
    // The capacity of a claim that is Bound already may lag the device while its file system grows.
    let capacity = match status.phase {
        ClaimPhase::Bound => CapacityChange::Keep,
        ClaimPhase::Unset | ClaimPhase::Pending | ClaimPhase::Lost => first_capacity(claim, volume)?,
    };
    // Later changes are made by external-resizer.
    let attributes_class = match status.phase {
        ClaimPhase::Pending if status.attributes_class != volume.attributes_class => {
            volume.attributes_class.clone().map_or(Edit::Remove, Edit::Set)
        }
        ClaimPhase::Pending | ClaimPhase::Unset | ClaimPhase::Bound | ClaimPhase::Lost => Edit::Keep,
    };
    // Other parts of the status change only together with the phase.
    if status.phase != ClaimPhase::Bound || access_modes != Edit::Keep {
        call.act(Action::SetClaimStatus {
            claim: claim.target(),
            phase: ClaimPhase::Bound,
            access_modes,
            capacity,
            attributes_class,
        });
    }
    Ok(())
}

/// The capacity of a claim that becomes Bound. While a volume is being resized, it offers its old capacity
/// until its file system has grown.
fn first_capacity(claim: &Claim, volume: &Volume) -> Result<CapacityChange, Failure> {
    let capacity = volume.capacity.ok_or_else(|| Failure::NoCapacity(volume.name.clone()))?;
    Ok(match volume.annotations.pre_resize_capacity {
        Some(before) => CapacityChange::Storage(before),
        None if claim.status.capacity == Some(capacity) => CapacityChange::Keep,
        None => CapacityChange::Whole(capacity),
    })
}

/// Sets the phase of a claim that has no volume, and removes a former volume's fields from its status
/// (`updateClaimStatus`), where something changes.
pub(crate) fn set_claim_unbound(call: &mut Call<'_>, claim: &Claim, phase: ClaimPhase) {
    let status = &claim.status;
    let access_modes = if status.access_modes.is_empty() { Edit::Keep } else { Edit::Remove };
    let capacity = if status.has_capacity { CapacityChange::Remove } else { CapacityChange::Keep };
    let attributes_class = if status.attributes_class.is_some() { Edit::Remove } else { Edit::Keep };
    let changes = status.phase != phase
        || access_modes != Edit::Keep
        || capacity != CapacityChange::Keep
        || attributes_class != Edit::Keep;
    if changes {
        call.act(Action::SetClaimStatus {
            claim: claim.target(),
            phase,
            access_modes,
            capacity,
            attributes_class,
        });
    }
}

/// Makes a claim Lost, with an event; does nothing where it is Lost already.
pub(crate) fn lose_claim(call: &mut Call<'_>, claim: &Claim, event: EventKind) {
    if claim.status.phase != ClaimPhase::Lost {
        set_claim_unbound(call, claim, ClaimPhase::Lost);
        call.tell_claim(claim, event);
    }
}
