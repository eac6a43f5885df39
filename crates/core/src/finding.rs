//! What a review finds: the rules of reviews, and findings under them.

use serde::{Deserialize, Serialize};

use crate::{ClaimKey, Text};

/// A problem that a review found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// Name of the volume that it is about; empty where there is none.
    pub volume: Text,
    /// The claim that it is about, where that is another than the one reviewed.
    pub claim: Option<ClaimKey>,
    /// The value of the object reviewed, as text for the sentence.
    pub found: Text,
    /// The value that it is compared with, as text for the sentence.
    pub wanted: Text,
}

macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident = $number:literal $name:literal;)*) => {
        /// Rules of a review. The operator sets whether a rule denies or warns. Each doc begins with the
        /// default; rules that deny come first.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[repr(u16)]
        pub enum Rule { $($(#[$doc])* $rule = $number,)* }

        impl Rule {
            /// Every rule, in the order of their numbers.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$rule),*];

            /// Its name, as the contract has it and as operators set its level.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$rule => $name,)* }
            }
        }
    };
}

rules! {
    /// Deny: the named volume is smaller than the request.
    VolumeTooSmall = 1 "volume-too-small";
    /// Deny: the named volume has another class.
    ClassDiffers = 2 "class-differs";
    /// Deny: the named volume has another volume mode.
    VolumeModeDiffers = 3 "volume-mode-differs";
    /// Deny: the named volume has another attributes class.
    AttributesClassDiffers = 4 "attributes-class-differs";
    /// Deny: the named volume lacks an access mode.
    AccessModesMissing = 5 "access-modes-missing";
    /// Deny: the named volume is one half of another claim's complete pair.
    VolumeOfOther = 6 "volume-of-other";
    /// Deny: the update breaks a complete pair.
    BreaksPair = 7 "breaks-pair";
    /// Warn: the named volume does not exist yet.
    VolumeMissing = 8 "volume-missing";
    /// Warn: the named volume is reserved by name for another claim.
    VolumeReserved = 9 "volume-reserved";
    /// Warn: the named volume is released, failed or being deleted.
    VolumeLeaving = 10 "volume-leaving";
    /// Warn: the named volume is far larger than asked for.
    VolumeOversized = 11 "volume-oversized";
    /// Warn: the class does not exist.
    ClassMissing = 12 "class-missing";
    /// Warn: the class names an in-tree provisioner that is not there.
    ProvisionerUnknown = 13 "provisioner-unknown";
    /// Warn: volumeName together with a class that waits for a consumer.
    NameDefeatsWait = 14 "name-defeats-wait";
    /// Warn: volumeName together with a volume that has node affinity.
    NameDefeatsAffinity = 15 "name-defeats-affinity";
    /// Warn: policy Recycle.
    PolicyRecycle = 16 "policy-recycle";
    /// Warn: claim and volume name each other although the volume does not satisfy the claim; they bind
    /// anyway.
    PairMismatch = 17 "pair-mismatch";
}

impl Rule {
    /// Whether it denies by default: it reports an object that cannot bind, or a change that must not be
    /// made.
    pub const fn denies(self) -> bool {
        (self as u16) <= (Self::BreaksPair as u16)
    }
}
