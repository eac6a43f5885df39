//! Reservations that may have been made, although the API server has not said so.

use std::collections::HashMap;

use bindery_core::{
    Action, ClaimKey, ClaimTarget, Decision, Key, Lookup, Request, Source, Subject, Uid, VolumeTarget,
};
use bindery_store::Store;
use parking_lot::Mutex;

use super::Binder;
use crate::decider::{Proofs, Unsound};
use crate::{Port, SyncError, WriteError, Written};

/// For each claim the volume that may be reserved for it. Before another one is reserved for the claim, a
/// live read shows what became of the first one.
///
/// If a claim gets two volumes, and is deleted before the first one is given back, both are Released. Then
/// the first one is kept from other claims, or deleted, although no claim has used it. Upstream's binder does
/// that.
#[derive(Default)]
pub(crate) struct Unanswered(Mutex<HashMap<ClaimKey, (Uid, VolumeTarget)>>);

impl Unanswered {
    /// Takes note of the result of a reservation.
    pub(crate) fn reserved<T>(
        &self,
        claim: &ClaimTarget,
        volume: &VolumeTarget,
        result: &Result<T, SyncError>,
        store: &Store,
    ) {
        let mut inner = self.0.lock();
        match result {
            Ok(_) => drop(inner.remove(&claim.key)),
            Err(SyncError::Write { error, .. }) if may_be_made(error) => {
                // Only before the map grows, so that a storm of failures costs little.
                if inner.len() == inner.capacity() {
                    inner.retain(|key, (uid, _)| {
                        matches!(store.claim(Source::Overlay, key), Lookup::Found(claim)
                            if claim.uid == *uid && claim.volume_name.is_none())
                    });
                }
                inner.insert(claim.key.clone(), (claim.uid.clone(), volume.clone()));
            }
            Err(_) => {}
        }
    }

    /// The volume that may be reserved for this claim.
    fn volume(&self, claim: &ClaimTarget) -> Option<VolumeTarget> {
        let inner = self.0.lock();
        let sent = inner.get(&claim.key).filter(|(uid, _)| *uid == claim.uid);
        sent.map(|(_, volume)| volume.clone())
    }

    /// It is known what became of the reservation.
    fn forget(&self, claim: &ClaimKey) {
        self.0.lock().remove(claim);
    }
}

impl<P: Port> Binder<P> {
    /// Before a decision takes another volume for its claim than one that may be reserved for it already:
    /// finds out whether that one is. Then the claim is decided again.
    pub(super) async fn check_unanswered(
        &self,
        request: &Request,
        decision: &Decision,
        proofs: &mut Proofs,
    ) -> Result<(), Unsound> {
        let Subject::SyncClaim(claim) = &request.subject else { return Ok(()) };
        let unanswered = &self.executor.unanswered;
        let sent = unanswered.volume(&claim.target()).filter(|sent| takes_another(decision, sent));
        let Some(sent) = sent else { return Ok(()) };
        let cached = self.store.volume(Source::Overlay, &sent.name);
        if matches!(&cached, Lookup::Found(volume) if volume.target() == sent) {
            let object = Key::Volume(sent.name.clone());
            self.decider.prove(object, proofs).await.map_err(Unsound::Final)?;
            match proofs.volumes.get(&sent.name) {
                Some(Lookup::Failed(why) | Lookup::Unreadable(why)) => {
                    return Err(Unsound::Final(SyncError::Unproven(why.to_string())));
                }
                Some(Lookup::Found(volume)) => self.executor.lay(&Written::Volume(volume.clone())),
                Some(Lookup::Absent) | None => {}
            }
        }
        unanswered.forget(&claim.key);
        Err(Unsound::Changed(format!("it was not known whether volume {:?} is reserved", sent.name)))
    }
}

/// Whether a decision about a claim reserves another volume than this one, or has one provisioned.
fn takes_another(decision: &Decision, sent: &VolumeTarget) -> bool {
    decision.actions().any(|action| match action {
        Action::ReserveVolume { volume, .. } => volume.name != sent.name,
        Action::StartOperation(_) => true,
        _ => false,
    })
}

/// Whether the write may have been carried out. A proxy that sends it twice gets a conflict the second time.
fn may_be_made(error: &WriteError) -> bool {
    matches!(
        error,
        WriteError::Conflict(_)
            | WriteError::Unreadable(_)
            | WriteError::Broken { .. }
            | WriteError::Failed(_)
    )
}
