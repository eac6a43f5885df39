//! Events of the binder itself: about objects that cannot be read, decisions that the guard refuses, and
//! writes that the API server refuses.

use bindery_core::{
    Action, ClaimKey, ClaimTarget, Decision, Event, EventKind, EventType, Regarding, Request, Subject, Text,
    VolumeTarget,
};
use bindery_policy::Rejections;

use super::{Binder, Mode};
use crate::decider::chosen;
use crate::note::{REASON_POLICY_FAILED, REASON_REFUSED, REASON_UNWRITABLE, REASON_VOLUMES_REJECTED};
use crate::{Note, Port, SyncError, WriteError};

impl<P: Port> Binder<P> {
    /// The claim of that key, if it cannot be read.
    pub(super) fn unreadable_claim(&self, key: &ClaimKey) -> Option<Regarding> {
        let found = self.store.unreadable_claim(key)?;
        Some(Regarding::Claim(ClaimTarget { key: key.clone(), uid: found.uid, version: found.version }))
    }

    /// The volume of that name, if it cannot be read.
    pub(super) fn unreadable_volume(&self, name: &Text) -> Option<Regarding> {
        let found = self.store.unreadable_volume(name)?;
        Some(Regarding::Volume(VolumeTarget { name: name.clone(), uid: found.uid, version: found.version }))
    }

    /// Tells the user that an object cannot be read, so nothing is done for it.
    pub(super) fn report_unreadable(&self, regarding: Option<Regarding>, why: Text) {
        tracing::warn!(%why, "an object cannot be read");
        if let Some(regarding) = regarding {
            self.tell(&Note::from(&Event { regarding, kind: EventKind::Unreadable(why) }));
        }
    }

    /// Tells the user that the guard refused a decision about an object.
    pub(super) fn report_refusal(&self, request: &Request, why: &str) {
        self.metrics.refusals.inc();
        self.warn(request, REASON_REFUSED, why.to_owned());
    }

    /// Tells the user that a claim waits because a policy gives no answer.
    pub(super) fn report_policy(&self, request: &Request, policy: &str, error: &SyncError) {
        self.decider.policies.count_wait(policy);
        self.warn(request, REASON_POLICY_FAILED, error.to_string());
    }

    /// Tells the user that a claim waits for a volume that its policies allow, where no event of the decision
    /// says so. Returns whether it did.
    pub(super) fn report_rejections(
        &self,
        request: &Request,
        decision: &Decision,
        rejections: Option<&Rejections>,
    ) -> bool {
        let (Some(rejections), Some(regarding)) = (rejections, regarding(request)) else { return false };
        if decision.actions().any(|action| matches!(action, Action::Emit(_))) || chosen(decision).is_some() {
            return false;
        }
        let (event_type, reason) = (EventType::Normal, REASON_VOLUMES_REJECTED);
        self.tell(&Note { regarding, event_type, reason, message: rejections.to_string() });
        true
    }

    /// Tells the user that a write for an object cannot be prepared, or that the API server refuses it for
    /// another reason than a change of the object.
    pub(super) fn report_unwritable(&self, request: &Request, failure: Option<&SyncError>) {
        let message = match failure {
            Some(
                error @ SyncError::Write { error: WriteError::Invalid(_) | WriteError::Forbidden(_), .. },
            ) => format!("the API server refuses to {error}"),
            Some(error @ SyncError::Unwritable(_)) => error.to_string(),
            _ => return,
        };
        self.warn(request, REASON_UNWRITABLE, message);
    }

    /// Emits a warning about the object of a request.
    fn warn(&self, request: &Request, reason: &'static str, message: String) {
        let Some(regarding) = regarding(request) else { return };
        self.tell(&Note { regarding, event_type: EventType::Warning, reason, message });
    }

    /// Emits an event; in observe mode it is only logged.
    fn tell(&self, note: &Note) {
        match self.settings.mode {
            Mode::Own => self.port.emit(note),
            Mode::Observe => tracing::info!(reason = note.reason, note.message, "this would be an event"),
        }
    }
}

/// The object of a request, as events name it; reviews are about objects that need not exist.
fn regarding(request: &Request) -> Option<Regarding> {
    let claim = |target: ClaimTarget| Some(Regarding::Claim(target));
    let volume = |target: VolumeTarget| Some(Regarding::Volume(target));
    match &request.subject {
        Subject::SyncClaim(object) => claim(object.target()),
        Subject::SyncVolume(object) => volume(object.target()),
        Subject::SyncClaimOperation(progress) => claim(progress.object.target()),
        Subject::SyncVolumeOperation(progress) => volume(progress.object.target()),
        Subject::ReviewClaim { .. } | Subject::ReviewVolume { .. } => None,
    }
}
