//! Certificates in files, of the webhook and of the API server as its client.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use bindery_cluster::poll;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::json;
use tempfile::TempDir;

use super::scene::{ON_LOOPBACK, Scene, WebhookReplica, call, configuration};

/// A certificate authority.
struct Authority {
    params: CertificateParams,
    key: KeyPair,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { params, key, pem }
    }

    /// Writes a certificate of that name, and its key.
    fn issue(&self, folder: &Path, name: &str, usage: ExtendedKeyUsagePurpose) -> [PathBuf; 2] {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &Issuer::from_params(&self.params, &self.key)).unwrap();
        let paths = ["crt", "key"].map(|end| folder.join(format!("{name}.{end}")));
        fs::write(&paths[0], certificate.pem()).unwrap();
        fs::write(&paths[1], key.serialize_pem()).unwrap();
        paths
    }

    fn server(&self, folder: &Path) -> [PathBuf; 2] {
        self.issue(folder, "server", ExtendedKeyUsagePurpose::ServerAuth)
    }
}

fn argument(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

/// Starts a replica with the certificate in these files.
fn replica(scene: &Scene, [certificate, key]: &[PathBuf; 2]) -> WebhookReplica {
    let (certificate, key) =
        (argument("certificate-file", certificate), argument("certificate-key-file", key));
    scene.replica("first", &[&certificate, &key])
}

#[tokio::test]
async fn certificate_files_are_followed_and_nothing_is_written_to_the_cluster() {
    let scene = Scene::start().await;
    let folder = TempDir::new().unwrap();
    let [first, second] = [Authority::new(), Authority::new()];
    let files = first.server(folder.path());
    let mut webhook = replica(&scene, &files);
    let applied = configuration(&[("first", webhook.port)], Some(first.pem.as_bytes()));
    let applied = serde_json::from_value(applied).unwrap();
    scene.configurations.create(&Default::default(), &applied).await.unwrap();
    scene.until_called(&[&webhook]).await;

    second.server(folder.path());
    webhook.replica.until_metrics("bindery_certificate_changes_total 1\n").await;
    webhook.call(second.pem.as_bytes()).await.unwrap();
    assert!(webhook.call(first.pem.as_bytes()).await.is_err());
    fs::write(&files[1], "nonsense").unwrap();
    webhook.replica.until_metrics("bindery_certificate_errors_total 1\n").await;
    webhook.call(second.pem.as_bytes()).await.unwrap();
    webhook.replica.until_logged("server.key holds no private key in PEM").await;

    assert_eq!(scene.authorities().await, None);
    assert_eq!(scene.bundles().await[0].1, first.pem.as_bytes());
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
    let usage = || ExtendedKeyUsagePurpose::ClientAuth;
    let [certificate, key] = cluster.issue(folder.path(), "kube-apiserver", usage());
    let kubeconfig = folder.path().join("webhooks.kubeconfig");
    let user = json!({"client-certificate": certificate, "client-key": key});
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
    let scene = Scene::start_with(&[&argument("admission-control-config-file", &admission)]).await;

    let authority = folder.path().join("clients.crt");
    fs::write(&authority, &cluster.pem).unwrap();
    drop(kept);
    let webhook = scene.replica_at(
        port,
        "first",
        &[ON_LOOPBACK, &argument("webhook-client-ca", &authority), "--webhook-client-name=kube-apiserver"],
    );
    scene.apply(&[("first", port)]).await.unwrap();
    let trusted = scene.until_trusted().await;
    scene.until_called(&[&webhook]).await;

    assert!(webhook.call(&trusted).await.is_err(), "without a certificate");
    for (authority, name, is_accepted) in [
        (&cluster, "kube-apiserver", true),
        (&cluster, "kubelet", false),
        (&Authority::new(), "kube-apiserver", false),
    ] {
        let folder = TempDir::new().unwrap();
        let [certificate, key] = authority.issue(folder.path(), name, usage());
        let user = json!({"client-certificate": certificate, "client-key": key});
        assert_eq!(call(port, &trusted, &user).await.is_ok(), is_accepted, "{name}");
    }

    // Another authority, without a restart; it has not issued the API server's certificate.
    fs::write(&authority, Authority::new().pem).unwrap();
    let user = json!({"client-certificate": certificate, "client-key": key});
    let refused = poll(async || call(port, &trusted, &user).await.err());
    assert!(refused.await.is_some(), "the old authority is still trusted");
}
