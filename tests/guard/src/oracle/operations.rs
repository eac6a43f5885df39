//! Harm that an operation does other than by its writes.

use bindery_core::{
    Operation, OperationKind, PluginOperation, Point, ReclaimPolicy, Returned, Subject, Text,
};

use super::{Trial, check};

impl Trial<'_> {
    pub(super) fn start(&self, operation: &Operation) -> Result<(), String> {
        match (&self.request.subject, operation.kind) {
            (Subject::SyncVolume(volume), OperationKind::Delete | OperationKind::Recycle) => {
                check(volume.uid == operation.uid, "reclaims another volume")?;
                // As earlier steps left it.
                let written = self.objects.volumes.get(&volume.name);
                let written = written.filter(|_| self.returned.contains_key(&volume.uid));
                let volume = written.unwrap_or(volume);
                let wanted = if operation.kind == OperationKind::Delete {
                    ReclaimPolicy::Delete
                } else {
                    ReclaimPolicy::Recycle
                };
                check(volume.policy == wanted, "reclaims against the policy")?;
                self.is_not_kept(volume)?;
                match operation.kind {
                    OperationKind::Delete => self.is_not_needed(volume),
                    _ => self.claim_is_elsewhere(volume).map(|_| ()),
                }
            }
            (Subject::SyncClaim(claim), OperationKind::Provision | OperationKind::ProvisionExternal) => {
                let settled = claim.annotations.bind_completed || claim.volume_name.is_some();
                let may = claim.uid == operation.uid && !settled && self.model.provisioning;
                check(may, "provisions for a claim that needs no volume")?;
                let waits = self.model.waits(claim.class_or_empty());
                let chosen = claim.annotations.selected_node.is_some();
                check(waits == Some(false) || (waits == Some(true) && chosen), "provisions too early")
            }
            _ => Err("starts an operation on another object".into()),
        }
    }

    pub(super) fn call(&self, plugin: &Text, call: PluginOperation) -> Result<(), String> {
        let (kind, _, point, returned) = self.progress().ok_or("calls a plugin outside an operation")?;
        match (&self.request.subject, call) {
            (Subject::SyncClaimOperation(progress), PluginOperation::Provision) => {
                let claim = &progress.object;
                let name: Text = format!("pvc-{}", claim.uid).into();
                check(kind == OperationKind::Provision, "provisions for a claim of an external provisioner")?;
                check(matches!(point, Point::Start | Point::Annotated), "provisions twice")?;
                check(progress.operation.plugin == *plugin, "provisions with the wrong plugin")?;
                check(!self.model.truth.volumes.contains_key(&name), "provisions a second asset")?;
                check(
                    !claim.annotations.bind_completed && claim.volume_name.is_none(),
                    "provisions for a claim that has a volume",
                )
            }
            (Subject::SyncClaimOperation(progress), PluginOperation::Delete) => {
                let failed = matches!(returned, Returned::Failed(_) | Returned::InUse(_));
                let due = matches!(point, Point::Created { .. } | Point::CleanedUp { .. });
                let own = progress.operation.plugin == *plugin && kind == OperationKind::Provision;
                let name: Text = format!("pvc-{}", progress.object.uid).into();
                let needed = self.model.truth.volumes.contains_key(&name);
                check(failed && due && own && !needed, "deletes an asset that a volume needs")
            }
            (Subject::SyncVolumeOperation(progress), PluginOperation::Delete | PluginOperation::Recycle) => {
                check(point == Point::Start, "reclaims twice")?;
                let name = &progress.object.name;
                let live = self.model.truth.volumes.get(name).filter(|v| v.uid == progress.operation.uid);
                let live = live.ok_or("reclaims a volume that does not exist")?;
                let deletes = call == PluginOperation::Delete;
                let wanted = if deletes { ReclaimPolicy::Delete } else { ReclaimPolicy::Recycle };
                check(live.policy == wanted, "reclaims against the policy")?;
                let able = self
                    .model
                    .plugins
                    .iter()
                    .any(|p| p.name == *plugin && if deletes { p.deletes } else { p.recycles });
                check(able, "calls a plugin that cannot do it")?;
                let namesake = live
                    .claim_ref
                    .as_ref()
                    .is_some_and(|r| self.model.seen.claims.keys().any(|key| key.name == r.name));
                check(
                    deletes || !self.model.pod_runs || namesake,
                    "scrubs a volume that a running pod uses",
                )?;
                if deletes { self.is_not_needed(live) } else { self.claim_is_elsewhere(live).map(|_| ()) }
            }
            _ => Err("calls a plugin for another kind of object".into()),
        }
    }
}
