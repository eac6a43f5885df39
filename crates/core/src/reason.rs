//! Why volumes were not chosen for a claim.

use serde::{Deserialize, Serialize};

use crate::Text;
use crate::named::named_cases;

/// Most volumes that one tally names.
pub const NEAREST_MAX: usize = 16;

named_cases! {
    /// Why a volume was not chosen. Where several reasons apply, the first one counts.
    #[derive(Serialize, Deserialize)]
    Reason {
        /// It cannot be read.
        Unreadable = "unreadable";
        /// It is reserved for or bound to another claim.
        ReservedForOther = "reserved-for-other";
        /// It is marked for deletion.
        Deleting = "deleting";
        /// It has another class.
        ClassDiffers = "class-differs";
        /// It has another volume mode.
        VolumeModeDiffers = "volume-mode-differs";
        /// It has another attributes class.
        AttributesClassDiffers = "attributes-class-differs";
        /// It lacks an access mode.
        AccessModesMissing = "access-modes-missing";
        /// It is not in phase Available.
        NotAvailable = "not-available";
        /// It is smaller than the request.
        TooSmall = "too-small";
        /// Its labels do not match the selector.
        SelectorDiffers = "selector-differs";
        /// A policy rejects it.
        Rejected = "rejected";
        /// A decision in flight has picked it.
        InFlight = "in-flight";
        /// The class waits for the first consumer, so the scheduler chooses.
        WaitsForConsumer = "waits-for-consumer";
    }
}

/// The number of volumes that were not chosen for one reason. Each volume counts once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// The reason.
    pub reason: Reason,
    /// Number of volumes.
    pub count: u32,
    /// Names of the nearest of them, at most [`NEAREST_MAX`], nearest first.
    pub nearest: Vec<Text>,
}
