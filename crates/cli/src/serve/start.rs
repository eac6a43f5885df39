//! The start of a replica.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use bindery_kube::{ApiClient, CredentialsError};

use super::Arguments;
use super::components::Components;
use super::health::Startup;
use super::policy_objects::ConfiguredObjects;
use super::tasks::Tasks;
use super::webhook::{Webhook, WebhookStatistics};

/// What a replica has when its start is over.
pub(super) struct Started {
    pub(super) components: Components,
    pub(super) client: ApiClient,
    pub(super) webhook: Option<Webhook>,
    /// The policies that are cluster objects, if they are on.
    pub(super) objects: Option<ConfiguredObjects>,
}

impl Started {
    /// Loads the components and the credentials, lists the policies, and prepares the webhook if it is on.
    pub(super) async fn new(
        arguments: &Arc<Arguments>,
        startup: &Startup,
        tasks: &Tasks,
        statistics: &WebhookStatistics,
    ) -> Result<Self> {
        startup.waits_for("the compilation of the engine and the policies");
        let mut components = Components::load(Arc::clone(arguments)).await?;
        startup.waits_for("the credentials of the kubeconfig or the service account");
        // A credential plugin may take a minute.
        let client = client(arguments).await?;
        let mut objects = None;
        if arguments.policy_objects.policy_objects {
            let (mut configured, watches) = ConfiguredObjects::new(arguments, &client, components)?;
            tasks.start("the watches of policies", watches.run());
            components = configured.first(|awaited| startup.waits_for(awaited)).await;
            objects = Some(configured);
        }
        startup.waits_for("the certificate of the webhook");
        let webhook = arguments.webhook.open(&client, statistics).await?;
        Ok(Self { components, client, webhook, objects })
    }
}

/// The client of the cluster.
async fn client(arguments: &Arguments) -> Result<ApiClient> {
    let Some(path) = &arguments.kubeconfig else {
        return ApiClient::in_cluster().await.map_err(|error| match error {
            CredentialsError::NotInCluster(_) => anyhow::Error::new(error)
                .context("there is no service account of a pod: give --kubeconfig (BINDERY_KUBECONFIG)"),
            _ => error.into(),
        });
    };
    let client = ApiClient::from_kubeconfig(path).await;
    client.with_context(|| format!("--kubeconfig {} cannot be used", path.display()))
}
