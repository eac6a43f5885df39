//! Observe mode, beside upstream's binder and beside one that chooses badly.

use bindery_cluster::{Cluster, Manager, Proxy, Replica, is_bound, is_bound_to, is_in_phase, poll};
use http::Method;
use kube::api::{Patch, PatchParams};
use serde_json::json;

/// A replica in observe mode, and the proxy for all of its requests.
struct Observer {
    replica: Replica,
    proxy: Proxy,
}

impl Observer {
    async fn start(cluster: &Cluster) -> Self {
        let proxy = cluster.proxy().await;
        let mut replica = Replica::behind(&proxy, "observer", &["--mode=observe"]);
        replica.until_listed().await;
        Self { replica, proxy }
    }

    /// Waits until this many claims are compared; returns the numbers of those bound the same, tied,
    /// different and not comparable.
    async fn until_counted(&mut self, claims: u64) -> [u64; 4] {
        let counts = poll(async || {
            let mut counts = [0; 4];
            for (count, outcome) in counts.iter_mut().zip(["same", "tie", "different", "not_comparable"]) {
                let metric = format!("bindery_observed_claims_total{{outcome=\"{outcome}\"}}");
                *count = self.replica.metric(&metric).await;
            }
            (counts.iter().sum::<u64>() >= claims).then_some(counts)
        });
        counts.await.unwrap_or_else(|| panic!("not all claims are counted: {}", self.replica.log()))
    }

    /// Checks that the replica made no request but reads.
    fn check_wrote_nothing(&self) {
        let requests = self.proxy.take_requests();
        assert!(!requests.is_empty());
        let written: Vec<_> = requests.iter().filter(|request| request.method != Method::GET).collect();
        assert!(written.is_empty(), "{written:?}");
    }
}

#[tokio::test]
async fn claims_that_upstream_binds_count_as_the_same_or_tied() {
    let mut cluster = Cluster::start(Manager::BinderAlone).await;
    let mut observer = Observer::start(&cluster).await;
    // One choice is best.
    for (name, capacity) in [("small", "1Gi"), ("medium", "3Gi"), ("large", "9Gi")] {
        cluster.create_available_volume(name, capacity).await;
    }
    // The bind of a claim that the observer has not seen cannot be compared.
    cluster.plane.set_manager(Manager::Off).unwrap();
    cluster.create_claim("c", "2Gi").await;
    observer.replica.until_metrics("bindery_observed_claims_awaited 1\n").await;
    cluster.plane.set_manager(Manager::BinderAlone).unwrap();
    cluster.until_claim("c", is_bound_to("medium")).await;
    assert_eq!(observer.until_counted(1).await, [1, 0, 0, 0]);
    observer.replica.until_metrics("bindery_observed_claims_awaited 0\n").await;

    // Many claims, and equal volumes: upstream's choice among them is arbitrary.
    for pair in 0..30 {
        cluster.create_volume(&format!("v{pair}"), "4Gi").await;
    }
    for pair in 0..30 {
        cluster.until_volume(&format!("v{pair}"), is_in_phase("Available")).await;
    }
    cluster.plane.set_manager(Manager::Off).unwrap();
    for pair in 0..30 {
        cluster.create_claim(&format!("c{pair}"), "4Gi").await;
    }
    observer.replica.until_metrics("bindery_observed_claims_awaited 30\n").await;
    cluster.plane.set_manager(Manager::BinderAlone).unwrap();
    for pair in 0..30 {
        cluster.until_claim(&format!("c{pair}"), is_bound).await;
    }
    let [same, tie, different, not_comparable] = observer.until_counted(31).await;
    assert_eq!((same + tie + not_comparable, different), (31, 0), "{}", observer.replica.log());
    assert!(not_comparable <= 3, "{not_comparable} of 31: {}", observer.replica.log());
    observer.check_wrote_nothing();
}

/// A binder that makes upstream's writes, by the choice of the test.
struct OtherBinder {
    cluster: Cluster,
    manager: PatchParams,
}

impl OtherBinder {
    async fn new() -> Self {
        let manager =
            PatchParams { field_manager: Some("another-binder".to_owned()), ..PatchParams::default() };
        Self { cluster: Cluster::start(Manager::Off).await, manager }
    }

    async fn create_available(&self, volume: &str, capacity: &str) {
        self.cluster.create_volume(volume, capacity).await;
        let available = Patch::Merge(json!({"status": {"phase": "Available"}}));
        self.cluster.volumes.patch_status(volume, &self.manager, &available).await.unwrap();
    }

    /// Creates a claim; returns its UID when the observer would bind it.
    async fn create_awaited(&self, claim: &str, request: &str, observer: &mut Observer) -> String {
        self.cluster.create_claim(claim, request).await;
        observer.replica.until_metrics("bindery_observed_claims_awaited 1\n").await;
        self.cluster.until_claim(claim, |_| true).await.metadata.uid.unwrap()
    }

    async fn reserve(&self, volume: &str, claim: &str, uid: &str) {
        let reservation = json!({
            "metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
            "spec": {"claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": "default", "name": claim, "uid": uid,
            }},
        });
        self.cluster.volumes.patch(volume, &self.manager, &Patch::Merge(reservation)).await.unwrap();
    }

    async fn bind(&self, claim: &str, uid: &str, volume: &str) {
        self.reserve(volume, claim, uid).await;
        let bind = json!({
            "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": volume},
        });
        self.cluster.claims.patch(claim, &self.manager, &Patch::Merge(bind)).await.unwrap();
    }
}

#[tokio::test]
async fn each_choice_of_another_binder_is_counted_by_its_kind() {
    let other = OtherBinder::new().await;
    let mut observer = Observer::start(&other.cluster).await;
    other.create_available("small", "1Gi").await;
    other.create_available("large", "5Gi").await;
    let uid = other.create_awaited("c", "1Gi", &mut observer).await;
    other.bind("c", &uid, "large").await;
    assert_eq!(observer.until_counted(1).await, [0, 0, 1, 0]);
    observer.replica.until_metrics("bindery_observed_claims_awaited 0\n").await;
    let line = observer.replica.until_logged("upstream bound the claim otherwise").await;
    for part in ["default/c", &uid, "large", "small", "5Gi", "1Gi"] {
        assert!(line.contains(part), "no {part:?} in {line}");
    }

    // Of two equal volumes Bindery takes the one whose name comes first.
    other.create_available("twin-a", "3Gi").await;
    other.create_available("twin-b", "3Gi").await;
    let uid = other.create_awaited("d", "3Gi", &mut observer).await;
    other.bind("d", &uid, "twin-b").await;
    assert_eq!(observer.until_counted(2).await, [0, 1, 1, 0]);

    // A claim that was gone before the observer saw it.
    let unseen = "5f7c1f0e-8d0c-4a8e-9d1b-3a2b1c0d9e8f";
    other.reserve("twin-a", "unseen", unseen).await;
    assert_eq!(observer.until_counted(3).await, [0, 1, 1, 1]);
    let line = observer.replica.until_logged("cannot be compared").await;
    for part in ["default/unseen", unseen, "twin-a", "not seen before its bind"] {
        assert!(line.contains(part), "no {part:?} in {line}");
    }
    observer.check_wrote_nothing();
}

#[tokio::test]
async fn given_claims_that_another_replica_binds_none_is_compared() {
    let other = OtherBinder::new().await;
    let mut observer = Observer::start(&other.cluster).await;
    let mut own = other.cluster.replica("own");
    own.until_leading().await;
    other.cluster.bind_pairs("own", 20).await;
    own.terminate().await;
    // The observer learns of this claim, and of its bind, after all others.
    other.create_available("large", "5Gi").await;
    let uid = other.create_awaited("last", "5Gi", &mut observer).await;
    other.bind("last", &uid, "large").await;
    assert_eq!(observer.until_counted(1).await, [1, 0, 0, 0], "{}", observer.replica.log());
    observer.check_wrote_nothing();
}
