//! A binder that is killed while reclaimers keep volumes, with the provisioner that would delete them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use bindery_cluster::{Faults, NoFaults, Proxy, Request, RequestFault, in_time, phase};
use bindery_kit::json;
use bindery_node::objects::Objects;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::mpsc::{self, UnboundedSender};

use super::servers::{DRIVER, KEEP, KEPT_CLASS, Servers};

/// The writes of a release that a reclaimer changes: the reclaim policy, then the phase.
const RELEASE: usize = 2;
/// How long a write is held. Its sender is killed long before.
const HELD: Duration = Duration::from_secs(3_600);

/// A provisioned volume, and the file of its claim.
struct Provisioned {
    name: String,
    uid: String,
    file: PathBuf,
}

impl Provisioned {
    /// Creates a claim with this label, and waits until its volume is bound and has noted the claim.
    async fn new(servers: &Servers, objects: &Objects, claim: &str, keep: &str) -> Self {
        let metadata = json!({"labels": {KEEP: keep}});
        let object =
            json::claim(claim, json!({"metadata": metadata, "spec": {"storageClassName": KEPT_CLASS}}));
        let object = serde_json::from_value(object).unwrap();
        objects.claims.create(&PostParams::default(), &object).await.unwrap();
        let name = objects.until_bound(claim).await;
        let has_note =
            |volume: &PersistentVolume| volume.annotations().contains_key("bindery.dev/claim-facts");
        let volume = objects.until(&objects.volumes, &name, has_note).await;
        let uid = volume.uid().unwrap();
        let file = servers.csi_volume(&volume.spec.unwrap().csi.unwrap().volume_handle).join("file");
        fs::write(&file, claim).unwrap();
        Self { name, uid, file }
    }

    /// Waits until it is released and kept, with its data.
    async fn until_kept(&self, objects: &Objects) {
        let is_kept = |volume: &PersistentVolume| {
            let policy = volume.spec.as_ref().unwrap().persistent_volume_reclaim_policy.as_deref();
            phase(volume) == "Released" && policy == Some("Retain")
        };
        objects.until(&objects.volumes, &self.name, is_kept).await;
        assert!(self.file.exists(), "{} has lost its data\n{}", self.name, objects.logs());
    }

    /// Makes it due, as if it had been released long ago.
    async fn make_due(&self, objects: &Objects) {
        let change = Patch::Merge(json!({"status": {"lastPhaseTransitionTime": "2020-01-01T00:00:00Z"}}));
        objects.volumes.patch_status(&self.name, &PatchParams::default(), &change).await.unwrap();
    }

    /// Waits until the provisioner has deleted it with its data.
    async fn until_deleted(&self, objects: &Objects) {
        objects.until_gone(&objects.volumes, &self.name, &self.uid).await;
        assert!(!self.file.exists(), "{} has left its data", self.name);
    }
}

/// Lets that many of these writes of each volume pass and holds the next one: the reclaim policy, the phase,
/// and what comes when the volume is due. Sends the name of its volume. The provisioner removes its finalizer
/// from a volume that is kept, so a write may fail and be made again.
fn hold_after(passing: BTreeMap<String, usize>, held: UnboundedSender<String>) -> impl Faults {
    let released = Mutex::new(BTreeSet::new());
    move |request: &Request| {
        let is_of = |volume: &String| request.path.split('/').any(|part| part == *volume);
        let Some((volume, passing)) = passing.iter().find(|(volume, _)| request.is_write() && is_of(volume))
        else {
            return RequestFault::None;
        };
        let mut released = released.lock().unwrap();
        let write = match request.path.ends_with("/status") {
            true => 1,
            false if released.contains(volume) => RELEASE,
            false => 0,
        };
        if write >= *passing {
            // Without a receiver, the test has failed.
            let _ = held.send(volume.clone());
            return RequestFault::Delay(HELD);
        }
        if write == 1 {
            released.insert(volume.clone());
        }
        RequestFault::None
    }
}

/// Each volume is at another write when the binder is killed.
#[tokio::test]
async fn a_binder_killed_between_writes_keeps_volumes_until_they_are_due() {
    let servers = Servers::start("killed");
    let objects = servers.objects().await;
    let proxy = Proxy::start(&servers.node.kubeconfig()).await.unwrap();
    let bindery = servers.start_bindery(&proxy.kubeconfig());
    objects.create_class(KEPT_CLASS, DRIVER, "Immediate").await;
    let (mut kept, mut later) = (Vec::new(), Vec::new());
    for writes in 0..=RELEASE {
        kept.push(Provisioned::new(&servers, &objects, &format!("kept-{writes}"), "true").await);
        later.push(Provisioned::new(&servers, &objects, &format!("later-{writes}"), "false").await);
    }
    let passing = [&kept, &later].into_iter().flat_map(|volumes| volumes.iter().enumerate());
    let passing = passing.map(|(writes, volume)| (volume.name.clone(), writes)).collect();
    let (sender, mut held) = mpsc::unbounded_channel();
    proxy.set_faults(hold_after(passing, sender));
    for claim in objects.claims.list(&ListParams::default()).await.unwrap() {
        objects.claims.delete(&claim.name_any(), &DeleteParams::default()).await.unwrap();
    }
    // These are released, and only the second has a further write: when it is due.
    kept[RELEASE].until_kept(&objects).await;
    later[RELEASE].until_kept(&objects).await;
    later[RELEASE].make_due(&objects).await;
    let mut at_a_write = BTreeSet::new();
    while at_a_write.len() < kept.len() + later.len() - 1 {
        at_a_write.insert(in_time("all volumes but one are at a write", held.recv()).await.unwrap());
    }
    assert!(!at_a_write.contains(&kept[RELEASE].name));
    drop(bindery);
    for volume in kept.iter().chain(&later) {
        assert!(volume.file.exists(), "{} has lost its data\n{}", volume.name, objects.logs());
    }
    proxy.set_faults(NoFaults);

    let _bindery = servers.start_bindery(&proxy.kubeconfig());
    later.pop().unwrap().until_deleted(&objects).await;
    for volume in &later {
        volume.until_kept(&objects).await;
        volume.make_due(&objects).await;
        volume.until_deleted(&objects).await;
    }
    for volume in &kept {
        volume.until_kept(&objects).await;
    }
}
