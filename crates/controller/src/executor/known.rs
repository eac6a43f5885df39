//! The objects of a decision, as they were read and as its own writes left them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bindery_core::{
    Answer, Claim, ClaimKey, ClaimTarget, Exchange, Lookup, Request, Subject, Text, Volume, VolumeTarget,
};

use crate::Written;

/// The versions that the steps of a decision send, and the fields that a write has to repeat.
#[derive(Default)]
pub(crate) struct KnownObjects {
    /// Volumes as the decision read them. A name may have several, one from a cache and one read live.
    read: Vec<Arc<Volume>>,
    claims: BTreeMap<ClaimKey, Arc<Claim>>,
    volumes: BTreeMap<Text, Arc<Volume>>,
}

impl KnownObjects {
    /// The objects in a request and in the answers to its engine's questions.
    pub(crate) fn new(request: &Request, exchanges: &[Exchange]) -> Self {
        let mut known = Self::default();
        match &request.subject {
            Subject::SyncVolume(volume) => known.read.push(volume.clone()),
            Subject::SyncVolumeOperation(progress) => {
                known.read.push(Arc::new(progress.object.clone()));
                known.read.extend(progress.fresh.clone().map(Arc::new));
            }
            Subject::SyncClaimOperation(progress) => known.read.extend(progress.fresh.clone().map(Arc::new)),
            Subject::SyncClaim(_) | Subject::ReviewClaim { .. } | Subject::ReviewVolume { .. } => {}
        }
        known.read.extend(exchanges.iter().filter_map(|exchange| match &exchange.answer {
            Answer::Volume(Lookup::Found(volume)) | Answer::Described(volume) => Some(volume.clone()),
            _ => None,
        }));
        known
    }

    /// Takes the result of a write.
    pub(super) fn wrote(&mut self, written: &Written) {
        match written {
            Written::Volume(volume) => drop(self.volumes.insert(volume.name.clone(), volume.clone())),
            Written::Claim(claim) => drop(self.claims.insert(claim.key.clone(), claim.clone())),
            Written::Deletion => {}
        }
    }

    /// The volume in the version that a write to this target has to name.
    pub(super) fn volume(&self, target: &VolumeTarget) -> Option<&Arc<Volume>> {
        self.written_volume(target).or_else(|| self.read.iter().find(|volume| volume.target() == *target))
    }

    /// The volume as an earlier write left it, if one wrote it.
    pub(crate) fn written_volume(&self, target: &VolumeTarget) -> Option<&Arc<Volume>> {
        self.volumes.get(&target.name).filter(|volume| volume.uid == target.uid)
    }

    /// The claim as an earlier write left it, if one wrote it.
    pub(crate) fn written_claim(&self, target: &ClaimTarget) -> Option<&Arc<Claim>> {
        self.claims.get(&target.key).filter(|claim| claim.uid == target.uid)
    }
}
