//! cert-manager beside the control plane, and what it writes.

use std::ffi::OsString;
use std::fs;

use bindery_chart::{NAMESPACE, RELEASE, offered, yaml};
use bindery_cluster::{Server, free_port};
use bindery_node::site::Site;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

/// A running cert-manager: its controller, which issues certificates, and its CA injector.
pub(crate) struct Issuer {
    certificates: Api<DynamicObject>,
    secrets: Api<Secret>,
    configurations: Api<ValidatingWebhookConfiguration>,
    _servers: [Server; 2],
}

impl Issuer {
    /// Has the cluster know cert-manager's resources, and starts it.
    pub(crate) fn start(site: &Site) -> Self {
        for file in std::env::split_paths(&offered("BINDERY_CERT_MANAGER_DEFINITIONS")) {
            let mut definition = yaml(&fs::read_to_string(&file).unwrap());
            // cert-manager's own chart fills them in.
            definition["metadata"]["labels"] = Value::Null;
            site.operator.kubectl(&["create", "--filename", "-"], &definition.to_string()).unwrap();
        }
        let established =
            ["--for=condition=Established", "--timeout=1m", "customresourcedefinitions", "--all"];
        site.kubectl(&[&["wait"], &established[..]].concat());

        let known = format!("--kubeconfig={}", site.node.kubeconfig().display());
        let metrics = format!("--metrics-listen-address=127.0.0.1:{}", free_port().unwrap());
        let start = |program: &str, further: &[String]| {
            let arguments = [&known, "--leader-elect=false"].map(OsString::from).into_iter();
            let arguments = arguments.chain(further.iter().map(OsString::from));
            let log = site.folder.path().join(format!("{program}.log"));
            let program = offered(&format!("BINDERY_{}", program.replace('-', "_").to_uppercase()));
            Server::start(&program, arguments, &log).unwrap()
        };
        let servers = [start("cert-manager-controller", &[metrics]), start("cert-manager-cainjector", &[])];
        let client = &site.world.client;
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate"));
        Self {
            certificates: Api::namespaced_with(client.clone(), NAMESPACE, &kind),
            secrets: Api::namespaced(client.clone(), NAMESPACE),
            configurations: Api::all(client.clone()),
            _servers: servers,
        }
    }

    /// What a Secret has under a key; `None` where either is not there.
    pub(crate) async fn secret(&self, name: &str, key: &str) -> Option<Vec<u8>> {
        let mut secret = self.secrets.get_opt(name).await.unwrap()?;
        Some(secret.data.as_mut()?.remove(key)?.0)
    }

    pub(crate) async fn delete_secret(&self, name: &str) {
        self.secrets.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until a Secret has something else under a key than before, and answers it.
    pub(crate) async fn until_changed(&self, site: &Site, name: &str, key: &str, before: &[u8]) -> Vec<u8> {
        let look = async || self.secret(name, key).await.filter(|now| now != before);
        site.world.until_seen(&format!("another {key} in Secret {name}"), look).await
    }

    /// Has a certificate issued anew.
    pub(crate) async fn renew(&self, site: &Site, name: &str) {
        let look = async || match self.try_renew(name).await {
            // cert-manager has written it meanwhile.
            Err(kube::Error::Api(status)) if status.code == 409 => None,
            asked => asked.map(Some).unwrap(),
        };
        site.world.until_seen(&format!("a request for another Certificate {name}"), look).await;
    }

    /// As `cmctl renew` asks for it.
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

    /// Whom the API server trusts, the same for all webhooks; `None` where some are told nothing, or
    /// something else.
    pub(crate) async fn trusted(&self) -> Option<Vec<u8>> {
        let webhooks = self.configuration().await.webhooks?.into_iter();
        let mut bundles = webhooks.map(|webhook| webhook.client_config.ca_bundle);
        let first = bundles.next()??;
        bundles.all(|bundle| bundle.as_ref() == Some(&first)).then_some(first.0)
    }

    /// Waits until the API server is told to trust these and nobody else.
    pub(crate) async fn until_trusted(&self, site: &Site, authorities: &[u8]) {
        let look = async || self.trusted().await.filter(|trusted| trusted == authorities);
        site.world.until_seen("the authority in the webhook configuration", look).await;
    }
}
