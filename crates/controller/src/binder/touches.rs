//! When claims whose volumes are reserved are touched, so that upstream looks at them.

use std::collections::HashMap;
use std::time::Duration;

use bindery_core::{ClaimKey, Uid};
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long upstream gets to bind a claim before the first touch and after each. Different workers fill its
/// caches of claims and of volumes, so that at the first touch it may not know the reservation yet. After the
/// last one it looks at the claim in its next resync.
const PAUSES: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(250), Duration::from_millis(750), Duration::from_secs(3)];
/// While fewer claims wait for upstream, a claim is touched as soon as its volume is reserved. Upstream binds
/// one claim after the other, and when it comes to those behind it sees their reservations. So these are
/// touched only when it rests or has passed them over: touches cost the API server time, and make binds of
/// that moment fail.
const AT_ONCE: usize = 32;
/// Upstream has passed a claim over if it has bound one whose volume was reserved so much later. Volumes are
/// not reserved exactly in the order in which upstream looks at their claims.
pub(super) const PASSED_OVER: Duration = Duration::from_secs(2);
/// For each claim that waits for upstream, the others' next turns come that much later, so that these turns
/// are at most a thousand in a second.
const SPREAD: Duration = Duration::from_millis(1);
/// A claim that upstream has not bound so long after its volume was reserved is overdue: twice upstream's
/// resync.
const OVERDUE: Duration = Duration::from_secs(30);

/// Claims whose volumes are reserved and that upstream has not bound yet.
#[derive(Default)]
pub(super) struct Touches(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    claims: HashMap<ClaimKey, Touched>,
    /// When upstream has last bound one, and the latest [`Touched::reserved`] of all that it has bound.
    bound: Option<(Instant, Instant)>,
}

struct Touched {
    uid: Uid,
    /// When the volume was reserved. A touch changes nothing of a claim's place in upstream's queue.
    reserved: Instant,
    /// When the volume was reserved, or the claim last touched.
    since: Instant,
    count: usize,
}

impl Touches {
    /// How long it is until a claim's next touch may be due. Zero if it is, which counts as a touch; `None`
    /// if the claim was touched often enough.
    pub(super) fn due(&self, claim: &ClaimKey, uid: &Uid) -> Option<Duration> {
        let (mut waiting, now) = (self.0.lock(), Instant::now());
        if waiting.claims.get(claim).is_some_and(|touched| touched.uid != *uid) {
            waiting.claims.remove(claim);
        }
        let Waiting { claims, bound } = &mut *waiting;
        let known = claims.len();
        let begun = || Touched { uid: uid.clone(), reserved: now, since: now, count: 0 };
        let Touched { since, count, .. } = claims.entry(claim.clone()).or_insert_with(begun);
        let pause = *PAUSES.get(*count)?;
        let pause = if known < AT_ONCE { pause } else { pause.max(PAUSES[1]) };
        // While upstream binds others it may only be late, unless it has passed this one over.
        let begin = match *bound {
            Some((at, latest)) if !pause.is_zero() && latest <= *since + pause.max(PASSED_OVER) => {
                at.max(*since)
            }
            Some(_) | None => *since,
        };
        let left = (begin + pause).saturating_duration_since(now);
        if !left.is_zero() {
            return Some(left + SPREAD * u32::try_from(known).unwrap_or(u32::MAX));
        }
        (*since, *count) = (now, *count + 1);
        Some(Duration::ZERO)
    }

    /// How long it is until the claim is overdue.
    pub(super) fn until_overdue(&self, claim: &ClaimKey) -> Option<Duration> {
        let reserved = self.0.lock().claims.get(claim)?.reserved;
        Some((reserved + OVERDUE).saturating_duration_since(Instant::now()))
    }

    /// How many claims are overdue.
    pub(super) fn overdue(&self) -> usize {
        let waiting = self.0.lock();
        waiting.claims.values().filter(|touched| touched.reserved.elapsed() >= OVERDUE).count()
    }

    /// The claim has no reserved volume that upstream has still to bind: it is bound, or no longer has one.
    pub(super) fn forget(&self, claim: &ClaimKey, is_bound: bool) {
        let mut waiting = self.0.lock();
        if let Some(Touched { reserved, .. }) = waiting.claims.remove(claim)
            && is_bound
        {
            let latest = waiting.bound.map_or(reserved, |(_, latest)| latest.max(reserved));
            waiting.bound = Some((Instant::now(), latest));
        }
    }

    /// Whether upstream binds claims at present, and more of them wait.
    pub(super) fn is_busy(&self) -> bool {
        let waiting = self.0.lock();
        let binds = |(at, _): (Instant, _)| at.elapsed() < PASSED_OVER;
        !waiting.claims.is_empty() && waiting.bound.is_some_and(binds)
    }

    /// This replica does not lead any more.
    pub(super) fn clear(&self) {
        *self.0.lock() = Waiting::default();
    }
}
