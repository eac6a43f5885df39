//! Handing a claim to an external provisioner (`provisionClaimOperationExternal`).

use bindery_core::{Action, Claim, Edit, EventKind, Failure, Migration, Outcome, Point, Progress, Text};

use super::{error, misplaced, provisioning_failed};
use crate::call::{Call, Halt};
use crate::migrate;

/// The next step.
pub(crate) fn step(call: &mut Call<'_>, progress: &Progress<Claim>) -> Result<Outcome, Halt> {
    let claim = &progress.object;
    match progress.point {
        Point::Start => {
            let provisioner = driver(call, claim, &progress.operation.plugin)?;
            if annotate(call, claim, &provisioner)? {
                return Ok(Outcome::Continue(Point::Annotated));
            }
            Ok(hand_over(call, claim, provisioner))
        }
        Point::Annotated => {
            if let Some(error) = error(&progress.returned) {
                return Err(provisioning_failed(call, claim, Failure::Write(error)));
            }
            let provisioner = driver(call, claim, &progress.operation.plugin)?;
            Ok(hand_over(call, claim, provisioner))
        }
        Point::Provisioned
        | Point::Created { .. }
        | Point::CleanedUp { .. }
        | Point::Deleted
        | Point::FinalizerRemoved
        | Point::Recycled => Err(misplaced()),
    }
}

/// Name of the provisioner: that of the CSI driver where the in-tree plugin is migrated.
fn driver(call: &mut Call<'_>, claim: &Claim, plugin: &Text) -> Result<Text, Halt> {
    match call.cluster.migration(plugin.clone())? {
        Migration::Off => Ok(plugin.clone()),
        Migration::On(driver) => Ok(driver),
        Migration::Untranslatable => {
            Err(provisioning_failed(call, claim, Failure::Untranslatable(plugin.clone())))
        }
    }
}

/// Emitted on every sync, so that a user sees which provisioner the claim waits for.
fn hand_over(call: &mut Call<'_>, claim: &Claim, provisioner: Text) -> Outcome {
    call.tell_claim(claim, EventKind::ExternalProvisioning(provisioner));
    Outcome::Done
}

/// Sets the provisioner in the annotations of `claim` (`setClaimProvisioner`). Returns whether they have to
/// be written: where the current key is right, the beta key stays as it is.
pub(super) fn annotate(call: &mut Call<'_>, claim: &Claim, provisioner: &Text) -> Result<bool, Halt> {
    if claim.annotations.storage_provisioner.as_ref() == Some(provisioner) {
        return Ok(false);
    }
    let mut annotated = claim.clone();
    annotated.annotations.storage_provisioner = Some(provisioner.clone());
    let migrated_to: Edit<Text> = migrate::claim_edit(call, &annotated)?;
    call.act(Action::AnnotateClaim {
        claim: claim.target(),
        provisioner: Some(provisioner.clone()),
        migrated_to,
    });
    Ok(true)
}
