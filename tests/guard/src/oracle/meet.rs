//! Whether a claim and a volume may become a pair: a table of the checks that count in each situation.

use bindery_core::{Claim, ReclaimPolicy, Selector, SelectorOperator, Text, Uid, Volume, VolumePhase};

use crate::model::Model;

const SIZE: u32 = 1;
const MODES: u32 = 2;
const CLASS: u32 = 4;
const VOLUME_MODE: u32 = 8;
const ATTRIBUTES: u32 = 16;
const LABELS: u32 = 32;
const PHASE: u32 = 64;
const ALIVE: u32 = 128;
const NO_WAIT: u32 = 256;

enum Points {
    Nowhere,
    Here,
    Elsewhere,
}

enum Holds {
    Nothing,
    Name,
    Uid,
    UidOfOtherName,
    Other,
}

/// Whether claim and volume may become a pair. The situation determines which checks count.
pub(super) fn may_meet(model: &Model, claim: &Claim, volume: &Volume) -> bool {
    let points = match &claim.volume_name {
        None => Points::Nowhere,
        Some(name) if *name == volume.name => Points::Here,
        Some(_) => Points::Elsewhere,
    };
    let holds = match &volume.claim_ref {
        None => Holds::Nothing,
        Some(r) => match (&r.uid, r.name == claim.key.name && r.namespace == claim.key.namespace) {
            (Some(uid), true) if *uid == claim.uid => Holds::Uid,
            (Some(uid), false) if *uid == claim.uid => Holds::UidOfOtherName,
            (None, true) => Holds::Name,
            _ => Holds::Other,
        },
    };
    let counts = match (claim.annotations.bind_completed, points, holds) {
        (true, Points::Here, Holds::Nothing | Holds::Uid | Holds::UidOfOtherName)
        | (false, Points::Here, Holds::Uid | Holds::Name) => 0,
        (false, Points::Here, Holds::Nothing) => SIZE | MODES | VOLUME_MODE | ATTRIBUTES | ALIVE | CLASS,
        (false, Points::Nowhere, Holds::Uid | Holds::Name) => SIZE | MODES | VOLUME_MODE | ATTRIBUTES | ALIVE,
        (false, Points::Nowhere, Holds::Nothing) => !0,
        _ => return false,
    };
    failures(model, claim, volume) & counts == 0
}

fn failures(model: &Model, claim: &Claim, volume: &Volume) -> u32 {
    let empty: Text = "".into();
    let class = claim.class.as_ref().unwrap_or(&empty);
    let bit = |fails: bool, bit: u32| if fails { bit } else { 0 };
    let labels = match &claim.selector {
        None => true,
        Some(Selector::Invalid(_)) => false,
        Some(Selector::Requirements(all)) => all.iter().all(|r| {
            let listed = volume.labels.iter().any(|(k, v)| *k == r.key && r.values.iter().any(|x| x == v));
            match r.operator {
                SelectorOperator::In => listed,
                SelectorOperator::NotIn => !listed,
                SelectorOperator::Exists => volume.labels.keys().any(|k| *k == r.key),
                SelectorOperator::DoesNotExist => !volume.labels.keys().any(|k| *k == r.key),
            }
        }),
    };
    let attributes = |class: &Option<Text>| class.clone().unwrap_or_else(|| empty.clone());
    bit(volume.capacity.map_or(0, |c| c.whole) < claim.request.whole, SIZE)
        | bit(
            claim.access_modes.iter().filter(|m| volume.access_modes.contains(m)).count()
                < claim.access_modes.len(),
            MODES,
        )
        | bit(volume.class != *class, CLASS)
        | bit(volume.mode != claim.mode, VOLUME_MODE)
        | bit(attributes(&volume.attributes_class) != attributes(&claim.attributes_class), ATTRIBUTES)
        | bit(!labels, LABELS)
        | bit(volume.phase != VolumePhase::Available, PHASE)
        | bit(volume.deleting, ALIVE)
        | bit(!class.is_empty() && model.waits(class) != Some(false), NO_WAIT)
}

/// Whether a provisioner made the volume for the claim whose UID it carries, and its policy is Delete.
pub(super) fn is_surplus(volume: &Volume) -> bool {
    let suffix = uid_in(volume).map(|uid| uid.0.to_string());
    let named = suffix.is_some_and(|suffix| volume.name.strip_suffix(&*suffix).is_some());
    named && volume.policy == ReclaimPolicy::Delete && volume.annotations.provisioned_by.is_some()
}

/// The UID of the claim that the volume names.
pub(super) fn uid_in(volume: &Volume) -> Option<&Uid> {
    volume.claim_ref.as_ref()?.uid.as_ref()
}
