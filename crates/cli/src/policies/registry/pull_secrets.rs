//! Secrets with credentials of registries that cluster objects name.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use bindery_core::is_dns_label;
use bindery_kube::{ApiClient, read};
use bindery_registry::{Credentials, RegistryError};

/// The Secrets that objects may name.
#[derive(clap::Args)]
pub(crate) struct PullSecretsArgument {
    /// A Secret of type kubernetes.io/dockerconfigjson with credentials of registries that cluster objects
    /// may name (`spec.pull.secret`). Repeat it for several Secrets, or separate them by commas.
    #[arg(long, value_name = "NAMESPACE/NAME", env = "BINDERY_REGISTRY_PULL_SECRET", value_delimiter = ',',
          value_parser = parse)]
    registry_pull_secret: Vec<(String, String)>,
}

/// Namespace and name of a Secret.
fn parse(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if is_dns_label(namespace) && !name.is_empty() && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err(format!("{text:?} is not NAMESPACE/NAME")),
    }
}

/// Reads the Secrets that objects may name.
pub(crate) struct PullSecrets {
    client: ApiClient,
    /// The namespace of each name.
    named: BTreeMap<String, String>,
}

impl PullSecretsArgument {
    /// The Secrets of a cluster.
    pub(crate) fn of(&self, client: &ApiClient) -> Result<PullSecrets> {
        let mut named = BTreeMap::new();
        for (namespace, name) in &self.registry_pull_secret {
            if named.insert(name.clone(), namespace.clone()).is_some_and(|other| other != *namespace) {
                bail!("--registry-pull-secret names {name:?} in two namespaces; give one of them");
            }
        }
        Ok(PullSecrets { client: client.clone(), named })
    }
}

impl PullSecrets {
    /// Reads a Secret. It may have changed since it was read before.
    pub(super) async fn read(&self, name: &str) -> Result<Credentials, RegistryError> {
        let wrong = |why: String| RegistryError::Invalid(format!("spec.pull.secret: {why}"));
        let Some(namespace) = self.named.get(name) else {
            return Err(wrong(format!(
                "the Secret {name:?} is not among those that objects may name; add it to the chart's \
                 policies.registry.pullSecrets (--registry-pull-secret)"
            )));
        };
        let place = format!("the Secret {namespace}/{name}");
        match read::docker_config(&self.client, namespace, name).await {
            Ok(text) => Ok(Credentials::Text { place, text }),
            Err(error) => Err(wrong(format!(
                "{place} cannot be read: {error}; it must be of type kubernetes.io/dockerconfigjson, and \
                 Bindery needs the right to get it"
            ))),
        }
    }
}
