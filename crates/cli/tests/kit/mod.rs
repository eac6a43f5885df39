//! A real cluster, replicas of `bindery serve` in it, and waiting.

#![allow(dead_code, reason = "every test program uses its part")]
#![allow(unused_imports, reason = "every test program uses its part")]

mod cluster;
mod replica;

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};

pub(crate) use self::cluster::{Cluster, until, until_settled};
pub(crate) use self::replica::{Replica, refused};

/// Most time for anything to happen; a slow machine takes seconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Polls until `probe` returns a value, for state that no event reports; `None` when patience ends.
pub(crate) async fn poll<T>(mut probe: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let polling = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        loop {
            ticks.tick().await;
            if let Some(value) = probe().await {
                return value;
            }
        }
    };
    tokio::time::timeout(PATIENCE, polling).await.ok()
}

/// Waits for something that must happen, for as long as patience lasts.
pub(crate) async fn in_time<T>(what: &str, happens: impl Future<Output = T>) -> T {
    let in_time = tokio::time::timeout(PATIENCE, happens).await;
    in_time.unwrap_or_else(|_| panic!("it does not happen: {what}"))
}

/// Whether an event has that reason, and is about an object of that name.
pub(crate) fn is_event(name: &str, reason: &str) -> impl Fn(&Event) -> bool {
    move |event| {
        event.involved_object.name.as_deref() == Some(name) && event.reason.as_deref() == Some(reason)
    }
}

pub(crate) fn phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Whether a volume has that phase.
pub(crate) fn is_in_phase(wanted: &str) -> impl Fn(&PersistentVolume) -> bool {
    move |volume| phase(volume) == wanted
}

/// Whether a claim is bound to any volume.
pub(crate) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

/// Whether a claim is bound to that volume.
pub(crate) fn is_bound_to(volume: &str) -> impl Fn(&PersistentVolumeClaim) -> bool {
    move |claim| {
        let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
        named == Some(volume) && is_bound(claim)
    }
}

/// The argument by which a replica provisions and deletes hostPath volumes below this folder.
pub(crate) fn provisioning_in(folder: &Path) -> String {
    format!("--host-path={}", folder.display())
}

/// Creates the folder of a volume below that of [`provisioning_in`] as the plugin does: with the record that
/// the plugin has created it.
pub(crate) fn make_folder(root: &Path, volume: &str) -> PathBuf {
    let (folder, records) = (root.join(volume), root.join(".bindery"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::create_dir_all(&records).unwrap();
    std::fs::write(records.join(volume), "").unwrap();
    folder
}

/// The folders of volumes below that of [`provisioning_in`].
pub(crate) fn folders_in(root: &Path) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    folders.filter(|folder| !folder.ends_with(".bindery")).collect()
}
