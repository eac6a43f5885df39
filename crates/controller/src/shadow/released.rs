//! What would have become of released volumes by now, had a reclaimer in shadow been enforced.

use bindery_core::{Fate, Stop, Timestamp, VolumePhase};
use bindery_policy::{Rounds, ShadowReleased};
use bindery_store::Store;

use super::{ShadowPart, Shadowing};

/// Answers of a reclaimer that are kept, at most: what it says does not depend on the time, so it is asked
/// about volumes that look alike once. Each takes some hundred bytes.
const ANSWERS_MAX: usize = 4_096;

impl Shadowing {
    /// Counts the released volumes by what the reclaimer says. It asks the reclaimer on this thread.
    pub(crate) fn count_released(&self, store: &Store, now: Timestamp) {
        let ShadowPart::Reclaim(rule) = &self.shadow.part else { return };
        let (mut rounds, mut fates) = (self.rounds.lock(), ShadowReleased::default());
        for volume in store.volumes() {
            let is_released = matches!(volume.phase, VolumePhase::Released | VolumePhase::Failed);
            if !is_released || volume.claim_ref.is_none() {
                continue;
            }
            if rounds.answers() > ANSWERS_MAX {
                *rounds = Rounds::default();
            }
            let reclaimed = loop {
                match self.policies.reclaimed(store, &volume, now, &mut rounds) {
                    Err(Stop::Judge) => {
                        if rounds.perform(&self.policies.chain, &self.policies.kept).is_err() {
                            break None;
                        }
                    }
                    reclaimed => break reclaimed.ok(),
                }
            };
            let Some(verdict) = reclaimed.map(|it| it.verdict).filter(|it| it.policy == rule.name) else {
                continue;
            };
            *match verdict.fate {
                Fate::ByPolicy => continue,
                Fate::Keep => &mut fates.kept,
                Fate::KeepFor(_) => &mut fates.later,
                Fate::Delete => &mut fates.due,
                Fate::Recycle | Fate::OfferAgain => &mut fates.offered,
            } += 1;
        }
        self.shadow.metrics.set_released(fates);
    }
}
