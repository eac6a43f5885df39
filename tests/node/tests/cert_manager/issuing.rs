//! cert-manager beside the control plane, and the objects that it writes.

use std::ffi::OsString;
use std::fs;

use bindery_chart::{NAMESPACE, RELEASE, offered, yaml};
use bindery_cluster::{Server, free_port};
use bindery_node::installation::Installation;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

/// A running cert-manager: its controller, which issues certificates, and its CA injector.
pub(crate) struct CertManager {
    certificates: Api<DynamicObject>,
    secrets: Api<Secret>,
    configurations: Api<ValidatingWebhookConfiguration>,
    _servers: [Server; 2],
}

impl CertManager {
    /// Installs cert-manager's resource definitions, and starts it.
    pub(crate) fn start(installation: &Installation) -> Self {
        for file in std::env::split_paths(&offered("BINDERY_CERT_MANAGER_DEFINITIONS")) {
            let mut definition = yaml(&fs::read_to_string(&file).unwrap());
            // These are templates of cert-manager's own chart.
            definition["metadata"]["labels"] = Value::Null;
            installation.operator.kubectl(&["create", "--filename", "-"], &definition.to_string()).unwrap();
        }
        let established =
            ["--for=condition=Established", "--timeout=1m", "customresourcedefinitions", "--all"];
        installation.kubectl(&[&["wait"], &established[..]].concat());

        let known = format!("--kubeconfig={}", installation.node.kubeconfig().display());
        let metrics = format!("--metrics-listen-address=127.0.0.1:{}", free_port().unwrap());
        let start = |program: &str, further: &[String]| {
            let arguments = [&known, "--leader-elect=false"].map(OsString::from).into_iter();
            let arguments = arguments.chain(further.iter().map(OsString::from));
            let log = installation.folder.path().join(format!("{program}.log"));
            let program = offered(&format!("BINDERY_{}", program.replace('-', "_").to_uppercase()));
            Server::start(&program, arguments, &log).unwrap()
        };
        let servers = [start("cert-manager-controller", &[metrics]), start("cert-manager-cainjector", &[])];
        let client = &installation.objects.client;
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate"));
        Self {
            certificates: Api::namespaced_with(client.clone(), NAMESPACE, &kind),
            secrets: Api::namespaced(client.clone(), NAMESPACE),
            configurations: Api::all(client.clone()),
            _servers: servers,
        }
    }

    /// The value of a Secret's key; `None` if either does not exist.
    pub(crate) async fn secret(&self, name: &str, key: &str) -> Option<Vec<u8>> {
        let mut secret = self.secrets.get_opt(name).await.unwrap()?;
        Some(secret.data.as_mut()?.remove(key)?.0)
    }

    pub(crate) async fn delete_secret(&self, name: &str) {
        self.secrets.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until the value of a Secret's key has changed, and returns the new one.
    pub(crate) async fn until_changed(
        &self,
        installation: &Installation,
        name: &str,
        key: &str,
        before: &[u8],
    ) -> Vec<u8> {
        let look = async || self.secret(name, key).await.filter(|now| now != before);
        installation.objects.until_found(&format!("another {key} in Secret {name}"), look).await
    }

    pub(crate) async fn renew(&self, installation: &Installation, name: &str) {
        let look = async || match self.try_renew(name).await {
            // cert-manager has written the object meanwhile.
            Err(kube::Error::Api(status)) if status.code == 409 => None,
            asked => asked.map(Some).unwrap(),
        };
        installation.objects.until_found(&format!("a request for another Certificate {name}"), look).await;
    }

    /// Does what `cmctl renew` does.
    async fn try_renew(&self, name: &str) -> kube::Result<()> {
        let certificate = self.certificates.get(name).await?;
        let mut conditions = certificate.data["status"]["conditions"].as_array().unwrap().clone();
        conditions.push(json!({
            "type": "Issuing", "status": "True", "reason": "ManuallyTriggered",
            "message": "Certificate re-issuance manually triggered",
        }));
        let change = Patch::Merge(json!({
            "metadata": {"resourceVersion": certificate.resource_version()},
            "status": {"conditions": conditions},
        }));
        self.certificates.patch_status(name, &PatchParams::default(), &change).await.map(drop)
    }

    pub(crate) async fn configuration(&self) -> ValidatingWebhookConfiguration {
        self.configurations.get(RELEASE).await.unwrap()
    }

    /// The authorities of all webhooks; `None` if one has none or others.
    pub(crate) async fn trusted(&self) -> Option<Vec<u8>> {
        let webhooks = self.configuration().await.webhooks?.into_iter();
        let mut bundles = webhooks.map(|webhook| webhook.client_config.ca_bundle);
        let first = bundles.next()??;
        bundles.all(|bundle| bundle.as_ref() == Some(&first)).then_some(first.0)
    }

    /// Waits until the webhook configuration contains exactly these authorities.
    pub(crate) async fn until_trusted(&self, installation: &Installation, authorities: &[u8]) {
        let look = async || self.trusted().await.filter(|trusted| trusted == authorities);
        installation.objects.until_found("the authority in the webhook configuration", look).await;
    }
}
