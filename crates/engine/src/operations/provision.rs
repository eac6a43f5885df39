//! Provisioning by an in-tree plugin (`provisionClaimOperation`).
//!
//! # Where it differs from upstream on purpose
//!
//! Upstream removes the finalizer of a volume that was never created, treats "not found" as a failure,
//! deletes the asset four times more and reports an orphan. Here the asset is deleted when the plugin says
//! so. And before an asset is deleted, a live read must show that its volume does not exist: a create that
//! timed out may have succeeded, and the claim would be bound to a volume without asset.

use bindery_core::{
    Action, Claim, EventKind, Failure, Lookup, Outcome, PluginOperation, Point, Progress, Returned, Source,
    Text,
};

use super::external::annotate;
use super::{RETRY_MS, error, misplaced, provisioning_failed};
use crate::call::{Call, Halt};
use crate::reclaim::{Deleter, deleter_by_name};

/// How often a volume is created, and an asset cleaned up, before giving up (upstream's
/// `createProvisionedPVRetryCount`).
const ATTEMPTS: u32 = 5;

/// The CSI plugin, the only one that can fill a volume from a data source.
const CSI_PLUGIN: &str = "kubernetes.io/csi";

/// The next step.
pub(crate) fn step(call: &mut Call<'_>, progress: &Progress<Claim>) -> Result<Outcome, Halt> {
    let (claim, plugin) = (&progress.object, &progress.operation.plugin);
    match progress.point {
        Point::Start => start(call, claim, plugin),
        Point::Annotated => match error(&progress.returned) {
            // Without event, unlike the external operation.
            Some(error) => Err(Failure::Write(error).into()),
            None => provision(call, claim, plugin),
        },
        Point::Provisioned => match error(&progress.returned) {
            Some(error) => Err(not_provisioned(call, claim, error)),
            None => Ok(create(call, claim, plugin, 1)),
        },
        Point::Created { attempt } => match &progress.returned {
            // A binder created it and crashed: the name is deterministic.
            Returned::Success | Returned::AlreadyExists => Ok(succeed(call, claim, plugin)),
            Returned::InUse(_) | Returned::Failed(_) if attempt < ATTEMPTS => {
                call.wait_ms(RETRY_MS);
                Ok(create(call, claim, plugin, attempt + 1))
            }
            Returned::InUse(error) | Returned::Failed(error) => not_created(call, claim, plugin, error),
        },
        Point::CleanedUp { attempt } => match error(&progress.returned) {
            None => Ok(Outcome::Done),
            Some(_) if attempt < ATTEMPTS => clean_up_again(call, claim, plugin, attempt + 1),
            Some(error) => Ok(orphan(call, claim, Failure::Plugin(error))),
        },
        Point::Deleted | Point::FinalizerRemoved | Point::Recycled => Err(misplaced()),
    }
}

fn start(call: &mut Call<'_>, claim: &Claim, plugin: &Text) -> Result<Outcome, Halt> {
    if claim.data_source && **plugin != *CSI_PLUGIN {
        return Err(provisioning_failed(call, claim, Failure::DataSource(plugin.clone())));
    }
    if annotate(call, claim, plugin)? {
        return Ok(Outcome::Continue(Point::Annotated));
    }
    provision(call, claim, plugin)
}

/// Checks the preconditions, and calls the plugin.
fn provision(call: &mut Call<'_>, claim: &Claim, plugin: &Text) -> Result<Outcome, Halt> {
    if call.volume(Source::Live, &volume_name(claim))?.is_some() {
        return Ok(Outcome::Done);
    }
    if let Err(failure) = check(call, claim, plugin)? {
        return Err(provisioning_failed(call, claim, failure));
    }
    call.act(Action::CallPlugin { plugin: plugin.clone(), operation: PluginOperation::Provision });
    Ok(Outcome::Continue(Point::Provisioned))
}

/// Name of the volume of a claim: the same on every attempt, so that none is created twice.
fn volume_name(claim: &Claim) -> Text {
    format!("pvc-{}", claim.uid).into()
}

/// What prevents calling the plugin, if anything: mount options, its constructor, the selected node.
fn check(call: &mut Call<'_>, claim: &Claim, plugin: &Text) -> Result<Result<(), Failure>, Halt> {
    let name = claim.class.clone().unwrap_or_default();
    let Some(class) = call.class(&name)? else {
        let error = format!("storageclass.storage.k8s.io {name:?} not found").into();
        return Ok(Err(Failure::Class { name, error }));
    };
    if class.mount_options && !call.cluster.plugin(plugin.clone())?.is_some_and(|plugin| plugin.mount_options)
    {
        return Ok(Err(Failure::MountOptions(plugin.clone())));
    }
    if let Err(error) = call.cluster.plugin_ready(plugin.clone(), PluginOperation::Provision)? {
        return Ok(Err(Failure::NotReady(error)));
    }
    let Some(node) = &claim.annotations.selected_node else { return Ok(Ok(())) };
    let error = match call.cluster.node(node.clone())? {
        Lookup::Found(()) => return Ok(Ok(())),
        Lookup::Absent => format!("node {node:?} not found").into(),
        Lookup::Unreadable(error) | Lookup::Failed(error) => error,
    };
    Ok(Err(Failure::Node { name: node.clone(), error }))
}

/// The plugin failed: the scheduler may choose another node, and the operation backs off.
fn not_provisioned(call: &mut Call<'_>, claim: &Claim, error: Text) -> Halt {
    if claim.annotations.selected_node.is_some() {
        call.tolerate(Action::RemoveSelectedNode { claim: claim.target() });
    }
    provisioning_failed(call, claim, Failure::Plugin(error))
}

fn create(call: &mut Call<'_>, claim: &Claim, plugin: &Text, attempt: u32) -> Outcome {
    call.act(Action::CreateVolume {
        claim: claim.target(),
        name: volume_name(claim),
        class: claim.class.clone().unwrap_or_default(),
        plugin: plugin.clone(),
    });
    Outcome::Continue(Point::Created { attempt })
}

fn succeed(call: &mut Call<'_>, claim: &Claim, plugin: &Text) -> Outcome {
    let event = EventKind::ProvisioningSucceeded { volume: volume_name(claim), plugin: plugin.clone() };
    call.tell_claim(claim, event);
    Outcome::Done
}

/// Every attempt to create the volume failed, so its asset is deleted. The operation succeeds, so that the
/// next sync provisions again.
fn not_created(call: &mut Call<'_>, claim: &Claim, plugin: &Text, error: &Text) -> Result<Outcome, Halt> {
    let created = call.cluster.volume(Source::Live, volume_name(claim))?;
    if let Lookup::Found(_) = created {
        return Ok(succeed(call, claim, plugin));
    }
    call.tell_claim(claim, EventKind::ProvisioningFailed(Failure::Write(error.clone())));
    call.again_after_resync();
    match created {
        Lookup::Found(_) | Lookup::Absent => {}
        Lookup::Failed(error) => return Ok(orphan(call, claim, Failure::Read(error))),
        Lookup::Unreadable(error) => return Ok(orphan(call, claim, Failure::Unreadable(error))),
    }
    Ok(match deleter_by_name(call, plugin)? {
        Deleter::Plugin(plugin) => clean_up(call, plugin, 1),
        // Only in-tree plugins get here, whatever their names.
        Deleter::External => Outcome::Done,
        Deleter::Missing(_) => orphan(call, claim, Failure::NoPlugin(plugin.clone())),
    })
}

fn clean_up(call: &mut Call<'_>, plugin: Text, attempt: u32) -> Outcome {
    call.act(Action::CallPlugin { plugin, operation: PluginOperation::Delete });
    Outcome::Continue(Point::CleanedUp { attempt })
}

/// The asset was not deleted, and meanwhile its volume may have been created after all.
fn clean_up_again(call: &mut Call<'_>, claim: &Claim, plugin: &Text, attempt: u32) -> Result<Outcome, Halt> {
    Ok(match call.cluster.volume(Source::Live, volume_name(claim))? {
        Lookup::Found(_) => succeed(call, claim, plugin),
        Lookup::Absent => {
            call.wait_ms(RETRY_MS);
            clean_up(call, plugin.clone(), attempt)
        }
        Lookup::Failed(error) => orphan(call, claim, Failure::Read(error)),
        Lookup::Unreadable(error) => orphan(call, claim, Failure::Unreadable(error)),
    })
}

/// The asset is left, to be deleted by hand.
fn orphan(call: &mut Call<'_>, claim: &Claim, failure: Failure) -> Outcome {
    call.tell_claim(claim, EventKind::ProvisioningCleanupFailed(failure));
    Outcome::Done
}
