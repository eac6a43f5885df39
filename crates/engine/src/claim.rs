//! What a claim needs: upstream's `syncClaim`.

use std::sync::Arc;

use bindery_core::{
    Action, BindingMode, Claim, ClaimPhase, Class, EventKind, Failure, MatchVerdict, Mismatch, Query, Reason,
    Source, Tally, Text, Volume,
};

use crate::bind::{bind, lose_claim, set_claim_unbound};
use crate::call::{Call, Halt};
use crate::find::{Match, best_match};
use crate::{migrate, provision};

/// Decides what a claim needs.
pub(crate) fn sync(call: &mut Call<'_>, claim: &Arc<Claim>) -> Result<(), Halt> {
    let claim = migrate::claim(call, claim)?;
    if claim.annotations.bind_completed {
        return sync_bound(call, &claim);
    }
    match &claim.volume_name {
        None => sync_unbound(call, &claim),
        Some(name) => sync_named(call, &claim, name),
    }
}

/// A claim that takes any volume (`syncUnboundClaim`).
fn sync_unbound(call: &mut Call<'_>, claim: &Claim) -> Result<(), Halt> {
    let class_name = claim.class.as_ref().filter(|name| !name.is_empty());
    let class = match class_name {
        None => None,
        Some(name) => call.class(name)?,
    };
    let delay = waits_for_consumer(class.as_deref())?;
    match best_match(call, claim, delay)? {
        Match::Volume(volume) => return bind(call, &volume, claim),
        Match::Waits(tallies) => {
            call.tally(tallies);
            return Ok(());
        }
        Match::None => {}
    }

    // U1: before any class is assigned, so that a volume without class wins over the default class.
    if claim.class.is_none()
        && let Some(default) = default_class(call)?
    {
        call.act(Action::SetClaimClass { claim: claim.target(), class: default });
        return Ok(());
    }

    match class_name {
        // U2
        Some(_) if delay && claim.annotations.selected_node.is_none() => wait_for_consumer(call, claim),
        // U3: the status of the claim stays as it is.
        Some(name) => provision::provision(call, claim, name, class.as_deref()),
        // U4
        None => {
            call.tell_claim(claim, EventKind::NoVolumeFits);
            set_claim_unbound(call, claim, ClaimPhase::Pending);
            explain(call, claim)
        }
    }
}

/// Whether the scheduler chooses the volumes of this class (`IsDelayBindingMode`). A class that does not
/// exist delays nothing. A review does not ask this of a claim that may take any volume: a claim that waits
/// can bind later (`review/claim.rs`).
fn waits_for_consumer(class: Option<&Class>) -> Result<bool, Failure> {
    let Some(class) = class else { return Ok(false) };
    match class.binding_mode {
        None => Err(Failure::BindingModeUnset(class.name.clone())),
        Some(BindingMode::Immediate) => Ok(false),
        Some(BindingMode::WaitForFirstConsumer) => Ok(true),
    }
}

/// The newest default class (KEP-3333).
fn default_class(call: &mut Call<'_>) -> Result<Option<Text>, Halt> {
    let defaults = call.cluster.default_classes()?.map_err(Failure::Read)?;
    Ok(defaults.into_iter().next())
}

/// Emits an event on a claim whose class waits for a consumer: what the claim waits for
/// (`emitEventForUnboundDelayBindingClaim`).
fn wait_for_consumer(call: &mut Call<'_>, claim: &Claim) -> Result<(), Halt> {
    let pods = call.cluster.pods(claim.key.clone())?.map_err(Failure::Read)?;
    let unscheduled: Vec<_> =
        pods.into_iter().filter(|pod| !pod.terminated && !pod.scheduled).map(|pod| pod.name).collect();
    let event = if unscheduled.is_empty() {
        EventKind::WaitForFirstConsumer
    } else {
        EventKind::WaitForPodScheduled(unscheduled)
    };
    call.tell_claim(claim, event);
    set_claim_unbound(call, claim, ClaimPhase::Pending);
    // No free volume was looked at, so there is nothing to count.
    call.tally([Tally { reason: Reason::WaitsForConsumer, count: 0, nearest: Vec::new() }]);
    Ok(())
}

/// Adds why no volume was chosen.
pub(crate) fn explain(call: &mut Call<'_>, claim: &Claim) -> Result<(), Halt> {
    let tallies = call.cluster.tallies(Query::of_claim(claim, claim.access_set()))?;
    call.tally(tallies);
    Ok(())
}

/// A claim that the user has pointed at a volume (`syncUnboundClaim`). Selector, node affinity, phase and
/// binding mode do not count: the user has decided. Policies do count, because users could otherwise avoid a
/// policy by naming a volume.
fn sync_named(call: &mut Call<'_>, claim: &Claim, name: &Text) -> Result<(), Halt> {
    let Some(volume) = call.volume(Source::Overlay, name)? else {
        // U5
        set_claim_unbound(call, claim, ClaimPhase::Pending);
        return Ok(());
    };
    if volume.claim_ref.is_none() {
        if let Some(mismatch) = mismatches(&volume, claim).next() {
            // U6
            call.tell_claim(claim, EventKind::ClaimMismatch { volume: name.clone(), mismatch });
            set_claim_unbound(call, claim, ClaimPhase::Pending);
            return Ok(());
        }
        if is_rejected(call, claim, name)? {
            set_claim_unbound(call, claim, ClaimPhase::Pending);
            return Ok(());
        }
        // U7
        return bind(call, &volume, claim);
    }
    if volume.is_bound_to(claim) {
        // U8: both point at each other, so nothing is checked.
        return bind(call, &volume, claim);
    }
    call.tell_claim(claim, EventKind::VolumeOfOther(name.clone()));
    if claim.annotations.bound_by_controller {
        // U10: the binder chose the volume, so another client has removed bind-completed.
        return Err(Failure::VolumeOfOther(name.clone()).into());
    }
    // U9
    set_claim_unbound(call, claim, ClaimPhase::Pending);
    Ok(())
}

/// Whether a policy rejects the free volume that a claim names; an event says so. Not upstream's: it has no
/// policies.
fn is_rejected(call: &mut Call<'_>, claim: &Claim, name: &Text) -> Result<bool, Halt> {
    let MatchVerdict::Rejected { policy, reason } = call.cluster.verdict(name.clone())? else {
        return Ok(false);
    };
    call.tell_claim(claim, EventKind::VolumeRejected { volume: name.clone(), policy, reason });
    Ok(true)
}

/// Why a volume cannot satisfy a claim that names it, in the order of upstream's `checkVolumeSatisfyClaim`.
/// Capacities are compared as full quantities, as upstream does from v1.38.
pub(crate) fn mismatches(volume: &Volume, claim: &Claim) -> impl Iterator<Item = Mismatch> + use<> {
    let too_small = volume.capacity.unwrap_or_default() < claim.request;
    let attributes = volume.attributes_class_or_empty() != claim.attributes_class_or_empty();
    [
        (volume.deleting, Mismatch::Deleting),
        (too_small, Mismatch::TooSmall),
        (*volume.class != *claim.class_or_empty(), Mismatch::Class),
        (attributes, Mismatch::AttributesClass),
        (volume.mode != claim.mode, Mismatch::VolumeMode),
        (!volume.access_set().contains(claim.access_set()), Mismatch::AccessModes),
    ]
    .into_iter()
    .filter_map(|(fails, mismatch)| fails.then_some(mismatch))
}

/// A claim that was bound before (`syncBoundClaim`). Lost is not latched: where the volume comes back, it is
/// bound again.
fn sync_bound(call: &mut Call<'_>, claim: &Claim) -> Result<(), Halt> {
    let Some(name) = &claim.volume_name else {
        // B1
        lose_claim(call, claim, EventKind::ClaimLostReference);
        return Ok(());
    };
    let Some(volume) = call.volume(Source::Overlay, name)? else {
        // B2
        lose_claim(call, claim, EventKind::ClaimLostVolume(name.clone()));
        return Ok(());
    };
    match &volume.claim_ref {
        // B3: bound again; the watch may just not have shown that write yet. Users can write bind-completed,
        // so policies count.
        None if is_rejected(call, claim, name)? => Ok(()),
        None => bind(call, &volume, claim),
        // B4: usually nothing changes.
        Some(claim_ref) if claim_ref.uid.as_ref() == Some(&claim.uid) => bind(call, &volume, claim),
        // B5
        Some(_) => {
            lose_claim(call, claim, EventKind::ClaimMisbound(name.clone()));
            Ok(())
        }
    }
}
