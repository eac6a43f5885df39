//! Observe mode, beside upstream's own binder and beside one that chooses badly.

use bindery_cluster::{ControlPlane, Manager, Programs, Proxy};
use http::Method;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::world::{Replica, World, is_bound, is_bound_to, phase};

/// A replica that looks on, and the door through which all of its requests go.
struct Observer {
    replica: Replica,
    proxy: Proxy,
}

impl Observer {
    async fn start(plane: &ControlPlane) -> Self {
        let proxy = Proxy::start(plane).await.unwrap();
        let further = ["--mode=observe".to_owned()];
        let mut replica = Replica::start_with(&proxy.kubeconfig(), "observer", &further, &[]);
        replica.until_metrics("bindery_lists_complete 1\n").await;
        Self { replica, proxy }
    }

    async fn count(&self, outcome: &str) -> u64 {
        self.replica.metric(&format!("bindery_observed_claims_total{{outcome=\"{outcome}\"}}")).await
    }

    /// Waits until so many claims were compared; answers how many were the same, tied, different, not comparable.
    async fn until_counted(&mut self, claims: u64) -> [u64; 4] {
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(50));
        let counted = async {
            loop {
                ticks.tick().await;
                let mut counts = [0; 4];
                for (count, outcome) in counts.iter_mut().zip(["same", "tie", "different", "not_comparable"])
                {
                    *count = self.count(outcome).await;
                }
                if counts.iter().sum::<u64>() >= claims {
                    return counts;
                }
            }
        };
        let counts = tokio::time::timeout(super::world::PATIENCE, counted).await;
        counts.unwrap_or_else(|_| panic!("not all claims are counted: {}", self.replica.log()))
    }

    /// Checks that it asked the API server for nothing but to read.
    fn check_wrote_nothing(&self) {
        let asked = self.proxy.take_asked();
        assert!(!asked.is_empty());
        let written: Vec<_> = asked.iter().filter(|asked| asked.method != Method::GET).collect();
        assert!(written.is_empty(), "{written:?}");
    }
}

#[tokio::test]
async fn what_upstream_binds_is_what_bindery_would_have_bound() {
    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::BinderAlone).await.unwrap();
    let world = World::new(&plane).await;
    let mut observer = Observer::start(&plane).await;
    // One choice is best.
    for (name, capacity) in [("small", "1Gi"), ("medium", "3Gi"), ("large", "9Gi")] {
        world.create_volume(name, capacity).await;
        world.until_volume(name, |volume| phase(volume) == "Available").await;
    }
    world.create_claim("c", "2Gi").await;
    world.until_claim("c", is_bound_to("medium")).await;
    assert_eq!(observer.until_counted(1).await, [1, 0, 0, 0]);
    assert_eq!(observer.replica.metric("bindery_observed_claims_awaited").await, 0);

    // Many at once, of equal volumes: upstream's choice among them is arbitrary, and never a worse one.
    for pair in 0..30 {
        world.create_volume(&format!("v{pair}"), "4Gi").await;
    }
    for pair in 0..30 {
        world.until_volume(&format!("v{pair}"), |volume| phase(volume) == "Available").await;
    }
    for pair in 0..30 {
        world.create_claim(&format!("c{pair}"), "4Gi").await;
    }
    for pair in 0..30 {
        world.until_claim(&format!("c{pair}"), is_bound).await;
    }
    let [same, tie, different, not_comparable] = observer.until_counted(31).await;
    assert_eq!((same + tie + not_comparable, different), (31, 0), "{}", observer.replica.log());
    assert!(not_comparable <= 3, "{not_comparable} of 31: {}", observer.replica.log());
    observer.check_wrote_nothing();
}

#[tokio::test]
async fn a_binder_that_chooses_otherwise_is_counted_and_told() {
    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::Off).await.unwrap();
    let world = World::new(&plane).await;
    let client = plane.client().await.unwrap();
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client);
    let mut observer = Observer::start(&plane).await;
    let manager = PatchParams { field_manager: Some("another-binder".to_owned()), ..PatchParams::default() };
    for (name, capacity) in [("small", "1Gi"), ("large", "5Gi")] {
        world.create_volume(name, capacity).await;
        let available = Patch::Merge(json!({"status": {"phase": "Available"}}));
        volumes.patch_status(name, &manager, &available).await.unwrap();
    }
    world.create_claim("c", "1Gi").await;
    observer.replica.until_metrics("bindery_observed_claims_awaited 1\n").await;
    let claim = world.until_claim("c", |_| true).await;
    let uid = claim.metadata.uid.unwrap();
    let reservation = json!({
        "metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
        "spec": {"claimRef": {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "c", "uid": uid,
        }},
    });
    volumes.patch("large", &manager, &Patch::Merge(reservation)).await.unwrap();
    let bind = json!({
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "large"},
    });
    claims.patch("c", &manager, &Patch::Merge(bind)).await.unwrap();
    assert_eq!(observer.until_counted(1).await, [0, 0, 1, 0]);
    observer.replica.until_metrics("bindery_observed_claims_awaited 0\n").await;
    let log = observer.replica.log();
    let line = log.lines().find(|line| line.contains("upstream bound the claim otherwise")).unwrap();
    for part in ["default/c", &uid, "large", "small", "5Gi", "1Gi"] {
        assert!(line.contains(part), "no {part:?} in {line}");
    }
    observer.check_wrote_nothing();
}
