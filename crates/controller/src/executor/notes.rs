//! What is noted on volumes for reclaimers: facts of the bound claim, and the reclaim policy before a reclaimer
//! set another one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bindery_core::{
    Action, CLAIM_FACTS, Claim, ClaimKey, Edit, FinalizerEdit, Lookup, RECLAIM_POLICY_BEFORE, ReclaimPolicy,
    Source, Text, Volume, VolumeFact,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Executor;
use crate::decider::note;
use crate::{Port, SyncError, Write};

/// Time between two writes that only note facts of a claim: 20 in a second, so that a reclaimer that is loaded
/// into a large cluster does not fill the API server.
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
    /// The annotations that a write of a volume carries for reclaimers.
    pub(super) fn notes(&self, action: &Action) -> Vec<Annotation> {
        if self.configuration.policies.reclaimers().is_empty() {
            return Vec::new();
        }
        let volume = |name: &Text| match self.store.volume(Source::Overlay, name) {
            Lookup::Found(volume) => Some(volume),
            _ => None,
        };
        match action {
            Action::ReserveVolume { volume: target, claim, .. } => {
                let facts = self.claim(&claim.key).filter(|known| known.uid == claim.uid);
                let mut notes = vec![(CLAIM_FACTS, facts.and_then(|claim| self.note(&claim)))];
                // The new claim inherits nothing.
                if volume(&target.name).is_some_and(|volume| volume.policy_before().is_some()) {
                    notes.push((RECLAIM_POLICY_BEFORE, None));
                }
                notes
            }
            Action::SetReclaimPolicy { volume: target, policy } => {
                let Some(volume) = volume(&target.name) else { return Vec::new() };
                let before = (*policy == ReclaimPolicy::Retain).then(|| volume.policy.name().into());
                let last = volume.claim_ref.as_ref().and_then(|claim_ref| self.store.last_claim(claim_ref));
                let facts = last.map(|claim| (CLAIM_FACTS, self.note(&claim)));
                facts.into_iter().chain([(RECLAIM_POLICY_BEFORE, before)]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Notes what reclaimers read of the claim that a volume is bound to, if the volume has no such note or an
    /// older one. Returns how long that has to wait.
    pub(crate) async fn keep_note(&self, volume: &Volume) -> Result<Option<Duration>, SyncError> {
        let Some(note) = self.missing_note(volume) else { return Ok(None) };
        let wait = self.note_times.wait(&volume.name);
        if !wait.is_zero() {
            return Ok(Some(wait));
        }
        let action = Action::AnnotateVolume {
            volume: volume.target(),
            migrated_to: Edit::Keep,
            in_tree_finalizer: FinalizerEdit::Keep,
            external_finalizer: FinalizerEdit::Keep,
        };
        let write = Write { annotations: vec![(CLAIM_FACTS, note)], ..Write::from(action) };
        self.write(&write).await.map(|_| None)
    }

    /// The note of the bound claim, where the volume has another one.
    fn missing_note(&self, volume: &Volume) -> Option<Option<Text>> {
        if self.configuration.policies.reclaimers().is_empty() {
            return None;
        }
        let claim = self.claim(&volume.claim_ref.as_ref()?.claim_key())?;
        let is_bound = volume.is_bound_to(&claim) && claim.volume_name.as_ref() == Some(&volume.name);
        let note = self.note(&claim);
        let noted = volume.facts.get(&VolumeFact::Annotation(CLAIM_FACTS.into()));
        (is_bound && noted != note.as_ref()).then_some(note)
    }

    fn claim(&self, key: &ClaimKey) -> Option<Arc<Claim>> {
        match self.store.claim(Source::Overlay, key) {
            Lookup::Found(claim) => Some(claim),
            _ => None,
        }
    }

    fn note(&self, claim: &Claim) -> Option<Text> {
        note(&self.configuration.policies, &self.store, claim)
    }
}
