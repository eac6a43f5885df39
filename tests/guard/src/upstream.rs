//! What upstream would do, step by step from the reference, for the guard to allow. It is no engine: it
//! picks any legal volume, and leaves out events and whatever writes nothing.

mod volumes;

use std::sync::Arc;

use bindery_core::{
    Action, BindingMode, CapacityChange, Claim, ClaimPhase, ClaimRef, Cluster, Decision, Edit, Exchange,
    Failure, Follows, Handle, Lookup, Message, Migration, Operation, OperationKind, Outcome, PluginOperation,
    Point, Progress, Recorder, Request, Returned, Selector, Source, Step, Stop, Subject, Text, Volume,
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
            // Not upstream's: nothing is cleaned up before a live read shows that the volume is not there.
            Point::Created { .. } | Point::CleanedUp { .. }
                if in_tree && failed && self.ask.volume(Source::Live, name.clone())? != Lookup::Absent =>
            {
                Ok(Outcome::Done)
            }
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
