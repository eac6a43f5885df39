//! Tenants that come and go: a stream of claims and volumes, whose data names its owner.

#![allow(dead_code, reason = "every test program uses its part")]

pub(crate) mod data;
mod tenant;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bindery_cluster::{
    Cluster, PATIENCE, STOCK, folders_in, is_bound, make_folder, phase, poll, provisioning_in, remove_folder,
    snapshot_without_stock,
};
use bindery_kit::number_from_env;
use data::{Home, Staying, missing, move_in, until_space};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tempfile::TempDir;
use tenant::{Fate, Tenant, Way, made};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::Instant;

/// How often a tenant comes.
const EVERY: Duration = Duration::from_millis(40);
/// Most tenants that wait, so that they do not pile up while Bindery is down.
const UNSERVED_MAX: usize = 40;
/// The end of a loss about a folder without a volume.
pub(crate) const LEFT: &str = "belongs to no volume, and is left";
pub(crate) struct Load {
    /// The chance that a tenant's volume is deleted after it.
    pub(crate) deleting: f64,
    /// Whether upstream's binder is on, and some tenants are steered.
    pub(crate) is_beside_upstream: bool,
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
    stay: Mutex<Staying>,
    /// When a claim was bound, and how long after its creation.
    waits: Mutex<Vec<(Instant, Duration)>>,
}

impl Load {
    /// A load on `cluster`, which tenants reach without faults. Bindery may meet faults for the time
    /// `bad`, and must serve all tenants soon after.
    pub(crate) async fn new(cluster: &Cluster, bad: Duration) -> Self {
        Self::in_folder(TempDir::new().unwrap(), cluster, bad).await
    }

    /// The same with the data of all volumes in this folder.
    pub(crate) async fn in_folder(folder: TempDir, cluster: &Cluster, bad: Duration) -> Self {
        for policy in ["Delete", "Retain"] {
            let fields = json!({"provisioner": "kubernetes.io/host-path", "reclaimPolicy": policy});
            cluster.create_class_with(&made(policy), fields).await;
        }
        let (client, volumes, claims) =
            (cluster.client.clone(), cluster.volumes.clone(), cluster.claims.clone());
        let (seen_volumes, watching_volumes) = reflect(Api::all(client.clone()));
        let (seen_claims, watching_claims) = reflect(Api::all(client));
        let shared = Shared {
            volumes,
            claims,
            seen_volumes,
            seen_claims,
            folder,
            patience: bad + PATIENCE,
            stay: Mutex::default(),
            waits: Mutex::default(),
        };
        Self {
            deleting: 0.5,
            is_beside_upstream: false,
            shared: Arc::new(shared),
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
                let mut tenant = Tenant::any(self.count, self.deleting, chance);
                if self.is_beside_upstream {
                    tenant = tenant.beside_upstream();
                }
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

    /// Waits until all are served and the cluster has settled: every tenant that stays has its data, and
    /// nothing else is left but abandoned folders.
    pub(crate) async fn until_settled(&mut self, cluster: &Cluster) {
        self.until_served().await.unwrap();
        let losses = async |_: &_| {
            let mut losses = self.losses().await;
            losses.retain(|loss| !is_abandoned(loss));
            losses
        };
        cluster.until_settled(losses).await.unwrap();
    }

    /// The waits of the claims that were bound since the last call, each with the moment of its end.
    pub(crate) fn take_waits(&self) -> Vec<(Instant, Duration)> {
        std::mem::take(&mut *self.shared.waits.lock().unwrap())
    }

    pub(crate) fn staying(&self) -> Staying {
        self.shared.stay.lock().unwrap().clone()
    }

    /// Forgets all tenants but these, whose objects a restore of etcd takes back. Returns those of them that
    /// have data, which stay on the disk.
    pub(crate) async fn forget_all_but(&mut self, known: Staying) -> Staying {
        self.tenants.shutdown().await;
        let mut forgotten = std::mem::replace(&mut *self.shared.stay.lock().unwrap(), known);
        forgotten.retain(|claim, _| !self.shared.stay.lock().unwrap().contains_key(claim));
        forgotten
    }

    /// Lets these tenants leave, and removes the volumes and folders that no tenant has, as an administrator
    /// would. No tenant may be waiting.
    pub(crate) async fn evict(&self, leaving: &Staying) {
        let deletions = leaving.iter().map(|(claim, home)| self.shared.delete(claim, Some(home.uid.clone())));
        stream::iter(deletions).for_each_concurrent(UNSERVED_MAX, std::convert::identity).await;
        self.shared.stay.lock().unwrap().retain(|claim, _| !leaving.contains_key(claim));
        let kept: Vec<_> = self.staying().into_values().map(|home| home.folder).collect();
        let are_gone = poll(async || {
            let mut volumes = self.shared.all_volumes().await;
            volumes.retain(|volume| folder_of(volume).is_none_or(|folder| !kept.contains(&folder)));
            for volume in &volumes {
                // Bindery deletes the others.
                if phase(volume) == "Available" || phase(volume) == "Released" && !is_to_go(volume) {
                    let name = volume.metadata.name.as_ref().unwrap();
                    // It may be gone; otherwise the next poll tries again.
                    let _ = self.shared.volumes.delete(name, &DeleteParams::default()).await;
                }
            }
            volumes.is_empty().then_some(())
        });
        assert!(are_gone.await.is_some(), "volumes stay: {:#?}", self.shared.all_volumes().await);
        let root = self.shared.folder.path();
        for folder in folders_in(root).iter().filter(|folder| !kept.contains(folder)) {
            remove_folder(root, &folder.file_name().unwrap().to_string_lossy()).unwrap();
        }
    }

    /// Errors in the data of volumes: data that must be kept and is gone, or that must be deleted and is
    /// left.
    pub(crate) async fn losses(&self) -> Vec<String> {
        let mut losses = missing(&self.staying());
        let volumes = self.shared.all_volumes().await;
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
            let phase = phase(volume);
            if is_to_go(volume) && !matches!(phase, "Bound" | "Available") {
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

/// Random choices from a seed, which is printed and can be set by `BINDERY_SEED`.
pub(crate) fn chance() -> StdRng {
    let seed = number_from_env("BINDERY_SEED").unwrap_or_else(rand::random);
    println!("BINDERY_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

/// Takes snapshots, and fails at the first that shows harm; the API server may be down meanwhile.
pub(crate) fn check_snapshots(client: kube::Client, every: Duration) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(every);
        loop {
            ticks.tick().await;
            if let Ok(moment) = snapshot_without_stock(&client).await {
                let harms = moment.harms();
                assert!(harms.is_empty(), "harm was done: {harms:#?}");
            }
        }
    })
}

/// Whether a loss is a folder that was provisioned for a claim that went meanwhile, by a replica that died or
/// stepped down before it had created the volume. Upstream leaves it too.
pub(crate) fn is_abandoned(loss: &str) -> bool {
    loss.ends_with(LEFT) && loss.contains("/pvc-")
}

/// Whether a text names a tenant.
pub(crate) fn names_a_tenant(text: &str) -> bool {
    let is_name = |word: &str| {
        let number = word.strip_prefix('t').filter(|number| number.len() == 5);
        number.is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
    };
    text.split(|end: char| !end.is_ascii_alphanumeric()).any(is_name)
}

impl Shared {
    async fn serve(self: Arc<Self>, tenant: Tenant) -> Result<(), Unserved> {
        let name = tenant.name();
        if tokio::time::timeout(self.patience, self.serve_in_time(tenant)).await.is_err() {
            let volumes: Vec<_> = self.all_volumes().await.iter().map(taken).collect();
            let claim = self.claims.get_opt(&name).await;
            let why = format!("{tenant:?} is not served: {claim:?}\nvolumes: {volumes:#?}");
            return Err(Unserved { name, why });
        }
        Ok(())
    }

    async fn serve_in_time(&self, tenant: Tenant) {
        let volume = tenant.volume(self.folder.path());
        let is_volume_last = matches!(tenant.way, Way::Found { volume_first: false });
        if volume.is_some() {
            until_space(|| make_folder(self.folder.path(), &tenant.name())).await;
        }
        let began = Instant::now();
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
        let home = self.until_bound(&tenant.name()).await;
        self.waits.lock().unwrap().push((Instant::now(), began.elapsed()));
        until_space(|| move_in(&home)).await;
        if tenant.fate == Fate::Leaves {
            self.delete(&tenant.name(), Some(home.uid)).await;
        } else {
            self.stay.lock().unwrap().insert(tenant.name(), home);
        }
    }

    async fn until_bound(&self, name: &str) -> Home {
        let mut ticks = tokio::time::interval(EVERY);
        loop {
            ticks.tick().await;
            let claim = self.seen_claims.get(&ObjectRef::new(name).within("default"));
            let Some(claim) = claim.filter(|claim| is_bound(claim)) else { continue };
            let volume_name = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap();
            let volume = self.seen_volumes.get(&ObjectRef::new(&volume_name));
            if let Some(folder) = volume.and_then(|volume| folder_of(&volume)) {
                return Home { uid: claim.metadata.uid.clone().unwrap(), folder };
            }
        }
    }

    async fn all_volumes(&self) -> Vec<PersistentVolume> {
        let without_stock = ListParams::default().labels(&format!("!{STOCK}"));
        self.volumes.list(&without_stock).await.unwrap().items
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
    let without_stock = watcher::Config::default().labels(&format!("!{STOCK}"));
    let watching = watcher(api, without_stock).default_backoff().reflect(writer);
    let watching = tokio::spawn(watching.for_each(|_| std::future::ready(()))).abort_handle();
    (store, watching)
}

fn folder_of(volume: &PersistentVolume) -> Option<PathBuf> {
    Some(volume.spec.as_ref()?.host_path.as_ref()?.path.clone().into())
}

/// Name, phase and claim of a volume.
fn taken(volume: &PersistentVolume) -> String {
    let name = volume.metadata.name.as_deref();
    let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.name.as_deref());
    format!("{} {} {}", name.unwrap_or_default(), phase(volume), claim.unwrap_or("free"))
}

fn is_to_go(volume: &PersistentVolume) -> bool {
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    policy == Some("Delete")
}
