//! Another binder on the same cluster: every replica sees it, one reports it, and nothing is reclaimed until
//! the operator acknowledges.

use std::time::Duration;

use bindery_cluster::{
    Cluster, Manager, Replica, is_bound_to, is_in_phase, make_folder, phase, provisioning_in, until,
};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

/// Most time from the first write of another binder to its report.
const REPORT_MAX: Duration = Duration::from_secs(60);
/// Time between two pairs while upstream's binder starts.
const PAIR_EVERY: Duration = Duration::from_millis(50);
const STOPPED: &str = "bindery_foreign_writer 1\n";
const RESUMED: &str = "bindery_foreign_writer 0\n";

fn is_report(event: &Event) -> bool {
    event.reason.as_deref() == Some("ForeignWriter")
}

/// A cluster where Bindery provisions and deletes hostPath volumes below a folder.
struct ReclaimingCluster {
    cluster: Cluster,
    folder: TempDir,
}

impl ReclaimingCluster {
    fn replica(&self, identity: &str) -> Replica {
        self.cluster.replica_with(identity, &[&provisioning_in(self.folder.path())])
    }

    /// Creates a volume with a folder below the one of Bindery.
    async fn create_reclaimed_volume(&self, name: &str, capacity: &str, policy: &str) {
        let path = make_folder(self.folder.path(), name).unwrap();
        let spec = json!({
            "capacity": {"storage": capacity},
            "persistentVolumeReclaimPolicy": policy,
            "hostPath": {"path": path},
        });
        self.cluster.create_volume_with(name, spec).await;
    }

    /// Creates pairs until something is seen; returns their number.
    async fn create_pairs_until(&self, prefix: &str, seen: impl Future) -> usize {
        let mut pairs = 0;
        let load = async {
            let mut ticks = tokio::time::interval(PAIR_EVERY);
            loop {
                ticks.tick().await;
                self.cluster.create_pair(&format!("{prefix}{pairs}")).await;
                pairs += 1;
            }
        };
        tokio::select! {
            _ = seen => {}
            () = load => {}
        }
        pairs
    }

    /// Has upstream's binder on, under load, until the report has come and both replicas have stopped.
    async fn until_upstream_is_reported(&mut self, first: &mut Replica, second: &mut Replica) {
        self.cluster.plane.set_manager(Manager::BinderAlone).unwrap();
        let seen = async {
            first.until_metric("bindery_foreign_writes_total", |writes| writes > 0).await;
            let reported = async {
                tokio::join!(
                    first.until_metrics(STOPPED),
                    second.until_metrics(STOPPED),
                    self.cluster.until_event(is_report)
                )
            };
            tokio::time::timeout(REPORT_MAX, reported).await.expect("the report comes within a minute");
        };
        let pairs = self.create_pairs_until("both", seen).await;
        self.cluster.until_pairs_are_bound("both", pairs).await;
        let why =
            self.kubectl("get", r"--output=jsonpath={.metadata.annotations.bindery\.dev/foreign-writer}");
        assert!(why.contains("kube-controller-manager wrote "), "{why}");
        self.cluster.plane.set_manager(Manager::WithoutBinder).unwrap();
    }

    async fn reports(&self) -> Vec<Event> {
        let events: Api<Event> = Api::all(self.cluster.client.clone());
        let events = events.list(&ListParams::default()).await.unwrap().items;
        events.into_iter().filter(is_report).collect()
    }

    /// Runs kubectl on the Lease, as in the guide for operators.
    fn kubectl(&self, verb: &str, further: &str) -> String {
        let output =
            self.cluster.kubectl(&[verb, "lease", "bindery", "--namespace=kube-system", further], "");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

#[tokio::test]
async fn another_binder_stops_deletion_until_the_operator_acknowledges() {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let mut reclaiming = ReclaimingCluster { cluster, folder: TempDir::new().unwrap() };
    let mut first = reclaiming.replica("first");
    first.until_leading().await;
    let mut second = reclaiming.replica("second");
    second.until_listed().await;

    // Writes of the replicas and of a user are not foreign writes.
    reclaiming.cluster.bind_pairs("own", 20).await;
    reclaiming.create_reclaimed_volume("precious", "7Gi", "Delete").await;
    reclaiming.create_reclaimed_volume("reused", "8Gi", "Recycle").await;
    reclaiming.cluster.create_claim("reused", "8Gi").await;
    reclaiming.cluster.until_claim("reused", is_bound_to("reused")).await;
    let reservation = json!({"spec": {"claimRef": {"namespace": "default", "name": "precious"}}});
    let user = PatchParams { field_manager: Some("kubectl-patch".to_owned()), ..PatchParams::default() };
    reclaiming.cluster.volumes.patch("precious", &user, &Patch::Merge(reservation)).await.unwrap();
    reclaiming.cluster.create_claim("precious", "7Gi").await;
    reclaiming.cluster.until_claim("precious", is_bound_to("precious")).await;
    for replica in [&first, &second] {
        assert_eq!(replica.metric("bindery_foreign_writes_total").await, 0, "{}", replica.log());
    }

    reclaiming.until_upstream_is_reported(&mut first, &mut second).await;

    // Binding continues; deleting and recycling do not, not even with later leaders.
    first.signal(Signal::KILL);
    second.until_leading().await;
    for name in ["precious", "reused"] {
        reclaiming.cluster.delete_claim(name).await;
        reclaiming.cluster.until_volume(name, is_in_phase("Released")).await;
    }
    reclaiming.cluster.bind_pairs("after", 5).await;
    let mut third = reclaiming.replica("third");
    second.signal(Signal::KILL);
    third.until_leading().await;
    third.until_metrics(STOPPED).await;
    reclaiming.cluster.bind_pairs("restarted", 5).await;
    for name in ["precious", "reused"] {
        assert_eq!(phase(&reclaiming.cluster.volumes.get(name).await.unwrap()), "Released");
    }
    assert!(reclaiming.folder.path().join("precious").exists());
    let pods: Api<Pod> = Api::default_namespaced(reclaiming.cluster.client.clone());
    assert!(pods.get_opt("recycler-for-reused").await.unwrap().is_none());

    // One replica reports it, on the object.
    let events = reclaiming.reports().await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].message.as_ref().unwrap().contains("bindery.dev/foreign-writer"), "{events:?}");

    reclaiming.kubectl("annotate", "bindery.dev/foreign-writer-");
    third.until_metrics(RESUMED).await;
    reclaiming.cluster.until_no_volume("precious").await;
    until(&pods, "recycler-for-reused", |_| true).await;
    assert!(!reclaiming.folder.path().join("precious").exists());
}
