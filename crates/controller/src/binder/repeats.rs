//! Reservations of mode steer that others remove again and again: Bindery pauses, and tells the user.

use std::collections::HashMap;
use std::time::Duration;

use bindery_core::steer::Reservation;
use bindery_core::{
    Claim, ClaimKey, Lookup, Source, Text, Uid, Version, Volume, VolumeAnnotations, VolumeTarget,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Binder;
use crate::Port;

/// How often a volume is reserved for a claim before Bindery pauses.
const RESERVATIONS_MAX: usize = 5;
/// How long it pauses.
pub(super) const PAUSE: Duration = Duration::from_secs(5 * 60);

/// How often volumes were reserved for claims that still wait.
#[derive(Default)]
pub(super) struct Repeats(Mutex<HashMap<ClaimKey, Repeat>>);

struct Repeat {
    claim: Uid,
    volume: VolumeTarget,
    count: usize,
    pause: Option<Pause>,
}

/// A pause, with the objects at its begin, except for what reservations change.
struct Pause {
    since: Instant,
    claim: Claim,
    volume: Option<Volume>,
}

impl Repeats {
    /// A volume was reserved for a claim.
    pub(super) fn reserved(&self, reservation: &Reservation, volume: &VolumeTarget) {
        let mut repeats = self.0.lock();
        let begun =
            || Repeat { claim: reservation.uid.clone(), volume: volume.clone(), count: 0, pause: None };
        let repeat = repeats.entry(reservation.claim.clone()).or_insert_with(begun);
        if repeat.claim != reservation.uid || repeat.volume.uid != volume.uid {
            *repeat = begun();
        }
        repeat.count += 1;
    }

    /// The volume that was reserved last for a claim that waits.
    pub(super) fn volume(&self, claim: &ClaimKey) -> Option<Text> {
        self.0.lock().get(claim).map(|repeat| repeat.volume.name.clone())
    }

    /// How many claims get no reservation for a while.
    pub(super) fn paused(&self) -> usize {
        self.0.lock().values().filter(|repeat| repeat.pause.is_some()).count()
    }

    /// The claim does not wait any more.
    pub(super) fn forget(&self, claim: &ClaimKey) {
        self.0.lock().remove(claim);
    }

    /// This replica leads no more.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }
}

impl<P: Port> Binder<P> {
    /// How much longer nothing is reserved for a claim, because its reservations were removed again and
    /// again. The user is told when the pause begins. It ends early when the claim or the volume changes
    /// otherwise.
    pub(super) fn pause_left(&self, claim: &Claim) -> Option<Duration> {
        let mut repeats = self.repeats.0.lock();
        let repeat = repeats.get_mut(&claim.key)?;
        if repeat.claim != claim.uid || repeat.count < RESERVATIONS_MAX {
            return None;
        }
        let volume = match self.store.volume(Source::Overlay, &repeat.volume.name) {
            Lookup::Found(volume) => Some(without_reservation(&volume)),
            _ => None,
        };
        let now = Pause { since: Instant::now(), claim: without_choice(claim), volume };
        let pause = repeat.pause.get_or_insert_with(|| {
            self.report_removed(claim, &repeat.volume.name, repeat.count);
            Pause { since: now.since, claim: now.claim.clone(), volume: now.volume.clone() }
        });
        let left = (pause.since + PAUSE).saturating_duration_since(now.since);
        if left.is_zero() || pause.claim != now.claim || pause.volume != now.volume {
            repeats.remove(&claim.key);
            return None;
        }
        Some(left)
    }
}

/// The claim without what changes when its choice is made or removed.
fn without_choice(claim: &Claim) -> Claim {
    Claim { version: Version("".into()), choice: None, ..claim.clone() }
}

/// The volume without what changes when it is reserved for a claim or freed.
fn without_reservation(volume: &Volume) -> Volume {
    let annotations = VolumeAnnotations { reserved_for: None, fence: None, ..volume.annotations.clone() };
    Volume { version: Version("".into()), claim_ref: None, annotations, ..volume.clone() }
}
