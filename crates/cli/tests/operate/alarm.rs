//! Another binder on the same cluster: seen by every replica, told once, and held against reclaiming until an
//! operator says that it is gone.

use std::process::Command;
use std::time::Duration;

use bindery_cluster::{ControlPlane, Manager, Programs};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

use super::world::{PATIENCE, Replica, World, is_bound, is_bound_to, make_folder, phase, provisioning_in};

/// Within this from the first write of another binder on the alarm is raised.
const ALARM_MAX: Duration = Duration::from_secs(60);
/// How often a pair is created while upstream's loop starts.
const PAIR_EVERY: Duration = Duration::from_millis(50);
const RAISED: &str = "bindery_foreign_writer 1\n";
const LIFTED: &str = "bindery_foreign_writer 0\n";

/// Waits until a replica has seen a write of another binder.
async fn until_foreign_write(replica: &Replica) {
    let seen = async {
        let mut ticks = tokio::time::interval(PAIR_EVERY);
        while replica.metric("bindery_foreign_writes_total").await == 0 {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, seen).await.expect("upstream's loop writes");
}

fn is_alarm(event: &Event) -> bool {
    event.reason.as_deref() == Some("ForeignWriter")
}

/// A cluster where Bindery provisions and deletes hostPath volumes below a folder.
struct Site {
    plane: ControlPlane,
    world: World,
    volumes: Api<PersistentVolume>,
    folder: TempDir,
}

impl Site {
    async fn new() -> Self {
        let programs = Programs::from_env().unwrap();
        let plane = ControlPlane::start(programs, Manager::WithoutBinder).await.unwrap();
        let volumes = Api::all(plane.client().await.unwrap());
        Self { world: World::new(&plane).await, plane, volumes, folder: TempDir::new().unwrap() }
    }

    fn replica(&self, identity: &str) -> Replica {
        Replica::start_with(&self.plane.kubeconfig(), identity, &provisioning_in(self.folder.path()), &[])
    }

    /// A volume that is deleted, or recycled, when its claim is.
    async fn create_reclaimed_volume(&self, name: &str, capacity: &str, policy: &str) {
        let path = make_folder(self.folder.path(), name);
        let volume = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": capacity},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": policy,
                "hostPath": {"path": path},
            },
        });
        let volume = serde_json::from_value(volume).unwrap();
        self.volumes.create(&PostParams::default(), &volume).await.unwrap();
    }

    async fn create_pair(&self, name: &str) {
        self.world.create_volume(name, "1Gi").await;
        self.world.create_claim(name, "1Gi").await;
    }

    async fn create_pairs(&self, prefix: &str, pairs: usize) {
        for pair in 0..pairs {
            self.create_pair(&format!("{prefix}{pair}")).await;
        }
    }

    /// Creates pairs until something is seen, and says how many.
    async fn create_pairs_until(&self, prefix: &str, seen: impl Future) -> usize {
        let mut pairs = 0;
        let load = async {
            let mut ticks = tokio::time::interval(PAIR_EVERY);
            loop {
                ticks.tick().await;
                self.create_pair(&format!("{prefix}{pairs}")).await;
                pairs += 1;
            }
        };
        tokio::select! {
            _ = seen => {}
            () = load => {}
        }
        pairs
    }

    async fn until_bound(&self, prefix: &str, pairs: usize) {
        for pair in 0..pairs {
            self.world.until_claim(&format!("{prefix}{pair}"), is_bound).await;
        }
    }

    /// The alarm's events.
    async fn events(&self) -> Vec<Event> {
        let events: Api<Event> = Api::all(self.plane.client().await.unwrap());
        let events = events.list(&ListParams::default()).await.unwrap().items;
        events.into_iter().filter(is_alarm).collect()
    }

    /// Runs kubectl as the guide for operators tells.
    fn kubectl(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(std::env::var_os("BINDERY_KUBECTL").unwrap());
        let output =
            command.arg("--kubeconfig").arg(self.plane.kubeconfig()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

#[tokio::test]
async fn another_binder_stops_deletion_until_the_operator_acknowledges() {
    let mut site = Site::new().await;
    let mut first = site.replica("first");
    first.until_leading().await;
    let mut second = site.replica("second");
    second.until_metrics("bindery_lists_complete 1\n").await;

    // The replicas' own writes and a user's are no alarm.
    site.create_pairs("own", 20).await;
    site.until_bound("own", 20).await;
    site.create_reclaimed_volume("precious", "7Gi", "Delete").await;
    site.create_reclaimed_volume("reused", "8Gi", "Recycle").await;
    site.world.create_claim("reused", "8Gi").await;
    site.world.until_claim("reused", is_bound_to("reused")).await;
    let reservation = json!({"spec": {"claimRef": {"namespace": "default", "name": "precious"}}});
    let user = PatchParams { field_manager: Some("kubectl-patch".to_owned()), ..PatchParams::default() };
    site.volumes.patch("precious", &user, &Patch::Merge(reservation)).await.unwrap();
    site.world.create_claim("precious", "7Gi").await;
    site.world.until_claim("precious", is_bound_to("precious")).await;
    for replica in [&first, &second] {
        assert_eq!(replica.metric("bindery_foreign_writes_total").await, 0, "{}", replica.log());
    }

    // Upstream's loop is on again, under load.
    site.plane.set_manager(Manager::BinderAlone).unwrap();
    let seen = async {
        // It takes its time to start.
        until_foreign_write(&first).await;
        let alarm = async {
            tokio::join!(
                first.until_metrics(RAISED),
                second.until_metrics(RAISED),
                site.world.until_event(is_alarm)
            )
        };
        tokio::time::timeout(ALARM_MAX, alarm).await.expect("the alarm comes within a minute");
    };
    let pairs = site.create_pairs_until("both", seen).await;
    site.until_bound("both", pairs).await;
    let path = r"--output=jsonpath={.metadata.annotations.bindery\.dev/foreign-writer}";
    let why = site.kubectl(&["get", "lease", "bindery", "--namespace=kube-system", path]);
    assert!(why.contains("kube-controller-manager wrote "), "{why}");
    site.plane.set_manager(Manager::WithoutBinder).unwrap();

    // Binding goes on, deleting and recycling do not, in the next leader either.
    first.signal(Signal::KILL);
    second.until_leading().await;
    for name in ["precious", "reused"] {
        site.world.delete_claim(name).await;
        site.world.until_volume(name, |volume| phase(volume) == "Released").await;
    }
    site.create_pairs("after", 5).await;
    site.until_bound("after", 5).await;
    let mut third = site.replica("third");
    second.signal(Signal::KILL);
    third.until_leading().await;
    third.until_metrics(RAISED).await;
    site.create_pairs("restarted", 5).await;
    site.until_bound("restarted", 5).await;
    for name in ["precious", "reused"] {
        assert_eq!(phase(&site.volumes.get(name).await.unwrap()), "Released");
    }
    assert!(site.folder.path().join("precious").exists());
    let pods: Api<Pod> = Api::default_namespaced(site.plane.client().await.unwrap());
    assert!(pods.get_opt("recycler-for-reused").await.unwrap().is_none());

    // One replica tells it, on the object.
    let events = site.events().await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].message.as_ref().unwrap().contains("bindery.dev/foreign-writer"), "{events:?}");

    site.kubectl(&["annotate", "lease", "bindery", "--namespace=kube-system", "bindery.dev/foreign-writer-"]);
    third.until_metrics(LIFTED).await;
    site.world.until_no_volume("precious").await;
    let is_there = |pod: Option<&Pod>| pod.is_some();
    let scrubbed = await_condition(pods, "recycler-for-reused", is_there);
    tokio::time::timeout(PATIENCE, scrubbed).await.expect("it is recycled").unwrap();
    assert!(!site.folder.path().join("precious").exists());
}
