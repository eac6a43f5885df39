//! A cluster whose API server asks replicas on loopback.

use std::time::Duration;

use bindery_cluster::{ControlPlane, Manager, Programs};
use futures::future::join_all;
use http::Request;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::world::{PATIENCE, Replica};

/// A cluster.
pub(crate) struct Site {
    pub(crate) plane: ControlPlane,
    pub(crate) client: Client,
    pub(crate) configurations: Api<ValidatingWebhookConfiguration>,
    pub(crate) secrets: Api<Secret>,
}

/// A replica with a door.
pub(crate) struct Doorkeeper {
    pub(crate) replica: Replica,
    pub(crate) port: u16,
}

impl Site {
    /// A cluster whose API server has further arguments.
    pub(crate) async fn start_with(arguments: &[&str]) -> Self {
        let programs = Programs::from_env().unwrap();
        let plane = ControlPlane::start_with(programs, Manager::Off, arguments).await.unwrap();
        let client = plane.client().await.unwrap();
        let configurations = Api::all(client.clone());
        let secrets = Api::namespaced(client.clone(), "kube-system");
        Self { plane, client, configurations, secrets }
    }

    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a replica with a door and further arguments.
    pub(crate) fn open(&self, identity: &str, further: &[&str]) -> Doorkeeper {
        self.open_at(bindery_cluster::free_port().unwrap(), identity, further)
    }

    /// Starts a replica with a door at that port and further arguments.
    pub(crate) fn open_at(&self, port: u16, identity: &str, further: &[&str]) -> Doorkeeper {
        self.open_for(port, 0, identity, further)
    }

    /// Starts a replica that goes on answering for so many seconds after it was told to end.
    pub(crate) fn open_for(&self, port: u16, drain: u64, identity: &str, further: &[&str]) -> Doorkeeper {
        let listen = format!("--webhook-listen=127.0.0.1:{port}");
        let mut arguments = vec![listen, format!("--webhook-drain={drain}")];
        arguments.extend(further.iter().map(|&argument| argument.to_owned()));
        let replica = Replica::start_with(&self.plane.kubeconfig(), identity, &arguments, &[]);
        Doorkeeper { replica, port }
    }

    /// Applies a configuration as a release of a chart does: server-side, without a caBundle.
    pub(crate) async fn apply(&self, webhooks: &[(&str, u16)]) -> Result<(), kube::Error> {
        let helm = PatchParams::apply("helm");
        self.configurations
            .patch("bindery", &helm, &Patch::Apply(configuration(webhooks, None)))
            .await
            .map(drop)
    }

    /// What the API server trusts, by the name of each webhook.
    pub(crate) async fn bundles(&self) -> Vec<(String, Vec<u8>)> {
        let configuration = self.configurations.get("bindery").await.unwrap();
        let webhooks = configuration.webhooks.unwrap_or_default().into_iter();
        let bundle = |bundle: Option<ByteString>| bundle.map(|bundle| bundle.0).unwrap_or_default();
        webhooks.map(|webhook| (webhook.name, bundle(webhook.client_config.ca_bundle))).collect()
    }

    /// The authorities in the Secret; `None` where it is not there.
    pub(crate) async fn authorities(&self) -> Option<Vec<u8>> {
        let secret = self.secrets.get_opt("bindery-tls").await.unwrap()?;
        Some(secret.data?.get("ca.crt")?.0.clone())
    }

    /// Waits until all webhooks trust the authorities in the Secret; answers them.
    pub(crate) async fn until_trusted(&self) -> Vec<u8> {
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        let trusted = async {
            loop {
                ticks.tick().await;
                let (bundles, authorities) = (self.bundles().await, self.authorities().await);
                if let Some(authorities) = authorities
                    && bundles.iter().all(|(_, bundle)| *bundle == authorities)
                {
                    return authorities;
                }
            }
        };
        let trusted = tokio::time::timeout(PATIENCE, trusted).await;
        trusted.expect("the configuration trusts what is in the Secret")
    }

    /// Has the API server try the creation of a claim that nothing is wrong with: all webhooks are asked.
    pub(crate) async fn try_claim(&self) -> Result<(), kube::Error> {
        try_claim(&self.client, json!({})).await
    }

    /// Waits until a webhook denies a claim whose spec differs from the usual; answers how. That one cannot
    /// be asked, as by an API server that has not heard yet whom to trust, is no denial.
    pub(crate) async fn until_refused(&self, differs: Value) -> kube::Error {
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        let mut last = Ok(());
        let refused = async {
            while !last.as_ref().is_err_and(is_denial) {
                ticks.tick().await;
                last = try_claim(&self.client, differs.clone()).await;
            }
        };
        let refused = tokio::time::timeout(PATIENCE, refused).await;
        assert!(refused.is_ok(), "the claim is not refused: {last:?}");
        last.unwrap_err()
    }

    /// Waits until the API server takes a claim after it has asked all of these. It takes one too while it
    /// knows no webhook.
    pub(crate) async fn until_asked(&self, doorkeepers: &[Doorkeeper]) {
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        let asked = async {
            loop {
                let before = reviews(doorkeepers).await;
                self.until_allowed(json!({})).await;
                let after = reviews(doorkeepers).await;
                if before.iter().zip(&after).all(|(before, after)| before < after) {
                    return;
                }
                ticks.tick().await;
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("all webhooks are asked");
    }

    /// Waits until the API server takes a claim whose spec differs from the usual.
    pub(crate) async fn until_allowed(&self, differs: Value) {
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        let allowed = async {
            while try_claim(&self.client, differs.clone()).await.is_err() {
                ticks.tick().await;
            }
        };
        if tokio::time::timeout(PATIENCE, allowed).await.is_err() {
            panic!("it never succeeds: {:?}", try_claim(&self.client, differs).await);
        }
    }
}

impl Doorkeeper {
    /// Asks on a connection of its own, as a client that trusts these authorities; fails where no answer
    /// comes.
    pub(crate) async fn ask(&self, authorities: &[u8]) -> Result<(), kube::Error> {
        ask(self.port, authorities, &json!({})).await
    }
}

/// How many objects each of these has reviewed.
async fn reviews(doorkeepers: &[Doorkeeper]) -> Vec<u64> {
    let of = async |doorkeeper: &Doorkeeper| {
        let metrics = doorkeeper.replica.try_get("/metrics").await.unwrap_or_default();
        let samples = metrics.lines().filter(|line| line.starts_with("bindery_admission_reviews_total{"));
        samples.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
    };
    join_all(doorkeepers.iter().map(of)).await
}

/// Whether a webhook has denied a request: Forbidden, or Invalid where a field is at fault.
fn is_denial(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if [403, 422].contains(&status.code))
}

/// Asks on a connection of its own, as a client that trusts these authorities and has these credentials.
pub(crate) async fn ask(port: u16, authorities: &[u8], user: &Value) -> Result<(), kube::Error> {
    let authorities = serde_json::to_value(ByteString(authorities.to_vec())).unwrap();
    let server = format!("https://127.0.0.1:{port}");
    let kubeconfig: Kubeconfig = serde_json::from_value(json!({
        "current-context": "door",
        "contexts": [{"name": "door", "context": {"cluster": "door", "user": "door"}}],
        "clusters": [{"name": "door", "cluster": {"server": server, "certificate-authority-data": authorities}}],
        "users": [{"name": "door", "user": user}],
    }))
    .unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let request = Request::post("/validate").body(b"no review".to_vec()).unwrap();
    match client.request_text(request).await {
        // It was read, and is no review.
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => Ok(()),
        outcome => outcome.map(drop),
    }
}

/// Has the API server try the creation of a claim whose spec differs from the usual.
pub(crate) async fn try_claim(client: &Client, differs: Value) -> Result<(), kube::Error> {
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    let mut claim = json!({
        "metadata": {"generateName": "c-"},
        "spec": {
            "storageClassName": "",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    claim["spec"].as_object_mut().unwrap().extend(differs.as_object().unwrap().clone());
    let try_only = PostParams { dry_run: true, ..PostParams::default() };
    claims.create(&try_only, &serde_json::from_value(claim).unwrap()).await.map(drop)
}

/// A configuration whose webhooks are on loopback; a failure to ask one fails the request.
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
