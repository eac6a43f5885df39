//! What would have become of released volumes by now, had a reclaimer in shadow been enforced.

use std::time::{Duration, Instant};

use bindery_core::{Fate, Stop, Text, Timestamp, VolumePhase};
use bindery_policy::{Rounds, ShadowReleased};
use bindery_store::Store;

use super::{ShadowPart, Shadowing};

/// Answers of a reclaimer that are kept, at most: what it says does not depend on the time, so it is asked
/// about volumes that look alike once. Each takes some hundred bytes.
const ANSWERS_MAX: usize = 4_096;

/// A count of released volumes, which may take several calls.
#[derive(Default)]
pub(crate) struct Counting {
    /// What the reclaimer has answered.
    rounds: Rounds,
    /// The name of the last volume that is counted. Volumes are counted in the order of their names.
    last: Option<Text>,
    /// The counts so far.
    fates: ShadowReleased,
}

impl Shadowing {
    /// Goes on to count the released volumes of the shadow's share by what the reclaimer says. It asks the
    /// reclaimer on this thread until `time` is over, at least about one volume. When all volumes are
    /// counted, the counts are set, and the next call begins anew.
    pub(crate) fn count_released(&self, store: &Store, now: Timestamp, time: Duration) {
        let ShadowPart::Reclaim(rule) = &self.shadow.part else { return };
        let (mut counting, begun) = (self.counting.lock(), Instant::now());
        let Counting { rounds, last, fates } = &mut *counting;
        let mut volumes = store.volumes();
        volumes.retain(|volume| {
            let is_released = matches!(volume.phase, VolumePhase::Released | VolumePhase::Failed);
            let is_left = || last.as_ref().is_none_or(|last| volume.name > *last);
            is_released && volume.claim_ref.is_some() && is_left() && self.shadow.samples(&volume.uid)
        });
        volumes.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        for (counted, volume) in volumes.iter().enumerate() {
            if counted > 0 && begun.elapsed() >= time {
                return;
            }
            *last = Some(volume.name.clone());
            if rounds.answers() > ANSWERS_MAX {
                *rounds = Rounds::default();
            }
            let reclaimed = loop {
                match self.policies.reclaimed(store, volume, now, rounds) {
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
        *last = None;
        self.shadow.metrics.set_released(std::mem::take(fates));
    }
}
