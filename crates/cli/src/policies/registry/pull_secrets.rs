//! Secrets with credentials of registries that cluster objects name.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use bindery_kube::{ApiClient, read};
use bindery_policy::is_name;
use bindery_registry::{Credentials, RegistryError};

/// Namespace and name of a Secret.
pub(super) fn parse(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && !name.is_empty() && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err(format!("{text:?} is not NAMESPACE/NAME")),
    }
}

/// The Secrets that objects may name.
pub(super) struct PullSecrets {
    client: ApiClient,
    /// The namespace of each name.
    named: BTreeMap<String, String>,
}

impl PullSecrets {
    pub(super) fn new(client: &ApiClient, secrets: &[(String, String)]) -> Result<Self> {
        let mut named = BTreeMap::new();
        for (namespace, name) in secrets {
            if named.insert(name.clone(), namespace.clone()).is_some_and(|other| other != *namespace) {
                bail!("--registry-pull-secret names {name:?} in two namespaces; give one of them");
            }
        }
        Ok(Self { client: client.clone(), named })
    }

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
