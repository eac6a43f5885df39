//! The obstacles that keep a claim from each volume: the full list behind the tallies of a decision.
//!
//! `bindery plan` prints them. They come from a scan of all volumes, while decisions use the index. A
//! [`bindery_core::Tally`] counts a volume under the reason of its first obstacle.
//!
//! Which reasons count depends on which of the two names the other, as in upstream:
//!
//! - A claim that searches: all of them.
//! - A volume that is reserved for the claim: all but phase, class and labels (`FindMatchingVolume`).
//! - A volume that the claim names: all but phase and labels (`checkVolumeSatisfyClaim`).
//! - Both name each other: none.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::fmt;

use bindery_core::{
    AccessModes, Claim, ClaimKey, ClaimRef, Lookup, Quantity, Reason, Requirement, SelectorOperator, Source,
    Text, Volume, VolumePhase,
};

use crate::state::State;

/// A volume with its obstacles for one claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeObstacles {
    /// Name of the volume.
    pub volume: Text,
    /// In the order of [`Reason`]; empty where the claim can have the volume.
    pub obstacles: Vec<Obstacle>,
}

/// A reason why a claim cannot have a volume, with the values. It prints as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The reason, as tallies count it.
    pub reason: Reason,
    /// The field of the volume, such as `spec.capacity.storage`; empty where no field is at fault.
    pub field: &'static str,
    /// What the volume has there.
    pub offers: String,
    /// What the claim asks for.
    pub asks: String,
}

impl State {
    pub(crate) fn explain(&self, claim: &Claim) -> Vec<VolumeObstacles> {
        let is_asked_for = |name: &Text| claim.volume_name.as_ref().is_none_or(|named| named == name);
        let mut volumes: Vec<_> = self
            .volumes()
            .into_iter()
            .filter(|volume| is_asked_for(&volume.name))
            .map(|volume| (obstacles(&volume, claim, self.picked_for(&volume.name)), volume))
            .collect();
        volumes.sort_by(|(a, volume), (b, other)| {
            a.len().cmp(&b.len()).then_with(|| nearer(claim.request, volume, other))
        });
        let readable = volumes
            .into_iter()
            .map(|(obstacles, volume)| VolumeObstacles { volume: volume.name.clone(), obstacles });
        let unreadable = self.index.unreadable.iter().filter(|name| is_asked_for(name)).filter_map(|name| {
            let offers = self.volumes.find(name)?.cached.overlay().err()?.why.to_string();
            let (reason, asks) = (Reason::Unreadable, String::new());
            let obstacles = vec![Obstacle { reason, field: "", offers, asks }];
            Some(VolumeObstacles { volume: name.clone(), obstacles })
        });
        readable.chain(unreadable).collect()
    }

    pub(crate) fn obstacles(&self, claim: &Claim, volume: &str) -> Option<Vec<Obstacle>> {
        let Lookup::Found(volume) = self.volume(Source::Overlay, volume) else { return None };
        Some(obstacles(&volume, claim, self.picked_for(&volume.name)))
    }
}

fn nearer(request: Quantity, a: &Volume, b: &Volume) -> Ordering {
    let capacity = |volume: &Volume| volume.capacity.unwrap_or_default();
    let rank = |volume: &Volume| {
        let (capacity, too_small) = (capacity(volume), capacity(volume) < request);
        (too_small, if too_small { (None, Some(Reverse(capacity))) } else { (Some(capacity), None) })
    };
    rank(a).cmp(&rank(b)).then_with(|| a.name.cmp(&b.name))
}

/// The obstacles of a volume for a claim. `picked_for` is the claim for which a decision in flight has picked
/// the volume.
fn obstacles(volume: &Volume, claim: &Claim, picked_for: Option<&ClaimKey>) -> Vec<Obstacle> {
    let own = volume.is_bound_to(claim);
    let named = claim.volume_name.as_ref() == Some(&volume.name);
    if own && named {
        return Vec::new();
    }
    let other = volume.claim_ref.as_ref().filter(|_| !own).map(|claim_ref| owner(claim_ref, claim));
    let in_flight = picked_for.filter(|other| volume.claim_ref.is_none() && **other != claim.key);
    let searched = !own && !named;
    let offered = volume.phase == VolumePhase::Available || other.is_some();
    let capacity = volume.capacity.unwrap_or_default();
    let (has, wants) = (volume.access_set(), claim.access_set());
    let unmet: Vec<String> = claim
        .requirements()
        .iter()
        .filter(|r| !r.matches(volume.labels.get(&r.key).map(|value| &**value)))
        .map(requirement)
        .collect();
    let name = |name: &str| if name.is_empty() { "none".to_owned() } else { format!("{name:?}") };
    let attributes = [volume.attributes_class_or_empty(), claim.attributes_class_or_empty()];
    let checks = [
        other.map(|other| (Reason::ReservedForOther, "spec.claimRef", other, claim.key.to_string())),
        volume
            .deleting
            .then(|| (Reason::Deleting, "metadata.deletionTimestamp", String::new(), String::new())),
        (!own && *volume.class != *claim.class_or_empty()).then(|| {
            let (offers, asks) = (name(&volume.class), name(claim.class_or_empty()));
            (Reason::ClassDiffers, "spec.storageClassName", offers, asks)
        }),
        (volume.mode != claim.mode).then(|| {
            let (offers, asks) = (volume.mode.name().to_owned(), claim.mode.name().to_owned());
            (Reason::VolumeModeDiffers, "spec.volumeMode", offers, asks)
        }),
        (attributes[0] != attributes[1]).then(|| {
            let [offers, asks] = attributes.map(name);
            (Reason::AttributesClassDiffers, "spec.volumeAttributesClassName", offers, asks)
        }),
        (!has.contains(wants))
            .then(|| (Reason::AccessModesMissing, "spec.accessModes", modes(has), modes(wants))),
        (searched && !offered).then(|| {
            let phase = if volume.phase.name().is_empty() { "unset" } else { volume.phase.name() };
            let available = VolumePhase::Available.name();
            (Reason::NotAvailable, "status.phase", phase.to_owned(), available.to_owned())
        }),
        (capacity < claim.request).then(|| {
            (Reason::TooSmall, "spec.capacity.storage", capacity.to_string(), claim.request.to_string())
        }),
        (searched && !unmet.is_empty())
            .then(|| (Reason::SelectorDiffers, "metadata.labels", labels(&volume.labels), unmet.join(", "))),
        in_flight.map(|other| (Reason::InFlight, "", other.to_string(), claim.key.to_string())),
    ];
    checks
        .into_iter()
        .flatten()
        .map(|(reason, field, offers, asks)| Obstacle { reason, field, offers, asks })
        .collect()
}

/// The claim that a volume is for, which is not `claim`: that may be a later claim of the same name.
fn owner(claim_ref: &ClaimRef, claim: &Claim) -> String {
    let key = claim_ref.claim_key();
    match &claim_ref.uid {
        Some(uid) if key == claim.key => format!("an earlier {key} with UID {uid}"),
        _ => key.to_string(),
    }
}

/// As `kubectl` writes a requirement.
fn requirement(requirement: &Requirement) -> String {
    let Requirement { key, operator, values } = requirement;
    match operator {
        SelectorOperator::In if values.len() == 1 => format!("{key}={}", values[0]),
        SelectorOperator::In => format!("{key} in ({})", values.join(",")),
        SelectorOperator::NotIn => format!("{key} notin ({})", values.join(",")),
        SelectorOperator::Exists => key.to_string(),
        SelectorOperator::DoesNotExist => format!("!{key}"),
    }
}

fn labels(labels: &BTreeMap<Text, Text>) -> String {
    let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if pairs.is_empty() { "none".to_owned() } else { pairs.join(",") }
}

fn modes(modes: AccessModes) -> String {
    let names: Vec<&str> = modes.iter().map(bindery_core::AccessMode::name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(",") }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, field, offers, asks } = self;
        match reason {
            Reason::Unreadable => write!(f, "the volume cannot be read: {offers}"),
            Reason::ReservedForOther => write!(f, "{field}: belongs to {offers}"),
            Reason::Deleting => write!(f, "{field}: the volume is being deleted"),
            Reason::NotAvailable => write!(f, "{field}: is {offers}, must be {asks}"),
            Reason::InFlight => write!(f, "picked for {offers} by a decision in flight"),
            Reason::WaitsForConsumer => f.write_str("the class waits for the first consumer"),
            Reason::ClassDiffers
            | Reason::VolumeModeDiffers
            | Reason::AttributesClassDiffers
            | Reason::AccessModesMissing
            | Reason::TooSmall
            | Reason::SelectorDiffers => write!(f, "{field}: offers {offers}, asked for {asks}"),
        }
    }
}
