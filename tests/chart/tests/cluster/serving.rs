//! Bindery itself under the account of a release: the rights of the chart are enough for it.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use bindery_chart::{Objects, built, rendered};
use bindery_cluster::{Server, free_port};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::site::{ADMIN, LOOK_EVERY, LOOKS_MAX, Site};

const CLAIM: &str = "/api/v1/namespaces/default/persistentvolumeclaims/c";
const CONFIGURATION: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/bindery";
const SECRET: &str = "/api/v1/namespaces/bindery-system/secrets/bindery-tls";

/// A replica with the settings of a release. Only where it listens differs: here are no pods.
struct Replica {
    server: Server,
    /// Where it tells of its health.
    address: String,
    _folder: TempDir,
}

impl Replica {
    async fn start(site: &Site, objects: &Objects) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = folder.path().join("settings.yaml");
        let text = objects.get("ConfigMap/bindery").unwrap()["data"]["settings.yaml"].as_str().unwrap();
        std::fs::write(&settings, text).unwrap();
        let kubeconfig = write_kubeconfig(site, folder.path()).await;
        let listen = || format!("127.0.0.1:{}", free_port().unwrap());
        let address = listen();
        let arguments = [
            "serve".to_owned(),
            format!("--config={}", settings.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--listen={address}"),
            format!("--webhook-listen={}", listen()),
            "--engine=native".to_owned(),
        ];
        let log = folder.path().join("log");
        let server = Server::start(&built("bindery"), arguments.map(OsString::from), &log).unwrap();
        Self { server, address, _folder: folder }
    }

    /// Waits until all first lists are complete.
    async fn until_ready(&mut self) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        for _ in 0..LOOKS_MAX {
            looks.tick().await;
            self.server.check().unwrap();
            if self.readyz().is_ok_and(|answer| answer.starts_with("HTTP/1.0 200")) {
                return;
            }
        }
        panic!("it is never ready: {:?}\n{}", self.readyz(), self.server.log().unwrap());
    }

    fn readyz(&self) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.write_all(b"GET /readyz?verbose HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Waits until what is at a path is so.
    async fn until(&mut self, site: &Site, path: &str, holds: impl Fn(&Value) -> bool) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        let mut last = Ok(Value::Null);
        for _ in 0..LOOKS_MAX {
            looks.tick().await;
            self.server.check().unwrap();
            last = site.ask(ADMIN, Method::GET, path, None).await;
            if last.as_ref().is_ok_and(&holds) {
                return;
            }
        }
        panic!("{path} is never as it should be: {last:?}\n{}", self.server.log().unwrap());
    }
}

/// A kubeconfig with the token that pods of the release have.
async fn write_kubeconfig(site: &Site, folder: &Path) -> PathBuf {
    let path = "/api/v1/namespaces/bindery-system/serviceaccounts/bindery/token";
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
    let answer = site.ask(ADMIN, Method::POST, path, Some(&request)).await.unwrap();
    let mut kubeconfig = site.kubeconfig();
    kubeconfig["users"][0]["user"] = json!({"token": answer["status"]["token"]});
    let file = folder.join("kubeconfig");
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    file
}

fn bundles(configuration: &Value) -> Vec<&str> {
    let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
    webhooks.filter_map(|webhook| webhook["clientConfig"]["caBundle"].as_str()).collect()
}

/// Everything but pods: the namespace, the account and its rights, what Bindery fills.
const KINDS: [&str; 7] = [
    "ServiceAccount",
    "Secret",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ValidatingWebhookConfiguration",
];

#[tokio::test]
async fn the_rights_of_a_release_are_enough() {
    let site = Site::start().await;
    let objects = rendered(&json!({"mode": "own"}));
    site.install(&objects, &KINDS).await;
    let mut replica = Replica::start(&site, &objects).await;
    // Its certificates, into what the chart has made for them.
    replica.until(&site, CONFIGURATION, |configuration| bundles(configuration).len() == 2).await;
    replica
        .until(&site, SECRET, |secret| secret["data"].as_object().is_some_and(|data| !data.is_empty()))
        .await;
    // Nobody answers reviews here, so objects pass by the failure policy.
    let volume = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "v"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/volumes/v"},
            "persistentVolumeReclaimPolicy": "Retain",
        },
    });
    let claim = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": "default", "name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": ""},
    });
    let mut waits = claim.clone();
    waits["metadata"]["name"] = "waits".into();
    waits["spec"]["resources"]["requests"]["storage"] = "1Ti".into();
    for object in [&volume, &claim, &waits] {
        site.create(object, "").await.unwrap();
    }
    replica.until(&site, CLAIM, |claim| claim["status"]["phase"] == "Bound").await;
    // Why the other one is not bound.
    let events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dwaits";
    replica.until(&site, events, |events| !events["items"].as_array().unwrap().is_empty()).await;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/bindery";
    replica
        .until(&site, lease, |lease| {
            lease["spec"]["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty())
        })
        .await;
    let log = replica.server.log().unwrap();
    assert!(!log.contains("forbidden"), "{log}");
}

/// Who looks on may only read, but for its certificates.
#[tokio::test]
async fn the_rights_of_a_release_that_looks_on_are_enough() {
    let site = Site::start().await;
    let objects = rendered(&json!({"mode": "observe"}));
    site.install(&objects, &KINDS).await;
    let mut replica = Replica::start(&site, &objects).await;
    replica.until_ready().await;
    replica.until(&site, CONFIGURATION, |configuration| bundles(configuration).len() == 2).await;
    let log = replica.server.log().unwrap();
    assert!(!log.contains("forbidden"), "{log}");
}
