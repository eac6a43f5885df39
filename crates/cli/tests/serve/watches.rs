//! A watch whose connection died silently, on a real API server.

use std::pin::pin;

use bindery_cluster::{Cluster, Manager, Replica, in_time, is_bound_to};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use rustix::process::Signal;
use serde_json::json;

/// Pairs that the leader binds before it dies.
const PAIRS: usize = 20;

/// Waits until this claim is bound; returns the names of claims that were Lost until then.
async fn lost_until_bound(client: Client, last: String) -> Vec<String> {
    let claims = watcher(Api::<PersistentVolumeClaim>::all(client), watcher::Config::default());
    let mut claims = pin!(claims.applied_objects());
    let mut lost = Vec::new();
    loop {
        let claim = claims.next().await.unwrap().unwrap();
        let (name, status) = (claim.metadata.name.unwrap(), claim.status.unwrap());
        match status.phase.as_deref() {
            Some("Lost") => lost.push(name),
            Some("Bound") if name == last => return lost,
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_follower_with_a_dead_watch_of_volumes_takes_over_without_lost_claims() {
    let cluster = Cluster::start(Manager::ProtectionAlone).await;
    let proxy = cluster.proxy().await;
    let mut leader = cluster.replica("leader");
    leader.until_leading().await;
    let mut follower = Replica::behind(&proxy, "follower", &[]);
    follower.until_listed().await;
    proxy.stall_watches_of("/api/v1/persistentvolumes");
    let lost = tokio::spawn(lost_until_bound(cluster.client.clone(), "last".to_owned()));
    for pair in 0..PAIRS {
        cluster.create_volume(&format!("v{pair}"), "1Gi").await;
        cluster.create_claim_with(&format!("c{pair}"), json!({"volumeName": format!("v{pair}")})).await;
    }
    for pair in 0..PAIRS {
        cluster.until_claim(&format!("c{pair}"), is_bound_to(&format!("v{pair}"))).await;
    }
    leader.signal(Signal::KILL);
    leader.wait().await;
    follower.until_leading().await;
    cluster.create_volume("last", "1Gi").await;
    cluster.create_claim_with("last", json!({"volumeName": "last"})).await;
    cluster.until_claim("last", is_bound_to("last")).await;
    let lost = in_time("the last claim is bound", lost).await.unwrap();
    assert_eq!(lost, Vec::<String>::new(), "{}", follower.log());
    cluster.check_pairs(PAIRS + 1).await;
}
