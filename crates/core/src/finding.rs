//! What a review finds: the rules of reviews, and findings under them.

use serde::{Deserialize, Serialize};

use crate::named::named_cases;
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

named_cases! {
    /// Rules of a review. The operator sets whether a rule denies or warns. Each doc begins with the default;
    /// rules that deny come first.
    #[derive(Serialize, Deserialize)]
    Rule {
        /// Deny: the named volume is smaller than the request.
        VolumeTooSmall = "volume-too-small";
        /// Deny: the named volume has another class.
        ClassDiffers = "class-differs";
        /// Deny: the named volume has another volume mode.
        VolumeModeDiffers = "volume-mode-differs";
        /// Deny: the named volume has another attributes class.
        AttributesClassDiffers = "attributes-class-differs";
        /// Deny: the named volume lacks an access mode.
        AccessModesMissing = "access-modes-missing";
        /// Deny: a policy rejects the named volume.
        VolumeRejected = "volume-rejected";
        /// Deny: the named volume is one half of another claim's complete pair.
        VolumeOfOther = "volume-of-other";
        /// Deny: the update breaks a complete pair.
        BreaksPair = "breaks-pair";
        /// Warn: the named volume does not exist yet.
        VolumeMissing = "volume-missing";
        /// Warn: the named volume is reserved by name for another claim.
        VolumeReserved = "volume-reserved";
        /// Warn: the named volume is released, failed or being deleted.
        VolumeLeaving = "volume-leaving";
        /// Warn: the named volume is far larger than asked for.
        VolumeOversized = "volume-oversized";
        /// Warn: the class does not exist.
        ClassMissing = "class-missing";
        /// Warn: the class names an in-tree provisioner that does not exist.
        ProvisionerUnknown = "provisioner-unknown";
        /// Warn: volumeName together with a class that waits for a consumer.
        NameDefeatsWait = "name-defeats-wait";
        /// Warn: volumeName together with a volume that has node affinity.
        NameDefeatsAffinity = "name-defeats-affinity";
        /// Warn: policy Recycle.
        PolicyRecycle = "policy-recycle";
        /// Warn: claim and volume name each other although the volume does not satisfy the claim; they bind
        /// anyway.
        PairMismatch = "pair-mismatch";
    }
}

impl Rule {
    /// Whether it denies by default: it reports an object that cannot bind, or a change that must not be
    /// made.
    pub const fn denies(self) -> bool {
        (self as usize) <= (Self::BreaksPair as usize)
    }
}
