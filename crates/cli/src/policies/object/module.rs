//! Reads the modules of objects.

use anyhow::{Result, bail};
use bindery_kube::{ConfigMapKey, PolicyObjects};
use bindery_policy::Pull;
use bindery_registry::Extra;
use serde_json::Value;
use tokio::task::spawn_blocking;

use super::super::parse;
use super::{Cause, Fault, Hosts, LoadedObject};
use crate::policy::module::{self, CONFIG_MAP, REGISTRY};

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
        match hosts.registry.get(name, pull, hosts.fetches).await {
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
            if !name.starts_with('/') && !name.contains(':') {
                bail!("spec.module is {name:?}; a cluster object names a file by its absolute path");
            }
            let path = hosts.shipped.path(name, "".as_ref())?;
            return spawn_blocking(move || module::read(&path)).await?;
        };
        let [namespace, config_map, key] = place.split('/').collect::<Vec<_>>()[..] else {
            bail!("spec.module is {name:?}; give {CONFIG_MAP}NAMESPACE/NAME/KEY");
        };
        let [namespace, config_map, key] = [namespace, config_map, key].map(str::to_owned);
        let at = ConfigMapKey { namespace, name: config_map, key };
        let (read, version) = objects.module(&at).await;
        self.config_maps.push((at, version));
        read.map_err(anyhow::Error::msg)
    }
}

/// How the module of an object is fetched.
fn pull(object: &Value) -> Result<Pull, Fault> {
    let pull = &object["spec"]["pull"];
    if pull.is_null() {
        return Ok(Pull::default());
    }
    parse(pull).map_err(|error| Fault { cause: Cause::Invalid, why: format!("spec.pull: {error:#}") })
}
