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
    AccessModes, Claim, ClaimKey, ClaimRef, Quantity, Reason, Requirement, SelectorOperator, Source, Text,
    Volume, VolumePhase,
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

/// The volumes nearest to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Nearest first: fewest obstacles; then those that are large enough, the smallest first; then the
    /// largest of the others. Volumes that cannot be read are last.
    pub nearest: Vec<VolumeObstacles>,
    /// How many further volumes there are.
    pub more: usize,
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
    pub(crate) fn explain(&self, claim: &Claim, max: usize) -> Explanation {
        let is_asked_for = |name: &Text| claim.volume_name.as_ref().is_none_or(|named| named == name);
        let volumes = self.volumes();
        let pairs = volumes.iter().filter(|volume| is_asked_for(&volume.name)).map(|volume| Pair {
            volume,
            claim,
            picked_for: self.picked_for(&volume.name),
        });
        let mut ranked: Vec<_> = pairs.map(|pair| (pair.reasons().count(), pair)).collect();
        let nearer = |(a, one): &(usize, Pair<'_>), (b, other): &(usize, Pair<'_>)| {
            a.cmp(b).then_with(|| nearer(claim.request, one.volume, other.volume))
        };
        let readable = ranked.len();
        if max < readable {
            ranked.select_nth_unstable_by(max, nearer);
            ranked.truncate(max);
        }
        ranked.sort_by(nearer);
        let nearest = ranked.into_iter().map(|(_, pair)| pair.explain());
        let unreadable: Vec<_> = self.index.unreadable.iter().filter(|name| is_asked_for(name)).collect();
        Explanation {
            more: (readable + unreadable.len()).saturating_sub(max),
            nearest: nearest
                .chain(unreadable.into_iter().filter_map(|name| self.explain_unreadable(name)))
                .take(max)
                .collect(),
        }
    }

    fn explain_unreadable(&self, name: &Text) -> Option<VolumeObstacles> {
        let offers = self.volumes.find(name)?.cached.overlay().err()?.why.to_string();
        let (reason, asks) = (Reason::Unreadable, String::new());
        let obstacles = vec![Obstacle { reason, field: "", offers, asks }];
        Some(VolumeObstacles { volume: name.clone(), obstacles })
    }

    pub(crate) fn obstacles(&self, claim: &Claim, volume: &str) -> Option<Vec<Obstacle>> {
        let volume = self.volume(Source::Overlay, volume).found()?;
        let pair = Pair { volume: &volume, claim, picked_for: self.picked_for(&volume.name) };
        Some(pair.explain().obstacles)
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

/// A volume and a claim that might get it.
struct Pair<'a> {
    volume: &'a Volume,
    claim: &'a Claim,
    /// The claim for which a decision in flight has picked the volume.
    picked_for: Option<&'a ClaimKey>,
}

impl Pair<'_> {
    fn explain(&self) -> VolumeObstacles {
        let obstacles = self.reasons().map(|reason| self.obstacle(reason)).collect();
        VolumeObstacles { volume: self.volume.name.clone(), obstacles }
    }

    /// Why the claim cannot have the volume, in the order of [`Reason`].
    fn reasons(&self) -> impl Iterator<Item = Reason> {
        let (volume, claim) = (self.volume, self.claim);
        let own = volume.is_bound_to(claim);
        let named = claim.volume_name.as_ref() == Some(&volume.name);
        let searched = !own && !named;
        let is_reserved = volume.claim_ref.is_some() && !own;
        let is_offered = volume.phase == VolumePhase::Available || is_reserved;
        let attributes = [volume.attributes_class_or_empty(), claim.attributes_class_or_empty()];
        let checks = [
            (Reason::ReservedForOther, is_reserved),
            (Reason::Deleting, volume.deleting),
            (Reason::ClassDiffers, !own && *volume.class != *claim.class_or_empty()),
            (Reason::VolumeModeDiffers, volume.mode != claim.mode),
            (Reason::AttributesClassDiffers, attributes[0] != attributes[1]),
            (Reason::AccessModesMissing, !volume.access_set().contains(claim.access_set())),
            (Reason::NotAvailable, searched && !is_offered),
            (Reason::TooSmall, volume.capacity.unwrap_or_default() < claim.request),
            (Reason::SelectorDiffers, searched && self.unmet().next().is_some()),
            (Reason::InFlight, self.picked_for_other().is_some()),
        ];
        let is_pair = own && named;
        checks.into_iter().filter(move |(_, applies)| *applies && !is_pair).map(|(reason, _)| reason)
    }

    fn unmet(&self) -> impl Iterator<Item = &Requirement> {
        let labels = &self.volume.labels;
        let requirements = self.claim.requirements().iter();
        requirements.filter(|r| !r.matches(labels.get(&r.key).map(|value| &**value)))
    }

    fn picked_for_other(&self) -> Option<&ClaimKey> {
        self.picked_for.filter(|other| self.volume.claim_ref.is_none() && **other != self.claim.key)
    }

    /// The values of a reason that applies.
    fn obstacle(&self, reason: Reason) -> Obstacle {
        let (volume, claim) = (self.volume, self.claim);
        let name = |name: &str| if name.is_empty() { "none".to_owned() } else { format!("{name:?}") };
        let key = || claim.key.to_string();
        let (field, offers, asks) = match reason {
            Reason::ReservedForOther => {
                let other = volume.claim_ref.as_ref().map(|claim_ref| owner(claim_ref, claim));
                ("spec.claimRef", other.unwrap_or_default(), key())
            }
            Reason::Deleting => ("metadata.deletionTimestamp", String::new(), String::new()),
            Reason::ClassDiffers => {
                ("spec.storageClassName", name(&volume.class), name(claim.class_or_empty()))
            }
            Reason::VolumeModeDiffers => {
                ("spec.volumeMode", volume.mode.name().to_owned(), claim.mode.name().to_owned())
            }
            Reason::AttributesClassDiffers => (
                "spec.volumeAttributesClassName",
                name(volume.attributes_class_or_empty()),
                name(claim.attributes_class_or_empty()),
            ),
            Reason::AccessModesMissing => {
                ("spec.accessModes", modes(volume.access_set()), modes(claim.access_set()))
            }
            Reason::NotAvailable => {
                let phase = if volume.phase.name().is_empty() { "unset" } else { volume.phase.name() };
                ("status.phase", phase.to_owned(), VolumePhase::Available.name().to_owned())
            }
            Reason::TooSmall => {
                let capacity = volume.capacity.unwrap_or_default();
                ("spec.capacity.storage", capacity.to_string(), claim.request.to_string())
            }
            Reason::SelectorDiffers => {
                let unmet: Vec<String> = self.unmet().map(requirement).collect();
                ("metadata.labels", labels(&volume.labels), unmet.join(", "))
            }
            Reason::InFlight => {
                ("", self.picked_for_other().map(ToString::to_string).unwrap_or_default(), key())
            }
            // These are not reasons of a pair.
            Reason::Unreadable | Reason::Rejected | Reason::WaitsForConsumer => {
                ("", String::new(), String::new())
            }
        };
        Obstacle { reason, field, offers, asks }
    }
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
            Reason::Rejected => f.write_str(offers),
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
