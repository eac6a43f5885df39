//! `syncVolume`, and the delete and recycle operations: sections 4, 10 and 11 of the reference.

use std::sync::Arc;

use bindery_core::{
    Action, Claim, ClaimKey, Clear, Edit, FINALIZER_EXTERNAL, FINALIZER_IN_TREE, FinalizerEdit, Follows,
    Lookup, Message, Migration, Operation, OperationKind, Outcome, PluginMatch, PluginOperation, Point,
    Progress, ReclaimPolicy, Returned, Source, Step, Text, Volume, VolumePhase,
};

use super::{Flow, Halt, Sync};

impl Sync<'_> {
    pub(super) fn volume(&mut self, volume: &Arc<Volume>) -> Flow<Outcome> {
        let mut volume = Volume::clone(volume);
        self.finalizers(&mut volume)?;
        let Some((key, uid)) = volume.claim_ref.as_ref().and_then(|r| {
            Some((ClaimKey { namespace: r.namespace.clone(), name: r.name.clone() }, r.uid.clone()?))
        }) else {
            return Ok(self.phase(&mut volume, VolumePhase::Available, Message::Empty));
        };
        let claim = self.claim_of(&volume, &key)?.filter(|claim| claim.uid == uid);
        let Some(claim) = claim else {
            return self.release(&mut volume);
        };
        match &claim.volume_name {
            None => {
                self.act(Action::EnqueueClaim(key));
                Ok(Outcome::Done)
            }
            Some(name) if *name == volume.name => {
                Ok(self.phase(&mut volume, VolumePhase::Bound, Message::Empty))
            }
            // Not upstream's: it takes any provisioned volume for the claim's own.
            Some(_)
                if volume.annotations.provisioned_by.is_some()
                    && volume.policy == ReclaimPolicy::Delete
                    && volume.name.ends_with(&*uid.0) =>
            {
                self.release(&mut volume)
            }
            Some(_) => Ok(self.unbind(&mut volume)),
        }
    }

    /// Section 4.1.
    fn claim_of(&mut self, volume: &Volume, key: &ClaimKey) -> Flow<Option<Arc<Claim>>> {
        let uid = volume.claim_ref.as_ref().and_then(|claim_ref| claim_ref.uid.clone());
        let mut found = self.ask.claim(Source::Overlay, key.clone())?;
        let released = matches!(volume.phase, VolumePhase::Released | VolumePhase::Failed);
        if found == Lookup::Absent && !released {
            found = self.ask.claim(Source::Cache, key.clone())?;
        }
        let foreign = matches!(&found, Lookup::Found(claim) if Some(&claim.uid) != uid.as_ref());
        if (found == Lookup::Absent && !released) || foreign {
            found = self.ask.claim(Source::Live, key.clone())?;
        }
        match found {
            Lookup::Found(claim) => Ok(Some(claim)),
            Lookup::Absent => Ok(None),
            Lookup::Unreadable(_) | Lookup::Failed(_) => Err(Halt::Error),
        }
    }

    fn phase(&mut self, volume: &mut Volume, phase: VolumePhase, message: Message) -> Outcome {
        if volume.phase != phase {
            volume.phase = phase;
            self.act(Action::SetVolumePhase { volume: volume.target(), phase, message });
        }
        Outcome::Done
    }

    fn unbind(&mut self, volume: &mut Volume) -> Outcome {
        let clear = if volume.annotations.bound_by_controller { Clear::Whole } else { Clear::Uid };
        self.act(Action::UnbindVolume { volume: volume.target(), clear });
        self.phase(volume, VolumePhase::Available, Message::Empty)
    }

    fn release(&mut self, volume: &mut Volume) -> Flow<Outcome> {
        if !matches!(volume.phase, VolumePhase::Released | VolumePhase::Failed) {
            self.phase(volume, VolumePhase::Released, Message::Empty);
        }
        if volume.annotations.migrated_to.as_ref().is_some_and(|driver| !driver.is_empty()) {
            return Ok(Outcome::Done);
        }
        let kind = match volume.policy {
            ReclaimPolicy::Retain => return Ok(Outcome::Done),
            ReclaimPolicy::Unknown => {
                return Ok(self.phase(volume, VolumePhase::Failed, Message::UnknownReclaimPolicy));
            }
            ReclaimPolicy::Delete => OperationKind::Delete,
            ReclaimPolicy::Recycle => OperationKind::Recycle,
        };
        self.act(Action::StartOperation(Operation { kind, plugin: "".into(), uid: volume.uid.clone() }));
        Ok(Outcome::Done)
    }

    /// Section 11.
    fn finalizers(&mut self, volume: &mut Volume) -> Flow<()> {
        let Some(by) = volume.annotations.provisioned_by.clone() else { return Ok(()) };
        let migrated_to = self.migrated_to(Some(&by), volume.annotations.migrated_to.as_ref())?;
        let (mut in_tree, mut external) = (FinalizerEdit::Keep, FinalizerEdit::Keep);
        let has = volume.has_finalizer(FINALIZER_IN_TREE);
        if self.ask.migration(by.clone())? != Migration::Off {
            in_tree = if has { FinalizerEdit::Remove } else { FinalizerEdit::Keep };
        } else if by.starts_with("kubernetes.io/") {
            in_tree = match (volume.policy == ReclaimPolicy::Delete, has) {
                (true, false) => FinalizerEdit::Add,
                (false, true) => FinalizerEdit::Remove,
                _ => FinalizerEdit::Keep,
            };
            if volume.has_finalizer(FINALIZER_EXTERNAL) {
                external = FinalizerEdit::Remove;
            }
        }
        let keep = FinalizerEdit::Keep;
        if migrated_to != Edit::Keep || in_tree != keep || external != keep {
            match &migrated_to {
                Edit::Keep => {}
                Edit::Set(driver) => volume.annotations.migrated_to = Some(driver.clone()),
                Edit::Remove => volume.annotations.migrated_to = None,
            }
            self.act(Action::AnnotateVolume {
                volume: volume.target(),
                migrated_to,
                in_tree_finalizer: in_tree,
                external_finalizer: external,
            });
        }
        Ok(())
    }

    pub(super) fn volume_operation(&mut self, progress: &Progress<Volume>) -> Flow<Outcome> {
        let mut object = progress.object.clone();
        let recycles = progress.operation.kind == OperationKind::Recycle;
        let failure = match &progress.returned {
            Returned::Failed(error) => Some(error.clone()),
            _ => None,
        };
        match (progress.point, failure) {
            (Point::Start, _) if recycles => self.recycle(&progress.object.name),
            (Point::Start, _) => self.delete(&mut object),
            (Point::Deleted, Some(error)) if !recycles => {
                self.phase(&mut object, VolumePhase::Failed, Message::DeleteFailed(error));
                Err(Halt::Error)
            }
            (Point::Deleted, None) if !recycles && progress.returned == Returned::Success => {
                let Lookup::Found(live) = self.ask.volume(Source::Live, object.name.clone())? else {
                    self.phase(&mut object, VolumePhase::Failed, Message::DeleteFailed("gone".into()));
                    return Err(Halt::Error);
                };
                if live.uid != object.uid || !live.has_finalizer(FINALIZER_IN_TREE) {
                    return Ok(Outcome::Continue(Point::FinalizerRemoved));
                }
                self.act(Action::AnnotateVolume {
                    volume: live.target(),
                    migrated_to: Edit::Keep,
                    in_tree_finalizer: FinalizerEdit::Remove,
                    external_finalizer: FinalizerEdit::Keep,
                });
                Ok(Outcome::Continue(Point::FinalizerRemoved))
            }
            (Point::FinalizerRemoved, None) if !recycles && progress.returned == Returned::Success => {
                let action =
                    Action::DeleteVolume { volume: progress.fresh.as_ref().unwrap_or(&object).target() };
                self.steps.push(Step { action, follows: Follows::Tolerated });
                Ok(Outcome::Done)
            }
            (Point::Recycled, failure) if recycles => {
                let mut fresh = progress.fresh.clone().unwrap_or(object);
                match failure {
                    Some(error) => {
                        Ok(self.phase(&mut fresh, VolumePhase::Failed, Message::RecycleFailed(error)))
                    }
                    None if progress.returned == Returned::Success => Ok(self.unbind(&mut fresh)),
                    None => Ok(Outcome::Done),
                }
            }
            _ => Ok(Outcome::Done),
        }
    }

    /// Section 10.2; `None` where upstream does nothing.
    fn released(&mut self, name: &Text) -> Flow<Option<Arc<Volume>>> {
        let Lookup::Found(live) = self.ask.volume(Source::Live, name.clone())? else { return Ok(None) };
        let Some((key, uid)) = live.claim_ref.as_ref().and_then(|r| {
            Some((ClaimKey { namespace: r.namespace.clone(), name: r.name.clone() }, r.uid.clone()?))
        }) else {
            return Ok(None);
        };
        let is_released = match self.ask.claim(Source::Overlay, key)? {
            Lookup::Found(claim) if claim.uid == uid => {
                claim.volume_name.as_ref().is_some_and(|name| *name != live.name)
            }
            Lookup::Found(_) | Lookup::Absent => true,
            Lookup::Unreadable(_) | Lookup::Failed(_) => false,
        };
        Ok(is_released.then_some(live))
    }

    fn delete(&mut self, object: &mut Volume) -> Flow<Outcome> {
        let by = object.annotations.provisioned_by.clone().filter(|by| !by.is_empty());
        let plugin = match by {
            Some(by) => match self.ask.plugin(by.clone())?.filter(|plugin| plugin.deletes) {
                Some(plugin) => plugin,
                None if !by.starts_with("kubernetes.io/") => return Ok(Outcome::Done),
                None => return Ok(self.phase(object, VolumePhase::Failed, Message::NoPlugin(by))),
            },
            None if object.annotations.migrated_to.is_some() || object.is_csi() => return Ok(Outcome::Done),
            None => match self.ask.plugin_for_volume(object.name.clone())? {
                PluginMatch::One(plugin) if plugin.deletes => plugin,
                _ => return Ok(self.phase(object, VolumePhase::Failed, Message::NoPlugin("".into()))),
            },
        };
        if self.released(&object.name)?.is_none() {
            return Ok(Outcome::Done);
        }
        self.act(Action::CallPlugin { plugin: plugin.name, operation: PluginOperation::Delete });
        Ok(Outcome::Continue(Point::Deleted))
    }

    fn recycle(&mut self, name: &Text) -> Flow<Outcome> {
        let Some(live) = self.released(name)? else { return Ok(Outcome::Done) };
        let key = live.claim_ref.as_ref().map(|r| ClaimKey::new(r.namespace.clone(), r.name.clone()));
        if let Some(key) = key {
            let is_used = self.ask.pods(key.clone())?.unwrap_or_default().iter().any(|pod| !pod.terminated);
            let has_namesake = matches!(self.ask.claim(Source::Overlay, key)?, Lookup::Found(_));
            if is_used && !has_namesake {
                return Ok(Outcome::Done);
            }
        }
        let mut fresh = Volume::clone(&live);
        match self.ask.plugin_for_volume(name.clone())? {
            PluginMatch::One(plugin) if plugin.recycles => {
                self.act(Action::CallPlugin { plugin: plugin.name, operation: PluginOperation::Recycle });
                Ok(Outcome::Continue(Point::Recycled))
            }
            _ => Ok(self.phase(&mut fresh, VolumePhase::Failed, Message::NoRecycler)),
        }
    }
}
