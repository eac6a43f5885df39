//! Live reads as proof: that a volume's claim has left it (G4), and what a volume is like before its claim is
//! written Lost or bound.

use super::step::{StepCheck, key_of};
use super::{Breach, Objection};
use crate::{Claim, Key, Lookup, OperationKind, ReclaimPolicy, Text, Uid, Volume};

/// What became of the claim whose UID a volume's claimRef carries, by the API server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FormerClaim {
    /// No claim has that UID.
    Gone,
    /// Its volumeName names another volume, and cannot change.
    Elsewhere,
}

impl<'a> StepCheck<'a> {
    /// What became of the volume's claim, from a live read made for this decision: the engine's where it made
    /// one, else the guard's own.
    ///
    /// An engine that knew that the claim lives is wrong. An engine that relied on a watch which lags
    /// decides again.
    pub(super) fn former_claim(&self, volume: &Volume) -> Result<FormerClaim, Objection> {
        let Some((claim_ref, uid)) = volume.claim_ref.as_ref().and_then(|r| Some((r, r.uid.as_ref()?)))
        else {
            let sentence = "spec.claimRef has no uid, so no claim has left it";
            return self.refuse_volume(Breach::VolumePhaseWrong, volume, sentence);
        };
        self.readable_claim_of(volume)?;
        let key = key_of(claim_ref);
        let lives = |pointer: &str| {
            if self.case.told_live_claim(&key).is_none() {
                let what = "its claim is there, as a live read shows";
                return Err(Objection::Stale { object: Key::Volume(volume.name.clone()), what });
            }
            let sentence = format!(
                "its claim {key} of UID {uid} exists on the API server with spec.volumeName {pointer:?}"
            );
            self.refuse_volume(Breach::ClaimLives, volume, sentence)
        };
        match self.case.live_claim(&key) {
            None => Err(Objection::Prove(Key::Claim(key))),
            Some(Lookup::Absent) => Ok(FormerClaim::Gone),
            Some(Lookup::Found(claim)) if claim.uid != *uid => Ok(FormerClaim::Gone),
            Some(Lookup::Found(claim)) => match claim.volume_name.as_deref() {
                Some(name) if *name != *volume.name => Ok(FormerClaim::Elsewhere),
                pointer => lives(pointer.unwrap_or_default()),
            },
            Some(Lookup::Failed(error)) => Err(Objection::Unproven {
                object: Key::Volume(volume.name.clone()),
                why: format!("its claim \"{key}\" could not be read from the API server: {error}"),
            }),
            Some(Lookup::Unreadable(error)) => {
                let object = Key::Volume(volume.name.clone());
                self.refuse(Breach::Unreadable, object, format!("claim {key} cannot be read: {error}"))
            }
        }
    }

    /// Whether a volume may become Released. Upstream (`syncVolume`) releases a volume whose claim is gone.
    /// Where the claim has another volume, it releases a volume that was provisioned for the claim with
    /// policy Delete, and unbinds any other.
    pub(super) fn releasable(&self, volume: &Volume) -> Result<(), Objection> {
        match self.former_claim(volume)? {
            FormerClaim::Gone => self.not_kept(volume),
            FormerClaim::Elsewhere if is_surplus(volume) => Ok(()),
            FormerClaim::Elsewhere => self.refuse_volume(Breach::VolumePhaseWrong, volume, NOT_SURPLUS),
        }
    }

    /// Whether a released volume may be deleted or recycled: no claim uses it. For a volume that is already
    /// Released or Failed, upstream looks its claim up in the cache alone (`syncVolume`). So it
    /// reclaims the volume of a claim that the cache has not seen yet and that may have another volume. Here
    /// such a volume is recycled, but deleted only if it is surplus.
    pub(super) fn reclaimable(&self, volume: &Volume, kind: OperationKind) -> Result<(), Objection> {
        if self.former_claim(volume)? == FormerClaim::Gone
            || kind != OperationKind::Delete
            || is_surplus(volume)
        {
            return Ok(());
        }
        self.refuse_elsewhere(Breach::OperationWrong, volume, NOT_SURPLUS)
    }

    /// Refuses a step because the volume's claim has another volume. An engine that relied on a cache without
    /// that claim decides again.
    pub(super) fn refuse_elsewhere(
        &self,
        breach: Breach,
        volume: &Volume,
        sentence: impl Into<String>,
    ) -> Result<(), Objection> {
        if self.has_read_claim_of(volume) {
            return self.refuse_volume(breach, volume, sentence);
        }
        let object = Key::Volume(volume.name.clone());
        Err(Objection::Stale { object, what: "its claim has another volume, as a live read shows" })
    }

    /// Whether the engine has read the claim whose UID the volume's claimRef carries.
    pub(super) fn has_read_claim_of(&self, volume: &Volume) -> bool {
        let uid = volume.claim_ref.as_ref().and_then(|claim_ref| claim_ref.uid.as_ref());
        self.case.claims().any(|claim| Some(&claim.uid) == uid)
    }

    /// The volume of that name on the API server, from a live read made for this decision: the engine's
    /// where it made one, else the guard's own. `None` where there is none.
    ///
    /// # Errors
    ///
    /// It was not read yet, the read failed, or the volume cannot be parsed (G7).
    pub(super) fn volume_now(&self, claim: &Claim, name: &Text) -> Result<Option<&'a Volume>, Objection> {
        let object = || Key::Claim(claim.key.clone());
        match self.case.live_volume(name) {
            None => Err(Objection::Prove(Key::Volume(name.clone()))),
            Some(Lookup::Found(volume)) => Ok(Some(volume)),
            Some(Lookup::Absent) => Ok(None),
            Some(Lookup::Failed(error)) => Err(Objection::Unproven {
                object: object(),
                why: format!("volume {name:?} could not be read from the API server: {error}"),
            }),
            Some(Lookup::Unreadable(error)) => {
                self.refuse(Breach::Unreadable, object(), format!("volume {name} cannot be read: {error}"))
            }
        }
    }
}

/// Why a volume whose claim has another one is kept.
const NOT_SURPLUS: &str = "its claim has another volume, and it was not provisioned for that claim with \
                           policy Delete: it is unbound, neither released nor deleted";

/// Whether the volume was provisioned for the claim whose UID it carries, and is deleted when that claim has
/// another one. Provisioners end a volume's name in the UID of its claim (`pvc-<uid>`). A volume of another
/// name was chosen by a binder or a user, and may hold data of an earlier claim.
pub(super) fn is_surplus(volume: &Volume) -> bool {
    let is_made_for = |uid: &Uid| !uid.0.is_empty() && volume.name.ends_with(&*uid.0);
    volume.annotations.provisioned_by.is_some()
        && volume.policy == ReclaimPolicy::Delete
        && volume.claim_ref.as_ref().and_then(|claim_ref| claim_ref.uid.as_ref()).is_some_and(is_made_for)
}
