//! Reads the modules of objects.

use anyhow::{Result, bail};
use bindery_core::{is_dns_label, is_subdomain};
use bindery_kube::{ConfigMapKey, PolicyObjects};
use bindery_policy::Pull;
use bindery_registry::Extra;
use serde_json::Value;

use super::super::parse;
use super::{Cause, Fault, Hosts, LoadedObject, blocking};
use crate::policy::module::{self, BUILTIN, CONFIG_MAP, REGISTRY};

impl LoadedObject {
    /// The module of an object, with the golden cases that come with it.
    pub(super) async fn module(
        &mut self,
        object: &Value,
        hosts: &Hosts,
        objects: &PolicyObjects,
    ) -> Result<(Vec<u8>, Vec<Extra>), Fault> {
        let unavailable =
            |error: anyhow::Error| Fault { cause: Cause::ModuleUnavailable, why: format!("{error:#}") };
        let name = object["spec"]["module"].as_str().unwrap_or_default();
        if name.starts_with(REGISTRY) {
            return self.fetched(name, &pull(object)?, hosts).await;
        }
        Ok((self.local(name, hosts, objects).await.map_err(unavailable)?, Vec::new()))
    }

    /// The module of a registry with its golden cases, if it is kept.
    async fn fetched(
        &mut self,
        name: &str,
        pull: &Pull,
        hosts: &Hosts,
    ) -> Result<(Vec<u8>, Vec<Extra>), Fault> {
        match hosts.registry.get(name, pull, hosts.review.as_ref()).await {
            Ok(module) => {
                self.signed_by = module.signed_by;
                Ok((module.bytes, module.cases))
            }
            Err(missing) if missing.is_unverified => {
                Err(Fault { cause: Cause::SignatureInvalid, why: missing.why })
            }
            Err(missing) => Err(Fault { cause: Cause::ModuleUnavailable, why: missing.why }),
        }
    }

    async fn local(&mut self, name: &str, hosts: &Hosts, objects: &PolicyObjects) -> Result<Vec<u8>> {
        let Some(place) = name.strip_prefix(CONFIG_MAP) else {
            if !name.starts_with('/') && !name.starts_with(BUILTIN) {
                bail!("spec.module is {name:?}; a cluster object names a file by its absolute path");
            }
            // Whoever reaches the webhook could name any file of the pod.
            if hosts.review.is_some() && name.starts_with('/') {
                bail!(
                    "its module is a file, which is read when it is loaded: the status will say whether it \
                     works"
                );
            }
            let path = hosts.shipped.path(name, "".as_ref())?;
            return blocking(hosts.review.as_ref(), move || module::read(&path)).await?;
        };
        let Some(at) = config_map_key(place) else {
            bail!("spec.module is {name:?}; give {CONFIG_MAP}NAMESPACE/NAME/KEY");
        };
        let (read, version) = objects.module(&at).await;
        self.config_maps.push((at, version));
        read.map_err(anyhow::Error::msg)
    }
}

/// The key of a ConfigMap in NAMESPACE/NAME/KEY. No other text may become a path of the API, or a selector of
/// what is watched.
pub(crate) fn config_map_key(place: &str) -> Option<ConfigMapKey> {
    let [namespace, name, key] = place.split('/').collect::<Vec<_>>()[..] else { return None };
    let is_named = is_dns_label(namespace) && is_subdomain(name);
    let [namespace, name, key] = [namespace, name, key].map(str::to_owned);
    is_named.then_some(ConfigMapKey { namespace, name, key })
}

/// How the module of an object is fetched.
fn pull(object: &Value) -> Result<Pull, Fault> {
    let pull = &object["spec"]["pull"];
    if pull.is_null() {
        return Ok(Pull::default());
    }
    parse(pull).map_err(|error| Fault { cause: Cause::Invalid, why: format!("spec.pull: {error:#}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_a_namespace_and_a_config_map_are_looked_up() {
        let at = |namespace: &str, name: &str, key: &str| ConfigMapKey {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            key: key.to_owned(),
        };
        assert_eq!(
            config_map_key("ns/kube-root-ca.crt/m.wasm"),
            Some(at("ns", "kube-root-ca.crt", "m.wasm"))
        );
        for place in [
            "",
            "ns/m",
            "ns/m/k/l",
            "?watch=true&a=/y/z",
            "ns%2Fsecrets/m/k",
            "../m/k",
            "ns/../k",
            "ns/a,metadata.namespace=b/k",
            "ns/a b/k",
            "NS/m/k",
        ] {
            assert_eq!(config_map_key(place), None, "{place:?}");
        }
    }
}
