//! `bindery serve` with the settings and the service account of a release.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use bindery_chart::{Objects, built, granted};
use bindery_cluster::{Server, free_port};
use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::api_server::{ADMIN, ApiServer, until};
use crate::rights::until_decided;

pub(crate) const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/bindery";
pub(crate) const CONFIGURATION: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/bindery";
pub(crate) const SECRET: &str = "/api/v1/namespaces/bindery-system/secrets/bindery-tls";

/// The kinds that a replica needs: its account and rights, and the objects that it writes.
pub(crate) const KINDS: [&str; 7] = [
    "ServiceAccount",
    "Secret",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ValidatingWebhookConfiguration",
];

/// A replica with the settings of a release. Only its addresses differ, since it does not run in a pod.
pub(crate) struct Replica {
    server: Server,
    /// The address of its health endpoints.
    address: String,
    _folder: TempDir,
}

impl Replica {
    /// Starts one, once the API server knows the rights of the release.
    pub(crate) async fn start(api: &ApiServer, objects: &Objects) -> Self {
        until_decided(api, granted(objects), true).await;
        let folder = tempfile::tempdir().unwrap();
        let settings = folder.path().join("settings.yaml");
        std::fs::write(&settings, objects.settings()).unwrap();
        let kubeconfig = write_kubeconfig(api, folder.path()).await;
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

    /// Waits until the object at a path fulfils a condition.
    pub(crate) async fn until(&mut self, api: &ApiServer, path: &str, holds: impl Fn(&Value) -> bool) {
        until(&format!("{path} is as expected"), async || {
            let found = api.get(path).await;
            self.check(found.as_ref().is_ok_and(&holds), &found)
        })
        .await;
    }

    /// Waits until its first lists are complete.
    pub(crate) async fn until_ready(&mut self) {
        until("the replica is ready", async || {
            let answer = self.readyz();
            self.check(answer.as_ref().is_ok_and(|answer| answer.starts_with("HTTP/1.0 200")), &answer)
        })
        .await;
    }

    /// Panics if the replica has ended. The error of a condition that does not hold contains its log.
    fn check(&mut self, holds: bool, found: &impl std::fmt::Debug) -> Result<(), String> {
        self.server.check().unwrap();
        if holds { Ok(()) } else { Err(format!("{found:?}\n{}", self.server.log().unwrap())) }
    }

    /// Ends it by SIGTERM, as kubelet ends pods, and waits for its end.
    pub(crate) async fn end(mut self) {
        self.server.signal(Signal::TERM).unwrap();
        let status = self.server.wait().await.unwrap();
        assert!(status.success(), "{status}\n{}", self.server.log().unwrap());
    }

    fn readyz(&self) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.write_all(b"GET /readyz?verbose HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

/// A kubeconfig with a token of the release's service account.
async fn write_kubeconfig(api: &ApiServer, folder: &Path) -> PathBuf {
    let path = "/api/v1/namespaces/bindery-system/serviceaccounts/bindery/token";
    let spec = json!({"expirationSeconds": 3600});
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let answer = api.request(ADMIN, Method::POST, path, Some(&request)).await.unwrap();
    let mut kubeconfig = api.kubeconfig();
    kubeconfig["users"][0]["user"] = json!({"token": answer["status"]["token"]});
    let file = folder.join("kubeconfig");
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    file
}

/// The authorities of a webhook configuration.
pub(crate) fn bundles(configuration: &Value) -> Vec<&str> {
    let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
    webhooks.filter_map(|webhook| webhook["clientConfig"]["caBundle"].as_str()).collect()
}
