//! Conditions of objects, and folders of hostPath volumes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};

/// Whether an event has that reason, and is about an object of that name.
pub fn is_event(name: &str, reason: &str) -> impl Fn(&Event) -> bool {
    move |event| {
        event.involved_object.name.as_deref() == Some(name) && event.reason.as_deref() == Some(reason)
    }
}

/// The phase of a volume; empty if it has none.
pub fn phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Whether a volume has that phase.
pub fn is_in_phase(wanted: &str) -> impl Fn(&PersistentVolume) -> bool {
    move |volume| phase(volume) == wanted
}

/// Whether a claim is bound to any volume.
pub fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

/// Whether a claim is bound to that volume.
pub fn is_bound_to(volume: &str) -> impl Fn(&PersistentVolumeClaim) -> bool {
    move |claim| {
        let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
        named == Some(volume) && is_bound(claim)
    }
}

/// The argument by which a replica provisions and deletes hostPath volumes below this folder.
pub fn provisioning_in(folder: &Path) -> String {
    format!("--host-path={}", folder.display())
}

/// Creates the folder of a volume below that of [`provisioning_in`] as the plugin does: with the record that
/// the plugin has created it.
///
/// # Errors
///
/// The disk is full. The call can be repeated.
pub fn make_folder(root: &Path, volume: &str) -> std::io::Result<PathBuf> {
    let (folder, records) = (root.join(volume), root.join(".bindery"));
    std::fs::create_dir_all(&folder)?;
    std::fs::create_dir_all(&records)?;
    std::fs::write(records.join(volume), "")?;
    Ok(folder)
}

/// Removes the folder of a volume, and the record that the plugin has created it.
pub fn remove_folder(root: &Path, volume: &str) -> std::io::Result<()> {
    std::fs::remove_dir_all(root.join(volume))?;
    std::fs::remove_file(root.join(".bindery").join(volume))
}

/// The folders of volumes below that of [`provisioning_in`].
pub fn folders_in(root: &Path) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    folders.filter(|folder| !folder.ends_with(".bindery")).collect()
}
