//! Volumes as the API server has them when a plugin is about to touch what is on them.

use bindery_controller::PluginError;
use bindery_core::{ReclaimPolicy, Volume};
use serde_json::Value;

use crate::client::ApiClient;
use crate::request;
use crate::rest;

/// The source of a volume: decisions know its kind only.
///
/// # Errors
///
/// The volume is not the one that was decided about, or its claim has changed: another leader may have
/// scrubbed it and given it to another claim. Or it cannot be read.
pub(super) async fn live_source(
    client: &ApiClient,
    volume: &Volume,
    source: &str,
) -> Result<Value, PluginError> {
    Ok(read(client, volume).await?["spec"][source].clone())
}

/// Fails unless a volume that is to be recycled is still as it was when that was decided: released by the
/// same claim, and with the policy to recycle it.
///
/// # Errors
///
/// As [`live_source`], and where phase or policy are others.
pub(super) async fn check_released(client: &ApiClient, volume: &Volume) -> Result<(), PluginError> {
    let live = read(client, volume).await?;
    let phase = live["status"]["phase"].as_str().unwrap_or_default();
    if phase != volume.phase.name() {
        let decided = volume.phase.name();
        return Err(failed(format!("volume {:?} is {phase:?} and no longer {decided:?}", volume.name)));
    }
    let recycles = live["spec"]["persistentVolumeReclaimPolicy"] == "Recycle";
    if recycles != (volume.policy == ReclaimPolicy::Recycle) {
        return Err(failed(format!("the reclaim policy of volume {:?} has changed", volume.name)));
    }
    Ok(())
}

/// The volume, with the UID and the claim that were decided about.
async fn read(client: &ApiClient, volume: &Volume) -> Result<Value, PluginError> {
    let path = request::volume_path(&volume.name).map_err(|error| failed(error.to_string()))?;
    let live = rest::json(client, http::Method::GET, &path, None)
        .await
        .map_err(|fault| failed(fault.to_string()))?;
    if live["metadata"]["uid"].as_str() != Some(&*volume.uid.0) {
        return Err(failed(format!("volume {:?} has been replaced by another of its name", volume.name)));
    }
    let decided = volume.claim_ref.as_ref().and_then(|claim| claim.uid.as_ref());
    if live["spec"]["claimRef"]["uid"].as_str() != decided.map(|uid| &*uid.0) {
        return Err(failed(format!("volume {:?} is no longer the one that its claim has left", volume.name)));
    }
    Ok(live)
}

fn failed(text: String) -> PluginError {
    PluginError::Failed(text.into())
}
