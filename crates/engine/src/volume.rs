//! What a volume needs: upstream's `syncVolume`.

use std::sync::Arc;

use bindery_core::{
    Action, Claim, ClaimRef, EventKind, Fate, Follows, ReclaimPolicy, ReclaimVerdict, Source, Uid, Volume,
    VolumePhase,
};

use crate::bind::{set_volume_phase, unbind};
use crate::call::{Call, Halt};
use crate::{migrate, reclaim};

/// Decides what a volume needs.
pub(crate) fn sync(call: &mut Call<'_>, volume: &Arc<Volume>) -> Result<(), Halt> {
    let volume = migrate::volume(call, volume)?;
    let Some(claim_ref) = &volume.claim_ref else {
        // V1
        set_volume_phase(call, &volume, VolumePhase::Available);
        return Ok(());
    };
    let Some(uid) = &claim_ref.uid else {
        // V2: reserved by name; the claim's sync acts.
        set_volume_phase(call, &volume, VolumePhase::Available);
        return Ok(());
    };
    let Some(claim) = find_claim(call, &volume, claim_ref, uid)? else {
        // V3
        return leave(call, &volume);
    };
    match &claim.volume_name {
        // V4: they can never bind, and only this sync has both at hand.
        None if claim.mode != volume.mode => {
            let event = EventKind::VolumeModeMismatch { claim: claim.key.to_string().into() };
            call.tell_volume(&volume, event);
            call.tell_claim(&claim, EventKind::ClaimModeMismatch { volume: volume.name.clone() });
        }
        // V5: this binds a volume that a provisioner or the scheduler has reserved.
        None => call.act(Action::EnqueueClaim(claim.key.clone())),
        // V6: whether or not the claim is marked bind-completed.
        Some(name) if *name == volume.name => set_volume_phase(call, &volume, VolumePhase::Bound),
        Some(_) => return disown(call, &volume, uid),
    }
    Ok(())
}

/// The claim of that UID that `volume` points at; `None` only where it is gone for certain. A cache
/// that lags must not release a volume whose claim it has not seen yet.
fn find_claim(
    call: &mut Call<'_>,
    volume: &Volume,
    claim_ref: &ClaimRef,
    uid: &Uid,
) -> Result<Option<Arc<Claim>>, Halt> {
    let key = claim_ref.claim_key();
    let mut found = call.claim(Source::Overlay, &key)?;
    // A volume that was released before needs no proof again.
    if found.is_none() && !is_released(volume) {
        found = call.claim(Source::Cache, &key)?;
        if found.is_none() {
            found = call.claim(Source::Live, &key)?;
        }
    }
    match found {
        // The cache may still have a deleted predecessor of the same name.
        Some(claim) if claim.uid != *uid => {
            Ok(call.claim(Source::Live, &key)?.filter(|claim| claim.uid == *uid))
        }
        found => Ok(found),
    }
}

fn is_released(volume: &Volume) -> bool {
    matches!(volume.phase, VolumePhase::Released | VolumePhase::Failed)
}

/// The claim is gone. Where a reclaimer says so, the reclaim policy changes before the phase, because an
/// external provisioner acts on both.
fn leave(call: &mut Call<'_>, volume: &Volume) -> Result<(), Halt> {
    let verdict = call.cluster.reclaim(volume.name.clone())?;
    let policy = match verdict.fate {
        Fate::ByPolicy => volume.policy,
        // It is not offered while it is being deleted.
        Fate::OfferAgain if volume.deleting => volume.policy,
        Fate::Keep => ReclaimPolicy::Retain,
        Fate::KeepFor(millis) => {
            call.again_after(millis);
            ReclaimPolicy::Retain
        }
        Fate::Delete => ReclaimPolicy::Delete,
        Fate::Recycle => ReclaimPolicy::Recycle,
        Fate::OfferAgain => {
            unbind(call, volume, Follows::Success);
            return Ok(());
        }
    };
    if policy == volume.policy {
        return release(call, volume);
    }
    call.act(Action::SetReclaimPolicy { volume: volume.target(), policy });
    let ReclaimVerdict { policy: by, reason, .. } = verdict;
    call.tell_volume(volume, EventKind::ReclaimPolicySet { to: policy, policy: by, reason });
    release(call, &Volume { policy, ..volume.clone() })
}

/// The claim no longer uses the volume.
fn release(call: &mut Call<'_>, volume: &Volume) -> Result<(), Halt> {
    if !is_released(volume) {
        set_volume_phase(call, volume, VolumePhase::Released);
    }
    reclaim::reclaim(call, volume)
}

/// The claim of that UID points at another volume.
fn disown(call: &mut Call<'_>, volume: &Volume, uid: &Uid) -> Result<(), Halt> {
    // Upstream treats any provisioned volume as the claim's, even one that a binder chose for it and that
    // holds the data of an earlier claim.
    let is_made_for_claim = volume.annotations.provisioned_by.is_some() && volume.name.ends_with(&*uid.0);
    if is_made_for_claim && volume.policy == ReclaimPolicy::Delete {
        // V7: surplus, never used by the claim.
        return release(call, volume);
    }
    // V8 and V9: what is cleared depends on whether the user or the binder chose the volume.
    unbind(call, volume, Follows::Success);
    Ok(())
}
