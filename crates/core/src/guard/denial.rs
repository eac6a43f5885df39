//! What a review finds is held against the objects that it is about, before somebody is denied something because of it:
//! an engine that answers nonsense locks nobody out.

use super::bind::{carries, names};
use crate::{Answer, Claim, ClaimKey, Exchange, Finding, Lookup, Quantity, Rule, Subject, Volume};

/// Whether a finding of a review is so, by the object that is reviewed and what was `told` of others: each object as it was
/// read for this review.
///
/// Of what denies nobody unless an operator wants it (design section 7), nothing is asked.
pub fn holds(finding: &Finding, subject: &Subject, told: &[Exchange]) -> bool {
    if !finding.rule.denies() {
        return true;
    }
    match subject {
        Subject::ReviewClaim { new, old } => {
            let volume = volume_told(&finding.volume, told);
            volume.is_some_and(|volume| holds_of_claim(finding.rule, new, old.as_deref(), volume, told))
        }
        Subject::ReviewVolume { new, old } => {
            let claim = finding.claim.as_ref().and_then(|key| claim_told(key, told));
            claim.is_some_and(|claim| holds_of_volume(finding.rule, new, old.as_deref(), claim))
        }
        Subject::SyncClaim(_)
        | Subject::SyncVolume(_)
        | Subject::SyncClaimOperation(_)
        | Subject::SyncVolumeOperation(_) => false,
    }
}

fn holds_of_claim(rule: Rule, new: &Claim, old: Option<&Claim>, volume: &Volume, told: &[Exchange]) -> bool {
    let is_named = |claim: &Claim| claim.volume_name.as_ref() == Some(&volume.name);
    if rule == Rule::BreaksPair {
        let stays = new.annotations.bind_completed && is_named(new);
        return !stays && old.is_some_and(|old| is_pair(old, volume));
    }
    if new.annotations.bind_completed || !is_named(new) {
        return false;
    }
    let Some(claim_ref) = &volume.claim_ref else {
        // Who deletes a volume may make another of its name.
        return !volume.deleting && differs(rule, new, volume);
    };
    let key = ClaimKey { namespace: claim_ref.namespace.clone(), name: claim_ref.name.clone() };
    let owner = claim_told(&key, told).filter(|_| rule == Rule::VolumeOfOther && key != new.key);
    owner.is_some_and(|owner| is_pair(owner, volume))
}

fn holds_of_volume(rule: Rule, new: &Volume, old: Option<&Volume>, claim: &Claim) -> bool {
    if rule == Rule::BreaksPair {
        return old.is_some_and(|old| is_pair(claim, old) && new.claim_ref != old.claim_ref);
    }
    // The class of a volume that is reserved for a claim does not count.
    let is_reserved = new.claim_ref.as_ref().is_some_and(|claim_ref| names(claim_ref, claim));
    let is_waiting = !claim.annotations.bind_completed && claim.volume_name.is_none() && !claim.deleting;
    is_reserved && is_waiting && rule != Rule::ClassDiffers && differs(rule, claim, new)
}

/// Whether a volume is not what a claim asks for, in the way that a rule tells of.
fn differs(rule: Rule, claim: &Claim, volume: &Volume) -> bool {
    let text = |text: &Option<crate::Text>| text.as_deref().unwrap_or_default().to_owned();
    match rule {
        Rule::VolumeTooSmall => volume.capacity.unwrap_or(Quantity::ZERO) < claim.request,
        Rule::ClassDiffers => *volume.class != *text(&claim.class),
        Rule::AttributesClassDiffers => text(&volume.attributes_class) != text(&claim.attributes_class),
        Rule::VolumeModeDiffers => volume.mode != claim.mode,
        Rule::AccessModesMissing => claim.access_modes.iter().any(|mode| !volume.access_modes.contains(mode)),
        _ => false,
    }
}

/// Whether both are one complete pair (design section 4).
fn is_pair(claim: &Claim, volume: &Volume) -> bool {
    claim.annotations.bind_completed
        && claim.volume_name.as_ref() == Some(&volume.name)
        && carries(volume, claim)
}

fn volume_told<'a>(name: &str, told: &'a [Exchange]) -> Option<&'a Volume> {
    told.iter().find_map(|exchange| match &exchange.answer {
        Answer::Volume(Lookup::Found(volume)) if *volume.name == *name => Some(&**volume),
        _ => None,
    })
}

fn claim_told<'a>(key: &ClaimKey, told: &'a [Exchange]) -> Option<&'a Claim> {
    told.iter().find_map(|exchange| match &exchange.answer {
        Answer::Claim(Lookup::Found(claim)) if claim.key == *key => Some(&**claim),
        _ => None,
    })
}
