//! Certificates in files, of the webhook and of the API server as its client.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use bindery_cluster::poll;
use bindery_kit::Authority;
use serde_json::json;
use tempfile::TempDir;

use super::webhooks::{ON_LOOPBACK, WebhookReplica, Webhooks, call, configuration};

fn write(folder: &Path, name: &str, (certificate, key): (String, String)) -> [PathBuf; 2] {
    let paths = ["crt", "key"].map(|end| folder.join(format!("{name}.{end}")));
    fs::write(&paths[0], certificate).unwrap();
    fs::write(&paths[1], key).unwrap();
    paths
}

fn argument(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

fn replica(webhooks: &Webhooks, [certificate, key]: &[PathBuf; 2]) -> WebhookReplica {
    let (certificate, key) =
        (argument("certificate-file", certificate), argument("certificate-key-file", key));
    webhooks.replica("first", &[&certificate, &key])
}

#[tokio::test]
async fn certificate_files_are_followed_and_nothing_is_written_to_the_cluster() {
    let webhooks = Webhooks::start().await;
    let folder = TempDir::new().unwrap();
    let [first, second] = [Authority::new(), Authority::new()];
    let files = write(folder.path(), "server", first.server("127.0.0.1"));
    let mut webhook = replica(&webhooks, &files);
    let applied = configuration(&[("first", webhook.port)], Some(first.pem().as_bytes()));
    let applied = serde_json::from_value(applied).unwrap();
    webhooks.configurations.create(&Default::default(), &applied).await.unwrap();
    webhooks.until_called(&[&webhook]).await;

    write(folder.path(), "server", second.server("127.0.0.1"));
    webhook.replica.until_metrics("bindery_certificate_changes_total 1\n").await;
    webhook.call(second.pem().as_bytes()).await.unwrap();
    assert!(webhook.call(first.pem().as_bytes()).await.is_err());
    fs::write(&files[1], "nonsense").unwrap();
    webhook.replica.until_metrics("bindery_certificate_errors_total 1\n").await;
    webhook.call(second.pem().as_bytes()).await.unwrap();
    webhook.replica.until_logged("server.key holds no private key in PEM").await;

    assert_eq!(webhooks.authorities().await, None);
    assert_eq!(webhooks.bundles().await[0].1, first.pem().as_bytes());
    let metrics = webhook.replica.get("/metrics").await;
    assert!(!metrics.contains("\nbindery_certificate_trusted "), "{metrics}");
}

#[tokio::test]
async fn only_the_api_server_may_call_where_a_client_certificate_is_required() {
    let folder = TempDir::new().unwrap();
    let port = bindery_cluster::free_port().unwrap();
    // Reserves the port until the cluster is there.
    let kept = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    let cluster = Authority::new();
    let issue = |authority: &Authority, folder: &TempDir, name: &str| {
        let [certificate, key] = write(folder.path(), name, authority.client("127.0.0.1", name));
        json!({"client-certificate": certificate, "client-key": key})
    };
    let user = issue(&cluster, &folder, "kube-apiserver");
    let kubeconfig = folder.path().join("webhooks.kubeconfig");
    // The name of a user is that of the webhook's host.
    let users = json!({"users": [{"name": format!("127.0.0.1:{port}"), "user": user}]});
    fs::write(&kubeconfig, users.to_string()).unwrap();
    let admission = folder.path().join("admission.json");
    let plugin = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": kubeconfig,
    });
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{"name": "ValidatingAdmissionWebhook", "configuration": plugin}],
    });
    fs::write(&admission, configuration.to_string()).unwrap();
    let webhooks = Webhooks::start_with(&[&argument("admission-control-config-file", &admission)]).await;

    let authority = folder.path().join("clients.crt");
    fs::write(&authority, cluster.pem()).unwrap();
    drop(kept);
    let webhook = webhooks.replica_at(
        port,
        "first",
        &[ON_LOOPBACK, &argument("webhook-client-ca", &authority), "--webhook-client-name=kube-apiserver"],
    );
    webhooks.apply(&[("first", port)]).await.unwrap();
    let trusted = webhooks.until_trusted().await;
    webhooks.until_called(&[&webhook]).await;

    assert!(webhook.call(&trusted).await.is_err(), "without a certificate");
    for (authority, name, is_accepted) in [
        (&cluster, "kube-apiserver", true),
        (&cluster, "kubelet", false),
        (&Authority::new(), "kube-apiserver", false),
    ] {
        let folder = TempDir::new().unwrap();
        let user = issue(authority, &folder, name);
        assert_eq!(call(port, &trusted, &user).await.is_ok(), is_accepted, "{name}");
    }

    // Another authority, without a restart; it has not issued the API server's certificate.
    fs::write(&authority, Authority::new().pem()).unwrap();
    let refused = poll(async || call(port, &trusted, &user).await.err());
    assert!(refused.await.is_some(), "the old authority is still trusted");
}
