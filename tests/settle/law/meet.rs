//! G2 and G3: which claim may get which volume.

use std::collections::BTreeMap;

use bindery_core::{AccessModes, BindingMode, Claim, Class, Selector, Text, Volume, VolumePhase};

/// Whether the claim may get the volume, both as they are.
pub(crate) fn may_meet(classes: &BTreeMap<Text, Class>, claim: &Claim, volume: &Volume) -> bool {
    let points_here = claim.volume_name.as_ref().map(|name| *name == volume.name);
    let same_name =
        volume.claim_ref.as_ref().map(|r| r.name == claim.key.name && r.namespace == claim.key.namespace);
    let same_uid = volume.claim_ref.as_ref().and_then(|r| r.uid.as_ref()).map(|uid| *uid == claim.uid);
    if points_here == Some(false) || same_uid == Some(false) {
        return false;
    }
    if claim.annotations.bind_completed {
        return points_here == Some(true) && (same_name.is_none() || same_uid == Some(true));
    }
    match (points_here.is_some(), same_name) {
        (_, Some(false)) => false,
        (true, Some(true)) => true,
        (false, Some(true)) => satisfies(claim, volume),
        (true, None) => satisfies(claim, volume) && same_class(claim, volume),
        (false, None) => {
            satisfies(claim, volume)
                && same_class(claim, volume)
                && volume.phase == VolumePhase::Available
                && selects(claim, volume)
                && binds_at_once(classes, claim)
        }
    }
}

fn satisfies(claim: &Claim, volume: &Volume) -> bool {
    let modes = |modes: &[_]| modes.iter().collect::<AccessModes>();
    let attributes = |class: &Option<Text>| class.as_deref().unwrap_or_default().to_owned();
    !volume.deleting
        && volume.capacity.is_some_and(|capacity| capacity.whole >= claim.request.whole)
        && volume.mode == claim.mode
        && modes(&volume.access_modes).contains(modes(&claim.access_modes))
        && attributes(&volume.attributes_class) == attributes(&claim.attributes_class)
}

fn same_class(claim: &Claim, volume: &Volume) -> bool {
    claim.class.as_deref().unwrap_or_default() == &*volume.class
}

fn selects(claim: &Claim, volume: &Volume) -> bool {
    match &claim.selector {
        None => true,
        Some(Selector::Invalid(_)) => false,
        Some(Selector::Requirements(all)) => {
            all.iter().all(|one| one.matches(volume.labels.get(&one.key).map(|value| &**value)))
        }
    }
}

/// Whether the binder chooses volumes of the class, even if the class does not exist.
fn binds_at_once(classes: &BTreeMap<Text, Class>, claim: &Claim) -> bool {
    let class = claim.class.as_ref().and_then(|name| classes.get(name));
    class.is_none_or(|class| class.binding_mode == Some(BindingMode::Immediate))
}
