//! Reservations that may have been made, because the API server gave no answer.

use std::collections::HashMap;
use std::time::Duration;

use bindery_core::{
    Action, ClaimKey, ClaimTarget, Decision, Lookup, Request, Source, Subject, Text, Uid, Volume,
    VolumeTarget,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Executor;
use crate::decider::Unsound;
use crate::{Port, Purpose, SyncError, WriteError, Written};

/// The API server may carry out a request for this long: the default of its `--request-timeout`.
const CARRIED_OUT_WITHIN: Duration = Duration::from_secs(60);

/// For each claim the volume that may be reserved for it, until the result of the write is known.
///
/// Meanwhile the claim gets no other volume. If it got one and were deleted before the first volume is given
/// back, both would be Released, and the first one kept from other claims or deleted although no claim has
/// used it. Upstream's binder does that.
#[derive(Default)]
pub(crate) struct Unanswered(Mutex<HashMap<ClaimKey, Sent>>);

struct Sent {
    claim: Uid,
    volume: VolumeTarget,
    at: Instant,
}

impl Unanswered {
    /// Takes note of the result of a reservation that was sent at that time.
    pub(super) fn reserved<T>(
        &self,
        claim: &ClaimTarget,
        volume: &VolumeTarget,
        at: Instant,
        result: &Result<T, SyncError>,
    ) {
        let mut inner = self.0.lock();
        match result {
            Ok(_) => drop(inner.remove(&claim.key)),
            Err(SyncError::Write { error, .. }) if may_be_made(error) => {
                // Only before the map grows, so that a storm of failures costs little.
                if inner.len() == inner.capacity() {
                    inner.retain(|_, sent| sent.is_open());
                }
                let sent = Sent { claim: claim.uid.clone(), volume: volume.clone(), at };
                inner.insert(claim.key.clone(), sent);
            }
            Err(_) => {}
        }
    }

    /// The volume that may be reserved for this claim.
    fn volume(&self, claim: &ClaimTarget) -> Option<VolumeTarget> {
        let inner = self.0.lock();
        let sent = inner.get(&claim.key).filter(|sent| sent.claim == claim.uid && sent.is_open());
        sent.map(|sent| sent.volume.clone())
    }

    /// It is known what became of the reservation: the claim is decided again.
    fn known(&self, claim: &ClaimKey, volume: &VolumeTarget) -> Unsound {
        self.0.lock().remove(claim);
        Unsound::Changed(format!("it is known whether volume {:?} is reserved", volume.name))
    }
}

impl Sent {
    fn is_open(&self) -> bool {
        self.at.elapsed() < CARRIED_OUT_WITHIN
    }
}

impl<P: Port> Executor<P> {
    /// Refuses a decision that gives its claim another volume than the one that may be reserved for it. A live
    /// read shows whether that volume is reserved.
    pub(crate) async fn check_unanswered(
        &self,
        request: &Request,
        decision: &Decision,
    ) -> Result<(), Unsound> {
        let Subject::SyncClaim(claim) = &request.subject else { return Ok(()) };
        let Some(sent) = self.unanswered.volume(&claim.target()) else { return Ok(()) };
        if !gives_another(decision, &sent.name) {
            return Ok(());
        }
        let is_as_sent = |volume: &Volume| volume.target() == sent;
        let cached = self.store.volume(Source::Overlay, &sent.name);
        if !matches!(&cached, Lookup::Found(volume) if is_as_sent(volume)) {
            return Err(self.unanswered.known(&claim.key, &sent));
        }
        let why = match self.port.read_volume(&sent.name, Purpose::Guard).await {
            Lookup::Found(volume) if is_as_sent(&volume) => "the write may still be carried out".into(),
            Lookup::Failed(why) => why,
            known => {
                if let Lookup::Found(volume) = known {
                    self.lay(&Written::Volume(volume));
                }
                return Err(self.unanswered.known(&claim.key, &sent));
            }
        };
        let why = format!("volume {:?} may be reserved for the claim already: {why}", sent.name);
        Err(Unsound::Final(SyncError::Unproven(why)))
    }
}

/// Whether the write may have been carried out, or may yet be.
fn may_be_made(error: &WriteError) -> bool {
    matches!(error, WriteError::Unreadable(_) | WriteError::Broken { .. } | WriteError::Failed(_))
}

/// Whether a decision about a claim gives it another volume than this one, or has one provisioned.
fn gives_another(decision: &Decision, name: &Text) -> bool {
    let provisions = decision.actions().any(|action| matches!(action, Action::StartOperation(_)));
    provisions || decision.chosen().is_some_and(|chosen| chosen != name)
}
