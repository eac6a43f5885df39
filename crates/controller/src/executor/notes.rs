//! What is noted on volumes for reclaimers: facts of the bound claim, and the reclaim policy before a
//! reclaimer set another one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bindery_core::{
    Action, CLAIM_FACTS, Claim, ClaimKey, ClaimTarget, Edit, FinalizerEdit, RECLAIM_POLICY_BEFORE,
    ReclaimPolicy, Source, Text, Volume, VolumeFact, VolumePhase, VolumeTarget,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Executor, KnownObjects};
use crate::decider::note;
use crate::{Port, SyncError, Write};

/// Time between two writes that only note facts of a claim: 20 in a second, so that a reclaimer that is
/// loaded into a large cluster does not fill the API server.
const BETWEEN_NOTES: Duration = Duration::from_millis(50);

/// An annotation and its new value; `None` removes it.
pub(super) type Annotation = (&'static str, Option<Text>);

/// The times at which volumes get their notes.
#[derive(Default)]
pub(crate) struct NoteTimes {
    inner: Mutex<Times>,
}

#[derive(Default)]
struct Times {
    last: Option<Instant>,
    waiting: HashMap<Text, Instant>,
}

impl NoteTimes {
    /// How long the note of a volume has to wait.
    fn wait(&self, volume: &Text) -> Duration {
        let (now, mut times) = (Instant::now(), self.inner.lock());
        // Volumes that were deleted while they waited are forgotten.
        if times.last.is_none_or(|last| last < now) {
            times.waiting.retain(|waiting, _| waiting == volume);
        }
        let at = match times.waiting.get(volume) {
            Some(at) => *at,
            None => {
                let at = times.last.map_or(now, |last| now.max(last + BETWEEN_NOTES));
                times.last = Some(at);
                at
            }
        };
        if at <= now {
            times.waiting.remove(volume);
        } else {
            times.waiting.insert(volume.clone(), at);
        }
        at - now
    }
}

impl<P: Port> Executor<P> {
    /// The annotations that a write of a volume carries for reclaimers, and the reclaim policy that the
    /// volume gets back.
    pub(super) fn notes(
        &self,
        action: &Action,
        known: &KnownObjects,
    ) -> (Vec<Annotation>, Option<ReclaimPolicy>) {
        let reclaims = self.policies.get().reclaims();
        let annotations = match action {
            Action::ReserveVolume { volume, claim, .. } if reclaims => {
                self.volume(volume, known).map(|volume| self.notes_of_reservation(&volume, claim))
            }
            Action::SetReclaimPolicy { volume, policy } => {
                self.volume(volume, known).and_then(|volume| self.notes_of_policy(&volume, *policy))
            }
            // Also after the reclaimers were taken away.
            Action::UnbindVolume { volume, .. } => {
                let volume = self.volume(volume, known);
                let policy = volume.as_ref().and_then(|volume| volume.policy_before());
                return (volume.map(|volume| removed(&volume)).unwrap_or_default(), policy);
            }
            _ => None,
        };
        (annotations.unwrap_or_default(), None)
    }

    fn notes_of_reservation(&self, volume: &Volume, claim: &ClaimTarget) -> Vec<Annotation> {
        let known = self.claim(&claim.key).filter(|known| known.uid == claim.uid);
        let note = known.and_then(|claim| self.note(&claim, volume));
        // The new claim inherits nothing.
        let mut annotations = removed(volume);
        annotations.retain(|(key, _)| *key != CLAIM_FACTS || note.is_none());
        annotations.extend(note.map(|note| (CLAIM_FACTS, Some(note))));
        annotations
    }

    fn notes_of_policy(&self, volume: &Volume, policy: ReclaimPolicy) -> Option<Vec<Annotation>> {
        let claim_ref = volume.claim_ref.as_ref()?;
        let before = volume.noted_with(policy);
        let last = self.store.last_claim(claim_ref);
        let facts = last.map(|claim| (CLAIM_FACTS, self.note(&claim, volume)));
        Some(facts.into_iter().chain([(RECLAIM_POLICY_BEFORE, before)]).collect())
    }

    /// Notes what reclaimers read of the claim that a volume is bound to, if the volume has no such note or
    /// an older one. Returns how long that has to wait.
    pub(crate) async fn keep_note(&self, volume: &Volume) -> Result<Option<Duration>, SyncError> {
        let Some(note) = self.missing_note(volume) else { return Ok(None) };
        let wait = self.note_times.wait(&volume.name);
        if !wait.is_zero() {
            return Ok(Some(wait));
        }
        self.write(&note_write(volume, note)).await.map(|_| None)
    }

    /// The write that precedes the release of a volume, where the volume has not noted the last state of its
    /// claim: after a restart nothing else is known of the claim.
    pub(super) fn note_before(&self, action: &Action, known: &KnownObjects) -> Option<Write<P::Template>> {
        let Action::SetVolumePhase { volume, phase: VolumePhase::Released, .. } = action else { return None };
        if !self.policies.get().reclaims() {
            return None;
        }
        let volume = known.volume(volume)?;
        let last = self.store.last_claim(volume.claim_ref.as_ref()?)?;
        let note = self.note(&last, volume);
        (noted(volume) != note.as_ref()).then(|| note_write(volume, note))
    }

    /// The note of the bound claim, where the volume has another one.
    fn missing_note(&self, volume: &Volume) -> Option<Option<Text>> {
        if !self.policies.get().reclaims() {
            return None;
        }
        let claim_ref = volume.claim_ref.as_ref()?;
        let claim = self.claim(&claim_ref.claim_key())?;
        let is_bound =
            claim_ref.uid.as_ref() == Some(&claim.uid) && claim.volume_name.as_ref() == Some(&volume.name);
        let note = self.note(&claim, volume);
        (is_bound && noted(volume) != note.as_ref()).then_some(note)
    }

    /// The volume in the version that a write to this target names. The cache may have an older one than the
    /// decision, which may have read the volume live, and then its annotations may be about another claim.
    fn volume(&self, target: &VolumeTarget, known: &KnownObjects) -> Option<Arc<Volume>> {
        known.volume(target).cloned().or_else(|| {
            // A decision that only identified the volume.
            let volume = self.store.volume(Source::Overlay, &target.name).found();
            volume.filter(|volume| volume.target() == *target)
        })
    }

    fn claim(&self, key: &ClaimKey) -> Option<Arc<Claim>> {
        self.store.claim(Source::Overlay, key).found()
    }

    fn note(&self, claim: &Claim, volume: &Volume) -> Option<Text> {
        note(&self.policies.get().chain, &self.store, claim, volume)
    }
}

/// The annotations for reclaimers that a volume has, to be removed.
fn removed(volume: &Volume) -> Vec<Annotation> {
    let facts = noted(volume).map(|_| (CLAIM_FACTS, None));
    // A person's word stays.
    let policy = volume.noted_policy().filter(|noted| noted.contains(' '));
    facts.into_iter().chain(policy.map(|_| (RECLAIM_POLICY_BEFORE, None))).collect()
}

fn note_write<T>(volume: &Volume, note: Option<Text>) -> Write<T> {
    let action = Action::AnnotateVolume {
        volume: volume.target(),
        migrated_to: Edit::Keep,
        in_tree_finalizer: FinalizerEdit::Keep,
        external_finalizer: FinalizerEdit::Keep,
    };
    Write { annotations: vec![(CLAIM_FACTS, note)], ..Write::from(action) }
}

fn noted(volume: &Volume) -> Option<&Text> {
    volume.facts.get(&VolumeFact::Annotation(CLAIM_FACTS.into()))
}
