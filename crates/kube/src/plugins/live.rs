//! Reads a volume from the API server right before a plugin touches its data.

use bindery_controller::PluginError;
use bindery_core::{ReclaimPolicy, Volume};
use serde_json::Value;

use super::failed;
use crate::client::ApiClient;
use crate::request;
use crate::rest;

/// The source of a volume; decisions know only its name. Fails if the volume is not the one of the decision,
/// or its claim has changed: another leader may have scrubbed it and given it to another claim.
pub(super) async fn live_source(client: &ApiClient, volume: &Volume) -> Result<Value, PluginError> {
    Ok(read(client, volume).await?["spec"][&*volume.source].clone())
}

/// Checks that a volume is still as it was when recycling it was decided: released by the same claim, and
/// with the same policy.
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

/// Reads the volume, and checks that UID and claim are those of the decision.
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
