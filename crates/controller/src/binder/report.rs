//! Events of the binder itself: about objects that cannot be read, decisions that the guard refuses, and
//! writes that the API server refuses.

use std::sync::Arc;

use bindery_core::steer::CHOICE;
use bindery_core::{
    Action, Claim, ClaimKey, ClaimTarget, Decision, Event, EventKind, EventType, Key, Lookup, Regarding,
    Request, Source, Text, Volume, VolumeTarget,
};
use bindery_policy::{Rejections, Unscored};
use tracing::Span;

use super::repeats::PAUSE;
use super::{Binder, Mode};
use crate::note::{
    REASON_OVERDUE, REASON_POLICY_FAILED, REASON_REFUSED, REASON_REMOVED, REASON_STUCK, REASON_UNFIT,
    REASON_UNWRITABLE, REASON_VOLUMES_REJECTED, REASON_VOLUMES_UNSCORED,
};
use crate::{Note, Port, SyncError, WriteError};

impl<P: Port> Binder<P> {
    /// The span of a sync: log lines of the sync carry the object and its UID.
    pub(super) fn span(&self, key: &Key) -> Span {
        tracing::error_span!("sync", object = %key, uid = self.uid(key).as_deref())
    }

    fn uid(&self, key: &Key) -> Option<Text> {
        let uid = match key {
            Key::Claim(key) => match self.store.claim(Source::Overlay, key) {
                Lookup::Found(claim) => claim.uid.clone(),
                _ => {
                    let unreadable = self.unreadable_claim(key).map(|regarding| regarding.uid().0.clone());
                    return unreadable.or_else(|| self.reserved_uid(key));
                }
            },
            Key::Volume(name) => match self.store.volume(Source::Overlay, name) {
                Lookup::Found(volume) => volume.uid.clone(),
                _ => return self.unreadable_volume(name).map(|regarding| regarding.uid().0.clone()),
            },
        };
        Some(uid.0)
    }

    /// The UID of a claim that is gone, from a reservation for it.
    fn reserved_uid(&self, key: &ClaimKey) -> Option<Text> {
        let naming = self.store.volumes_naming(key);
        naming.iter().find_map(|volume| Some(volume.annotations.reserved_for.as_ref()?.uid.0.clone()))
    }

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
        tracing::warn!(reason = %why, "an object cannot be read");
        if let Some(regarding) = regarding {
            self.tell(&Note::from(&Event { regarding, kind: EventKind::Unreadable(why) }));
        }
    }

    /// Tells the user that the guard refused a decision about an object, or a write that steers it.
    pub(super) fn report_refusal(&self, request: &Request, why: &str) {
        self.metrics.refusals.inc();
        self.warn(request, REASON_REFUSED, why.to_owned());
    }

    /// Tells the user, once in a while, that a claim waits because a policy gives no answer.
    pub(super) fn report_policy(&self, request: &Request, policy: &str, error: &SyncError) {
        self.decider.policies.get().count_wait(policy);
        let Some(regarding) = request.subject.event_object() else { return };
        let (key, message) = (request.subject.key(), error.to_string());
        if self.stuck.is_due(&key, (regarding.uid(), &message), self.settings.event_refresh) {
            self.warn(request, REASON_POLICY_FAILED, message);
        }
    }

    /// Tells the user that a claim waits for a volume that its policies allow, where no event of the decision
    /// says so. Returns whether it did.
    pub(super) fn report_rejections(
        &self,
        request: &Request,
        decision: &Decision,
        rejections: Option<&Rejections>,
    ) -> bool {
        let (Some(rejections), Some(regarding)) = (rejections, request.subject.event_object()) else {
            return false;
        };
        // In mode steer upstream emits the events of decisions, and knows no policy.
        let is_told = self.settings.mode != Mode::Steer
            && decision.actions().any(|action| matches!(action, Action::Emit(_)));
        if is_told || decision.chosen().is_some() {
            return false;
        }
        self.tell_rejections(regarding, rejections);
        true
    }

    /// Tells the user that a claim waits for a volume that its policies allow.
    pub(super) fn tell_rejections(&self, regarding: Regarding, rejections: &Rejections) {
        let (event_type, reason) = (EventType::Normal, REASON_VOLUMES_REJECTED);
        self.tell(&Note { regarding, event_type, reason, message: rejections.to_string() });
    }

    /// Tells the user, and counts, that a claim gets a volume although its policies have not looked at all.
    pub(super) fn report_unscored(
        &self,
        request: &Request,
        decision: &Decision,
        unscored: Option<&Unscored>,
    ) {
        let (Some(unscored), Some(regarding)) = (unscored, request.subject.event_object()) else { return };
        if decision.chosen().is_none() {
            return;
        }
        self.decider.policies.get().count_unscored(&unscored.policy);
        let (event_type, reason) = (EventType::Normal, REASON_VOLUMES_UNSCORED);
        self.tell(&Note { regarding, event_type, reason, message: unscored.to_string() });
    }

    /// Tells the user that a write for an object cannot be prepared, or that the API server refuses it for
    /// another reason than a change of the object.
    pub(super) fn report_unwritable(&self, request: &Request, failure: Option<&SyncError>) {
        let message = match failure {
            Some(error) if error.is_refused_write() => format!("the API server refuses to {error}"),
            Some(error @ SyncError::Unwritable(_)) => error.to_string(),
            _ => return,
        };
        self.warn(request, REASON_UNWRITABLE, message);
    }

    /// Tells the user, once in a while, that the sync of an object keeps failing at a write or a read that
    /// the API server does not refuse. It may concern this object alone, as where a webhook for it is down.
    pub(super) fn report_stuck(&self, key: &Key, error: &SyncError) {
        let is_fault = matches!(
            error,
            SyncError::Unproven(_) | SyncError::Write { error: WriteError::Broken { .. }, .. }
        );
        if !is_fault {
            return;
        }
        let regarding = match key {
            Key::Claim(key) => {
                self.store.claim(Source::Overlay, key).found().map(|claim| Regarding::Claim(claim.target()))
            }
            Key::Volume(name) => self
                .store
                .volume(Source::Overlay, name)
                .found()
                .map(|volume| Regarding::Volume(volume.target())),
        };
        let Some(regarding) = regarding else { return };
        if self.stuck.is_due(key, (regarding.uid(), REASON_STUCK), self.settings.event_refresh) {
            let message = format!("this keeps failing, and is tried again: {error}");
            let (event_type, reason) = (EventType::Warning, REASON_STUCK);
            self.tell(&Note { regarding, event_type, reason, message });
        }
    }

    /// Tells the user of a claim that the guard or the API server refuses a write that steers it.
    pub(super) fn report_refused_write(&self, claim: &ClaimKey, error: &SyncError) {
        let Some(request) = self.request(&Key::Claim(claim.clone())) else { return };
        match error {
            SyncError::Refused(why) => self.report_refusal(&request, why),
            error => self.report_unwritable(&request, Some(error)),
        }
    }

    /// Tells the user that upstream has not carried out a reservation of Bindery.
    pub(super) fn report_overdue(&self, claim: ClaimTarget, naming: &[Arc<Volume>]) {
        let volume = naming.iter().find(|volume| volume.reservation().is_some());
        let message = format!(
            "volume {} is reserved for it, and upstream's binder has not bound it for half a minute: see \
             that kube-controller-manager runs, with its persistentvolume-binder-controller",
            volume.map(|volume| &*volume.name).unwrap_or_default()
        );
        self.warn_claim(claim, REASON_OVERDUE, message);
    }

    /// Tells the user that Bindery pauses because its reservations of a volume do not stay.
    pub(super) fn report_removed(&self, claim: &Claim, volume: &str, count: usize) {
        let message = format!(
            "volume {volume} was reserved for it {count} times, and each time spec.claimRef of the volume or \
             the annotation {CHOICE} of the claim was removed: have the tool that manages them leave both \
             alone. Bindery tries again in {} minutes, or when the claim or the volume changes otherwise",
            PAUSE.as_secs() / 60
        );
        self.warn_claim(claim.target(), REASON_REMOVED, message);
    }

    /// Tells the user that Bindery pauses because its label of a volume does not stay.
    pub(super) fn report_unlabelled(&self, claim: &Claim, volume: &str) {
        let message = format!(
            "the label of the claim was put on volume {volume} again and again, and each time removed: have \
             the tool that manages the volume leave labels of steer.bindery.dev alone. Bindery tries again \
             within {} minutes",
            PAUSE.as_secs() / 60
        );
        self.warn_claim(claim.target(), REASON_REMOVED, message);
    }

    /// Tells the user that a volume is reserved for a claim that cannot have it. Returns whether it did.
    pub(super) fn report_unfit(&self, claim: &Claim, naming: &[Arc<Volume>]) -> bool {
        let Some(volume) = naming.iter().find(|volume| volume.is_bound_to(claim)) else { return false };
        let obstacles = self.store.obstacles(claim, &volume.name).unwrap_or_default();
        let why: Vec<_> = obstacles.iter().map(ToString::to_string).collect();
        if why.is_empty() {
            return false;
        }
        let message = format!(
            "spec.claimRef of volume {} names it, so it gets no other, and it cannot be bound to that one: \
             {}. Remove the claimRef",
            volume.name,
            why.join("; ")
        );
        self.warn_claim(claim.target(), REASON_UNFIT, message);
        true
    }

    /// Emits a warning about the object of a request.
    fn warn(&self, request: &Request, reason: &'static str, message: String) {
        let Some(regarding) = request.subject.event_object() else { return };
        self.tell(&Note { regarding, event_type: EventType::Warning, reason, message });
    }

    fn warn_claim(&self, claim: ClaimTarget, reason: &'static str, message: String) {
        let (regarding, event_type) = (Regarding::Claim(claim), EventType::Warning);
        self.tell(&Note { regarding, event_type, reason, message });
    }

    /// Emits an event; in observe mode it is only logged.
    fn tell(&self, note: &Note) {
        match self.settings.mode {
            Mode::Own | Mode::Steer => self.port.emit(note),
            Mode::Observe => tracing::info!(reason = note.reason, note.message, "this would be an event"),
        }
    }
}
