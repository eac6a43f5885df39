//! Tenants that come and go: a stream of claims and volumes, whose data names its owner.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bindery_cluster::{Cluster, PATIENCE, folders_in, is_bound, make_folder, provisioning_in};
use bindery_kit::json;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use rand::RngExt as _;
use rand::rngs::StdRng;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

/// How often a tenant comes.
const EVERY: Duration = Duration::from_millis(40);
/// Most tenants that wait, so that they do not pile up while Bindery is down.
const UNSERVED_MAX: usize = 40;
/// The end of a loss about a folder without a volume.
pub(crate) const LEFT: &str = "belongs to no volume, and is left";
/// File in a volume with the UID of the claim that owns the data.
const OWNER: &str = "owner";

pub(crate) struct Load {
    shared: Arc<Shared>,
    tenants: JoinSet<Result<(), Unserved>>,
    count: usize,
    watches: Vec<AbortHandle>,
}

#[derive(Debug)]
pub(crate) struct Unserved {
    /// Name of its claim, and of its volume if it brings one.
    pub(crate) name: String,
    pub(crate) why: String,
}

struct Shared {
    volumes: Api<PersistentVolume>,
    claims: Api<PersistentVolumeClaim>,
    seen_volumes: Store<PersistentVolume>,
    seen_claims: Store<PersistentVolumeClaim>,
    folder: TempDir,
    patience: Duration,
    /// UIDs of the claims that stay, and the folders of their volumes.
    stay: Mutex<BTreeMap<String, PathBuf>>,
}

/// How a tenant gets a volume.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// A free one fits; it comes before or after the claim.
    Found { volume_first: bool },
    /// The claim names it.
    Named,
    /// It names the claim.
    Reserved,
    /// It is provisioned.
    Made,
}

/// What a tenant does in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stays,
    /// Goes after it has written data.
    Leaves,
    /// Goes at once, while Bindery may be binding.
    Flees,
}

#[derive(Clone, Copy, Debug)]
struct Tenant {
    number: usize,
    way: Way,
    fate: Fate,
    policy: &'static str,
}

impl Load {
    /// A load on `cluster`, which tenants reach without faults. Bindery may meet faults for the time
    /// `bad`, and must serve all tenants soon after.
    pub(crate) async fn new(cluster: &Cluster, bad: Duration) -> Self {
        cluster.create_class("made").await;
        let (client, volumes, claims) =
            (cluster.client.clone(), cluster.volumes.clone(), cluster.claims.clone());
        let (seen_volumes, watching_volumes) = reflect(Api::all(client.clone()));
        let (seen_claims, watching_claims) = reflect(Api::all(client));
        let folder = TempDir::new().unwrap();
        let (patience, stay) = (bad + PATIENCE, Mutex::default());
        Self {
            shared: Arc::new(Shared { volumes, claims, seen_volumes, seen_claims, folder, patience, stay }),
            tenants: JoinSet::new(),
            count: 0,
            watches: vec![watching_volumes, watching_claims],
        }
    }

    /// The argument by which a replica serves these tenants.
    pub(crate) fn argument(&self) -> String {
        provisioning_in(self.shared.folder.path())
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// How many tenants wait.
    pub(crate) fn unserved(&mut self) -> Result<usize, Unserved> {
        while let Some(ended) = self.tenants.try_join_next() {
            ended.unwrap()?;
        }
        Ok(self.tenants.len())
    }

    /// Lets tenants come for a while.
    pub(crate) async fn run_for(&mut self, time: Duration, chance: &mut StdRng) -> Result<(), Unserved> {
        let (end, mut ticks) = (Instant::now() + time, tokio::time::interval(EVERY));
        while Instant::now() < end {
            ticks.tick().await;
            if self.unserved()? < UNSERVED_MAX {
                let tenant = Tenant::any(self.count, chance);
                self.count += 1;
                self.tenants.spawn(Arc::clone(&self.shared).serve(tenant));
            }
        }
        Ok(())
    }

    /// Waits until all tenants have been served.
    pub(crate) async fn until_served(&mut self) -> Result<(), Unserved> {
        while let Some(ended) = self.tenants.join_next().await {
            ended.unwrap()?;
        }
        Ok(())
    }

    /// Errors in the data of volumes: data that must be kept and is gone, or that must be deleted and is
    /// left.
    pub(crate) async fn losses(&self) -> Vec<String> {
        let mut losses = Vec::new();
        for (uid, folder) in &*self.shared.stay.lock().unwrap() {
            let owner = fs::read_to_string(folder.join(OWNER));
            if !owner.as_ref().is_ok_and(|owner| owner == uid) {
                losses.push(format!(
                    "{} should hold the data of claim {uid}, and has {owner:?}",
                    folder.display()
                ));
            }
        }
        let volumes = self.shared.volumes.list(&Default::default()).await.unwrap().items;
        let of_volumes: Vec<_> = volumes.iter().filter_map(folder_of).collect();
        for folder in folders_in(self.shared.folder.path()) {
            if !of_volumes.contains(&folder) {
                losses.push(format!("{} {LEFT}", folder.display()));
            }
        }
        losses.extend(
            of_volumes
                .iter()
                .filter(|folder| !folder.exists())
                .map(|folder| format!("{} is gone, and its volume is there", folder.display())),
        );
        for volume in &volumes {
            let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
            let spec = volume.spec.as_ref().unwrap();
            let is_to_go = spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete");
            if is_to_go && !matches!(phase, Some("Bound" | "Available")) {
                losses.push(format!("volume {:?} is to be deleted, and is {phase:?}", volume.metadata.name));
            }
        }
        losses
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.watches.iter().for_each(AbortHandle::abort);
    }
}

/// Whether a text names a tenant.
pub(crate) fn names_a_tenant(text: &str) -> bool {
    let is_name = |word: &str| {
        let number = word.strip_prefix('t').filter(|number| number.len() == 5);
        number.is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
    };
    text.split(|end: char| !end.is_ascii_alphanumeric()).any(is_name)
}

impl Tenant {
    fn any(number: usize, chance: &mut StdRng) -> Self {
        let way = match chance.random_range(0..6) {
            0 | 1 => Way::Found { volume_first: true },
            2 => Way::Found { volume_first: false },
            3 => Way::Named,
            4 => Way::Reserved,
            _ => Way::Made,
        };
        let fate = match chance.random_range(0..5) {
            0 | 1 => Fate::Stays,
            2 | 3 => Fate::Leaves,
            _ => Fate::Flees,
        };
        let policy = if chance.random_bool(0.5) { "Retain" } else { "Delete" };
        Self { number, way, fate, policy }
    }

    fn name(&self) -> String {
        format!("t{:05}", self.number)
    }

    /// Volumes to be found have a class for each policy, others a class of their own.
    fn class(&self) -> String {
        match self.way {
            Way::Found { .. } => self.policy.to_lowercase(),
            Way::Named | Way::Reserved => self.name(),
            Way::Made => "made".to_owned(),
        }
    }

    fn volume(&self, folder: &Path) -> Option<PersistentVolume> {
        if matches!(self.way, Way::Made) {
            return None;
        }
        let claim_ref =
            matches!(self.way, Way::Reserved).then(|| json!({"namespace": "default", "name": self.name()}));
        let spec = json!({
            "storageClassName": self.class(),
            "persistentVolumeReclaimPolicy": self.policy,
            "hostPath": {"path": folder.join(self.name())},
            "claimRef": claim_ref,
        });
        Some(object(json::volume(&self.name(), json!({"spec": spec}))))
    }

    fn claim(&self) -> PersistentVolumeClaim {
        let volume_name = matches!(self.way, Way::Named).then(|| self.name());
        let spec = json!({"storageClassName": self.class(), "volumeName": volume_name});
        object(json::claim(&self.name(), json!({"spec": spec})))
    }
}

impl Shared {
    async fn serve(self: Arc<Self>, tenant: Tenant) -> Result<(), Unserved> {
        let name = tenant.name();
        if tokio::time::timeout(self.patience, self.serve_in_time(tenant)).await.is_err() {
            let why = format!("{tenant:?} is not served: {:?}", self.claims.get_opt(&name).await);
            return Err(Unserved { name, why });
        }
        Ok(())
    }

    async fn serve_in_time(&self, tenant: Tenant) {
        let volume = tenant.volume(self.folder.path());
        let is_volume_last = matches!(tenant.way, Way::Found { volume_first: false });
        if volume.is_some() {
            make_folder(self.folder.path(), &tenant.name());
        }
        if is_volume_last {
            create(&self.claims, &tenant.claim()).await;
        }
        if let Some(volume) = volume {
            create(&self.volumes, &volume).await;
        }
        if !is_volume_last {
            create(&self.claims, &tenant.claim()).await;
        }
        if tenant.fate == Fate::Flees {
            return self.delete(&tenant.name(), None).await;
        }
        let (uid, folder) = self.until_bound(&tenant.name()).await;
        move_in(&folder, &uid);
        if tenant.fate == Fate::Leaves {
            self.delete(&tenant.name(), Some(uid)).await;
        } else {
            self.stay.lock().unwrap().insert(uid, folder);
        }
    }

    /// The UID of a claim once it is bound, and the folder of its volume.
    async fn until_bound(&self, name: &str) -> (String, PathBuf) {
        let mut ticks = tokio::time::interval(EVERY);
        loop {
            ticks.tick().await;
            let claim = self.seen_claims.get(&ObjectRef::new(name).within("default"));
            let Some(claim) = claim.filter(|claim| is_bound(claim)) else { continue };
            let volume_name = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap();
            let volume = self.seen_volumes.get(&ObjectRef::new(&volume_name));
            if let Some(folder) = volume.and_then(|volume| folder_of(&volume)) {
                return (claim.metadata.uid.clone().unwrap(), folder);
            }
        }
    }

    async fn delete(&self, name: &str, uid: Option<String>) {
        let preconditions = uid.map(|uid| Preconditions { uid: Some(uid), resource_version: None });
        let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
        let mut ticks = tokio::time::interval(EVERY);
        loop {
            ticks.tick().await;
            match self.claims.delete(name, &parameters).await {
                Ok(_) => return,
                // The answer to an earlier attempt was lost.
                Err(kube::Error::Api(status)) if status.code == 404 => return,
                Err(_) => {}
            }
        }
    }
}

/// Writes the owner into a volume, as a pod of the claim would. Fails if the volume has an owner.
fn move_in(folder: &Path, uid: &str) {
    let file = fs::File::options().write(true).create_new(true).open(folder.join(OWNER));
    match file {
        Ok(mut file) => file.write_all(uid.as_bytes()).unwrap(),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            panic!(
                "{} has two tenants: {:?} and {uid}",
                folder.display(),
                fs::read_to_string(folder.join(OWNER))
            )
        }
        Err(error) => panic!("{} of claim {uid} cannot be used: {error}", folder.display()),
    }
}

async fn create<K>(api: &Api<K>, object: &K)
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let mut ticks = tokio::time::interval(EVERY);
    loop {
        ticks.tick().await;
        match api.create(&PostParams::default(), object).await {
            Ok(_) => return,
            // The answer to an earlier attempt was lost.
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => return,
            Err(kube::Error::Api(status)) if status.code == 422 => panic!("{status:?}"),
            Err(_) => {}
        }
    }
}

/// The objects of a kind, kept up to date.
fn reflect<K>(api: Api<K>) -> (Store<K>, AbortHandle)
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let watching = watcher(api, watcher::Config::default()).default_backoff().reflect(writer);
    let watching = tokio::spawn(watching.for_each(|_| std::future::ready(()))).abort_handle();
    (store, watching)
}

fn folder_of(volume: &PersistentVolume) -> Option<PathBuf> {
    Some(volume.spec.as_ref()?.host_path.as_ref()?.path.clone().into())
}

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}
