//! Reads from a cluster what the decision about one object rests on.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow};
use bindery_core::{BindingMode, ClaimKey, Declared, Key};
use bindery_kube::read::{self, ReadError};
use bindery_kube::{ApiClient, decode};
use bindery_store::Observed;
use serde_json::Value;

use crate::cluster::{explained, manifest};
use crate::manifest::Manifest;
use crate::objects::Resource;

/// What explain reads, for the error of a user that may not.
const RIGHTS: &str = "`bindery explain` gets the claim, the claim that its volume names, and its namespace, \
                      and lists volumes, classes, and the pods of the namespace; where a policy spreads \
                      volumes, also its claims";

/// The object of a key, and what its decision rests on; with the namespace and its claims if policies read
/// labels of namespaces, or count siblings.
pub(super) async fn read(client: &ApiClient, key: &Key, declared: &Declared) -> Result<Vec<Manifest>> {
    let mut reader = Reader { client, manifests: Vec::new(), claims: BTreeSet::new() };
    match key {
        Key::Claim(key) => reader.claim(key, declared).await?,
        Key::Volume(name) => {
            let volume = reader.get(Resource::Volume, "", name).await?;
            reader.claim_of(&volume).await?;
            reader.list(Resource::Class, "").await?;
            if let Some(namespace) = volume["spec"]["claimRef"]["namespace"].as_str()
                && declared.namespaces
            {
                reader.get_if_there(Resource::Namespace, "", namespace).await?;
            }
        }
    }
    Ok(reader.manifests)
}

/// The names of the objects of a resource.
pub(super) async fn names(client: &ApiClient, resource: Resource, namespace: &str) -> Result<Vec<String>> {
    let objects = read::list(client, &resource.collection(namespace)).await.map_err(explained(RIGHTS))?;
    let name = |object: &Value| object["metadata"]["name"].as_str().map(str::to_owned);
    Ok(objects.iter().filter_map(name).collect())
}

struct Reader<'a> {
    client: &'a ApiClient,
    manifests: Vec<Manifest>,
    /// The claims that were read.
    claims: BTreeSet<ClaimKey>,
}

impl Reader<'_> {
    async fn claim(&mut self, key: &ClaimKey, declared: &Declared) -> Result<()> {
        let claim = self.get(Resource::Claim, &key.namespace, &key.name).await?;
        self.claims.insert(key.clone());
        let volumes = self.list(Resource::Volume, "").await?;
        let classes = self.list(Resource::Class, "").await?;
        if declared.namespaces {
            self.get(Resource::Namespace, "", &key.namespace).await?;
        }
        if !declared.spreads.is_empty() {
            self.siblings(key).await?;
        }
        let named = |object: &Value, name: &Value| name.is_string() && object["metadata"]["name"] == *name;
        if let Some(volume) = volumes.iter().find(|volume| named(volume, &claim["spec"]["volumeName"])) {
            return self.claim_of(volume).await;
        }
        if may_wait_for_pod(&claim, &classes)? {
            self.pods(key).await?;
        }
        Ok(())
    }

    /// Reads the claim that a volume names, if it exists.
    async fn claim_of(&mut self, volume: &Value) -> Result<()> {
        let claim_ref = &volume["spec"]["claimRef"];
        let (Some(namespace), Some(name)) = (claim_ref["namespace"].as_str(), claim_ref["name"].as_str())
        else {
            return Ok(());
        };
        if !self.claims.insert(ClaimKey::new(namespace, name)) {
            return Ok(());
        }
        self.get_if_there(Resource::Claim, namespace, name).await
    }

    /// Reads the other claims of a claim's namespace.
    async fn siblings(&mut self, key: &ClaimKey) -> Result<()> {
        let claims = read::list(self.client, &Resource::Claim.collection(&key.namespace)).await;
        for claim in claims.map_err(explained(RIGHTS))? {
            let name = claim["metadata"]["name"].as_str().unwrap_or_default();
            if self.claims.insert(ClaimKey::new(&*key.namespace, name)) {
                self.add(Resource::Claim, &claim);
            }
        }
        Ok(())
    }

    async fn get_if_there(&mut self, resource: Resource, namespace: &str, name: &str) -> Result<()> {
        match read::get(self.client, &resource.collection(namespace), name).await {
            Ok(object) => self.add(resource, &object),
            Err(ReadError::Absent(_)) => {}
            Err(error) => return Err(explained(RIGHTS)(error)),
        }
        Ok(())
    }

    /// Reads the pods that use a claim.
    async fn pods(&mut self, key: &ClaimKey) -> Result<()> {
        let uses = |pod: &&Value| {
            let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
            let ephemeral = |volume: &Value| {
                let owner = pod["metadata"]["name"].as_str().unwrap_or_default();
                let name = volume["name"].as_str().unwrap_or_default();
                volume["ephemeral"].is_object() && *key.name == *format!("{owner}-{name}")
            };
            let names = |volume: &Value| volume["persistentVolumeClaim"]["claimName"] == *key.name;
            volumes.into_iter().any(|volume| names(volume) || ephemeral(volume))
        };
        let pods = read::list(self.client, &Resource::Pod.collection(&key.namespace))
            .await
            .map_err(explained(RIGHTS))?;
        pods.iter().filter(uses).for_each(|pod| self.add(Resource::Pod, pod));
        Ok(())
    }

    async fn get(&mut self, resource: Resource, namespace: &str, name: &str) -> Result<Value> {
        let object = read::get(self.client, &resource.collection(namespace), name).await;
        let object = object.map_err(|error| match error {
            ReadError::Absent(message) if resource == Resource::Claim => {
                anyhow!("{message} in namespace {namespace}; name another one by --namespace")
            }
            error => explained(RIGHTS)(error),
        })?;
        self.add(resource, &object);
        Ok(object)
    }

    async fn list(&mut self, resource: Resource, namespace: &str) -> Result<Vec<Value>> {
        let objects =
            read::list(self.client, &resource.collection(namespace)).await.map_err(explained(RIGHTS))?;
        objects.iter().for_each(|object| self.add(resource, object));
        Ok(objects)
    }

    fn add(&mut self, resource: Resource, object: &Value) {
        self.manifests.push(manifest(resource, object.clone()));
    }
}

/// Whether the class of a claim waits for a pod, or a default class that it may get.
fn may_wait_for_pod(claim: &Value, classes: &[Value]) -> Result<bool> {
    let declared = Declared::default();
    let (_, Observed::Readable(claim)) = decode::claim(claim, &declared)? else { return Ok(false) };
    for class in classes {
        let (name, Observed::Readable(class)) = decode::class(class, &declared)? else { continue };
        let is_its_class = claim.class.as_ref().map_or(class.default, |asked| *asked == name);
        if is_its_class && class.binding_mode == Some(BindingMode::WaitForFirstConsumer) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use bindery_kit::json;
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_are_read_for_the_class_of_the_annotation_and_for_default_classes() {
        let waits = json!({"volumeBindingMode": "WaitForFirstConsumer"});
        let local = json::class("local", "kubernetes.io/no-provisioner", waits);
        let key = "storageclass.kubernetes.io/is-default-class";
        let default = json::merged(local.clone(), json!({"metadata": {"annotations": {key: "true"}}}));
        let annotation = json!({"volume.beta.kubernetes.io/storage-class": "local"});
        let annotated = json::claim("c", json!({"metadata": {"annotations": annotation}}));
        let without_class = json::claim("c", json!({"spec": {"storageClassName": null}}));
        let empty_class = json::claim("c", json!({}));
        for (claim, class, expected) in [
            (&annotated, &local, true),
            (&without_class, &default, true),
            (&without_class, &local, false),
            (&empty_class, &default, false),
        ] {
            let waits = may_wait_for_pod(claim, std::slice::from_ref(class));
            assert_eq!(waits.ok(), Some(expected), "{claim} {class}");
        }
    }
}
