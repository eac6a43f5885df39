//! What becomes of the cluster in memory by a write.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bindery_controller::{Write, WriteError, Written};
use bindery_core::{
    CapacityChange, Claim, ClaimRef, ClaimTarget, Clear, Edit, Version, Volume, VolumeTarget,
};

use super::Double;

impl Double {
    fn next_version(&self) -> Version {
        Version(self.version.fetch_add(1, Ordering::Relaxed).to_string().into())
    }

    fn change_volume(
        &self,
        target: &VolumeTarget,
        change: impl FnOnce(&mut Volume),
    ) -> Result<Written, WriteError> {
        let mut inner = self.inner();
        let Some(volume) = inner.volumes.get_mut(&target.name) else {
            return Err(WriteError::NotFound(target.name.to_string()));
        };
        if (&volume.uid, &volume.version) != (&target.uid, &target.version) {
            return Err(WriteError::Conflict(format!("{} is {}", target.name, volume.version)));
        }
        change(volume);
        volume.version = self.next_version();
        Ok(Written::Volume(Arc::new(volume.clone())))
    }

    fn change_claim(
        &self,
        target: &ClaimTarget,
        change: impl FnOnce(&mut Claim),
    ) -> Result<Written, WriteError> {
        let mut inner = self.inner();
        let Some(claim) = inner.claims.get_mut(&target.key) else {
            return Err(WriteError::NotFound(target.key.to_string()));
        };
        if (&claim.uid, &claim.version) != (&target.uid, &target.version) {
            return Err(WriteError::Conflict(format!("{} is {}", target.key, claim.version)));
        }
        change(claim);
        claim.version = self.next_version();
        Ok(Written::Claim(Arc::new(claim.clone())))
    }

    /// Makes the write, if an API server would.
    pub(super) fn apply(&self, write: &Write<()>) -> Result<Written, WriteError> {
        match write {
            Write::ReserveVolume { volume, claim, mark } => self.change_volume(volume, |volume| {
                volume.annotations.bound_by_controller |= mark;
                volume.claim_ref = Some(ClaimRef {
                    namespace: claim.key.namespace.clone(),
                    name: claim.key.name.clone(),
                    uid: Some(claim.uid.clone()),
                });
            }),
            Write::SetVolumePhase { volume, phase, .. } => {
                self.change_volume(volume, |volume| volume.phase = *phase)
            }
            Write::BindClaim { claim, volume_name, mark } => self.change_claim(claim, |claim| {
                claim.annotations.bind_completed = true;
                claim.annotations.bound_by_controller |= mark;
                claim.volume_name = volume_name.clone().or(claim.volume_name.take());
            }),
            Write::SetClaimStatus { claim, phase, access_modes, capacity, attributes_class } => self
                .change_claim(claim, |claim| {
                    let status = &mut claim.status;
                    status.phase = *phase;
                    edit(&mut status.access_modes, access_modes.clone());
                    status.capacity = match capacity {
                        CapacityChange::Keep => status.capacity,
                        CapacityChange::Remove => None,
                        CapacityChange::Storage(amount) | CapacityChange::Whole(amount) => Some(*amount),
                    };
                    status.has_capacity = status.capacity.is_some();
                    edit(
                        &mut status.attributes_class,
                        match attributes_class {
                            Edit::Keep => Edit::Keep,
                            Edit::Set(class) => Edit::Set(Some(class.clone())),
                            Edit::Remove => Edit::Remove,
                        },
                    );
                }),
            Write::AnnotateVolume { volume, finalizers: Some(finalizers), migrated_to: Edit::Keep } => {
                let comes_too_late = |before: &Volume| {
                    before.deleting && finalizers.iter().any(|finalizer| !before.has_finalizer(finalizer))
                };
                if self.inner().volumes.get(&volume.name).is_some_and(comes_too_late) {
                    return Err(WriteError::Invalid("no finalizer can be added any more".to_owned()));
                }
                self.change_volume(volume, |volume| volume.finalizers.clone_from(finalizers))
            }
            Write::UnbindVolume { volume, clear: Clear::Whole } => self.change_volume(volume, |volume| {
                volume.claim_ref = None;
                volume.annotations.bound_by_controller = false;
            }),
            Write::DeleteVolume { volume } => {
                self.change_volume(volume, |volume| volume.deleting = true)?;
                Ok(Written::Deletion)
            }
            other => panic!("no test makes this write: {other:?}"),
        }
    }
}

fn edit<T: Default>(field: &mut T, edit: Edit<T>) {
    match edit {
        Edit::Keep => {}
        Edit::Set(value) => *field = value,
        Edit::Remove => *field = T::default(),
    }
}
