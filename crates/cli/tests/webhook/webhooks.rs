//! A cluster whose API server calls the webhooks of replicas on loopback.

use bindery_cluster::{Cluster, LATE_BODY, Manager, Replica, free_port, in_time, kubeconfig, poll};
use futures::future::join_all;
use http::Request;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use serde_json::{Value, json};

/// The argument by which certificates are made for the address of the webhooks.
pub(crate) const ON_LOOPBACK: &str = "--certificate-name=127.0.0.1";

pub(crate) struct Webhooks {
    pub(crate) cluster: Cluster,
    pub(crate) configurations: Api<ValidatingWebhookConfiguration>,
    pub(crate) secrets: Api<Secret>,
}

pub(crate) struct WebhookReplica {
    pub(crate) replica: Replica,
    pub(crate) port: u16,
}

impl Webhooks {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a cluster whose API server has further arguments.
    pub(crate) async fn start_with(api_server: &[&str]) -> Self {
        let cluster = Cluster::start_with(Manager::Off, api_server).await;
        let configurations = Api::all(cluster.client.clone());
        let secrets = Api::namespaced(cluster.client.clone(), "kube-system");
        Self { cluster, configurations, secrets }
    }

    /// Starts a cluster whose API server calls one replica, which has further arguments.
    pub(crate) async fn start_with_replica(further: &[&str]) -> (Self, WebhookReplica) {
        let webhooks = Self::start().await;
        let mut first = webhooks.replica("first", &[&[ON_LOOPBACK], further].concat());
        webhooks.apply(&[("first", first.port)]).await.unwrap();
        webhooks.until_trusted().await;
        first.replica.until_listed().await;
        webhooks.until_called(&[&first]).await;
        (webhooks, first)
    }

    /// Starts a replica with a webhook, without a drain unless the arguments have one.
    pub(crate) fn replica(&self, identity: &str, further: &[&str]) -> WebhookReplica {
        self.replica_at(free_port().unwrap(), identity, further)
    }

    pub(crate) fn replica_at(&self, port: u16, identity: &str, further: &[&str]) -> WebhookReplica {
        let listen = format!("--webhook-listen=127.0.0.1:{port}");
        let has_drain = further.iter().any(|argument| argument.starts_with("--webhook-drain="));
        let drain = if has_drain { None } else { Some("--webhook-drain=0") };
        let arguments: Vec<_> = [&*listen].into_iter().chain(drain).chain(further.iter().copied()).collect();
        WebhookReplica { replica: self.cluster.replica_with(identity, &arguments), port }
    }

    /// Applies a configuration as Helm does: server-side, without a caBundle.
    pub(crate) async fn apply(&self, webhooks: &[(&str, u16)]) -> kube::Result<()> {
        self.apply_as_helm(configuration(webhooks, None)).await
    }

    pub(crate) async fn apply_as_helm(&self, configuration: Value) -> kube::Result<()> {
        let helm = PatchParams::apply("helm");
        self.configurations.patch("bindery", &helm, &Patch::Apply(configuration)).await.map(drop)
    }

    /// The caBundle of each webhook, by its name.
    pub(crate) async fn bundles(&self) -> Vec<(String, Vec<u8>)> {
        let configuration = self.configurations.get("bindery").await.unwrap();
        let webhooks = configuration.webhooks.unwrap_or_default().into_iter();
        let bundle = |bundle: Option<ByteString>| bundle.map(|bundle| bundle.0).unwrap_or_default();
        webhooks.map(|webhook| (webhook.name, bundle(webhook.client_config.ca_bundle))).collect()
    }

    /// The authorities in the Secret; `None` if there is no Secret.
    pub(crate) async fn authorities(&self) -> Option<Vec<u8>> {
        let secret = self.secrets.get_opt("bindery-tls").await.unwrap()?;
        Some(secret.data?.get("ca.crt")?.0.clone())
    }

    /// Waits until all webhooks trust the authorities in the Secret; returns these.
    pub(crate) async fn until_trusted(&self) -> Vec<u8> {
        let trusted = poll(async || {
            let (bundles, authorities) = (self.bundles().await, self.authorities().await?);
            bundles.iter().all(|(_, bundle)| *bundle == authorities).then_some(authorities)
        });
        trusted.await.expect("the configuration trusts the authorities in the Secret")
    }

    /// Tries to create a claim in a dry run, which all webhooks review. It tries again if [`LATE_BODY`].
    pub(crate) async fn try_claim(&self, spec: Value) -> kube::Result<()> {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let metadata = json!({"generateName": "c-"});
        let tried = async {
            loop {
                match self.cluster.try_claim(metadata.clone(), spec.clone(), &dry_run).await {
                    Err(error) if error.to_string().contains(LATE_BODY) => {}
                    tried => return tried.map(drop),
                }
            }
        };
        in_time("the body comes in time", tried).await
    }

    /// Waits until a webhook denies a claim; returns the denial. A webhook that cannot be called, because the
    /// API server has not seen its authority yet, does not deny.
    pub(crate) async fn until_denied(&self, spec: Value) -> kube::Error {
        let denied = poll(async || self.try_claim(spec.clone()).await.err().filter(is_denial));
        denied.await.expect("the claim is denied")
    }

    pub(crate) async fn until_allowed(&self, spec: Value) {
        let allowed = poll(async || self.try_claim(spec.clone()).await.ok());
        assert!(allowed.await.is_some(), "it never succeeds: {:?}", self.try_claim(spec).await);
    }

    /// Waits until the API server accepts a claim after all of these have reviewed it; it also accepts one
    /// before it knows the webhooks.
    pub(crate) async fn until_called(&self, replicas: &[&WebhookReplica]) {
        let called = poll(async || {
            let before = reviews(replicas).await;
            self.until_allowed(json!({})).await;
            let after = reviews(replicas).await;
            before.iter().zip(&after).all(|(before, after)| before < after).then_some(())
        });
        called.await.expect("all webhooks are called");
    }
}

impl WebhookReplica {
    /// Sends a request on a new connection, as a client that trusts these authorities.
    pub(crate) async fn call(&self, authorities: &[u8]) -> kube::Result<()> {
        call(self.port, authorities, &json!({})).await
    }
}

async fn reviews(replicas: &[&WebhookReplica]) -> Vec<u64> {
    let of = async |webhook: &&WebhookReplica| {
        let metrics = webhook.replica.try_get("/metrics").await.unwrap_or_default();
        let samples = metrics.lines().filter(|line| line.starts_with("bindery_admission_reviews_total{"));
        samples.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
    };
    join_all(replicas.iter().map(of)).await
}

/// Whether a webhook has denied a request: Forbidden, or Invalid if a field is wrong.
fn is_denial(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if [403, 422].contains(&status.code))
}

/// Sends a request on a new connection, as a client that trusts these authorities and has these credentials.
pub(crate) async fn call(port: u16, authorities: &[u8], user: &Value) -> kube::Result<()> {
    let authorities = serde_json::to_value(ByteString(authorities.to_vec())).unwrap();
    let server = format!("https://127.0.0.1:{port}");
    let cluster = json!({"server": server, "certificate-authority-data": authorities});
    let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig(&cluster, user)).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let request = Request::post("/validate").body(b"no review".to_vec()).unwrap();
    match client.request_text(request).await {
        // The webhook has read the body, which is not a review.
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => Ok(()),
        outcome => outcome.map(drop),
    }
}

/// A configuration of webhooks on loopback, with failurePolicy Fail.
pub(crate) fn configuration(webhooks: &[(&str, u16)], bundle: Option<&[u8]>) -> Value {
    let bundle = bundle.map(|bundle| serde_json::to_value(ByteString(bundle.to_vec())).unwrap());
    let webhooks = webhooks.iter().map(|(name, port)| {
        let mut client = json!({"url": format!("https://127.0.0.1:{port}/validate")});
        if let Some(bundle) = &bundle {
            client["caBundle"] = bundle.clone();
        }
        json!({
            "name": format!("{name}.bindery.dev"),
            "clientConfig": client,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": 10,
            "rules": [{
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["persistentvolumeclaims"],
            }],
        })
    });
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "bindery"},
        "webhooks": webhooks.collect::<Value>(),
    })
}
