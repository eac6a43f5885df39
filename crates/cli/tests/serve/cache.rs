//! A watch cache with false contents, and an API server that answers live reads truthfully: no volume is
//! released, recycled or deleted because of the cache alone, and every volume is once the cache is true.

use std::fs;
use std::path::PathBuf;

use bindery_cluster::{
    Cluster, Faults, Manager, NoFaults, Proxy, Replica, Request, Response, ResponseFault, is_bound_to,
    is_in_phase, make_folder, poll, provisioning_in, snapshot, until,
};
use bytes::Bytes;
use http::Method;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::{Value, json};
use tempfile::TempDir;

const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLAIMS: &str = "/api/v1/persistentvolumeclaims";
const POLICIES: [&str; 3] = ["Retain", "Delete", "Recycle"];

/// False contents of the cache about a bound pair.
#[derive(Clone, Copy, Debug)]
enum FalseState {
    Gone,
    /// A claim of the same name has taken its place.
    OtherUid,
    /// The claim has another volume.
    OtherVolume,
    /// The claim was deleted and the volume released; upstream makes no live read for this.
    Released,
}

const FALSE_STATES: [FalseState; 4] =
    [FalseState::Gone, FalseState::OtherUid, FalseState::OtherVolume, FalseState::Released];

impl FalseState {
    /// The claim in the cache; `None` if it is gone.
    fn claim(self, mut claim: Value) -> Option<Value> {
        match self {
            Self::Gone | Self::Released => return None,
            Self::OtherUid => claim["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000".into(),
            Self::OtherVolume => claim["spec"]["volumeName"] = "elsewhere".into(),
        }
        Some(claim)
    }

    /// Whether a request is the live read that must come before the volume with this policy is reclaimed.
    fn is_checked_by(self, request: &Request, policy: &str) -> bool {
        let is_read = request.method == Method::GET && request.path == claim_path(&policy.to_lowercase());
        match self {
            Self::Gone | Self::OtherUid | Self::OtherVolume => is_read,
            // A volume that is kept needs no read.
            Self::Released if policy == "Retain" => true,
            // The engine makes no read; the guard does.
            Self::Released => is_read && request.headers.contains_key("x-bindery-guard"),
        }
    }

    fn volume(self, mut volume: Value) -> Value {
        if matches!(self, Self::Released) {
            volume["status"]["phase"] = "Released".into();
        }
        volume
    }
}

/// Whether a request releases, recycles or deletes a volume. Phase Bound may be written, because it is true.
/// Writes of claims do not count: phase Lost is taken back.
fn is_reclaiming(request: &Request) -> bool {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let is_volume = request.path.starts_with(VOLUMES) && !request.path.contains("/barrier-");
    let is_recycler = request.method == Method::POST && request.path.ends_with("/pods");
    is_recycler || is_volume && request.is_write() && body["status"]["phase"] != "Bound"
}

fn claim_path(name: &str) -> String {
    format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}")
}

/// False lists for a replica that starts, whether it lists or streams.
struct FalseLists(FalseState);

impl FalseLists {
    /// The false object at this path; `None` if it is left out.
    fn falsify(&self, path: &str, object: Value) -> Option<Value> {
        match path {
            CLAIMS => self.0.claim(object),
            VOLUMES => Some(self.0.volume(object)),
            _ => Some(object),
        }
    }
}

impl Faults for FalseLists {
    fn on_response(&self, request: &Request, response: &Response) -> ResponseFault {
        if request.method != Method::GET || ![VOLUMES, CLAIMS].contains(&request.path.as_str()) {
            return ResponseFault::None;
        }
        let mut list: Value = serde_json::from_slice(&response.body).unwrap();
        // API servers up to 1.33 answer null for an empty list.
        let items: Option<Vec<Value>> = serde_json::from_value(list["items"].take()).unwrap();
        let falsified = items.into_iter().flatten().filter_map(|item| {
            if is_of_barrier(&item) { Some(item) } else { self.falsify(&request.path, item) }
        });
        list["items"] = falsified.collect();
        ResponseFault::Replace(Bytes::from(list.to_string()))
    }

    fn on_event(&self, request: &Request, line: Bytes) -> Bytes {
        let mut event: Value = serde_json::from_slice(&line).unwrap();
        // The initial objects of a streamed list are false, later events are true.
        if event["type"] != "ADDED" || is_of_barrier(&event["object"]) {
            return line;
        }
        let Some(object) = self.falsify(&request.path, event["object"].take()) else { return Bytes::new() };
        event["object"] = object;
        Bytes::from(format!("{event}\n"))
    }
}

/// Barriers are pairs whose bind shows that everything before them has been processed; they are never false.
fn is_of_barrier(object: &Value) -> bool {
    object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("barrier"))
}

struct PolicyPairs {
    cluster: Cluster,
    proxy: Proxy,
    folder: TempDir,
    barriers: usize,
}

impl PolicyPairs {
    async fn new() -> Self {
        let cluster = Cluster::start(Manager::ProtectionAlone).await;
        let proxy = Proxy::start_in_json(&cluster.kubeconfig()).await.unwrap();
        Self { cluster, proxy, folder: TempDir::new().unwrap(), barriers: 0 }
    }

    fn replica(&self, identity: &str) -> Replica {
        // A new term would list what the held watches must not tell.
        let arguments = [&*provisioning_in(self.folder.path()), "--lease-duration=15"];
        Replica::behind(&self.proxy, identity, &arguments)
    }

    async fn bind_one_of_each_policy(&mut self) {
        for policy in POLICIES {
            let name = policy.to_lowercase();
            make_folder(self.folder.path(), &name).unwrap();
            fs::write(self.data(&name).join("data"), "dear").unwrap();
            let source = json!({"path": self.data(&name)});
            let spec = json!({
                "storageClassName": name, "persistentVolumeReclaimPolicy": policy, "hostPath": source,
            });
            self.cluster.create_volume_with(&name, spec).await;
            self.cluster.create_claim_of(&name, &name, None).await;
            self.cluster.until_claim(&name, is_bound_to(&name)).await;
        }
        self.bind_barrier().await;
    }

    /// Binds one more pair: then the replica's watches have delivered everything before.
    async fn bind_barrier(&mut self) {
        self.barriers += 1;
        let barrier = format!("barrier-{}", self.barriers);
        self.cluster.create_volume_of(&barrier, &barrier, json!(null)).await;
        self.cluster.create_claim_of(&barrier, &barrier, None).await;
        self.cluster.until_claim(&barrier, is_bound_to(&barrier)).await;
    }

    fn data(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Sends the false state of every pair to all watches.
    async fn send(&self, state: FalseState) {
        for policy in POLICIES {
            let name = policy.to_lowercase();
            let claim = self.cluster.get(&claim_path(&name)).await.unwrap();
            let event = match state.claim(claim.clone()) {
                Some(claim) => json!({"type": "MODIFIED", "object": claim}),
                None => json!({"type": "DELETED", "object": claim}),
            };
            assert_eq!(self.proxy.send_event(CLAIMS, &event), 1, "one replica watches claims");
            let volume = state.volume(self.cluster.get(&format!("{VOLUMES}/{name}")).await.unwrap());
            assert_eq!(self.proxy.send_event(VOLUMES, &json!({"type": "MODIFIED", "object": volume})), 1);
        }
    }

    /// Changes an annotation of every object, and waits until watches have delivered the true state.
    async fn send_the_truth(&mut self, round: usize) {
        for policy in POLICIES {
            let name = policy.to_lowercase();
            let change = json!({"metadata": {"annotations": {"example.com/round": round.to_string()}}});
            for path in [format!("{VOLUMES}/{name}"), claim_path(&name)] {
                self.cluster.patch(&path, &change).await.unwrap();
            }
        }
        self.bind_barrier().await;
    }

    /// Waits until the replica has read the claims live, and checks that nothing was reclaimed.
    async fn check_unharmed(&mut self, state: FalseState) {
        let mut seen = Vec::new();
        let is_read =
            |seen: &[Request], policy| seen.iter().any(|request| state.is_checked_by(request, policy));
        let read = poll(async || {
            seen.extend(self.proxy.take_requests());
            POLICIES.iter().all(|policy| is_read(&seen, policy)).then_some(())
        });
        assert!(read.await.is_some(), "{state:?}: not all claims were read: {seen:#?}");
        // Decided after the false state.
        self.bind_barrier().await;
        seen.extend(self.proxy.take_requests());
        let done: Vec<_> = seen.iter().filter(|request| is_reclaiming(request)).collect();
        assert!(done.is_empty(), "{state:?}: {done:#?}");
        for policy in POLICIES {
            let name = policy.to_lowercase();
            let volume = self.cluster.get(&format!("{VOLUMES}/{name}")).await.unwrap();
            assert_eq!(volume["status"]["phase"], "Bound", "{state:?}: {name}");
            assert_eq!(volume["spec"]["claimRef"]["name"], *name, "{state:?}");
            assert_eq!(
                fs::read_to_string(self.data(&name).join("data")).unwrap(),
                "dear",
                "{state:?}: {name}"
            );
        }
    }

    /// Deletes the claims, and waits until their volumes are reclaimed.
    async fn reclaim(&self) {
        for policy in POLICIES {
            self.cluster.delete_claim(&policy.to_lowercase()).await;
        }
        self.cluster.until_volume("retain", is_in_phase("Released")).await;
        assert!(self.data("retain").exists());
        self.cluster.until_no_volume("delete").await;
        assert!(!self.data("delete").exists());
        // There is no node to run the recycler pod.
        let pod = "/api/v1/namespaces/default/pods/recycler-for-recycle";
        let pods = Api::<Pod>::default_namespaced(self.cluster.client.clone());
        let is_open = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.scheduling_gates.is_none());
        until(&pods, "recycler-for-recycle", is_open).await;
        let succeeded = json!({"status": {"phase": "Succeeded"}});
        self.cluster.patch(&format!("{pod}/status"), &succeeded).await.unwrap();
        self.cluster.until_volume("recycle", is_in_phase("Available")).await;
    }
}

#[tokio::test]
async fn nothing_is_reclaimed_while_only_the_cache_says_so() {
    let mut pairs = PolicyPairs::new().await;
    let mut replica = pairs.replica("told");
    replica.until_leading().await;
    pairs.bind_one_of_each_policy().await;
    for (round, state) in FALSE_STATES.into_iter().enumerate() {
        pairs.proxy.take_requests();
        pairs.send(state).await;
        pairs.check_unharmed(state).await;
        pairs.send_the_truth(round).await;
    }
    for metric in ["bindery_live_reads_total", "bindery_guard_reads_total"] {
        println!("{metric} {}", replica.metric(metric).await);
    }
    replica.signal(rustix::process::Signal::KILL);
    replica.wait().await;
    for (number, state) in FALSE_STATES.into_iter().enumerate() {
        pairs.proxy.set_faults(FalseLists(state));
        pairs.proxy.take_requests();
        let mut replica = pairs.replica(&format!("started-{number}"));
        replica.until_leading().await;
        pairs.check_unharmed(state).await;
        replica.terminate().await;
    }
    pairs.proxy.set_faults(NoFaults);
    let _replica = pairs.replica("true");
    pairs.reclaim().await;
    assert_eq!(snapshot(&pairs.cluster.client).await.unwrap().violations(), []);
}
