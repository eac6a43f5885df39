//! Events for users: those of decisions, and those of the binder itself.

use bindery_core::{Event, EventType, Regarding};
use bindery_policy::Rejections;

/// An event to be recorded on a claim or a volume.
///
/// Engines emit only [`bindery_core::EventKind`]s. The binder adds events that no engine may emit, such as
/// the guard's refusal of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The object that it is about.
    pub regarding: Regarding,
    /// `type`.
    pub event_type: EventType,
    /// `reason`.
    pub reason: &'static str,
    /// `message`.
    pub message: String,
}

/// `reason` of the event on an object whose decision the guard refused.
pub(crate) const REASON_REFUSED: &str = "DecisionRefused";

/// `reason` of the event on a claim that waits because a policy gives no answer.
pub(crate) const REASON_POLICY_FAILED: &str = "PolicyFailed";

/// `reason` of the event on a claim that waits for a volume that its policies allow.
pub(crate) const REASON_VOLUMES_REJECTED: &str = "VolumesRejected";

/// `reason` of the event on a claim that gets a volume although its policies have not scored all.
pub(crate) const REASON_VOLUMES_UNSCORED: &str = "VolumesNotScored";

/// `reason` of the event on a steered claim whose reservation upstream does not carry out.
pub(crate) const REASON_OVERDUE: &str = "ReservationNotCarriedOut";

/// `reason` of the event on a steered claim whose reservations or labels others remove again and again.
pub(crate) const REASON_REMOVED: &str = "ReservationRemoved";

/// `reason` of the event on a steered claim for which a volume is reserved that it cannot have.
pub(crate) const REASON_UNFIT: &str = "ReservationUnfit";

/// `reason` of the event on an object for which the API server does not take what Bindery writes: a policy or
/// a webhook denies it, or RBAC. Upstream's controller only logs this, so its users see a Pending claim
/// without a reason.
pub const REASON_UNWRITABLE: &str = "WriteRefused";

/// `reason` of the event on an object whose sync keeps failing: the API server fails at a write, or at a read
/// that the guard needs.
pub(crate) const REASON_STUCK: &str = "SyncFailed";

impl From<&Event> for Note {
    fn from(event: &Event) -> Self {
        let (event_type, reason) = event.kind.type_and_reason();
        Self { regarding: event.regarding.clone(), event_type, reason, message: event.kind.to_string() }
    }
}

impl Note {
    /// The note of an event of a decision; about a claim it ends with what the claim's policies reject.
    pub(crate) fn of(event: &Event, rejections: Option<&Rejections>) -> Self {
        let mut note = Self::from(event);
        if let (Regarding::Claim(_), Some(rejections)) = (&note.regarding, rejections) {
            note.message = format!("{}; {rejections}", note.message);
        }
        note
    }
}
