//! Choosing the provisioner of a claim: upstream's `provisionClaim`.

use bindery_core::{
    Action, Claim, Class, EventKind, Failure, IN_TREE_PREFIX, Migration, Operation, OperationKind,
    OperationState, Text, Uid,
};

use crate::call::{Call, Halt};
use crate::claim::explain;

/// Starts provisioning for `claim`, whose class has the name `class_name` and is `class` where it exists.
/// An obstacle is reported by an event and does not fail the sync.
pub(crate) fn provision(
    call: &mut Call<'_>,
    claim: &Claim,
    class_name: &Text,
    class: Option<&Class>,
) -> Result<(), Halt> {
    if !call.cluster.dynamic_provisioning()? {
        return explain(call, claim);
    }
    let Some(class) = class else {
        let error = format!("storageclass.storage.k8s.io {class_name:?} not found").into();
        return give_up(call, claim, Failure::Class { name: class_name.clone(), error });
    };
    match provisioner(call, &class.provisioner)? {
        Some(kind) => start(call, kind, &class.provisioner, &claim.uid),
        None => give_up(call, claim, Failure::NoPlugin(class.provisioner.clone())),
    }
}

/// The plugin or external provisioner of that name; `None` if it must be in-tree and is not.
fn provisioner(call: &mut Call<'_>, name: &Text) -> Result<Option<OperationKind>, Halt> {
    match call.cluster.migration(name.clone())? {
        Migration::On(_) | Migration::Untranslatable => return Ok(Some(OperationKind::ProvisionExternal)),
        Migration::Off => {}
    }
    if call.cluster.plugin(name.clone())?.is_some_and(|plugin| plugin.provisions) {
        return Ok(Some(OperationKind::Provision));
    }
    Ok((!name.starts_with(IN_TREE_PREFIX)).then_some(OperationKind::ProvisionExternal))
}

fn give_up(call: &mut Call<'_>, claim: &Claim, failure: Failure) -> Result<(), Halt> {
    call.tell_claim(claim, EventKind::ProvisioningFailed(failure));
    explain(call, claim)
}

/// Starts an operation unless one of its name runs or backs off (`scheduleOperation`). Its end decides the
/// object again.
pub(crate) fn start(call: &mut Call<'_>, kind: OperationKind, plugin: &Text, uid: &Uid) -> Result<(), Halt> {
    match call.cluster.operation(kind, uid.clone())? {
        OperationState::Idle => {
            call.act(Action::StartOperation(Operation { kind, plugin: plugin.clone(), uid: uid.clone() }))
        }
        OperationState::Running | OperationState::BackingOff => {}
    }
    Ok(())
}
