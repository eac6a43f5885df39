//! Reservations and labels that others remove again and again, and choices that others withdraw: Bindery
//! pauses, and tells the user.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use bindery_core::steer::Reservation;
use bindery_core::{Claim, ClaimKey, Source, Text, Uid, Version, Volume, VolumeAnnotations, VolumeTarget};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Binder;
use crate::Port;

/// How often a volume is reserved for a claim before Bindery pauses.
const RESERVATIONS_MAX: usize = 5;
/// How long it pauses.
pub(super) const PAUSE: Duration = Duration::from_secs(5 * 60);

/// How often a volume is chosen for a claim, or its label put on a volume or removed, before Bindery pauses:
/// a second at first, then twice as long each time, until [`PAUSE`]. Two replicas that both lead for a while
/// may undo each other's choices and labels until their caches agree.
const WRITES_MAX: u32 = 5;
/// The user is told of a pause of this length or more.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// How often volumes were reserved for claims that still wait, and how often other writes were made.
#[derive(Default)]
pub(super) struct Repeats {
    reservations: Mutex<HashMap<ClaimKey, Repeat>>,
    writes: Mutex<AllWrites>,
}

/// Writes of the last [`PAUSE`], and some before.
#[derive(Default)]
struct AllWrites {
    made: HashMap<Repeated, Writes>,
    /// When older writes were last removed.
    pruned: Option<Instant>,
}

/// A write that may be repeated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Repeated {
    /// A volume is chosen for the claim of that UID.
    Choice(ClaimKey, Uid),
    /// The claim's label is put on a volume, for the claim of that UID.
    Label(ClaimKey, Uid, Text),
    /// The claim's label is removed from a volume.
    Unlabel(ClaimKey, Text),
}

impl Repeated {
    fn claim(&self) -> &ClaimKey {
        match self {
            Self::Choice(claim, _) | Self::Label(claim, ..) | Self::Unlabel(claim, _) => claim,
        }
    }
}

/// When a write was made.
struct Writes {
    last: Instant,
    count: u32,
}

impl Writes {
    /// How long after the last write the next one is made.
    fn pause(&self) -> Duration {
        // Doubled 16 times it is longer than the longest pause.
        let doubled = self.count.checked_sub(WRITES_MAX).map(|times| 1_u64 << times.min(16));
        doubled.map_or(Duration::ZERO, |seconds| Duration::from_secs(seconds).min(PAUSE))
    }
}

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
        let mut repeats = self.reservations.lock();
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
        self.reservations.lock().get(claim).map(|repeat| repeat.volume.name.clone())
    }

    /// How long it is until a write may be made again; `None` if it may be now.
    pub(super) fn due(&self, write: &Repeated) -> Option<Duration> {
        let writes = self.writes.lock();
        let made = writes.made.get(write).filter(|made| made.last.elapsed() < PAUSE)?;
        let left = made.pause().saturating_sub(made.last.elapsed());
        (!left.is_zero()).then_some(left)
    }

    /// A write was made.
    pub(super) fn made(&self, write: Repeated) {
        let (mut writes, now) = (self.writes.lock(), Instant::now());
        if *writes.pruned.get_or_insert(now) + PAUSE <= now {
            writes.made.retain(|_, made| made.last.elapsed() < PAUSE);
            writes.pruned = Some(now);
        }
        let made = writes.made.entry(write).or_insert(Writes { last: now, count: 0 });
        let count = if made.last.elapsed() < PAUSE { made.count } else { 0 };
        *made = Writes { last: now, count: count + 1 };
    }

    /// Forgets a write that Bindery itself has undone: making it again does not count as a repetition.
    pub(super) fn undone(&self, write: &Repeated) {
        self.writes.lock().made.remove(write);
    }

    /// How many claims get no reservation or no label for a while.
    pub(super) fn paused(&self) -> usize {
        let is_paused =
            |(_, writes): &(&Repeated, &Writes)| writes.pause() >= LONG && writes.last.elapsed() < PAUSE;
        let writes = self.writes.lock();
        let paused: BTreeSet<_> =
            writes.made.iter().filter(is_paused).map(|(write, _)| write.claim()).collect();
        let reservations = self.reservations.lock();
        paused.len() + reservations.values().filter(|repeat| repeat.pause.is_some()).count()
    }

    /// The claim does not wait any more.
    pub(super) fn forget(&self, claim: &ClaimKey) {
        self.reservations.lock().remove(claim);
    }

    /// This replica does not lead any more.
    pub(super) fn clear(&self) {
        self.reservations.lock().clear();
        *self.writes.lock() = AllWrites::default();
    }
}

impl<P: Port> Binder<P> {
    /// How much longer nothing is reserved for a claim, because its reservations were removed again and
    /// again. The user is told when the pause begins. It ends early when the claim or the volume changes
    /// otherwise.
    pub(super) fn pause_left(&self, claim: &Claim) -> Option<Duration> {
        let mut repeats = self.repeats.reservations.lock();
        let repeat = repeats.get_mut(&claim.key)?;
        if repeat.claim != claim.uid || repeat.count < RESERVATIONS_MAX {
            return None;
        }
        let volume = self.store.volume(Source::Overlay, &repeat.volume.name).found();
        let volume = volume.map(|volume| without_reservation(&volume));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_pause_after_a_thousand_writes_is_the_longest() {
        let (repeats, write) = (Repeats::default(), Repeated::Unlabel(ClaimKey::new("ns", "c"), "v".into()));
        (0..1_000).for_each(|_| repeats.made(write.clone()));
        assert_eq!(repeats.due(&write), Some(PAUSE));
    }
}
