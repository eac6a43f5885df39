//! Certificates that Bindery makes, and changes while it is asked.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use kube::api::DeleteParams;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::site::{Doorkeeper, Site, ask, try_claim};
use super::world::{PATIENCE, World, phase};

/// What a replica is told beside where to listen.
const SETTINGS: [&str; 2] = ["--certificate-name=127.0.0.1", "--certificate-lifetime=30s"];

const CHANGES: &str = "bindery_certificate_changes_total";

/// How often each replica has changed its certificate.
async fn changes(replicas: &[Doorkeeper]) -> Vec<u64> {
    let of = async |doorkeeper: &Doorkeeper| doorkeeper.replica.metric(CHANGES).await;
    join_all(replicas.iter().map(of)).await
}

/// Waits until every replica has changed its certificate so much more often than at the beginning.
async fn until_changed(replicas: &mut [Doorkeeper], begun: &[u64], changes: u64) {
    for (doorkeeper, begun) in replicas.iter_mut().zip(begun) {
        let changed = async {
            let mut ticks = tokio::time::interval(Duration::from_millis(100));
            while doorkeeper.replica.metric(CHANGES).await < begun + changes {
                ticks.tick().await;
                doorkeeper.replica.check();
            }
        };
        let changed = tokio::time::timeout(PATIENCE, changed).await;
        assert!(changed.is_ok(), "{changes} changes do not come: {}", doorkeeper.replica.log());
    }
}

#[tokio::test]
async fn replicas_agree_on_certificates_and_change_them_without_a_failed_request() {
    let site = Site::start().await;
    let world = World::new(&site.plane).await;
    let mut replicas = ["first", "second"].map(|identity| site.open(identity, &SETTINGS));
    let webhooks = [("first", replicas[0].port), ("second", replicas[1].port)];
    site.apply(&webhooks).await.unwrap();
    let first = site.until_trusted().await;
    assert_eq!(String::from_utf8_lossy(&first).matches("BEGIN CERTIFICATE").count(), 1);
    for doorkeeper in &mut replicas {
        doorkeeper.replica.until_metrics("bindery_lists_complete 1\n").await;
    }
    // On a slow machine some have come already.
    let begun = changes(&replicas).await;
    site.until_asked(&replicas).await;

    // The API server asks each replica, and clients on connections of their own do, by what it trusts at that
    // moment.
    let (stop, mut asking) = (CancellationToken::new(), JoinSet::new());
    let counts: [Arc<AtomicUsize>; 2] = Default::default();
    let (client, ended, count) = (site.client.clone(), stop.clone(), Arc::clone(&counts[0]));
    asking.spawn(async move {
        while !ended.is_cancelled() {
            try_claim(&client, json!({})).await.unwrap();
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let ports = replicas.each_ref().map(|doorkeeper| doorkeeper.port);
    let site = Arc::new(site);
    let (watched, ended, count) = (Arc::clone(&site), stop.clone(), Arc::clone(&counts[1]));
    asking.spawn(async move {
        while !ended.is_cancelled() {
            for (_, bundle) in watched.bundles().await {
                for port in ports {
                    ask(port, &bundle, &json!({})).await.unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    });

    until_changed(&mut replicas, &begun, 1).await;
    assert!(replicas[0].ask(&first).await.is_err(), "the first authority vouches for the second certificate");
    // Deleted, it is made anew at once.
    site.secrets.delete("bindery-tls", &DeleteParams::default()).await.unwrap();
    until_changed(&mut replicas, &begun, 2).await;
    until_changed(&mut replicas, &begun, 3).await;
    stop.cancel();
    while let Some(asked) = asking.join_next().await {
        asked.unwrap();
    }
    println!("{counts:?} requests, none failed");
    assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) > 10));

    // What they are all for.
    world.create_volume("small", "1Gi").await;
    world.until_volume("small", |volume| phase(volume) == "Available").await;
    let refused = site.until_refused(json!({
        "volumeName": "small",
        "resources": {"requests": {"storage": "2Gi"}},
    }));
    let complaint = refused.await.to_string();
    for part in
        ["spec.volumeName: volume \"small\" offers 1Gi and the claim asks for 2Gi", "denied the request"]
    {
        assert!(complaint.contains(part), "no {part:?} in {complaint}");
    }
    for doorkeeper in &replicas {
        assert_eq!(doorkeeper.replica.metric("bindery_certificate_errors_total").await, 0);
        assert_eq!(doorkeeper.replica.metric("bindery_certificate_trusted").await, 1);
    }
}

#[tokio::test]
async fn a_replica_that_looks_on_has_a_door_too() {
    let site = Site::start().await;
    let further = ["--mode=observe", "--certificate-name=127.0.0.1"];
    let mut doorkeeper = site.open("observer", &further);
    site.apply(&[("observer", doorkeeper.port)]).await.unwrap();
    let authorities = site.until_trusted().await;
    doorkeeper.replica.until_metrics("bindery_lists_complete 1\n").await;
    doorkeeper.ask(&authorities).await.unwrap();
    site.until_asked(slice::from_ref(&doorkeeper)).await;
    let lasts = doorkeeper.replica.metric("bindery_certificate_expiry_timestamp_seconds").await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(lasts > now + 89 * 24 * 3600, "{lasts}");
}

#[tokio::test]
async fn a_secret_of_somebody_else_is_left_alone_and_an_empty_one_is_filled() {
    let site = Site::start().await;
    let secret = |data: serde_json::Value| {
        let secret = json!({"metadata": {"name": "bindery-tls", "labels": {"a": "b"}}, "data": data});
        serde_json::from_value(secret).unwrap()
    };
    site.secrets.create(&Default::default(), &secret(json!({"tls.crt": "eA=="}))).await.unwrap();
    let kubeconfig = site.plane.kubeconfig();
    let arguments = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--webhook-listen=127.0.0.1:0"];
    let (status, complaint) = super::world::serve_in_vain(&arguments);
    assert_eq!(status, Some(2), "{complaint}");
    for part in
        ["the Secret kube-system/bindery-tls holds data that Bindery has not written", "--certificate-secret"]
    {
        assert!(complaint.contains(part), "no {part:?} in {complaint}");
    }
    site.secrets.delete("bindery-tls", &DeleteParams::default()).await.unwrap();
    site.secrets.create(&Default::default(), &secret(json!({}))).await.unwrap();
    let mut doorkeeper = site.open("first", &["--certificate-name=127.0.0.1"]);
    site.apply(&[("first", doorkeeper.port)]).await.unwrap();
    let authorities = site.until_trusted().await;
    doorkeeper.replica.until_metrics("bindery_lists_complete 1\n").await;
    doorkeeper.ask(&authorities).await.unwrap();
    let filled = site.secrets.get("bindery-tls").await.unwrap();
    assert_eq!(filled.metadata.labels.unwrap()["a"], "b");
    assert_eq!(filled.type_.unwrap(), "Opaque");
}
