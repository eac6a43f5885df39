//! What upstream would do, step by step from the reference, for the guard to allow. It is no engine: it
//! picks any legal volume, and leaves out events and whatever writes nothing.

use std::sync::Arc;

use bindery_core::{
    Action, BindingMode, CapacityChange, Claim, ClaimKey, ClaimPhase, ClaimRef, Clear, Cluster, Decision,
    Edit, Exchange, FINALIZER_EXTERNAL, FINALIZER_IN_TREE, Failure, FinalizerEdit, Follows, Handle, Lookup,
    Message, Migration, Operation, OperationKind, Outcome, PluginMatch, PluginOperation, Point, Progress,
    ReclaimPolicy, Recorder, Request, Returned, Selector, Source, Step, Stop, Subject, Text, Volume,
    VolumePhase,
};

use crate::model::Model;

/// Upstream's decision with what it asked for; `None` where a question has no answer here.
pub(crate) fn decide(model: &Model, request: &Request) -> Option<(Vec<Exchange>, Decision)> {
    let mut cluster = model.clone();
    let mut recorder = Recorder::new(&mut cluster);
    let mut sync = Sync { steps: Vec::new(), model, ask: &mut recorder };
    let outcome = match &request.subject {
        Subject::SyncClaim(claim) => sync.claim(claim),
        Subject::SyncVolume(volume) => sync.volume(volume),
        Subject::SyncClaimOperation(progress) => sync.claim_operation(progress),
        Subject::SyncVolumeOperation(progress) => sync.volume_operation(progress),
        Subject::ReviewClaim { .. } | Subject::ReviewVolume { .. } => Ok(Outcome::Done),
    };
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(Halt::Error) => Outcome::Failed(Failure::Read("upstream returns an error".into())),
        Err(Halt::Unanswered) => return None,
    };
    let steps = sync.steps;
    Some((recorder.into_exchanges(), Decision::new(steps, outcome)))
}

/// Why upstream's code returns early.
enum Halt {
    Error,
    Unanswered,
}

impl From<Stop> for Halt {
    fn from(_: Stop) -> Self {
        Self::Unanswered
    }
}

type Flow<T> = Result<T, Halt>;

struct Sync<'a> {
    steps: Vec<Step>,
    model: &'a Model,
    ask: &'a mut dyn Cluster,
}

impl Sync<'_> {
    fn act(&mut self, action: Action) {
        self.steps.push(action.into());
    }

    // ---- claims: sections 5 and 9

    fn claim(&mut self, claim: &Arc<Claim>) -> Flow<Outcome> {
        let mut claim = Claim::clone(claim);
        let annotations = &claim.annotations;
        let source = annotations.storage_provisioner.clone().or(annotations.beta_storage_provisioner.clone());
        let migrated_to = self.migrated_to(source.as_ref(), annotations.migrated_to.as_ref())?;
        if migrated_to != Edit::Keep {
            let claim = claim.target();
            self.act(Action::AnnotateClaim { claim, provisioner: None, migrated_to });
        }
        match (claim.annotations.bind_completed, claim.volume_name.clone()) {
            (true, None) => Ok(self.status(&claim, ClaimPhase::Lost, None)),
            (true, Some(name)) => self.bound(&mut claim, &name),
            (false, Some(name)) => self.named(&mut claim, &name),
            (false, None) => self.unbound(&mut claim),
        }
    }

    fn bound(&mut self, claim: &mut Claim, name: &Text) -> Flow<Outcome> {
        let Some(volume) = self.found(name)? else {
            return Ok(self.status(claim, ClaimPhase::Lost, None));
        };
        match &volume.claim_ref {
            None => self.bind(claim, volume),
            Some(claim_ref) if claim_ref.uid.as_ref() == Some(&claim.uid) => self.bind(claim, volume),
            Some(_) => Ok(self.status(claim, ClaimPhase::Lost, None)),
        }
    }

    fn named(&mut self, claim: &mut Claim, name: &Text) -> Flow<Outcome> {
        let Some(volume) = self.found(name)? else {
            return Ok(self.status(claim, ClaimPhase::Pending, None));
        };
        let fits = volume.claim_ref.is_some() || {
            !volume.deleting
                && volume.capacity.unwrap_or_default() >= claim.request
                && *volume.class == *claim.class_or_empty()
                && volume.attributes_class_or_empty() == claim.attributes_class_or_empty()
                && volume.mode == claim.mode
                && volume.access_set().contains(claim.access_set())
        };
        if fits && (volume.claim_ref.is_none() || volume.is_bound_to(claim)) {
            return self.bind(claim, volume);
        }
        if volume.claim_ref.is_some() && claim.annotations.bound_by_controller {
            return Err(Halt::Error);
        }
        Ok(self.status(claim, ClaimPhase::Pending, None))
    }

    fn unbound(&mut self, claim: &mut Claim) -> Flow<Outcome> {
        let mut delays = false;
        if !claim.class_or_empty().is_empty()
            && let Lookup::Found(class) = self.ask.class(claim.class_or_empty().into())?
        {
            delays = class.binding_mode.ok_or(Halt::Error)? == BindingMode::WaitForFirstConsumer;
        }
        if matches!(claim.selector, Some(Selector::Invalid(_))) {
            return Err(Halt::Error);
        }
        let volumes: Vec<_> = self.model.seen.volumes.values().cloned().collect();
        if let Some(index) = volumes.iter().position(|volume| matches(claim, volume, delays)) {
            self.ask.identify(Handle(u32::try_from(index).unwrap_or(0)))?;
            return self.bind(claim, Arc::clone(&volumes[index]));
        }
        if claim.class.is_none()
            && let Some(class) = self.ask.default_classes()?.unwrap_or_default().first()
        {
            self.act(Action::SetClaimClass { claim: claim.target(), class: class.clone() });
            return Ok(Outcome::Done);
        }
        if !claim.class_or_empty().is_empty() && (!delays || claim.annotations.selected_node.is_some()) {
            return self.provision(claim);
        }
        Ok(self.status(claim, ClaimPhase::Pending, None))
    }

    fn found(&mut self, name: &Text) -> Flow<Option<Arc<Volume>>> {
        match self.ask.volume(Source::Overlay, name.clone())? {
            Lookup::Found(volume) => Ok(Some(volume)),
            Lookup::Absent => Ok(None),
            Lookup::Unreadable(_) | Lookup::Failed(_) => Err(Halt::Error),
        }
    }

    fn bind(&mut self, claim: &mut Claim, volume: Arc<Volume>) -> Flow<Outcome> {
        let full = ClaimRef {
            namespace: claim.key.namespace.clone(),
            name: claim.key.name.clone(),
            uid: Some(claim.uid.clone()),
        };
        if volume.claim_ref.as_ref() != Some(&full) {
            let mark = !volume.is_bound_to(claim) && !volume.annotations.bound_by_controller;
            self.act(Action::ReserveVolume { volume: volume.target(), claim: claim.target(), mark });
        }
        if volume.phase != VolumePhase::Bound {
            let message = Message::Empty;
            self.act(Action::SetVolumePhase { volume: volume.target(), phase: VolumePhase::Bound, message });
        }
        let set_volume_name = claim.volume_name.is_none();
        if set_volume_name || !claim.annotations.bind_completed {
            let mark = set_volume_name && !claim.annotations.bound_by_controller;
            let (volume, claim) = (volume.target(), claim.target());
            self.act(Action::BindClaim { claim, volume, set_volume_name, mark });
        }
        if volume.capacity.is_none() && claim.status.phase != ClaimPhase::Bound {
            return Err(Halt::Error);
        }
        Ok(self.status(claim, ClaimPhase::Bound, Some(&volume)))
    }

    /// Section 7.4.
    fn status(&mut self, claim: &Claim, phase: ClaimPhase, volume: Option<&Volume>) -> Outcome {
        let (before, mut changed) = (&claim.status, claim.status.phase != phase);
        if phase == ClaimPhase::Lost && !changed {
            return Outcome::Done;
        }
        let (mut access_modes, mut attributes_class) = (Edit::Keep, Edit::Keep);
        let mut capacity = CapacityChange::Keep;
        let switches = changed;
        match volume {
            None => {
                if !before.access_modes.is_empty() {
                    (access_modes, changed) = (Edit::Remove, true);
                }
                if before.has_capacity {
                    (capacity, changed) = (CapacityChange::Remove, true);
                }
                if before.attributes_class.is_some() {
                    (attributes_class, changed) = (Edit::Remove, true);
                }
            }
            Some(volume) => {
                if before.access_modes != volume.access_modes {
                    (access_modes, changed) = (Edit::Set(volume.access_modes.clone()), true);
                }
                match (switches, volume.annotations.pre_resize_capacity, volume.capacity) {
                    (true, Some(amount), _) => capacity = CapacityChange::Storage(amount),
                    (true, None, Some(amount)) if before.capacity != Some(amount) => {
                        capacity = CapacityChange::Whole(amount);
                    }
                    _ => {}
                }
                let first = before.phase == ClaimPhase::Pending && switches;
                if first && before.attributes_class != volume.attributes_class {
                    attributes_class = volume.attributes_class.clone().map_or(Edit::Remove, Edit::Set);
                }
            }
        }
        if changed {
            let claim = claim.target();
            self.act(Action::SetClaimStatus { claim, phase, access_modes, capacity, attributes_class });
        }
        Outcome::Done
    }

    fn provision(&mut self, claim: &Claim) -> Flow<Outcome> {
        if !self.ask.dynamic_provisioning()? {
            return Ok(Outcome::Done);
        }
        let Lookup::Found(class) = self.ask.class(claim.class_or_empty().into())? else {
            return Ok(Outcome::Done);
        };
        let provisioner = class.provisioner.clone();
        let kind = if self.ask.migration(provisioner.clone())? != Migration::Off {
            OperationKind::ProvisionExternal
        } else if self.ask.plugin(provisioner.clone())?.is_some_and(|plugin| plugin.provisions) {
            OperationKind::Provision
        } else if provisioner.starts_with("kubernetes.io/") {
            return Ok(Outcome::Done);
        } else {
            OperationKind::ProvisionExternal
        };
        let operation = Operation { kind, plugin: provisioner, uid: claim.uid.clone() };
        self.act(Action::StartOperation(operation));
        Ok(Outcome::Done)
    }

    fn claim_operation(&mut self, progress: &Progress<Claim>) -> Flow<Outcome> {
        let (claim, plugin) = (&progress.object, progress.operation.plugin.clone());
        let in_tree = progress.operation.kind == OperationKind::Provision;
        let failed = matches!(progress.returned, Returned::Failed(_));
        let name: Text = format!("pvc-{}", claim.uid).into();
        let create = |sync: &mut Self, attempt| {
            let (claim, class) = (claim.target(), claim.class_or_empty().into());
            sync.act(Action::CreateVolume { claim, name: name.clone(), class, plugin: plugin.clone() });
            Outcome::Continue(Point::Created { attempt })
        };
        let clean = |sync: &mut Self, attempt| {
            sync.act(Action::CallPlugin { plugin: plugin.clone(), operation: PluginOperation::Delete });
            Outcome::Continue(Point::CleanedUp { attempt })
        };
        match progress.point {
            Point::Start | Point::Annotated if progress.returned != Returned::Success => Err(Halt::Error),
            Point::Start => {
                let mut named = plugin.clone();
                if let (false, Migration::On(driver)) = (in_tree, self.ask.migration(plugin.clone())?) {
                    named = driver;
                }
                if claim.annotations.storage_provisioner.as_ref() == Some(&named) {
                    return if in_tree { self.call_provision(&name, &plugin) } else { Ok(Outcome::Done) };
                }
                let migrated_to = self.migrated_to(Some(&named), claim.annotations.migrated_to.as_ref())?;
                let provisioner = Some(named);
                self.act(Action::AnnotateClaim { claim: claim.target(), provisioner, migrated_to });
                Ok(Outcome::Continue(Point::Annotated))
            }
            Point::Annotated if in_tree => self.call_provision(&name, &plugin),
            Point::Provisioned if in_tree && failed => {
                if claim.annotations.selected_node.is_some() {
                    let action = Action::RemoveSelectedNode { claim: claim.target() };
                    self.steps.push(Step { action, follows: Follows::Tolerated });
                }
                Err(Halt::Error)
            }
            Point::Provisioned if in_tree && progress.returned == Returned::Success => Ok(create(self, 1)),
            Point::Created { attempt } if in_tree && failed && attempt < 5 => Ok(create(self, attempt + 1)),
            Point::Created { .. } if in_tree && failed => Ok(clean(self, 1)),
            Point::CleanedUp { attempt } if in_tree && failed && attempt < 5 => Ok(clean(self, attempt + 1)),
            _ => Ok(Outcome::Done),
        }
    }

    fn call_provision(&mut self, name: &Text, plugin: &Text) -> Flow<Outcome> {
        match self.ask.volume(Source::Live, name.clone())? {
            Lookup::Absent => {}
            Lookup::Found(_) => return Ok(Outcome::Done),
            Lookup::Unreadable(_) | Lookup::Failed(_) => return Err(Halt::Error),
        }
        let (plugin, operation) = (plugin.clone(), PluginOperation::Provision);
        self.act(Action::CallPlugin { plugin, operation });
        Ok(Outcome::Continue(Point::Provisioned))
    }

    /// Section 11.1.
    fn migrated_to(&mut self, source: Option<&Text>, current: Option<&Text>) -> Flow<Edit<Text>> {
        let Some(source) = source else { return Ok(Edit::Keep) };
        Ok(match self.ask.migration(source.clone())? {
            Migration::On(driver) if current != Some(&driver) => Edit::Set(driver),
            Migration::Off if current.is_some_and(|driver| !driver.is_empty()) => Edit::Remove,
            Migration::On(_) | Migration::Off | Migration::Untranslatable => Edit::Keep,
        })
    }

    // ---- volumes: sections 4, 10 and 11

    fn volume(&mut self, volume: &Arc<Volume>) -> Flow<Outcome> {
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
            Some(_)
                if volume.annotations.provisioned_by.is_some() && volume.policy == ReclaimPolicy::Delete =>
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

    fn volume_operation(&mut self, progress: &Progress<Volume>) -> Flow<Outcome> {
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

/// Section 8, for one volume.
fn matches(claim: &Claim, volume: &Volume, delays: bool) -> bool {
    let mine = volume.is_bound_to(claim);
    if (volume.claim_ref.is_some() && !mine)
        || volume.capacity.unwrap_or_default() < claim.request
        || volume.mode != claim.mode
        || volume.attributes_class_or_empty() != claim.attributes_class_or_empty()
        || volume.deleting
        || !volume.access_set().contains(claim.access_set())
    {
        return false;
    }
    let Some(Selector::Requirements(requirements)) =
        claim.selector.clone().or(Some(Selector::Requirements(vec![])))
    else {
        return false;
    };
    mine || (!delays
        && volume.phase == VolumePhase::Available
        && requirements.iter().all(|r| r.matches(volume.labels.get(&r.key).map(|value| &**value)))
        && *volume.class == *claim.class_or_empty())
}
