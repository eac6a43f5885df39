//! Whether a volume fits a claim. The checks depend on which side made the choice.

use crate::object::{Claim, Requirement, Volume};

/// Why a free volume that the binder chose does not fit (`findMatchingVolume`, without phase and binding
/// mode).
pub(crate) fn free(volume: &Volume, claim: &Claim) -> Option<String> {
    named(volume, claim).or_else(|| {
        let failed = claim.selector.iter().find(|requirement| !holds(requirement, volume))?;
        Some(format!("its labels do not satisfy {failed:?}"))
    })
}

/// Why a volume that the claim names does not fit (`checkVolumeSatisfyClaim`).
pub(crate) fn named(volume: &Volume, claim: &Claim) -> Option<String> {
    reserved(volume, claim).or_else(|| {
        let differs = volume.class != claim.class;
        differs.then(|| format!("its class is {:?}, asked for is {:?}", volume.class, claim.class))
    })
}

/// Why the binder does not choose a volume that is reserved for the claim.
pub(crate) fn reserved(volume: &Volume, claim: &Claim) -> Option<String> {
    let missing = claim.access_modes.difference(&volume.access_modes).next();
    if volume.capacity < claim.request {
        Some(format!("it has {}, asked for is {} (thousandths of a byte)", volume.capacity, claim.request))
    } else if volume.mode != claim.mode {
        Some(format!("its mode is {}, asked for is {}", volume.mode, claim.mode))
    } else if volume.attributes_class != claim.attributes_class {
        let (has, asked) = (&volume.attributes_class, &claim.attributes_class);
        Some(format!("its attributes class is {has:?}, asked for is {asked:?}"))
    } else {
        missing.map(|mode| format!("it cannot be accessed as {mode}"))
    }
}

/// Why the binder's choice in a complete pair does not fit. Choices of users need not fit.
pub(crate) fn chosen(volume: &Volume, claim: &Claim) -> Option<String> {
    match (volume.meta.is_bound_by_controller(), claim.meta.is_bound_by_controller()) {
        // A provisioner made it for this claim, and sets no labels.
        (true, true) if volume.meta.provisioned_by().is_some() => named(volume, claim),
        (true, true) => free(volume, claim),
        (true, false) => named(volume, claim),
        (false, true) => reserved(volume, claim),
        (false, false) => None,
    }
}

fn holds(requirement: &Requirement, volume: &Volume) -> bool {
    let value = volume.meta.labels.get(&requirement.key);
    let is_among = value.is_some_and(|value| requirement.values.contains(value));
    match requirement.operator.as_str() {
        "In" => is_among,
        "NotIn" => !is_among,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        // The API server refuses other operators.
        _ => false,
    }
}
