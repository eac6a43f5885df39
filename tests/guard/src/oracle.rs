//! Judges a decision by what it does, not by what it says: carries its writes out on the API server of the
//! model, under every fault, and compares the objects before and after each write.
//!
//! Written from the design alone, and differently from the guard: states instead of steps, and a table of
//! checks by situation instead of a tree of questions.

mod meet;
mod operations;
mod writes;

use std::collections::BTreeMap;
use std::sync::Arc;

use bindery_core::{
    Action, Claim, ClaimPhase, Decision, FINALIZER_EXTERNAL, FINALIZER_IN_TREE, Follows, Migration,
    OperationKind, Point, ReclaimPolicy, Regarding, Request, Returned, Step, Subject, Text, Uid, Version,
    Volume, VolumePhase,
};

use self::meet::{is_surplus, may_meet, uid_in};
use self::writes::{claim_of, volume_of, write_claim, write_volume};
use crate::model::{Model, Objects, Unreadable};
use crate::worlds::next;

/// What is done to the writes of a decision.
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
            Action::Emit(event) => return check(self.is_known(&event.regarding), "tells of a stranger"),
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
                return check(is_due && **name == *format!("pvc-{}", claim.uid), "creates a stray volume");
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

    /// Whether anybody has ever seen the object of an event.
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

    /// Every complete pair before is one after, and nobody calls it otherwise.
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
                // What the caches say decides; the phase is repaired.
                VolumePhase::Failed => !self.model.is_current(),
                _ => false,
            };
            check(stays, "the volume of a pair gets a phase of a free one")?;
            let stays = match now_claim.status.phase {
                phase if phase == claim.status.phase => true,
                ClaimPhase::Bound => true,
                _ => false,
            };
            check(stays, "the claim of a pair gets a phase of an unbound one")?;
        }
        Ok(())
    }

    fn volume_changed(&self, before: &Objects, old: &Volume, new: &Volume) -> Result<(), String> {
        self.readable_volume(new, old.claim_ref != new.claim_ref)?;
        let (was, is) = (uid_in(old), uid_in(new));
        match (was, is) {
            (Some(was), Some(is)) => check(was == is, "a UID is put over another in claimRef")?,
            (Some(_), None) => self.unbound(old, new)?,
            (None, Some(uid)) => self.reserved(before, old, new, uid)?,
            (None, None) => check(old.claim_ref == new.claim_ref, "a reservation by name changes")?,
        }
        if old.phase != new.phase {
            self.phase_changed(before, old, new)?;
        }
        self.finalizers_changed(old, new)?;
        let by = old.annotations.provisioned_by.as_ref();
        check(new.annotations.provisioned_by.as_ref() == by, "provisioned-by changes")?;
        self.migration_changed(by, &old.annotations.migrated_to, &new.annotations.migrated_to)?;
        let kept = |v: &Volume| (v.policy, v.capacity, v.class.clone(), v.deleting, v.labels.clone());
        check(kept(old) == kept(new), "the rest of a volume changes")
    }

    fn reserved(&self, before: &Objects, old: &Volume, new: &Volume, uid: &Uid) -> Result<(), String> {
        let chosen = old.claim_ref.is_none();
        let marked = new.annotations.bound_by_controller && !old.annotations.bound_by_controller;
        check(chosen || !marked, "marks as its own what the user has chosen")?;
        check(!chosen || new.annotations.bound_by_controller, "does not mark what it has chosen")?;
        if !self.model.is_current() {
            return Ok(());
        }
        let claim = before.claims.values().find(|claim| claim.uid == *uid);
        let claim = claim.ok_or("reserves a volume for a claim that does not exist")?;
        check(may_meet(self.model, claim, old), "reserves a volume that the claim may not have")
    }

    fn unbound(&self, old: &Volume, new: &Volume) -> Result<(), String> {
        let whole = new.claim_ref.is_none();
        check(
            whole == old.annotations.bound_by_controller,
            "takes the user's reservation, or leaves its own",
        )?;
        if self.claim_is_elsewhere(old)? {
            return check(!is_surplus(old), "keeps a volume that was provisioned for nothing");
        }
        let recycled = self.progress().is_some_and(|(kind, uid, point, returned)| {
            (kind, point, returned) == (OperationKind::Recycle, Point::Recycled, &Returned::Success)
                && *uid == old.uid
        });
        let offered = self.model.offers_again && old.phase == VolumePhase::Released && !old.deleting;
        check(recycled || offered, "shows data to the next tenant")
    }

    fn phase_changed(&self, before: &Objects, old: &Volume, new: &Volume) -> Result<(), String> {
        match new.phase {
            VolumePhase::Available => check(uid_in(new).is_none(), "offers a volume that has a claim"),
            VolumePhase::Bound if self.model.is_current() => {
                let claim = before.claims.values().find(|claim| Some(&claim.uid) == uid_in(new));
                let claim = claim.ok_or("Bound without claim")?;
                let points = claim.volume_name.as_ref() == Some(&new.name);
                check(points || may_meet(self.model, claim, old), "Bound to a claim that may not have it")
            }
            VolumePhase::Bound => check(uid_in(new).is_some(), "Bound without a claim's UID"),
            VolumePhase::Released => {
                check(old.phase != VolumePhase::Failed, "Released over Failed")?;
                self.needed_by_nobody(old)
            }
            VolumePhase::Failed => check(old.phase == VolumePhase::Released, "Failed before it was Released"),
            VolumePhase::Unset | VolumePhase::Pending => Err("a phase that only the API server sets".into()),
        }
    }

    fn finalizers_changed(&self, old: &Volume, new: &Volume) -> Result<(), String> {
        let only_in = |one: &Volume, other: &Volume| {
            let surplus = one.finalizers.iter().filter(|f| !other.finalizers.contains(f));
            surplus.cloned().collect::<Vec<Text>>()
        };
        let by = old.annotations.provisioned_by.as_ref();
        let in_tree =
            by.is_some_and(|by| by.starts_with("kubernetes.io/") && !self.model.migrations.contains_key(by));
        let migrated = by.is_some_and(|by| self.model.migrations.contains_key(by));
        let deletes = old.policy == ReclaimPolicy::Delete;
        for added in only_in(new, old) {
            check(&*added == FINALIZER_IN_TREE && in_tree && deletes, "adds a finalizer")?;
        }
        for removed in only_in(old, new) {
            let may = match &*removed {
                FINALIZER_IN_TREE => migrated || (in_tree && !deletes) || self.asset_is_gone(old),
                FINALIZER_EXTERNAL => in_tree,
                _ => false,
            };
            check(may, "removes a finalizer that still protects")?;
        }
        Ok(())
    }

    fn migration_changed(
        &self,
        source: Option<&Text>,
        old: &Option<Text>,
        new: &Option<Text>,
    ) -> Result<(), String> {
        if old == new {
            return Ok(());
        }
        let migration = source.map(|source| self.model.migrations.get(source).unwrap_or(&Migration::Off));
        let may = match (migration, new) {
            (Some(Migration::On(driver)), Some(new)) => driver == new,
            (Some(Migration::Off), None) => true,
            _ => false,
        };
        check(may, "migrated-to says something untrue")
    }

    fn volume_deleted(&self, old: &Volume) -> Result<(), String> {
        self.readable_volume(old, true)?;
        let removed = self.progress().is_some_and(|(kind, uid, point, returned)| {
            kind == OperationKind::Delete
                && *uid == old.uid
                && point == Point::FinalizerRemoved
                && *returned == Returned::Success
        });
        check(removed || self.asset_is_gone(old), "deletes a volume whose asset exists")?;
        if uid_in(old).is_some() { self.claim_is_elsewhere(old).map(|_| ()) } else { Ok(()) }
    }

    fn asset_is_gone(&self, volume: &Volume) -> bool {
        self.progress().is_some_and(|(kind, uid, point, returned)| {
            (kind, point, returned) == (OperationKind::Delete, Point::Deleted, &Returned::Success)
                && *uid == volume.uid
        })
    }

    fn claim_changed(&self, old: &Claim, new: &Claim) -> Result<(), String> {
        let unreadable = self.model.unreadable == Some(Unreadable::Claim(old.key.clone()));
        check(!unreadable, "writes a claim that cannot be read")?;
        if let Some(name) = &old.volume_name {
            check(new.volume_name.as_ref() == Some(name), "changes a volumeName")?;
            let unreadable = self.model.unreadable == Some(Unreadable::Volume(name.clone()));
            let judged =
                old.status != new.status || old.annotations.bind_completed != new.annotations.bind_completed;
            check(!unreadable || !judged, "judges a claim by a volume that cannot be read")?;
        }
        let completes = new.annotations.bind_completed && !old.annotations.bind_completed;
        if new.volume_name != old.volume_name || completes {
            check(new.annotations.bind_completed, "points at a volume without bind-completed")?;
            let volume =
                complete(&self.objects, new).ok_or("binds a claim to a volume that is not its own")?;
            check(volume.phase == VolumePhase::Bound, "binds a claim before its volume is Bound")?;
            check(may_meet(self.model, old, volume), "binds a claim to a volume that it may not have")?;
            // An answer to a write of its own tells the binder of the volume; else it has to read it.
            let is_known = self.returned.contains_key(&volume.uid) || !self.model.live_fails;
            check(is_known, "binds a claim though the live read of its volume failed")?;
        }
        check(old.annotations.bind_completed <= new.annotations.bind_completed, "removes bind-completed")?;
        let settled = old.annotations.bind_completed || old.volume_name.is_some();
        if old.class != new.class {
            let default = new.class.as_ref().and_then(|name| self.model.classes.get(name));
            let may = !settled && old.class.is_none() && default.is_some_and(|class| class.default);
            check(may, "gives a class that it may not give")?;
        }
        if old.status != new.status {
            self.status_changed(old, new)?;
        }
        let source = |claim: &Claim| {
            let a = &claim.annotations;
            a.storage_provisioner.clone().or(a.beta_storage_provisioner.clone())
        };
        self.migration_changed(
            source(new).as_ref(),
            &old.annotations.migrated_to,
            &new.annotations.migrated_to,
        )?;
        if source(old) != source(new) {
            let class = self.model.classes.get(new.class_or_empty());
            let told = source(new);
            let named = class.is_some_and(|class| {
                let migration = self.model.migrations.get(&class.provisioner);
                let is_driver = |told: &Text| migration == Some(&Migration::On(told.clone()));
                told.as_ref() == Some(&class.provisioner) || told.as_ref().is_some_and(is_driver)
            });
            let started = match &self.request.subject {
                Subject::SyncClaimOperation(progress) => told.as_ref() == Some(&progress.operation.plugin),
                _ => false,
            };
            check(!settled && (named || started), "hands the claim to a wrong provisioner")?;
        }
        if old.annotations.selected_node != new.annotations.selected_node {
            let failed = self.progress().is_some_and(|(kind, _, point, returned)| {
                kind == OperationKind::Provision
                    && point == Point::Provisioned
                    && !matches!(returned, Returned::Success | Returned::AlreadyExists)
            });
            check(failed, "takes the node that the scheduler has chosen")?;
        }
        Ok(())
    }

    fn status_changed(&self, old: &Claim, new: &Claim) -> Result<(), String> {
        let status = &new.status;
        let empty =
            status.access_modes.is_empty() && !status.has_capacity && status.attributes_class.is_none();
        match status.phase {
            ClaimPhase::Unset => Err("unsets the phase of a claim".into()),
            ClaimPhase::Pending => check(empty && !old.annotations.bind_completed, "Pending though bound"),
            ClaimPhase::Lost => {
                check(empty && old.annotations.bind_completed, "Lost though never bound")?;
                self.has_lost(old)
            }
            ClaimPhase::Bound if !self.model.is_current() => {
                check(old.annotations.bind_completed, "Bound without bind-completed")
            }
            ClaimPhase::Bound => {
                let volume = complete(&self.objects, new).ok_or("Bound without a pair")?;
                check(volume.phase == VolumePhase::Bound, "Bound before its volume")?;
                check(status.access_modes == volume.access_modes, "access modes are not the volume's")?;
                let first = old.status.phase == ClaimPhase::Pending;
                let class = if first { &volume.attributes_class } else { &old.status.attributes_class };
                check(status.attributes_class == *class, "attributes class is not the volume's")?;
                let capacity = if old.status.phase == ClaimPhase::Bound {
                    old.status.capacity
                } else {
                    volume.annotations.pre_resize_capacity.or(volume.capacity)
                };
                check(status.capacity == capacity, "capacity is not the volume's")
            }
        }
    }

    /// Live: the claim's volume is gone or refers to another claim.
    fn has_lost(&self, claim: &Claim) -> Result<(), String> {
        let Some(name) = &claim.volume_name else { return Ok(()) };
        check(!self.model.live_fails, "Lost though the live read of its volume failed")?;
        let live = self.model.truth.volumes.get(name);
        let is_left = live.is_none_or(|v| v.claim_ref.is_some() && uid_in(v) != Some(&claim.uid));
        check(is_left, "Lost though its volume is free or its own")
    }

    /// Live: whether the claim of the UID exists and has another volume for good; gone counts as no.
    fn claim_is_elsewhere(&self, volume: &Volume) -> Result<bool, String> {
        let uid = uid_in(volume).ok_or("nobody's volume is released")?;
        check(!self.model.live_fails, "releases a volume though the live read failed")?;
        let live = self.model.truth.claims.values().find(|claim| claim.uid == *uid);
        let named = volume.claim_ref.as_ref().is_some_and(|r| live.is_none_or(|c| c.key.name == r.name));
        match live.filter(|_| named).map(|claim| &claim.volume_name) {
            None => Ok(false),
            Some(Some(name)) if *name != volume.name => Ok(true),
            Some(_) => Err("releases a volume whose claim lives".into()),
        }
    }

    /// Live: the claim is gone; or it has another volume, and this one was provisioned for it and is to be
    /// deleted.
    fn needed_by_nobody(&self, volume: &Volume) -> Result<(), String> {
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

    fn readable_volume(&self, volume: &Volume, relation: bool) -> Result<(), String> {
        match &self.model.unreadable {
            Some(Unreadable::Volume(name)) => {
                check(*name != volume.name, "writes a volume that cannot be read")
            }
            Some(Unreadable::Claim(key)) if relation => {
                let names = volume.claim_ref.as_ref().is_some_and(|r| r.name == key.name);
                check(!names, "binds or frees a volume whose claim cannot be read")
            }
            _ => Ok(()),
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
