//! Rules that hold in a cluster at rest.

use crate::object::{Claim, Volume};
use crate::snapshot::Found;
use crate::{Rule, Snapshot, fit};

/// Prefix of provisioners that are part of Kubernetes.
const IN_TREE: &str = "kubernetes.io/";
/// The binder's own finalizer.
const FINALIZER: &str = "kubernetes.io/pv-controller";

impl Snapshot {
    pub(crate) fn check_rest(&self, found: &mut Found) {
        for volume in self.volumes.values() {
            self.check_volume(volume, found);
        }
        for claim in self.claims.values() {
            if claim.is_completed() {
                self.check_completed(claim, found);
            } else {
                self.check_waiting(claim, found);
            }
        }
    }

    fn check_volume(&self, volume: &Volume, found: &mut Found) {
        let phases: &[&str] = match (&volume.reservation, volume.claim_uid()) {
            (None, _) | (_, None) => &["Available"],
            (Some(reservation), Some(uid)) => {
                let claim = self.claims.get(&reservation.key).filter(|claim| claim.meta.uid == uid);
                match claim.map(|claim| claim.volume_name.as_str()) {
                    None => &["Released", "Failed"],
                    // The rules of the claim say which of the two should change.
                    Some("") => &["Pending", "Available", "Bound", "Released", "Failed"],
                    Some(name) if name == volume.name => &["Bound"],
                    // It was provisioned for a claim that then got another volume.
                    Some(_) if volume.meta.provisioned_by().is_some() && volume.policy == "Delete" => {
                        &["Released", "Failed"]
                    }
                    Some(name) => {
                        let why = format!("it is reserved for {}, which has {name}", reservation.key);
                        found.check(volume, Rule::Reservation, Some(why));
                        &["Bound", "Released", "Failed"]
                    }
                }
            }
        };
        let is_expected = phases.contains(&volume.phase.as_str());
        let why = format!("it is {:?} and should be {}", volume.phase, phases.join(" or "));
        found.check(volume, Rule::VolumePhase, (!is_expected).then_some(why));
        found.check(volume, Rule::Reservation, odd_reservation(volume));
        let left = volume.steered_for().map(|uid| format!("it still says that it is reserved for {uid}"));
        found.check(volume, Rule::SteeringEnds, left);
        found.check(volume, Rule::Finalizer, wrong_finalizer(volume));
        let is_stuck = volume.meta.is_deleted && volume.phase != "Bound";
        found.check(volume, Rule::DeletionEnds, is_stuck.then(|| finalizers_of(volume)));
    }

    /// A claim whose first bind is complete (`syncBoundClaim`).
    fn check_completed(&self, claim: &Claim, found: &mut Found) {
        let volume = self.volumes.get(&claim.volume_name);
        match volume.map(|volume| (volume, volume.claim_uid())) {
            Some((volume, None)) if volume.reservation.is_none() => {
                let why = format!("its volume {} has lost its claimRef", volume.name);
                found.check(claim, Rule::PairCompleted, Some(why));
            }
            Some((volume, Some(uid))) if uid == claim.meta.uid => {
                check_phase(claim, "Bound", found);
                found.check(claim, Rule::ClaimStatus, stale_status(claim, volume));
            }
            _ => check_phase(claim, "Lost", found),
        }
    }

    /// A claim that was never bound (`syncUnboundClaim`).
    fn check_waiting(&self, claim: &Claim, found: &mut Found) {
        let is_marked = matches!(claim.phase.as_str(), "Pending" | "");
        let why = format!("it is {} without bind-completed", claim.phase);
        found.check(claim, Rule::Marked, (!is_marked).then_some(why));
        if claim.volume_name.is_empty() {
            let fits = self.volumes.values().find(|volume| self.is_to_be_found(volume, claim));
            let why = fits.map(|volume| format!("it waits, and volume {} fits it", volume.name));
            return found.check(claim, Rule::NoneWaits, why);
        }
        let Some(volume) = self.volumes.get(&claim.volume_name) else { return };
        let accepts = match &volume.reservation {
            None => !volume.meta.is_deleted && fit::named(volume, claim).is_none(),
            // A claim and a volume that name each other bind even if they do not match.
            Some(_) => volume.is_reserved_for(claim),
        };
        let why = format!("it names volume {}, which accepts it", volume.name);
        found.check(claim, Rule::PairCompleted, accepts.then_some(why));
    }

    /// Whether the binder chooses this volume for a claim without volumeName.
    fn is_to_be_found(&self, volume: &Volume, claim: &Claim) -> bool {
        if volume.meta.is_deleted {
            return false;
        }
        if volume.reservation.is_some() {
            return volume.is_reserved_for(claim) && fit::reserved(volume, claim).is_none();
        }
        let is_scheduled = self.waits_for_consumer.get(&claim.class).copied().unwrap_or_default();
        let is_left = is_scheduled || claim.is_steered;
        !is_left && volume.phase == "Available" && fit::free(volume, claim).is_none()
    }
}

fn check_phase(claim: &Claim, phase: &str, found: &mut Found) {
    let why = format!("it is {:?} and should be {phase}", claim.phase);
    found.check(claim, Rule::ClaimPhase, (claim.phase != phase).then_some(why));
}

fn stale_status(claim: &Claim, volume: &Volume) -> Option<String> {
    if claim.status_capacity != Some(volume.capacity) {
        Some(format!("its status.capacity is not that of volume {}", volume.name))
    } else if claim.status_access_modes != volume.access_modes {
        Some(format!("its status.accessModes are not those of volume {}", volume.name))
    } else {
        None
    }
}

/// A claimRef that the binder wrote has all fields that upstream writes.
fn odd_reservation(volume: &Volume) -> Option<String> {
    let reservation = volume.reservation.as_ref()?;
    let is_odd = volume.meta.is_bound_by_controller() && reservation.kind != "v1 PersistentVolumeClaim";
    is_odd.then(|| format!("the binder reserved it for a {:?}", reservation.kind))
}

/// HonorPVReclaimPolicy: the binder keeps a volume that it will delete until its asset is deleted.
fn wrong_finalizer(volume: &Volume) -> Option<String> {
    let is_in_tree = volume.meta.provisioned_by().is_some_and(|name| name.starts_with(IN_TREE));
    let has = volume.meta.finalizers.contains(FINALIZER);
    match (is_in_tree, volume.policy.as_str()) {
        (true, "Delete") if !has && !volume.meta.is_deleted => {
            Some(format!("the finalizer {FINALIZER} is missing"))
        }
        (true, "Retain" | "Recycle") if has => Some(format!("it has the finalizer {FINALIZER}, and is kept")),
        _ => None,
    }
}

fn finalizers_of(volume: &Volume) -> String {
    format!("it is being deleted without a claim, and these finalizers hold it: {:?}", volume.meta.finalizers)
}
