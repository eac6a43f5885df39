//! Steering: upstream's binder stays on and carries out what Bindery chooses.
//!
//! A claim is steered if its selector requires the label key of its own name ([`steering_key`]). No volume
//! has that label by itself, so neither upstream's binder nor the scheduler finds a volume for the claim. For
//! a class with immediate binding Bindery reserves a volume by name in `spec.claimRef`, which upstream's
//! binder carries out whatever the selector says. For a class that waits for a pod it puts the label on the
//! volumes among which the scheduler may choose.

use serde::{Deserialize, Serialize};

use crate::{
    Claim, ClaimKey, ClaimTarget, Requirement, Selector, SelectorOperator, Text, Uid, Volume, VolumeTarget,
};

/// Annotation of a claim: the volume that Bindery has chosen for it, a space, and the UID of the volume; then
/// ` withdrawn` if the volume must not be reserved any more.
pub const CHOICE: &str = "steer.bindery.dev/choice";
/// Annotation of a volume: the claim for which Bindery has reserved it by name in `spec.claimRef`, as
/// `NAMESPACE/NAME`, a space, and the UID of the claim. With ` released` at its end it is written by
/// `bindery steer release`, and gives the claim the volume whatever policies say.
pub const RESERVED_FOR: &str = "steer.bindery.dev/reserved-for";
/// Annotation of a volume: UID and version of the claim, with a space between, that has withdrawn the choice
/// of this volume. Its write makes reservations fail that were sent before.
pub const FENCE: &str = "steer.bindery.dev/fence";
/// Annotation of a claim whose volume is reserved: the version that the claim had. Its write makes upstream
/// look at the claim again.
pub const TOUCHED: &str = "steer.bindery.dev/touched";
/// End of [`RESERVED_FOR`] where `bindery steer release` has written it.
const RELEASED: &str = "released";
/// End of the prefix of label keys that steer, and their name.
const KEY_END: &str = ".steer.bindery.dev/claim";
/// Most characters of the prefix of a label key (apimachinery's `IsQualifiedName`).
const PREFIX_MAX: usize = 253;

/// The label key that steers claims of this name; `None` if the names do not fit into a key. Namespaces have
/// no dots, so a key belongs to one claim.
pub fn steering_key(claim: &ClaimKey) -> Option<String> {
    let key = format!("{}.{}{KEY_END}", claim.name, claim.namespace);
    key.find('/').is_some_and(|prefix| prefix <= PREFIX_MAX).then_some(key)
}

/// The claim that a label key steers; `None` if the key is not one that steers.
pub fn steered_by(key: &str) -> Option<ClaimKey> {
    let (name, namespace) = key.strip_suffix(KEY_END)?.rsplit_once('.')?;
    Some(ClaimKey { namespace: namespace.into(), name: name.into() })
}

/// The value of a label that steers a claim, where `bindery steer release` has put it on a volume: whatever
/// policies say, it stays there while the claim waits. Bindery's own labels have the claim's UID. A label
/// without a value is a person's, and stays.
pub fn released_label(claim: &Claim) -> String {
    format!("{RELEASED}.{}", claim.uid.0)
}

/// The claims whose labels a volume has, with the values of the labels.
pub fn steered_to(volume: &Volume) -> impl Iterator<Item = (ClaimKey, &Text)> {
    volume.labels.iter().filter_map(|(key, value)| Some((steered_by(key)?, value)))
}

/// Takes the requirement that steers the claim out of its selector. Returns whether it was there. A selector
/// that has nothing else becomes `None`, as if the claim had none.
pub fn take_steering(claim: &ClaimKey, selector: &mut Option<Selector>) -> bool {
    let (Some(key), Some(Selector::Requirements(requirements))) = (steering_key(claim), selector.as_mut())
    else {
        return false;
    };
    let steers = |needed: &Requirement| needed.operator == SelectorOperator::Exists && *needed.key == *key;
    let before = requirements.len();
    requirements.retain(|needed| !steers(needed));
    let is_steered = requirements.len() < before;
    if is_steered && requirements.is_empty() {
        *selector = None;
    }
    is_steered
}

/// The volume that Bindery has chosen for a steered claim ([`CHOICE`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Name of the volume.
    pub volume: Text,
    /// UID of the volume.
    pub uid: Uid,
    /// Whether the volume must not be reserved for the claim any more.
    pub withdrawn: bool,
}

impl Choice {
    /// Reads the annotation; `None` if a person wrote something else.
    pub fn parse(annotation: &str) -> Option<Self> {
        let (volume, rest) = annotation.split_once(' ')?;
        let (uid, withdrawn) = match rest.split_once(' ') {
            None => (rest, false),
            Some((uid, "withdrawn")) => (uid, true),
            Some(_) => return None,
        };
        Some(Self { volume: volume.into(), uid: Uid(uid.into()), withdrawn })
    }

    /// The value of the annotation.
    pub fn annotation(&self) -> String {
        let end = if self.withdrawn { " withdrawn" } else { "" };
        format!("{} {}{end}", self.volume, self.uid.0)
    }
}

/// The claim for which Bindery has reserved a volume ([`RESERVED_FOR`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Namespace and name of the claim.
    pub claim: ClaimKey,
    /// UID of the claim.
    pub uid: Uid,
    /// Whether `bindery steer release` gives the claim the volume.
    #[serde(default)]
    pub released: bool,
}

impl Reservation {
    /// A reservation of Bindery's own for this claim.
    pub fn of(claim: &Claim) -> Self {
        Self { claim: claim.key.clone(), uid: claim.uid.clone(), released: false }
    }

    /// The reservation by which `bindery steer release` gives this claim a volume.
    pub fn released_to(claim: &Claim) -> Self {
        Self { released: true, ..Self::of(claim) }
    }

    /// Reads the annotation; `None` if a person wrote something else.
    pub fn parse(annotation: &str) -> Option<Self> {
        let (claim, rest) = annotation.split_once(' ')?;
        let (namespace, name) = claim.split_once('/')?;
        let (uid, released) = match rest.split_once(' ') {
            None => (rest, false),
            Some((uid, RELEASED)) => (uid, true),
            Some(_) => return None,
        };
        let claim = ClaimKey { namespace: namespace.into(), name: name.into() };
        Some(Self { claim, uid: Uid(uid.into()), released })
    }

    /// The value of the annotation.
    pub fn annotation(&self) -> String {
        let end = if self.released { " released" } else { "" };
        format!("{}/{} {}{end}", self.claim.namespace, self.claim.name, self.uid.0)
    }
}

/// The value of [`FENCE`] for a claim that has withdrawn its choice.
pub fn fence(claim: &ClaimTarget) -> Text {
    format!("{} {}", claim.uid.0, claim.version.0).into()
}

/// A write of mode steer, as one request. Every target carries the UID and the version that the API server
/// must find. No engine decides these writes: Bindery derives them from an engine's choice.
///
/// Two replicas may both believe that they lead. Upstream may delete a volume if two are reserved for one
/// claim, so the order of writes matters. The choice is annotated on the claim before its volume is reserved,
/// and before each reservation the volume and then the claim are read live. Another choice follows only after
/// the first one was withdrawn on the claim, and after that its volume fenced. So a reservation that another
/// replica sends late has read its volume before the fence, and fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SteerWrite {
    /// Annotates the claim with the choice, or with its withdrawal.
    Choose {
        /// The claim.
        claim: ClaimTarget,
        /// The choice.
        choice: Choice,
    },
    /// Changes an annotation of a volume whose choice was withdrawn.
    Fence {
        /// The volume.
        volume: VolumeTarget,
        /// The claim that has withdrawn the choice.
        claim: ClaimTarget,
    },
    /// Reserves the volume by name of the claim, with the annotation [`RESERVED_FOR`].
    Reserve {
        /// The volume.
        volume: VolumeTarget,
        /// The claim.
        reservation: Reservation,
    },
    /// Changes an annotation of a claim whose volume is reserved, so that upstream looks at the claim again.
    Touch {
        /// The claim.
        claim: ClaimTarget,
    },
    /// Removes a reservation with its annotation.
    Release {
        /// The volume.
        volume: VolumeTarget,
    },
    /// Puts the label that steers on a volume: the scheduler may choose it for the claim. The value is the
    /// UID of the claim.
    Label {
        /// The volume.
        volume: VolumeTarget,
        /// The claim.
        reservation: Reservation,
    },
    /// Removes the label that steers a claim from a volume.
    Unlabel {
        /// The volume.
        volume: VolumeTarget,
        /// The claim.
        claim: ClaimKey,
    },
    /// Removes the annotation of a reservation that upstream has carried out. A person may later reserve the
    /// volume by removing the UID from its claimRef, and that must not pass for Bindery's reservation.
    Forget {
        /// The volume.
        volume: VolumeTarget,
    },
}

impl SteerWrite {
    /// The write in words, for logs and errors.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Choose { choice: Choice { withdrawn: true, .. }, .. } => "withdraw choice of claim",
            Self::Choose { .. } => "annotate claim with choice",
            Self::Fence { .. } => "fence volume",
            Self::Reserve { .. } => "reserve volume by name",
            Self::Touch { .. } => "touch claim",
            Self::Release { .. } => "release reserved volume",
            Self::Forget { .. } => "forget reservation of volume",
            Self::Label { .. } => "label volume for claim",
            Self::Unlabel { .. } => "remove label from volume",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_read_as_they_were_written() {
        for withdrawn in [false, true] {
            let choice = Choice { volume: "db-7".into(), uid: "u-7".into(), withdrawn };
            assert_eq!(Choice::parse(&choice.annotation()), Some(choice));
        }
        for released in [false, true] {
            let claim = ClaimKey::new("shop", "data.v2");
            let reservation = Reservation { claim, uid: "u-1".into(), released };
            assert_eq!(Reservation::parse(&reservation.annotation()), Some(reservation));
        }
        for other in ["", "db-7", "db-7 u-7 soon", "db-7 u-7 withdrawn twice"] {
            assert_eq!(Choice::parse(other), None, "{other:?}");
        }
        for other in ["", "shop/data", "data u-1", "shop/data u-1 soon"] {
            assert_eq!(Reservation::parse(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_key_that_steers_names_its_claim_or_does_not_fit() {
        let claim = ClaimKey::new("shop", "data.v2");
        let key = steering_key(&claim).expect("it fits");
        assert_eq!((key.as_str(), steered_by(&key)), ("data.v2.shop.steer.bindery.dev/claim", Some(claim)));
        let fitting = PREFIX_MAX - "..steer.bindery.dev".len() - "shop".len();
        let named = |length| steering_key(&ClaimKey::new("shop", &*"n".repeat(length)));
        assert!(named(fitting).is_some() && named(fitting + 1).is_none());
        assert_eq!(steered_by("data/claim"), None);
    }
}
