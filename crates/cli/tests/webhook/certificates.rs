//! Certificates that Bindery makes, and renews while reviews go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bindery_cluster::refused;
use futures::future::join_all;
use kube::api::DeleteParams;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::webhooks::{ON_LOOPBACK, WebhookReplica, Webhooks, call};

const SETTINGS: [&str; 2] = [ON_LOOPBACK, "--certificate-lifetime=60s"];

const CHANGES: &str = "bindery_certificate_changes_total";

async fn changes(replicas: &[WebhookReplica]) -> Vec<u64> {
    let of = async |webhook: &WebhookReplica| webhook.replica.metric(CHANGES).await;
    join_all(replicas.iter().map(of)).await
}

/// Waits until every replica has changed its certificate this many times since the beginning.
async fn until_changed(replicas: &mut [WebhookReplica], begun: &[u64], changes: u64) {
    for (webhook, begun) in replicas.iter_mut().zip(begun) {
        webhook.replica.until_metric(CHANGES, |count| count >= begun + changes).await;
    }
}

#[tokio::test]
async fn replicas_share_certificates_and_renew_them_without_failed_requests() {
    let webhooks = Arc::new(Webhooks::start().await);
    let mut replicas = ["first", "second"].map(|identity| webhooks.replica(identity, &SETTINGS));
    let ports_by_name = [("first", replicas[0].port), ("second", replicas[1].port)];
    webhooks.apply(&ports_by_name).await.unwrap();
    let first = webhooks.until_trusted().await;
    assert_eq!(String::from_utf8_lossy(&first).matches("BEGIN CERTIFICATE").count(), 1);
    for webhook in &mut replicas {
        webhook.replica.until_listed().await;
    }
    webhooks.until_called(&replicas.each_ref()).await;
    // On a slow machine there are changes already.
    let begun = changes(&replicas).await;

    // The API server calls each replica, and so do clients on new connections, with the authorities that the
    // API server trusts at that moment.
    let (stop, mut asking) = (CancellationToken::new(), JoinSet::new());
    let counts: [Arc<AtomicUsize>; 2] = Default::default();
    let (shared, ended, count) = (Arc::clone(&webhooks), stop.clone(), Arc::clone(&counts[0]));
    asking.spawn(async move {
        while !ended.is_cancelled() {
            shared.try_claim(json!({})).await.unwrap();
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let ports = replicas.each_ref().map(|webhook| webhook.port);
    let (shared, ended, count) = (Arc::clone(&webhooks), stop.clone(), Arc::clone(&counts[1]));
    asking.spawn(async move {
        while !ended.is_cancelled() {
            for (_, bundle) in shared.bundles().await {
                for port in ports {
                    call(port, &bundle, &json!({})).await.unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    });

    // A deleted Secret is created again at once.
    webhooks.secrets.delete("bindery-tls", &DeleteParams::default()).await.unwrap();
    until_changed(&mut replicas, &begun, 1).await;
    assert!(
        replicas[0].call(&first).await.is_err(),
        "the first authority vouches for the second certificate"
    );
    // The next one comes when a third of the lifetime is left.
    until_changed(&mut replicas, &begun, 2).await;
    stop.cancel();
    while let Some(asked) = asking.join_next().await {
        asked.unwrap();
    }
    println!("{counts:?} requests, none failed");
    assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) > 10));

    // The webhook denies.
    webhooks.cluster.create_available_volume("small", "1Gi").await;
    let refused = webhooks.until_denied(json!({
        "volumeName": "small",
        "resources": {"requests": {"storage": "2Gi"}},
    }));
    let complaint = refused.await.to_string();
    for part in
        ["spec.volumeName: volume \"small\" offers 1Gi and the claim asks for 2Gi", "denied the request"]
    {
        assert!(complaint.contains(part), "no {part:?} in {complaint}");
    }
    for webhook in &replicas {
        assert_eq!(webhook.replica.metric("bindery_certificate_errors_total").await, 0);
        assert_eq!(webhook.replica.metric("bindery_certificate_trusted").await, 1);
    }
}

#[tokio::test]
async fn a_foreign_secret_is_left_alone_and_an_empty_one_is_filled() {
    let webhooks = Webhooks::start().await;
    let secret = |data: serde_json::Value| {
        let secret = json!({"metadata": {"name": "bindery-tls", "labels": {"a": "b"}}, "data": data});
        serde_json::from_value(secret).unwrap()
    };
    webhooks.secrets.create(&Default::default(), &secret(json!({"tls.crt": "eA=="}))).await.unwrap();
    let kubeconfig = webhooks.cluster.kubeconfig();
    let complaint = refused(&["--kubeconfig", kubeconfig.to_str().unwrap(), "--webhook-listen=127.0.0.1:0"]);
    for part in
        ["the Secret kube-system/bindery-tls holds data that Bindery has not written", "--certificate-secret"]
    {
        assert!(complaint.contains(part), "no {part:?} in {complaint}");
    }
    webhooks.secrets.delete("bindery-tls", &DeleteParams::default()).await.unwrap();
    webhooks.secrets.create(&Default::default(), &secret(json!({}))).await.unwrap();
    let mut webhook = webhooks.replica("first", &[ON_LOOPBACK]);
    webhooks.apply(&[("first", webhook.port)]).await.unwrap();
    let authorities = webhooks.until_trusted().await;
    webhook.replica.until_listed().await;
    webhook.call(&authorities).await.unwrap();
    let filled = webhooks.secrets.get("bindery-tls").await.unwrap();
    assert_eq!(filled.metadata.labels.unwrap()["a"], "b");
    assert_eq!(filled.type_.unwrap(), "Opaque");
}
