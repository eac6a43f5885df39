//! G9 for operations: which may start, which plugin is called when, and how one goes on.

use super::case::RunningOperation;
use super::claim::is_settled;
use super::step::{StepCheck, key_of};
use super::volume::{is_migrated, is_released};
use super::{Breach, Objection};
use crate::{
    Action, BindingMode, Claim, ClaimTarget, Decision, FinalizerEdit, Follows, IN_TREE_PREFIX, Key, Lookup,
    Migration, Operation, OperationKind, Outcome, PluginOperation, Point, ReclaimPolicy, Subject, Text, Uid,
    Volume,
};

/// Most attempts of one operation to create or clean up a volume; upstream makes five.
const ATTEMPTS_MAX: u32 = 16;

impl StepCheck<'_> {
    /// Starts an operation on the subject of the sync.
    pub(super) fn start(&self, operation: &Operation) -> Result<(), Objection> {
        match (&self.case.request.subject, operation.kind) {
            (Subject::SyncClaim(claim), OperationKind::ProvisionExternal | OperationKind::Provision)
                if claim.uid == operation.uid =>
            {
                let claim = self.claim(&claim.target())?;
                self.start_provision(&claim, operation)
            }
            (Subject::SyncVolume(volume), OperationKind::Delete | OperationKind::Recycle)
                if volume.uid == operation.uid =>
            {
                let volume = self.volume(&volume.target())?;
                self.fits_policy(&volume, operation.kind)?;
                self.reclaimable(&volume, operation.kind)?;
                // Once it runs, the reclaim policy that it reads live is its fence: a reclaimer that keeps
                // the volume from now on sets that.
                self.not_kept(&volume)
            }
            (_, kind) => {
                let sentence =
                    format!("{kind:?} of UID {} is not an operation on the synced object", operation.uid);
                self.refuse_subject(Breach::OutOfPlace, sentence)
            }
        }
    }

    fn start_provision(&self, claim: &Claim, operation: &Operation) -> Result<(), Objection> {
        let no = |why: String| {
            self.refuse_claim(
                Breach::OperationWrong,
                claim,
                format!("{:?} cannot start: {why}", operation.kind),
            )
        };
        if is_settled(claim) {
            return no("spec.volumeName or bind-completed is set".into());
        }
        if !self.case.provisioning_on() {
            return no("the engine was not told that dynamic provisioning is on".into());
        }
        let name = claim.class.as_deref().unwrap_or_default();
        let Lookup::Found(class) = self.case.class(name) else {
            return no(format!("class {name:?} was not found"));
        };
        let waits = match class.binding_mode {
            None => true,
            Some(BindingMode::WaitForFirstConsumer) => claim.annotations.selected_node.is_none(),
            Some(BindingMode::Immediate) => false,
        };
        if name.is_empty() || waits {
            return no(format!("class {name:?} is empty, has no binding mode, or waits for the scheduler"));
        }
        if !self.is_provisioner(operation, &class.provisioner) {
            return no(format!(
                "{:?} does not serve provisioner {:?}, by what the engine was told of migration and plugins",
                operation.plugin, class.provisioner
            ));
        }
        self.policies_answer(claim)
    }

    /// Whether the operation names the plugin or driver that serves the provisioner of a class (reference
    /// 9.2).
    fn is_provisioner(&self, operation: &Operation, provisioner: &Text) -> bool {
        let migration = self.case.migration(provisioner);
        let is_named = operation.plugin == *provisioner;
        if operation.kind == OperationKind::Provision {
            let plugin = self.case.plugin(provisioner);
            return is_named
                && migration == Some(&Migration::Off)
                && plugin.is_some_and(|plugin| plugin.name == *provisioner && plugin.provisions);
        }
        match migration {
            None => false,
            Some(Migration::Off) => is_named && !provisioner.starts_with(IN_TREE_PREFIX),
            Some(Migration::On(driver)) => is_named || operation.plugin == *driver,
            Some(Migration::Untranslatable) => is_named,
        }
    }

    /// Whether policy and phase ask for that operation, and no external provisioner does it.
    fn fits_policy(&self, volume: &Volume, kind: OperationKind) -> Result<(), Objection> {
        let policy = match kind {
            OperationKind::Delete => ReclaimPolicy::Delete,
            OperationKind::Recycle => ReclaimPolicy::Recycle,
            OperationKind::Provision | OperationKind::ProvisionExternal => {
                return self.refuse_volume(Breach::OutOfPlace, volume, "a volume is not provisioned for");
            }
        };
        if volume.policy != policy || !is_released(volume) {
            let sentence = format!(
                "{kind:?} does not fit persistentVolumeReclaimPolicy {:?} and status.phase {:?}",
                volume.policy,
                volume.phase.name()
            );
            return self.refuse_volume(Breach::OperationWrong, volume, sentence);
        }
        if is_migrated(volume) {
            let sentence = format!("migrated-to is {:?}", volume.annotations.migrated_to);
            return self.refuse_volume(Breach::Migrated, volume, sentence);
        }
        Ok(())
    }

    /// Calls a plugin; the last step of a decision of an operation.
    pub(super) fn call(&self, plugin: &Text, call: PluginOperation) -> Result<(), Objection> {
        let last = self.case.decision.steps.len().saturating_sub(1);
        if self.step.and_then(|step| usize::try_from(step).ok()) != Some(last) {
            return self.refuse_subject(Breach::PluginCallWrong, "a plugin is called in the last step only");
        }
        let subject = &self.case.request.subject;
        match (subject, self.case.running()) {
            (Subject::SyncClaimOperation(progress), Some(running)) => {
                self.call_for_claim(&progress.object, running, plugin, call)
            }
            (Subject::SyncVolumeOperation(progress), Some(running)) => {
                self.call_for_volume(&progress.object, running, plugin, call)
            }
            _ => self.refuse_subject(Breach::OutOfPlace, "a plugin is called in an operation only"),
        }
    }

    fn call_for_claim(
        &self,
        claim: &Claim,
        running: RunningOperation<'_>,
        plugin: &Text,
        call: PluginOperation,
    ) -> Result<(), Objection> {
        let no = |why: &str| {
            let sentence = format!("plugin {plugin:?} cannot {call:?} at {:?}: {why}", running.point);
            self.refuse_claim(Breach::PluginCallWrong, claim, sentence)
        };
        if plugin != running.plugin || *running.uid != claim.uid || running.kind != OperationKind::Provision {
            return no("the operation was started with another plugin, claim or kind");
        }
        let name = volume_name(&claim.uid);
        match (call, running.point) {
            (PluginOperation::Provision, Point::Start | Point::Annotated) if running.succeeded() => {
                self.claim(&claim.target())?;
                // A volume of that name is this claim's, and its asset exists already.
                if !matches!(self.case.told_live_volume(&name), Some(Lookup::Absent)) {
                    return no(&format!("no live read in this decision shows that volume {name} is absent"));
                }
                if is_settled(claim) { no("the claim has a volume") } else { Ok(()) }
            }
            (PluginOperation::Delete, Point::Created { .. } | Point::CleanedUp { .. })
                if running.failed() =>
            {
                // A create whose answer was lost may have succeeded, and another binder may have created the
                // volume since.
                if !matches!(self.case.told_live_volume(&name), Some(Lookup::Absent)) {
                    return no(&format!("no live read in this decision shows that volume {name} is absent"));
                }
                if self.case.view.volume(&name) != Lookup::Absent {
                    let object = Key::Volume(name.into());
                    return Err(Objection::Stale { object, what: "it exists and needs its asset" });
                }
                Ok(())
            }
            _ => no("that is not the next thing to do"),
        }
    }

    fn call_for_volume(
        &self,
        volume: &Volume,
        running: RunningOperation<'_>,
        plugin: &Text,
        call: PluginOperation,
    ) -> Result<(), Objection> {
        let no = |why: &str| {
            let sentence = format!("plugin {plugin:?} cannot {call:?} at {:?}: {why}", running.point);
            self.refuse_volume(Breach::PluginCallWrong, volume, sentence)
        };
        let fits = match call {
            PluginOperation::Provision => false,
            PluginOperation::Delete => running.kind == OperationKind::Delete,
            PluginOperation::Recycle => running.kind == OperationKind::Recycle,
        };
        if !fits || *running.uid != volume.uid || running.point != Point::Start {
            return no("that is not the next thing to do");
        }
        self.readable_volume(&volume.name, || Key::Volume(volume.name.clone()))?;
        let live = match self.case.told_live_volume(&volume.name) {
            Some(Lookup::Found(live)) if live.uid == volume.uid => live,
            _ => return no("no live read in this decision shows the volume of that UID"),
        };
        let able = match call {
            PluginOperation::Delete => self.is_deleter(volume, plugin),
            PluginOperation::Provision | PluginOperation::Recycle => self
                .case
                .plugin_for(&volume.name)
                .is_some_and(|found| found.name == *plugin && found.recycles),
        };
        if !able {
            return no("the engine was not told that this plugin can");
        }
        self.fits_policy(live, running.kind)?;
        if call == PluginOperation::Recycle && !self.is_unused(live) {
            return no("pods that use its claim still run, or were not asked for");
        }
        self.reclaimable(live, running.kind)
    }

    /// Whether that plugin deletes the volume's asset (upstream's `findDeletablePlugin`).
    fn is_deleter(&self, volume: &Volume, plugin: &Text) -> bool {
        let found = match volume.annotations.provisioned_by.as_deref().filter(|by| !by.is_empty()) {
            Some(by) => self.case.plugin(by).filter(|found| *found.name == *by),
            None if volume.annotations.migrated_to.is_some() || &*volume.source == "csi" => None,
            None => self.case.plugin_for(&volume.name),
        };
        found.is_some_and(|found| found.name == *plugin && found.deletes)
    }

    /// Whether no pod uses the volume. Pods of a cached claim with the same name use another volume.
    fn is_unused(&self, volume: &Volume) -> bool {
        volume.claim_ref.as_ref().is_some_and(|claim_ref| {
            let key = key_of(claim_ref);
            self.case
                .pods(&key)
                .is_some_and(|pods| pods.iter().all(|pod| pod.terminated) || self.case.claim_cached(&key))
        })
    }

    /// Creates the volume that the plugin has provisioned.
    pub(super) fn create(
        &self,
        target: &ClaimTarget,
        name: &Text,
        class: &Text,
        plugin: &Text,
    ) -> Result<(), Objection> {
        let claim = self.claim(target)?;
        let running = self.case.running().filter(|running| {
            let is_due = match running.point {
                Point::Provisioned => running.succeeded(),
                Point::Created { .. } => running.failed(),
                _ => false,
            };
            is_due && running.kind == OperationKind::Provision && *running.uid == claim.uid
        });
        let Some(running) = running else {
            let sentence = "a volume is created only after its own provision operation has made the asset";
            return self.refuse_claim(Breach::OutOfPlace, &claim, sentence);
        };
        let derived = volume_name(&claim.uid);
        if **name != *derived {
            let sentence = format!("the new volume would be {name:?}, not {derived:?}");
            return self.refuse_claim(Breach::NameNotDerived, &claim, sentence);
        }
        let wanted = claim.class.as_deref().unwrap_or_default();
        if **class != *wanted || plugin != running.plugin || is_settled(&claim) {
            let sentence = format!(
                "the new volume would have class {class:?} of plugin {plugin:?}, not {wanted:?} of {:?}",
                running.plugin
            );
            return self.refuse_claim(Breach::OperationWrong, &claim, sentence);
        }
        Ok(())
    }

    /// Checks how the operation goes on: only to the point that its last step leads to, so that a later
    /// decision can rely on the point.
    pub(super) fn outcome(&self) -> Result<(), Objection> {
        let decision = self.case.decision;
        let running = self.case.running();
        if decision.wait_ms > 0 && running.is_none() {
            return self.refuse_subject(Breach::OutOfPlace, "only operations wait");
        }
        let mut dues = decision.steps.iter().filter_map(|step| match &step.action {
            Action::CallPlugin { operation, .. } => Some((Due::Call(*operation), step.follows)),
            Action::CreateVolume { .. } => Some((Due::Create, step.follows)),
            _ => None,
        });
        let due = dues.next();
        if due.is_some_and(|(_, follows)| follows != Follows::Success) {
            let sentence = "the operation would go on by the outcome of a step that need not succeed";
            return self.refuse_subject(Breach::OperationWrong, sentence);
        }
        let due = due.map(|(due, _)| due);
        if dues.next().is_some() {
            let sentence = "the operation would wait for two outcomes at once";
            return self.refuse_subject(Breach::OperationWrong, sentence);
        }
        let goes_on = match (&decision.outcome, running) {
            (Outcome::Done | Outcome::Failed(_), _) => due.is_none(),
            (Outcome::Continue(_), None) => false,
            (Outcome::Continue(point), Some(running)) => may_continue_at(*point, running, due, decision),
        };
        if !goes_on {
            let sentence = format!("{:?} does not follow from the steps of the decision", decision.outcome);
            return self.refuse_subject(Breach::OperationWrong, sentence);
        }
        Ok(())
    }
}

/// A step whose outcome the operation has to wait for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    Call(PluginOperation),
    Create,
}

/// Whether an operation may continue at the point `next`.
fn may_continue_at(
    next: Point,
    running: RunningOperation<'_>,
    due: Option<Due>,
    decision: &Decision,
) -> bool {
    use OperationKind::{Delete, Provision, ProvisionExternal, Recycle};
    let is_next = |attempt: u32, before: u32| attempt == before + 1 && attempt <= ATTEMPTS_MAX;
    match (running.kind, running.point, next) {
        (ProvisionExternal | Provision, Point::Start, Point::Annotated) => due.is_none(),
        (Provision, Point::Start | Point::Annotated, Point::Provisioned) => {
            due == Some(Due::Call(PluginOperation::Provision))
        }
        (Provision, Point::Provisioned, Point::Created { attempt }) => {
            due == Some(Due::Create) && is_next(attempt, 0)
        }
        (Provision, Point::Created { attempt: before }, Point::Created { attempt }) => {
            due == Some(Due::Create) && is_next(attempt, before)
        }
        (Provision, Point::Created { .. }, Point::CleanedUp { attempt }) => {
            due == Some(Due::Call(PluginOperation::Delete)) && is_next(attempt, 0)
        }
        (Provision, Point::CleanedUp { attempt: before }, Point::CleanedUp { attempt }) => {
            due == Some(Due::Call(PluginOperation::Delete)) && is_next(attempt, before)
        }
        (Delete, Point::Start, Point::Deleted) => due == Some(Due::Call(PluginOperation::Delete)),
        (Delete, Point::Deleted, Point::FinalizerRemoved) => {
            running.succeeded() && due.is_none() && decision.actions().all(is_finalizer_write)
        }
        (Recycle, Point::Start, Point::Recycled) => due == Some(Due::Call(PluginOperation::Recycle)),
        _ => false,
    }
}

/// Whether the action belongs to the removal of the finalizer.
fn is_finalizer_write(action: &Action) -> bool {
    matches!(
        action,
        Action::AnnotateVolume { in_tree_finalizer: FinalizerEdit::Remove, .. }
            | Action::Emit(_)
            | Action::EnqueueClaim(_)
    )
}

/// The name of the volume that is provisioned for a claim.
fn volume_name(uid: &Uid) -> String {
    format!("pvc-{uid}")
}
