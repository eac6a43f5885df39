//! Whether a claim may be written.

use bindery_core::{
    BindingMode, Claim, ClaimRef, Finding, IN_TREE_PREFIX, MatchVerdict, Migration, NO_PROVISIONER, Rule,
    Source, Text, Volume, VolumePhase,
};

use super::{contrasts, introduced, is_complete_pair};
use crate::call::{Call, Halt};
use crate::find::{Match, best_match};

/// A volume larger than this many times the request gets a warning. Volumes made by hand often come in powers
/// of two, so a smaller factor would warn of normal choices.
const FAR_LARGER: u128 = 4;

/// Finds what is wrong with `new` and was not wrong with `old`.
pub(crate) fn review(call: &mut Call<'_>, new: &Claim, old: Option<&Claim>) -> Result<(), Halt> {
    if old.is_some_and(|old| stays_marked(new, old)) {
        return Ok(());
    }
    let found = findings(call, new)?;
    let Some(old) = old else {
        call.find(found);
        return Ok(());
    };
    let broken = broken_pair(call, new, old)?;
    let before = findings(call, old)?;
    call.find(broken.into_iter().chain(introduced(found, &before)));
    Ok(())
}

/// Whether a claim was bound before and still points at the same volume: then the request does not change
/// what becomes of that volume.
fn stays_marked(new: &Claim, old: &Claim) -> bool {
    let is_marked = new.annotations.bind_completed && old.annotations.bind_completed;
    is_marked && new.volume_name == old.volume_name
}

/// What is wrong with a claim.
fn findings(call: &mut Call<'_>, claim: &Claim) -> Result<Vec<Finding>, Halt> {
    match &claim.volume_name {
        Some(name) => named(call, claim, name),
        None if claim.annotations.bind_completed => Ok(Vec::new()),
        // Without a volume of its own, the claim may need its class.
        None => class(call, claim),
    }
}

fn named(call: &mut Call<'_>, claim: &Claim, name: &Text) -> Result<Vec<Finding>, Halt> {
    let Some(volume) = call.volume(Source::Overlay, name)? else {
        return Ok(vec![about(name, Rule::VolumeMissing, name.clone(), "".into())]);
    };
    if claim.annotations.bind_completed {
        return marked(call, claim, &volume);
    }
    let mut found = match &volume.claim_ref {
        // A volume that is being deleted may be created again with another size.
        None if volume.deleting => leaving(&volume).into_iter().collect(),
        // The phase does not count: the claim is bound at once.
        None => {
            let found: Vec<_> = unsatisfied(claim, &volume, false).collect();
            if found.is_empty() { rejected(call, &volume)?.into_iter().collect() } else { found }
        }
        Some(_) if volume.is_bound_to(claim) => meeting(claim, &volume),
        Some(claim_ref) => taken(call, claim, &volume, claim_ref)?,
    };
    found.extend(oversized(claim, &volume));
    if volume.node_affinity {
        let affinity = "spec.nodeAffinity.required".into();
        found.push(about(name, Rule::NameDefeatsAffinity, name.clone(), affinity));
    }
    found.extend(waiting_class(call, claim, name)?);
    Ok(found)
}

/// A claim that has bind-completed, such as a copy of a bound claim. It gets its volume if that carries its
/// UID, or is free and no policy rejects it (B3, B4). It becomes Lost if the volume is another claim's (B5).
fn marked(call: &mut Call<'_>, claim: &Claim, volume: &Volume) -> Result<Vec<Finding>, Halt> {
    match &volume.claim_ref {
        None if volume.deleting => Ok(Vec::new()),
        None => Ok(rejected(call, volume)?.into_iter().collect()),
        Some(claim_ref) if claim_ref.uid.as_ref() == Some(&claim.uid) => Ok(Vec::new()),
        Some(claim_ref) => taken(call, claim, volume, claim_ref),
    }
}

/// Claim and volume name each other, and so bind even if they do not match, and even while the volume is
/// being deleted.
fn meeting(claim: &Claim, volume: &Volume) -> Vec<Finding> {
    let deleting = volume
        .deleting
        .then(|| about(&volume.name, Rule::PairMismatch, "none".into(), "a deletionTimestamp".into()));
    deleting.into_iter().chain(unsatisfied(claim, volume, true)).collect()
}

fn about(volume: &Text, rule: Rule, found: Text, wanted: Text) -> Finding {
    Finding { rule, volume: volume.clone(), claim: None, found, wanted }
}

fn unsatisfied(claim: &Claim, volume: &Volume, name_each_other: bool) -> impl Iterator<Item = Finding> {
    contrasts(claim, volume, name_each_other)
        .map(|contrast| about(&volume.name, contrast.rule, contrast.claim, contrast.volume))
}

/// A policy rejects the free volume that the claim names.
fn rejected(call: &mut Call<'_>, volume: &Volume) -> Result<Option<Finding>, Halt> {
    Ok(match call.cluster.verdict(volume.name.clone())? {
        MatchVerdict::Allowed => None,
        MatchVerdict::Rejected { policy, reason } => {
            Some(about(&volume.name, Rule::VolumeRejected, policy, reason))
        }
    })
}

/// The volume points at another claim.
fn taken(
    call: &mut Call<'_>,
    claim: &Claim,
    volume: &Volume,
    claim_ref: &ClaimRef,
) -> Result<Vec<Finding>, Halt> {
    let key = claim_ref.claim_key();
    let owner = call.claim(Source::Overlay, &key)?;
    let leaving = leaving(volume);
    let rule = match owner {
        // A claim of the same name is an earlier one; while it exists, the API server refuses this request.
        Some(owner) if is_complete_pair(&owner, volume) && key != claim.key => Rule::VolumeOfOther,
        // Its claim is gone or has left it, which matters more to the author.
        Some(_) | None if leaving.is_some() => return Ok(leaving.into_iter().collect()),
        Some(_) | None => Rule::VolumeReserved,
    };
    let wanted = key.to_string().into();
    let found = volume.name.clone();
    let taken = Finding { rule, volume: volume.name.clone(), claim: Some(key), found, wanted };
    Ok([taken].into_iter().chain(leaving).collect())
}

/// The volume is being released by another claim.
fn leaving(volume: &Volume) -> Option<Finding> {
    let is_released = matches!(volume.phase, VolumePhase::Released | VolumePhase::Failed);
    let state = if volume.deleting { "being deleted" } else { volume.phase.name() };
    let found = || about(&volume.name, Rule::VolumeLeaving, volume.name.clone(), state.into());
    (volume.deleting || is_released).then(found)
}

fn oversized(claim: &Claim, volume: &Volume) -> Option<Finding> {
    let capacity = volume.capacity?;
    (capacity.as_nanos() > FAR_LARGER * claim.request.as_nanos()).then(|| {
        let [found, wanted] = [claim.request, capacity].map(|quantity| quantity.to_string().into());
        about(&volume.name, Rule::VolumeOversized, found, wanted)
    })
}

/// The class waits for a consumer, but a claim that names its volume is bound at once.
fn waiting_class(call: &mut Call<'_>, claim: &Claim, volume: &Text) -> Result<Option<Finding>, Halt> {
    let Some(name) = claim.class.as_ref().filter(|name| !name.is_empty()) else { return Ok(None) };
    let waits =
        call.class(name)?.is_some_and(|class| class.binding_mode == Some(BindingMode::WaitForFirstConsumer));
    Ok(waits.then(|| about(volume, Rule::NameDefeatsWait, volume.clone(), name.clone())))
}

fn class(call: &mut Call<'_>, claim: &Claim) -> Result<Vec<Finding>, Halt> {
    let Some(name) = claim.class.as_ref().filter(|name| !name.is_empty()) else { return Ok(Vec::new()) };
    let found = match call.class(name)? {
        None => about(&"".into(), Rule::ClassMissing, name.clone(), "".into()),
        Some(class) if has_provisioner(call, &class.provisioner)? => return Ok(Vec::new()),
        Some(class) => about(&"".into(), Rule::ProvisionerUnknown, name.clone(), class.provisioner.clone()),
    };
    Ok(if has_volume(call, claim)? { Vec::new() } else { vec![found] })
}

/// Whether a class has a provisioner, or is meant to have none.
fn has_provisioner(call: &mut Call<'_>, provisioner: &Text) -> Result<bool, Halt> {
    if !provisioner.starts_with(IN_TREE_PREFIX) || **provisioner == *NO_PROVISIONER {
        return Ok(true);
    }
    Ok(call.cluster.migration(provisioner.clone())? != Migration::Off
        || call.cluster.plugin(provisioner.clone())?.is_some_and(|plugin| plugin.provisions))
}

/// Whether a volume exists for the claim, which then needs neither its class nor a provisioner: many users
/// name a class only to match claims with volumes made by hand.
fn has_volume(call: &mut Call<'_>, claim: &Claim) -> Result<bool, Halt> {
    match best_match(call, claim, false) {
        Ok(Match::Volume(_) | Match::Waits(_)) => Ok(true),
        Ok(Match::None) | Err(Halt::Failed(_)) => Ok(false),
        Err(stopped @ Halt::Stopped(_)) => Err(stopped),
    }
}

/// Whether the update takes a claim out of its complete pair. Removing bind-completed alone does not: both
/// still point at each other, and bind again at once (U8).
fn broken_pair(call: &mut Call<'_>, new: &Claim, old: &Claim) -> Result<Option<Finding>, Halt> {
    let is_bound = old.annotations.bind_completed && new.volume_name != old.volume_name;
    let Some(name) = old.volume_name.as_ref().filter(|_| is_bound) else { return Ok(None) };
    let is_pair = call.volume(Source::Overlay, name)?.is_some_and(|volume| is_complete_pair(old, &volume));
    let renamed = new.volume_name.clone().unwrap_or_default();
    Ok(is_pair.then(|| about(name, Rule::BreaksPair, renamed, name.clone())))
}
