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

    /// Waits until so many claims were compared; answers how many were the same, tied, different, not
    /// comparable.
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
    let mut plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::BinderAlone).await.unwrap();
    let world = World::new(&plane).await;
    let mut observer = Observer::start(&plane).await;
    // One choice is best.
    for (name, capacity) in [("small", "1Gi"), ("medium", "3Gi"), ("large", "9Gi")] {
        world.create_volume(name, capacity).await;
        world.until_volume(name, |volume| phase(volume) == "Available").await;
    }
    // What is bound before the observer has seen it cannot be compared.
    plane.set_manager(Manager::Off).unwrap();
    world.create_claim("c", "2Gi").await;
    observer.replica.until_metrics("bindery_observed_claims_awaited 1\n").await;
    plane.set_manager(Manager::BinderAlone).unwrap();
    world.until_claim("c", is_bound_to("medium")).await;
    assert_eq!(observer.until_counted(1).await, [1, 0, 0, 0]);
    observer.replica.until_metrics("bindery_observed_claims_awaited 0\n").await;

    // Many at once, of equal volumes: upstream's choice among them is arbitrary, and never a worse one.
    for pair in 0..30 {
        world.create_volume(&format!("v{pair}"), "4Gi").await;
    }
    for pair in 0..30 {
        world.until_volume(&format!("v{pair}"), |volume| phase(volume) == "Available").await;
    }
    plane.set_manager(Manager::Off).unwrap();
    for pair in 0..30 {
        world.create_claim(&format!("c{pair}"), "4Gi").await;
    }
    observer.replica.until_metrics("bindery_observed_claims_awaited 30\n").await;
    plane.set_manager(Manager::BinderAlone).unwrap();
    for pair in 0..30 {
        world.until_claim(&format!("c{pair}"), is_bound).await;
    }
    let [same, tie, different, not_comparable] = observer.until_counted(31).await;
    assert_eq!((same + tie + not_comparable, different), (31, 0), "{}", observer.replica.log());
    assert!(not_comparable <= 3, "{not_comparable} of 31: {}", observer.replica.log());
    observer.check_wrote_nothing();
}

/// A binder that makes upstream's writes, and chooses what it is told.
struct Told {
    world: World,
    volumes: Api<PersistentVolume>,
    claims: Api<PersistentVolumeClaim>,
    manager: PatchParams,
}

impl Told {
    async fn new(plane: &ControlPlane) -> Self {
        let client = plane.client().await.unwrap();
        Self {
            world: World::new(plane).await,
            volumes: Api::all(client.clone()),
            claims: Api::default_namespaced(client),
            manager: PatchParams {
                field_manager: Some("another-binder".to_owned()),
                ..PatchParams::default()
            },
        }
    }

    async fn create_available(&self, volume: &str, capacity: &str) {
        self.world.create_volume(volume, capacity).await;
        let available = Patch::Merge(json!({"status": {"phase": "Available"}}));
        self.volumes.patch_status(volume, &self.manager, &available).await.unwrap();
    }

    /// Creates a claim; answers its UID once the observer would bind it.
    async fn create_awaited(&self, claim: &str, request: &str, observer: &mut Observer) -> String {
        self.world.create_claim(claim, request).await;
        observer.replica.until_metrics("bindery_observed_claims_awaited 1\n").await;
        self.world.until_claim(claim, |_| true).await.metadata.uid.unwrap()
    }

    async fn reserve(&self, volume: &str, claim: &str, uid: &str) {
        let reservation = json!({
            "metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
            "spec": {"claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": claim, "uid": uid,
            }},
        });
        self.volumes.patch(volume, &self.manager, &Patch::Merge(reservation)).await.unwrap();
    }

    async fn bind(&self, claim: &str, uid: &str, volume: &str) {
        self.reserve(volume, claim, uid).await;
        let bind = json!({
            "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": volume},
        });
        self.claims.patch(claim, &self.manager, &Patch::Merge(bind)).await.unwrap();
    }
}

#[tokio::test]
async fn whatever_another_binder_chooses_is_counted_as_what_it_is() {
    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::Off).await.unwrap();
    let (told, mut observer) = (Told::new(&plane).await, Observer::start(&plane).await);
    told.create_available("small", "1Gi").await;
    told.create_available("large", "5Gi").await;
    let uid = told.create_awaited("c", "1Gi", &mut observer).await;
    told.bind("c", &uid, "large").await;
    assert_eq!(observer.until_counted(1).await, [0, 0, 1, 0]);
    observer.replica.until_metrics("bindery_observed_claims_awaited 0\n").await;
    let line = observer.replica.until_logged("upstream bound the claim otherwise").await;
    for part in ["default/c", &uid, "large", "small", "5Gi", "1Gi"] {
        assert!(line.contains(part), "no {part:?} in {line}");
    }

    // Of two equal volumes Bindery takes the one whose name comes first.
    told.create_available("twin-a", "3Gi").await;
    told.create_available("twin-b", "3Gi").await;
    let uid = told.create_awaited("d", "3Gi", &mut observer).await;
    told.bind("d", &uid, "twin-b").await;
    assert_eq!(observer.until_counted(2).await, [0, 1, 1, 0]);

    // A claim that was gone before anybody saw it.
    let unseen = "5f7c1f0e-8d0c-4a8e-9d1b-3a2b1c0d9e8f";
    told.reserve("twin-a", "unseen", unseen).await;
    assert_eq!(observer.until_counted(3).await, [0, 1, 1, 1]);
    let line = observer.replica.until_logged("cannot be compared").await;
    for part in ["default/unseen", unseen, "twin-a", "not seen before its bind"] {
        assert!(line.contains(part), "no {part:?} in {line}");
    }
    observer.check_wrote_nothing();
}
