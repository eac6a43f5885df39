//! What a review finds is held against the objects that it is about, before somebody is denied something because of it:
//! an engine that answers nonsense locks nobody out.

use std::sync::Arc;

use super::bind::{carries, names};
use crate::{
    Answer, BindingMode, Claim, ClaimKey, Class, Exchange, Finding, IN_TREE_PREFIX, Lookup, Quantity,
    Question, ReclaimPolicy, Rule, Subject, Volume, VolumePhase,
};

/// Whether a finding of a review is so, by the object that is reviewed and what was `told` of others: claims and volumes as
/// they were read for this review, classes as they are watched.
///
/// Every rule is asked that an operator may set to deny (design section 7). Where an engine may have its own measure, such as
/// how much larger than the claim is far larger, the least is asked.
pub fn holds(finding: &Finding, subject: &Subject, told: &[Exchange]) -> bool {
    // Whatever an operator wants, it denies nobody.
    if finding.rule == Rule::PairMismatch {
        return true;
    }
    match subject {
        Subject::ReviewClaim { new, old } => holds_of_claim(finding, new, old.as_deref(), told),
        Subject::ReviewVolume { new, .. } if finding.rule == Rule::PolicyRecycle => {
            new.policy == ReclaimPolicy::Recycle
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

fn holds_of_claim(finding: &Finding, new: &Claim, old: Option<&Claim>, told: &[Exchange]) -> bool {
    let rule = finding.rule;
    if matches!(rule, Rule::ClassMissing | Rule::ProvisionerUnknown | Rule::NameDefeatsWait) {
        return class_holds(rule, new, told);
    }
    let Some(volume) = volume_told(&finding.volume, told) else { return false };
    match volume {
        Lookup::Found(volume) if rule == Rule::BreaksPair => {
            let stays = new.annotations.bind_completed && new.volume_name.as_ref() == Some(&volume.name);
            !stays && old.is_some_and(|old| is_pair(old, volume))
        }
        _ if new.annotations.bind_completed || new.volume_name.as_ref() != Some(&finding.volume) => false,
        Lookup::Found(volume) => holds_of_named(rule, new, volume, told),
        Lookup::Absent => rule == Rule::VolumeMissing,
        Lookup::Unreadable(_) | Lookup::Failed(_) => false,
    }
}

/// Of a claim that is not bound yet, and the volume that it names.
fn holds_of_named(rule: Rule, new: &Claim, volume: &Volume, told: &[Exchange]) -> bool {
    match rule {
        Rule::VolumeReserved => volume.claim_ref.as_ref().is_some_and(|claim_ref| !names(claim_ref, new)),
        Rule::VolumeLeaving => {
            volume.deleting || matches!(volume.phase, VolumePhase::Released | VolumePhase::Failed)
        }
        Rule::VolumeOversized => volume.capacity.is_some_and(|capacity| capacity > new.request),
        Rule::NameDefeatsAffinity => volume.node_affinity,
        _ => {
            let Some(claim_ref) = &volume.claim_ref else {
                // Who deletes a volume may make another of its name.
                return !volume.deleting && differs(rule, new, volume);
            };
            let key = ClaimKey { namespace: claim_ref.namespace.clone(), name: claim_ref.name.clone() };
            let owner = claim_told(&key, told).filter(|_| rule == Rule::VolumeOfOther && key != new.key);
            owner.is_some_and(|owner| is_pair(owner, volume))
        }
    }
}

fn class_holds(rule: Rule, new: &Claim, told: &[Exchange]) -> bool {
    let name = new.class.as_ref().filter(|name| !name.is_empty() && !new.annotations.bind_completed);
    let Some(class) = name.and_then(|name| class_told(name, told)) else { return false };
    match (rule, class) {
        (Rule::ClassMissing, class) => new.volume_name.is_none() && *class == Lookup::Absent,
        (Rule::ProvisionerUnknown, Lookup::Found(class)) => {
            new.volume_name.is_none() && class.provisioner.starts_with(IN_TREE_PREFIX)
        }
        (Rule::NameDefeatsWait, Lookup::Found(class)) => {
            new.volume_name.is_some() && class.binding_mode == Some(BindingMode::WaitForFirstConsumer)
        }
        _ => false,
    }
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

/// What was found of the volume of that name, where it was asked for.
fn volume_told<'a>(name: &str, told: &'a [Exchange]) -> Option<&'a Lookup<Arc<Volume>>> {
    let found = told.iter().find_map(|exchange| match (&exchange.question, &exchange.answer) {
        (Question::Volume(_, asked), Answer::Volume(found)) if **asked == *name => Some(found),
        _ => None,
    });
    found.filter(|found| !matches!(found, Lookup::Found(volume) if *volume.name != *name))
}

/// The same of a class.
fn class_told<'a>(name: &str, told: &'a [Exchange]) -> Option<&'a Lookup<Arc<Class>>> {
    told.iter().find_map(|exchange| match (&exchange.question, &exchange.answer) {
        (Question::Class(asked), Answer::Class(found)) if **asked == *name => Some(found),
        _ => None,
    })
}

fn claim_told<'a>(key: &ClaimKey, told: &'a [Exchange]) -> Option<&'a Claim> {
    told.iter().find_map(|exchange| match &exchange.answer {
        Answer::Claim(Lookup::Found(claim)) if claim.key == *key => Some(&**claim),
        _ => None,
    })
}
