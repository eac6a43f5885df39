//! A watch cache that lies, and an API server that tells the truth when it is asked (G4 of the design):
//! nothing is released, recycled or deleted on the word of the cache, and all of it is once it is true.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use bindery_cluster::{
    After, Answered, Asked, ControlPlane, Fair, Manager, Programs, Proxy, Weather, snapshot,
};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::world::{PATIENCE, Replica, World, is_bound_to, make_folder, phase, provisioning_in};

const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLAIMS: &str = "/api/v1/persistentvolumeclaims";
const POLICIES: [&str; 3] = ["Retain", "Delete", "Recycle"];

/// What the cache is made to believe of a pair that is bound.
#[derive(Clone, Copy, Debug)]
enum Lie {
    /// The claim was deleted.
    Gone,
    /// A claim of the same name has taken its place.
    OtherUid,
    /// The claim has another volume.
    OtherVolume,
    /// The claim was deleted and the volume released: what upstream does not ask the API server about any
    /// more.
    Released,
}

const LIES: [Lie; 4] = [Lie::Gone, Lie::OtherUid, Lie::OtherVolume, Lie::Released];

impl Lie {
    /// The claim as the lie has it; `None`: it is gone.
    fn claim(self, mut claim: Value) -> Option<Value> {
        match self {
            Self::Gone | Self::Released => return None,
            Self::OtherUid => claim["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000".into(),
            Self::OtherVolume => claim["spec"]["volumeName"] = "elsewhere".into(),
        }
        Some(claim)
    }

    /// Whether a request asks the API server whether the lie is true of the claim with this policy, before
    /// anything is done that depends on it.
    fn is_checked_by(self, asked: &Asked, policy: &str) -> bool {
        let is_read = asked.method == Method::GET && asked.path == claim_path(&policy.to_lowercase());
        match self {
            Self::Gone | Self::OtherUid | Self::OtherVolume => is_read,
            // Only to be kept: there is nothing to do, and so nothing to ask.
            Self::Released if policy == "Retain" => true,
            // Not even the engine asks; the guard does.
            Self::Released => is_read && asked.headers.contains_key("x-bindery-guard"),
        }
    }

    fn volume(self, mut volume: Value) -> Value {
        if matches!(self, Self::Released) {
            volume["status"]["phase"] = "Released".into();
        }
        volume
    }
}

/// Whether a request is a step of releasing, recycling or deleting a volume. That a volume is bound may be
/// written: it is. Nor is a claim asked after: that one is Lost can be taken back, and is.
fn is_reclaiming(asked: &Asked) -> bool {
    let body: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
    let is_volume = asked.path.starts_with(VOLUMES) && !asked.path.contains("/barrier-");
    let is_recycler = asked.method == Method::POST && asked.path.ends_with("/pods");
    is_recycler || is_volume && asked.is_write() && body["status"]["phase"] != "Bound"
}

fn claim_path(name: &str) -> String {
    format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}")
}

/// Lists that lie to a replica that starts, in whichever way it asks for them.
struct LyingLists(Lie);

impl LyingLists {
    /// What the replica is told of an object at this path; `None`: nothing.
    fn lie_about(&self, path: &str, object: Value) -> Option<Value> {
        match path {
            CLAIMS => self.0.claim(object),
            VOLUMES => Some(self.0.volume(object)),
            _ => Some(object),
        }
    }
}

impl Weather for LyingLists {
    fn after(&self, asked: &Asked, answered: &Answered) -> After {
        if asked.method != Method::GET || ![VOLUMES, CLAIMS].contains(&asked.path.as_str()) {
            return After::Pass;
        }
        let mut list: Value = serde_json::from_slice(&answered.body).unwrap();
        // Up to 1.33 null where there are none.
        let items: Option<Vec<Value>> = serde_json::from_value(list["items"].take()).unwrap();
        let lied = items.into_iter().flatten().filter_map(|item| {
            if is_of_barrier(&item) { Some(item) } else { self.lie_about(&asked.path, item) }
        });
        list["items"] = lied.collect();
        After::Forge(Bytes::from(list.to_string()))
    }

    fn event(&self, asked: &Asked, line: Bytes) -> Bytes {
        let mut event: Value = serde_json::from_slice(&line).unwrap();
        // What is there at the start of a streamed list; what comes later is true.
        if event["type"] != "ADDED" || is_of_barrier(&event["object"]) {
            return line;
        }
        let Some(object) = self.lie_about(&asked.path, event["object"].take()) else { return Bytes::new() };
        event["object"] = object;
        Bytes::from(format!("{event}\n"))
    }
}

/// Pairs that are bound to see whether everything before them has been dealt with; nobody lies about them.
fn is_of_barrier(object: &Value) -> bool {
    object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("barrier"))
}

/// A cluster with a bound pair for each policy.
struct Stage {
    plane: ControlPlane,
    proxy: Proxy,
    world: World,
    folder: TempDir,
    barriers: usize,
}

impl Stage {
    async fn new() -> Self {
        let plane =
            ControlPlane::start(Programs::from_env().unwrap(), Manager::ProtectionAlone).await.unwrap();
        let proxy = Proxy::start_in_json(&plane).await.unwrap();
        let (world, folder) = (World::new(&plane).await, TempDir::new().unwrap());
        Self { plane, proxy, world, folder, barriers: 0 }
    }

    fn replica(&self, identity: &str) -> Replica {
        Replica::start_with(&self.proxy.kubeconfig(), identity, &provisioning_in(self.folder.path()), &[])
    }

    async fn bind_one_of_each_policy(&mut self) {
        for policy in POLICIES {
            let name = policy.to_lowercase();
            make_folder(self.folder.path(), &name);
            fs::write(self.data(&name).join("data"), "dear").unwrap();
            let source = json!({"path": self.data(&name)});
            let spec = json!({"storageClassName": name, "persistentVolumeReclaimPolicy": policy, "hostPath": source});
            self.world.create_volume_with(&name, spec).await;
            self.world.create_claim_of(&name, &name, None).await;
            self.world.until_claim(&name, is_bound_to(&name)).await;
        }
        self.bind_barrier().await;
    }

    /// Binds one more pair: the replica's watches have told it of everything before.
    async fn bind_barrier(&mut self) {
        self.barriers += 1;
        let barrier = format!("barrier-{}", self.barriers);
        self.world.create_volume_of(&barrier, &barrier, json!(null)).await;
        self.world.create_claim_of(&barrier, &barrier, None).await;
        self.world.until_claim(&barrier, is_bound_to(&barrier)).await;
    }

    fn data(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Tells all watches the lie about every pair.
    async fn tell(&self, lie: Lie) {
        for policy in POLICIES {
            let name = policy.to_lowercase();
            let claim = self.get(&claim_path(&name)).await;
            let event = match lie.claim(claim.clone()) {
                Some(claim) => json!({"type": "MODIFIED", "object": claim}),
                None => json!({"type": "DELETED", "object": claim}),
            };
            assert_eq!(self.proxy.tell(CLAIMS, &event), 1, "one replica watches claims");
            let volume = lie.volume(self.get(&format!("{VOLUMES}/{name}")).await);
            assert_eq!(self.proxy.tell(VOLUMES, &json!({"type": "MODIFIED", "object": volume})), 1);
        }
    }

    /// Changes something of every object that does not matter, so that watches tell the truth of it; ends
    /// when they have.
    async fn tell_the_truth(&mut self, round: usize) {
        for policy in POLICIES {
            let name = policy.to_lowercase();
            let change = json!({"metadata": {"annotations": {"example.com/round": round.to_string()}}});
            for path in [format!("{VOLUMES}/{name}"), claim_path(&name)] {
                self.patch(&path, &change).await;
            }
        }
        self.bind_barrier().await;
    }

    /// Waits until the replica has asked the API server about the claims, and has done what followed.
    async fn until_asked(&mut self, lie: Lie) {
        let mut seen = Vec::new();
        let asked = async {
            let mut ticks = tokio::time::interval(Duration::from_millis(20));
            loop {
                ticks.tick().await;
                seen.extend(self.proxy.take_asked());
                if POLICIES.iter().all(|policy| seen.iter().any(|asked| lie.is_checked_by(asked, policy))) {
                    return;
                }
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, asked).await.is_ok();
        assert!(in_time, "{lie:?}: not asked about all claims: {seen:#?}");
        // What is decided after the lie has been dealt with.
        self.bind_barrier().await;
        seen.extend(self.proxy.take_asked());
        let done: Vec<_> = seen.iter().filter(|asked| is_reclaiming(asked)).collect();
        assert!(done.is_empty(), "{lie:?}: {done:#?}");
        for policy in POLICIES {
            let name = policy.to_lowercase();
            let volume = self.get(&format!("{VOLUMES}/{name}")).await;
            assert_eq!(volume["status"]["phase"], "Bound", "{lie:?}: {name}");
            assert_eq!(volume["spec"]["claimRef"]["name"], *name, "{lie:?}");
            assert_eq!(fs::read_to_string(self.data(&name).join("data")).unwrap(), "dear", "{lie:?}: {name}");
        }
    }

    async fn get(&self, path: &str) -> Value {
        let client = self.plane.client().await.unwrap();
        client.request(http::Request::get(path).body(Vec::new()).unwrap()).await.unwrap()
    }

    async fn patch(&self, path: &str, change: &Value) {
        let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
        let client = self.plane.client().await.unwrap();
        client.request::<Value>(request.body(change.to_string().into_bytes()).unwrap()).await.unwrap();
    }

    /// Deletes the claims; ends when their volumes are reclaimed.
    async fn reclaim(&self) {
        for policy in POLICIES {
            self.world.delete_claim(&policy.to_lowercase()).await;
        }
        self.world.until_volume("retain", |volume| phase(volume) == "Released").await;
        assert!(self.data("retain").exists());
        self.world.until_no_volume("delete").await;
        assert!(!self.data("delete").exists());
        // There is no node that runs the pod which recycles.
        let pod = "/api/v1/namespaces/default/pods/recycler-for-recycle";
        // Before its gate is removed, nobody runs it.
        self.until(pod, |pod| pod["spec"]["schedulingGates"].is_null()).await;
        self.patch(&format!("{pod}/status"), &json!({"status": {"phase": "Succeeded"}})).await;
        self.world.until_volume("recycle", |volume| phase(volume) == "Available").await;
    }

    /// Waits until something holds of what is at a path.
    async fn until(&self, path: &str, holds: impl Fn(&Value) -> bool) {
        let client = self.plane.client().await.unwrap();
        let held = async {
            let mut ticks = tokio::time::interval(Duration::from_millis(50));
            loop {
                ticks.tick().await;
                let request = http::Request::get(path).body(Vec::new()).unwrap();
                if client.request::<Value>(request).await.is_ok_and(|object| holds(&object)) {
                    return;
                }
            }
        };
        assert!(tokio::time::timeout(PATIENCE, held).await.is_ok(), "{path} is never so");
    }
}

#[tokio::test]
async fn nothing_is_released_recycled_or_deleted_on_the_word_of_the_cache() {
    let mut stage = Stage::new().await;
    let mut replica = stage.replica("told");
    replica.until_leading().await;
    stage.bind_one_of_each_policy().await;
    for (round, lie) in LIES.into_iter().enumerate() {
        stage.proxy.take_asked();
        stage.tell(lie).await;
        stage.until_asked(lie).await;
        stage.tell_the_truth(round).await;
    }
    for metric in ["bindery_live_reads_total", "bindery_guard_reads_total"] {
        println!("{metric} {}", replica.metric(metric).await);
    }
    replica.signal(rustix::process::Signal::KILL);
    replica.wait().await;
    for (number, lie) in LIES.into_iter().enumerate() {
        stage.proxy.set_weather(LyingLists(lie));
        stage.proxy.take_asked();
        let mut replica = stage.replica(&format!("started-{number}"));
        replica.until_leading().await;
        stage.until_asked(lie).await;
        replica.signal(rustix::process::Signal::TERM);
        replica.wait().await;
    }
    stage.proxy.set_weather(Fair);
    let _replica = stage.replica("true");
    stage.reclaim().await;
    let client = stage.plane.client().await.unwrap();
    assert_eq!(snapshot(&client).await.unwrap().violations(), []);
}
