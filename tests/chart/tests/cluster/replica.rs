//! `bindery serve` with the settings and the service account of a release.

use std::fs;

use bindery_chart::{Objects, granted, offered};
use bindery_cluster::{Cluster, Replica, free_port};
use serde_json::{Value, json};
use tempfile::TempDir;

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
pub(crate) struct ReleaseReplica {
    pub(crate) replica: Replica,
    /// The port of its webhook.
    pub(crate) port: u16,
    /// The folder of its settings and its kubeconfig.
    _folder: TempDir,
}

impl ReleaseReplica {
    /// Starts one, once the API server knows the rights of the release.
    pub(crate) async fn start(api: &Cluster, objects: &Objects) -> Self {
        until_decided(api, granted(objects), true).await;
        let folder = tempfile::tempdir().unwrap();
        let (settings, kubeconfig) = (folder.path().join("settings.yaml"), folder.path().join("kubeconfig"));
        fs::write(&settings, objects.settings()).unwrap();
        fs::write(&kubeconfig, kubeconfig_of_release(api).await.to_string()).unwrap();
        let policies = folder.path().join("policies");
        fs::create_dir(&policies).unwrap();
        let port = free_port().unwrap();
        let mut arguments = vec![
            format!("--config={}", settings.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--webhook-listen=127.0.0.1:{port}"),
            "--certificate-name=127.0.0.1".to_owned(),
            "--engine=native".to_owned(),
            format!("--policies={}", offered("BINDERY_POLICIES").display()),
            format!("--engine-cache={}", folder.path().join("cache").display()),
        ];
        if objects.write_policies(&policies) > 0 {
            arguments.push(format!("--policy={}", policies.display()));
        }
        Self { replica: Replica::run(arguments, &[]), port, _folder: folder }
    }

    /// Waits until the object at a path satisfies a condition.
    pub(crate) async fn until(&mut self, api: &Cluster, path: &str, holds: impl Fn(&Value) -> bool) {
        self.replica.until(path, async |_| api.get(path).await.ok().filter(&holds)).await;
    }

    /// Waits until all webhooks have an authority.
    pub(crate) async fn until_trusted(&mut self, api: &Cluster) {
        let is_trusted = |configuration: &Value| {
            let webhooks = configuration["webhooks"].as_array().map_or(0, Vec::len);
            webhooks > 0 && bundles(configuration).len() == webhooks
        };
        self.until(api, CONFIGURATION, is_trusted).await;
    }
}

async fn kubeconfig_of_release(api: &Cluster) -> Value {
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600},
    });
    let path = "/api/v1/namespaces/bindery-system/serviceaccounts/bindery/token";
    let request = bindery_cluster::request(http::Method::POST, path, &request);
    let answer = api.send(request).await.unwrap();
    let mut kubeconfig: Value = serde_json::from_slice(&fs::read(api.kubeconfig()).unwrap()).unwrap();
    kubeconfig["users"][0]["user"] = json!({"token": answer["status"]["token"]});
    kubeconfig
}

pub(crate) fn bundles(configuration: &Value) -> Vec<&str> {
    let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
    webhooks.filter_map(|webhook| webhook["clientConfig"]["caBundle"].as_str()).collect()
}
