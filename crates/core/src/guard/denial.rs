//! Checks a finding of a review against the objects that it is about, before a request is denied because of
//! it: an engine that answers nonsense denies no request.

use std::sync::Arc;

use super::bind::{carries, names};
use super::step::key_of;
use crate::{
    AccessModes, Answer, BindingMode, Claim, ClaimKey, Class, Exchange, Finding, Handle, IN_TREE_PREFIX,
    Lookup, MatchVerdict, Migration, NO_PROVISIONER, Quantity, Query, Question, ReclaimPolicy, Rule,
    Selector, Subject, Text, Volume, VolumePhase,
};

/// Whether a finding of a review is true, and was not true before the request. It is checked against the
/// reviewed object and what the engine asked and was `told`: claims and volumes as they were read for this
/// review, all else from the watches. A finding about something that the engine did not ask for is not true.
///
/// Checks every rule that an operator may set to deny. Where an engine may have its own
/// measure, such as how large a volume is oversized, the least is required.
pub fn confirms(finding: &Finding, subject: &Subject, told: &[Exchange]) -> bool {
    // It never denies, whatever level an operator sets.
    if finding.rule == Rule::PairMismatch {
        return true;
    }
    match subject {
        Subject::ReviewClaim { new, old } => {
            let is_so = |claim: &Claim| is_true_of_claim(finding, claim, told);
            is_introduced(finding.rule, new, old.as_ref(), is_so)
                || old.as_ref().is_some_and(|old| leaves_pair(finding, new, old, told))
        }
        Subject::ReviewVolume { new, old } => {
            let is_so = |volume: &Volume| is_true_of_volume(finding, volume, told);
            is_introduced(finding.rule, new, old.as_ref(), is_so)
                || old.as_ref().is_some_and(|old| leaves_claim(finding, new, old, told))
        }
        Subject::SyncClaim(_)
        | Subject::SyncVolume(_)
        | Subject::SyncClaimOperation(_)
        | Subject::SyncVolumeOperation(_) => false,
    }
}

/// Whether a condition is true of the new object and was not true of the old one. Only the engine knows
/// whether a volume was oversized by its own measure before.
fn is_introduced<T>(rule: Rule, new: &Arc<T>, old: Option<&Arc<T>>, is_so: impl Fn(&T) -> bool) -> bool {
    let was_so = rule != Rule::VolumeOversized && old.is_some_and(|old| is_so(old));
    is_so(new) && !was_so
}

fn is_true_of_claim(finding: &Finding, claim: &Claim, told: &[Exchange]) -> bool {
    let rule = finding.rule;
    if matches!(rule, Rule::ClassMissing | Rule::ProvisionerUnknown | Rule::NameDefeatsWait) {
        return is_true_of_class(finding, claim, told);
    }
    if claim.volume_name.as_ref() != Some(&finding.volume) {
        return false;
    }
    match volume_told(&finding.volume, told) {
        Some(Lookup::Found(volume)) => is_true_of_named_volume(rule, claim, volume, told),
        Some(Lookup::Absent) => rule == Rule::VolumeMissing,
        Some(Lookup::Unreadable(_) | Lookup::Failed(_)) | None => false,
    }
}

/// Whether the update takes a claim out of its complete pair. Removing bind-completed alone does not: the two
/// still point at each other, and bind again.
fn leaves_pair(finding: &Finding, new: &Claim, old: &Claim, told: &[Exchange]) -> bool {
    let Some(Lookup::Found(volume)) = volume_told(&finding.volume, told) else { return false };
    finding.rule == Rule::BreaksPair && is_pair(old, volume) && new.volume_name != old.volume_name
}

/// Whether a rule is broken by a claim and the volume that it names.
fn is_true_of_named_volume(rule: Rule, claim: &Claim, volume: &Volume, told: &[Exchange]) -> bool {
    // A claim that was bound before gets a volume that carries its UID, or any free one.
    let is_marked = claim.annotations.bind_completed;
    let is_its_own = |claim_ref| if is_marked { carries(volume, claim) } else { names(claim_ref, claim) };
    let is_others = volume.claim_ref.as_ref().is_some_and(|claim_ref| !is_its_own(claim_ref));
    let is_free = volume.claim_ref.is_none() && !is_marked;
    match rule {
        Rule::VolumeReserved => is_others,
        Rule::VolumeOfOther => is_others && has_owner(volume, claim, told),
        Rule::VolumeLeaving => {
            let is_released = matches!(volume.phase, VolumePhase::Released | VolumePhase::Failed);
            (is_others && is_released) || ((is_others || is_free) && volume.deleting)
        }
        Rule::VolumeOversized => {
            !is_marked && volume.capacity.is_some_and(|capacity| capacity > claim.request)
        }
        Rule::NameDefeatsAffinity => !is_marked && volume.node_affinity,
        // A claim that was not bound before may not have a volume that differs, whatever policies say.
        Rule::VolumeRejected => {
            let differs = || is_free && Rule::ALL.iter().any(|rule| differs(*rule, claim, volume));
            let may_get = volume.claim_ref.is_none() && !volume.deleting && !differs();
            may_get && is_rejected(&volume.name, told)
        }
        // A volume that is being deleted may be created again with other values.
        _ => is_free && !volume.deleting && differs(rule, claim, volume),
    }
}

/// Whether a policy rejects the volume for the reviewed claim.
fn is_rejected(volume: &Text, told: &[Exchange]) -> bool {
    let verdict = answer_told(&Question::Verdict(volume.clone()), told);
    matches!(verdict, Some(Answer::Verdict(MatchVerdict::Rejected { .. })))
}

/// Whether the volume is one half of a complete pair with a claim of another name.
fn has_owner(volume: &Volume, claim: &Claim, told: &[Exchange]) -> bool {
    let Some(claim_ref) = &volume.claim_ref else { return false };
    let key = key_of(claim_ref);
    key != claim.key && claim_told(&key, told).is_some_and(|owner| is_pair(owner, volume))
}

fn is_true_of_class(finding: &Finding, claim: &Claim, told: &[Exchange]) -> bool {
    let name = claim.class.as_ref().filter(|name| !name.is_empty() && !claim.annotations.bind_completed);
    let Some(class) = name.and_then(|name| class_told(name, told)) else { return false };
    let needs_it = || claim.volume_name.is_none() && has_no_volume(claim, told);
    match (finding.rule, class) {
        (Rule::ClassMissing, class) => *class == Lookup::Absent && needs_it(),
        (Rule::ProvisionerUnknown, Lookup::Found(class)) => {
            is_unknown(&class.provisioner, told) && needs_it()
        }
        (Rule::NameDefeatsWait, Lookup::Found(class)) => {
            claim.volume_name.as_ref() == Some(&finding.volume)
                && class.binding_mode == Some(BindingMode::WaitForFirstConsumer)
        }
        _ => false,
    }
}

/// Whether a provisioner is an in-tree plugin that does not exist and has not migrated to a CSI driver.
fn is_unknown(provisioner: &Text, told: &[Exchange]) -> bool {
    let is_in_tree = provisioner.starts_with(IN_TREE_PREFIX) && **provisioner != *NO_PROVISIONER;
    let is_gone = match answer_told(&Question::Plugin(provisioner.clone()), told) {
        Some(Answer::Plugin(plugin)) => plugin.as_ref().is_none_or(|plugin| !plugin.provisions),
        _ => false,
    };
    let migration = answer_told(&Question::Migration(provisioner.clone()), told);
    let has_stayed = migration == Some(&Answer::Migration(Migration::Off));
    is_in_tree && is_gone && has_stayed
}

/// Whether the engine searched for every volume that a claim without one could get, and found none: volumes
/// reserved for it, and free ones of each set of access modes.
fn has_no_volume(claim: &Claim, told: &[Exchange]) -> bool {
    let wanted = Question::AccessSets(claim.access_modes.iter().collect());
    let Some(Answer::AccessSets(sets)) = answer_told(&wanted, told) else { return false };
    let requirements = match &claim.selector {
        None => Vec::new(),
        Some(Selector::Requirements(requirements)) => requirements.clone(),
        // No volume matches it.
        Some(Selector::Invalid(_)) => return true,
    };
    let is_searched = |access_set: &AccessModes| {
        let query = Query {
            class: claim.class.clone().unwrap_or_else(|| "".into()),
            mode: claim.mode,
            attributes_class: claim.attributes_class.clone().unwrap_or_else(|| "".into()),
            access_set: *access_set,
            at_least: claim.request,
            labels: requirements.clone(),
        };
        told.iter().any(|Exchange { question, answer }| match (question, answer) {
            (Question::Candidates { query: asked, after: None, .. }, Answer::Page(page)) => {
                *asked == query && page.handles.is_empty() && !page.more
            }
            _ => false,
        })
    };
    sets.is_empty() || (has_no_reservation(claim, told) && sets.iter().all(is_searched))
}

fn has_no_reservation(claim: &Claim, told: &[Exchange]) -> bool {
    let wanted = Question::ReservedFor { key: claim.key.clone(), uid: claim.uid.clone() };
    let Some(Answer::Reserved(handles)) = answer_told(&wanted, told) else { return false };
    let serves = |volume: &Volume| {
        let names_it = volume.claim_ref.as_ref().is_some_and(|claim_ref| names(claim_ref, claim));
        let is_other =
            Rule::ALL.iter().any(|rule| *rule != Rule::ClassDiffers && differs(*rule, claim, volume));
        names_it && !volume.deleting && !is_other
    };
    let is_in_vain = |handle: &Handle| match answer_told(&Question::Describe(*handle), told) {
        Some(Answer::Described(volume)) => !serves(volume),
        _ => false,
    };
    handles.iter().all(is_in_vain)
}

fn is_true_of_volume(finding: &Finding, volume: &Volume, told: &[Exchange]) -> bool {
    if finding.rule == Rule::PolicyRecycle {
        return volume.policy == ReclaimPolicy::Recycle;
    }
    let Some(claim) = finding.claim.as_ref().and_then(|key| claim_told(key, told)) else { return false };
    let is_reserved = volume.claim_ref.as_ref().is_some_and(|claim_ref| names(claim_ref, claim));
    let is_waiting = !claim.annotations.bind_completed && claim.volume_name.is_none() && !claim.deleting;
    // For a reserved volume the class does not count.
    is_reserved && is_waiting && finding.rule != Rule::ClassDiffers && differs(finding.rule, claim, volume)
}

/// The update takes a volume out of its complete pair.
fn leaves_claim(finding: &Finding, new: &Volume, old: &Volume, told: &[Exchange]) -> bool {
    let claim = finding.claim.as_ref().and_then(|key| claim_told(key, told));
    finding.rule == Rule::BreaksPair
        && new.claim_ref != old.claim_ref
        && claim.is_some_and(|claim| is_pair(claim, old))
}

/// Whether a volume differs from what a claim asks for in the field of a rule.
fn differs(rule: Rule, claim: &Claim, volume: &Volume) -> bool {
    let text = |text: &Option<Text>| text.as_deref().unwrap_or_default().to_owned();
    match rule {
        Rule::VolumeTooSmall => volume.capacity.unwrap_or(Quantity::ZERO) < claim.request,
        Rule::ClassDiffers => *volume.class != *text(&claim.class),
        Rule::AttributesClassDiffers => text(&volume.attributes_class) != text(&claim.attributes_class),
        Rule::VolumeModeDiffers => volume.mode != claim.mode,
        Rule::AccessModesMissing => claim.access_modes.iter().any(|mode| !volume.access_modes.contains(mode)),
        _ => false,
    }
}

/// Whether both are one complete pair.
fn is_pair(claim: &Claim, volume: &Volume) -> bool {
    claim.annotations.bind_completed
        && claim.volume_name.as_ref() == Some(&volume.name)
        && carries(volume, claim)
}

/// The answer about the volume of that name, where the engine asked.
fn volume_told<'a>(name: &str, told: &'a [Exchange]) -> Option<&'a Lookup<Arc<Volume>>> {
    let found = told.iter().find_map(|exchange| match (&exchange.question, &exchange.answer) {
        (Question::Volume(_, asked), Answer::Volume(found)) if **asked == *name => Some(found),
        _ => None,
    });
    found.filter(|found| !matches!(found, Lookup::Found(volume) if *volume.name != *name))
}

/// The answer about the class of that name, where the engine asked.
fn class_told<'a>(name: &Text, told: &'a [Exchange]) -> Option<&'a Lookup<Arc<Class>>> {
    match answer_told(&Question::Class(name.clone()), told) {
        Some(Answer::Class(found)) => Some(found),
        _ => None,
    }
}

fn claim_told<'a>(key: &ClaimKey, told: &'a [Exchange]) -> Option<&'a Claim> {
    told.iter().find_map(|exchange| match &exchange.answer {
        Answer::Claim(Lookup::Found(claim)) if claim.key == *key => Some(&**claim),
        _ => None,
    })
}

/// The answer to a question, where the engine asked it.
fn answer_told<'a>(question: &Question, told: &'a [Exchange]) -> Option<&'a Answer> {
    told.iter().find(|exchange| exchange.question == *question).map(|exchange| &exchange.answer)
}
