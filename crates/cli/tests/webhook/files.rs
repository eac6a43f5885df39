//! Certificates in files, of the server and of the API server as its client.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::slice;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::json;
use tempfile::TempDir;

use super::site::{Doorkeeper, Site, ask, configuration};
use super::world::PATIENCE;

/// One that vouches for others.
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

    /// Writes a certificate of that name and its key.
    fn vouch(&self, folder: &Path, name: &str, usage: ExtendedKeyUsagePurpose) -> [PathBuf; 2] {
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
        self.vouch(folder, "server", ExtendedKeyUsagePurpose::ServerAuth)
    }
}

fn argument(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

/// Starts a replica that shows what is in these files.
fn open(site: &Site, [certificate, key]: &[PathBuf; 2], further: &[String]) -> Doorkeeper {
    let mut arguments =
        vec![argument("certificate-file", certificate), argument("certificate-key-file", key)];
    arguments.extend(further.iter().cloned());
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    site.open("first", &arguments)
}

#[tokio::test]
async fn files_are_followed_and_nothing_is_written_to_the_cluster() {
    let site = Site::start().await;
    let folder = TempDir::new().unwrap();
    let [first, second] = [Authority::new(), Authority::new()];
    let files = first.server(folder.path());
    let mut doorkeeper = open(&site, &files, &[]);
    let applied = configuration(&[("first", doorkeeper.port)], Some(first.pem.as_bytes()));
    let applied = serde_json::from_value(applied).unwrap();
    site.configurations.create(&Default::default(), &applied).await.unwrap();
    site.until_asked(slice::from_ref(&doorkeeper)).await;

    second.server(folder.path());
    doorkeeper.replica.until_metrics("bindery_certificate_changes_total 1\n").await;
    doorkeeper.ask(second.pem.as_bytes()).await.unwrap();
    assert!(doorkeeper.ask(first.pem.as_bytes()).await.is_err());
    fs::write(&files[1], "nonsense").unwrap();
    doorkeeper.replica.until_metrics("bindery_certificate_errors_total 1\n").await;
    doorkeeper.ask(second.pem.as_bytes()).await.unwrap();
    doorkeeper.replica.until_logged("server.key holds no private key in PEM").await;

    assert_eq!(site.authorities().await, None);
    assert_eq!(site.bundles().await[0].1, first.pem.as_bytes());
    let metrics = doorkeeper.replica.get("/metrics").await;
    assert!(!metrics.contains("\nbindery_certificate_trusted "), "{metrics}");
}

#[tokio::test]
async fn only_the_api_server_is_let_in_where_its_certificate_is_asked_for() {
    let folder = TempDir::new().unwrap();
    let port = bindery_cluster::free_port().unwrap();
    // Nobody else is to have it until the cluster is there.
    let kept = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    let cluster = Authority::new();
    let usage = || ExtendedKeyUsagePurpose::ClientAuth;
    let [certificate, key] = cluster.vouch(folder.path(), "kube-apiserver", usage());
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
    let site = Site::start_with(&[&argument("admission-control-config-file", &admission)]).await;

    let authority = folder.path().join("clients.crt");
    fs::write(&authority, &cluster.pem).unwrap();
    drop(kept);
    let doorkeeper = site.open_at(
        port,
        "first",
        &[
            "--certificate-name=127.0.0.1",
            &argument("webhook-client-ca", &authority),
            "--webhook-client-name=kube-apiserver",
        ],
    );
    site.apply(&[("first", port)]).await.unwrap();
    let trusted = site.until_trusted().await;
    site.until_asked(slice::from_ref(&doorkeeper)).await;

    assert!(doorkeeper.ask(&trusted).await.is_err(), "without a certificate");
    for (authority, name, is_let_in) in [
        (&cluster, "kube-apiserver", true),
        (&cluster, "kubelet", false),
        (&Authority::new(), "kube-apiserver", false),
    ] {
        let folder = TempDir::new().unwrap();
        let [certificate, key] = authority.vouch(folder.path(), name, usage());
        let user = json!({"client-certificate": certificate, "client-key": key});
        assert_eq!(ask(port, &trusted, &user).await.is_ok(), is_let_in, "{name}");
    }

    // Another authority, followed without a restart; the API server's certificate is none of its.
    fs::write(&authority, Authority::new().pem).unwrap();
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    let user = json!({"client-certificate": certificate, "client-key": key});
    let refused = async {
        while ask(port, &trusted, &user).await.is_ok() {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("the old authority counts no more");
}
