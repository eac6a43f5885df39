//! Judges a decision by its effects: carries its writes out on the API server of the model, under every
//! fault, and compares the objects before and after each write.
//!
//! Written from the guarantees of ARCHITECTURE.md alone, and differently from the guard: states instead of
//! steps, and a table of checks by situation instead of a tree of questions.

mod claims;
mod meet;
mod operations;
mod volumes;
mod writes;

use std::collections::BTreeMap;
use std::sync::Arc;

use bindery_core::{
    Action, Claim, ClaimPhase, Decision, Follows, OperationKind, Point, Regarding, Request, Returned, Step,
    Subject, Uid, Version, Volume, VolumePhase,
};
use bindery_kit::{write_claim, write_volume};

use self::meet::{is_surplus, uid_in};
use self::writes::{claim_of, volume_of};
use crate::model::{Model, Objects};
use crate::worlds::next;

/// A fault of one write of a decision.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    /// The step of this index fails and is not applied.
    Refused(usize),
    /// The step of this index is applied, and its answer is lost.
    AnswerLost(usize),
}

/// Finds harm in an allowed decision.
///
/// # Errors
///
/// The harm, in a sentence.
pub(crate) fn judge(model: &Model, request: &Request, decision: &Decision) -> Result<(), String> {
    let acts = decision.actions().any(|a| !matches!(a, Action::Emit(_) | Action::EnqueueClaim(_)));
    if acts && !model.synced {
        return Err("acts before the lists are complete".into());
    }
    let indices = 0..decision.steps.len();
    let faults = indices.flat_map(|i| [Fault::Refused(i), Fault::AnswerLost(i)]);
    for fault in std::iter::once(Fault::None).chain(faults) {
        let mut trial =
            Trial { model, request, objects: model.truth.clone(), returned: BTreeMap::new(), failed: false };
        for (index, step) in decision.steps.iter().enumerate() {
            trial.step(index, step, fault).map_err(|harm| format!("{harm} (step {index}, {fault:?})"))?;
        }
    }
    Ok(())
}

struct Trial<'a> {
    model: &'a Model,
    request: &'a Request,
    /// The API server.
    objects: Objects,
    /// Versions that own writes returned.
    returned: BTreeMap<Uid, Version>,
    failed: bool,
}

impl Trial<'_> {
    fn step(&mut self, index: usize, step: &Step, fault: Fault) -> Result<(), String> {
        if self.failed && step.follows != Follows::Regardless {
            return Ok(());
        }
        let refused = matches!(fault, Fault::Refused(i) if i == index);
        let lost = matches!(fault, Fault::AnswerLost(i) if i == index);
        let before = self.objects.clone();
        let applied = !refused && self.apply(&step.action, lost);
        self.harm(&before, &step.action, applied)?;
        if (!applied || lost) && step.follows != Follows::Regardless {
            self.failed = true;
        }
        Ok(())
    }

    /// Carries out a write, if the API server takes it.
    fn apply(&mut self, action: &Action, lost: bool) -> bool {
        if let Some((target_uid, read, name)) = volume_of(action) {
            let expected = self.returned.get(target_uid).unwrap_or(read).clone();
            let Some(volume) = self.objects.volumes.get_mut(name) else { return false };
            if volume.uid != *target_uid || volume.version != expected {
                return false;
            }
            if matches!(action, Action::DeleteVolume { .. }) {
                self.objects.volumes.remove(name);
                return true;
            }
            let volume = Arc::make_mut(volume);
            write_volume(volume, action);
            volume.version = next(&volume.version);
            if !lost {
                self.returned.insert(volume.uid.clone(), volume.version.clone());
            }
            return true;
        }
        let Some(target) = claim_of(action) else { return true };
        let expected = self.returned.get(&target.uid).unwrap_or(&target.version).clone();
        let Some(claim) = self.objects.claims.get_mut(&target.key) else { return false };
        if claim.uid != target.uid || claim.version != expected {
            return false;
        }
        let claim = Arc::make_mut(claim);
        write_claim(claim, action);
        claim.version = next(&claim.version);
        if !lost {
            self.returned.insert(claim.uid.clone(), claim.version.clone());
        }
        true
    }

    fn harm(&self, before: &Objects, action: &Action, applied: bool) -> Result<(), String> {
        match action {
            Action::StartOperation(operation) => return self.start(operation),
            Action::CallPlugin { plugin, operation } => return self.call(plugin, *operation),
            Action::Emit(event) => {
                return check(self.is_known(&event.regarding), "emits an event about an unknown object");
            }
            Action::CreateVolume { claim, name, .. } => {
                let is_due = self.progress().is_some_and(|(kind, uid, point, returned)| {
                    kind == OperationKind::Provision
                        && *uid == claim.uid
                        && matches!(
                            (point, returned),
                            (Point::Provisioned, Returned::Success)
                                | (Point::Created { .. }, Returned::Failed(_) | Returned::InUse(_))
                        )
                });
                return check(
                    is_due && **name == *format!("pvc-{}", claim.uid),
                    "creates a volume without provisioning it",
                );
            }
            _ if !applied => return Ok(()),
            _ => {}
        }
        self.pairs_stay(before)?;
        for (name, old) in &before.volumes {
            match self.objects.volumes.get(name) {
                Some(new) if new == old => {}
                Some(new) => self.volume_changed(before, old, new)?,
                None => self.volume_deleted(old)?,
            }
        }
        for (key, old) in &before.claims {
            match self.objects.claims.get(key) {
                Some(new) if new == old => {}
                Some(new) => self.claim_changed(old, new)?,
                None => return Err("a claim is deleted".into()),
            }
        }
        Ok(())
    }

    /// Whether the object of an event is in the request or has ever been in the world.
    fn is_known(&self, regarding: &Regarding) -> bool {
        let (model, uid) = (self.model, regarding.uid());
        let worlds = [&model.seen, &model.now, &model.truth];
        let known = worlds.iter().any(|objects| match regarding {
            Regarding::Claim(claim) => objects.claims.get(&claim.key).is_some_and(|known| known.uid == *uid),
            Regarding::Volume(volume) => {
                objects.volumes.get(&volume.name).is_some_and(|known| known.uid == *uid)
            }
        });
        known
            || match (&self.request.subject, regarding) {
                (Subject::SyncClaim(claim), Regarding::Claim(target)) => claim.target() == *target,
                (Subject::SyncVolume(volume), Regarding::Volume(target)) => volume.target() == *target,
                (Subject::SyncClaimOperation(progress), Regarding::Claim(target)) => {
                    progress.object.target() == *target
                }
                (Subject::SyncVolumeOperation(progress), Regarding::Volume(target)) => {
                    let objects = progress.fresh.iter().chain([&progress.object]);
                    objects.into_iter().any(|volume| volume.target() == *target)
                }
                _ => false,
            }
    }

    /// Every complete pair stays one, and gets no phase of an unbound object.
    fn pairs_stay(&self, before: &Objects) -> Result<(), String> {
        for claim in before.claims.values() {
            let Some(volume) = complete(before, claim) else { continue };
            let (now_claim, now_volume) =
                (self.objects.claims.get(&claim.key), self.objects.volumes.get(&volume.name));
            let (Some(now_claim), Some(now_volume)) = (now_claim, now_volume) else {
                return Err("half of a pair is deleted".into());
            };
            check(complete(&self.objects, now_claim).is_some(), "a pair is broken")?;
            let stays = match now_volume.phase {
                phase if phase == volume.phase => true,
                VolumePhase::Bound => true,
                // The binder decides by its caches; a later sync repairs the phase.
                VolumePhase::Failed => !self.model.is_current(),
                _ => false,
            };
            check(stays, "the volume of a pair gets a phase of a free volume")?;
            let stays = match now_claim.status.phase {
                phase if phase == claim.status.phase => true,
                ClaimPhase::Bound => true,
                _ => false,
            };
            check(stays, "the claim of a pair gets a phase of an unbound claim")?;
        }
        Ok(())
    }

    /// Whether the live claim with the UID has another volume, which is for good. False if the claim is gone.
    fn claim_is_elsewhere(&self, volume: &Volume) -> Result<bool, String> {
        let uid = uid_in(volume).ok_or("releases a volume whose claimRef has no UID")?;
        check(!self.model.live_fails, "releases a volume although the live read failed")?;
        let live = self.model.truth.claims.values().find(|claim| claim.uid == *uid);
        let named = volume.claim_ref.as_ref().is_some_and(|r| live.is_none_or(|c| c.key.name == r.name));
        match live.filter(|_| named).map(|claim| &claim.volume_name) {
            None => Ok(false),
            Some(Some(name)) if *name != volume.name => Ok(true),
            Some(_) => Err("releases a volume whose claim lives".into()),
        }
    }

    /// The live claim is gone; or it has another volume, and this one was provisioned for it and has policy
    /// Delete.
    fn is_not_needed(&self, volume: &Volume) -> Result<(), String> {
        let surplus = !self.claim_is_elsewhere(volume)? || is_surplus(volume);
        check(surplus, "releases or deletes a volume that was not provisioned for its claim")
    }

    /// Kind, UID, point and outcome of the operation.
    fn progress(&self) -> Option<(OperationKind, &Uid, Point, &Returned)> {
        match &self.request.subject {
            Subject::SyncClaimOperation(p) => {
                Some((p.operation.kind, &p.operation.uid, p.point, &p.returned))
            }
            Subject::SyncVolumeOperation(p) => {
                Some((p.operation.kind, &p.operation.uid, p.point, &p.returned))
            }
            _ => None,
        }
    }
}

fn check(holds: bool, harm: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(harm.to_owned()) }
}

/// The volume that makes a complete pair with the claim.
fn complete<'a>(objects: &'a Objects, claim: &Claim) -> Option<&'a Volume> {
    let volume = objects.volumes.get(claim.volume_name.as_ref()?)?;
    (claim.annotations.bind_completed && uid_in(volume) == Some(&claim.uid)).then_some(volume)
}
