//! Reads from a cluster what the decision about one object rests on.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow};
use bindery_controller::Key;
use bindery_core::ClaimKey;
use bindery_kube::ApiClient;
use bindery_kube::read::{self, ReadError};
use serde_json::Value;

use crate::manifest::Manifest;
use crate::objects::Resource;

/// What explain reads, for the error of a user that may not.
const RIGHTS: &str = "`bindery explain` gets the claim, the claim that its volume names, and its namespace, \
                      and lists volumes, classes, and the pods of the namespace";

/// The object of a key, and what its decision rests on; with the namespace if policies read its labels.
pub(super) async fn read(client: &ApiClient, key: &Key, with_namespace: bool) -> Result<Vec<Manifest>> {
    let mut reader = Reader { client, manifests: Vec::new(), claims: BTreeSet::new() };
    match key {
        Key::Claim(key) => reader.claim(key, with_namespace).await?,
        Key::Volume(name) => {
            let volume = reader.get(Resource::Volume, "", name).await?;
            reader.claim_of(&volume).await?;
        }
    }
    Ok(reader.manifests)
}

/// The names of the objects of a resource.
pub(super) async fn names(client: &ApiClient, resource: Resource, namespace: &str) -> Result<Vec<String>> {
    let objects = read::list(client, &resource.collection(namespace)).await.map_err(explained)?;
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
    async fn claim(&mut self, key: &ClaimKey, with_namespace: bool) -> Result<()> {
        let claim = self.get(Resource::Claim, &key.namespace, &key.name).await?;
        self.claims.insert(key.clone());
        let volumes = self.list(Resource::Volume, "").await?;
        let classes = self.list(Resource::Class, "").await?;
        if with_namespace {
            self.get(Resource::Namespace, "", &key.namespace).await?;
        }
        let named = |object: &Value, name: &Value| name.is_string() && object["metadata"]["name"] == *name;
        if let Some(volume) = volumes.iter().find(|volume| named(volume, &claim["spec"]["volumeName"])) {
            return self.claim_of(volume).await;
        }
        let class = classes.iter().find(|class| named(class, &claim["spec"]["storageClassName"]));
        if class.is_some_and(|class| class["volumeBindingMode"] == "WaitForFirstConsumer") {
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
        match read::get(self.client, &Resource::Claim.collection(namespace), name).await {
            Ok(claim) => self.add(Resource::Claim, &claim),
            Err(ReadError::Absent(_)) => {}
            Err(error) => return Err(explained(error)),
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
        let pods =
            read::list(self.client, &Resource::Pod.collection(&key.namespace)).await.map_err(explained)?;
        pods.iter().filter(uses).for_each(|pod| self.add(Resource::Pod, pod));
        Ok(())
    }

    async fn get(&mut self, resource: Resource, namespace: &str, name: &str) -> Result<Value> {
        let object = read::get(self.client, &resource.collection(namespace), name).await;
        let object = object.map_err(|error| match error {
            ReadError::Absent(message) if resource == Resource::Claim => {
                anyhow!("{message} in namespace {namespace}; name another one by --namespace")
            }
            error => explained(error),
        })?;
        self.add(resource, &object);
        Ok(object)
    }

    async fn list(&mut self, resource: Resource, namespace: &str) -> Result<Vec<Value>> {
        let objects = read::list(self.client, &resource.collection(namespace)).await.map_err(explained)?;
        objects.iter().for_each(|object| self.add(resource, object));
        Ok(objects)
    }

    fn add(&mut self, resource: Resource, object: &Value) {
        let object = resource.complete(object.clone());
        let (file, place) = ("the cluster".to_owned(), "its API".to_owned());
        self.manifests.push(Manifest { file, place, object });
    }
}

fn explained(error: ReadError) -> anyhow::Error {
    match error {
        ReadError::Forbidden(message) => anyhow!("{message}; ask for this right: {RIGHTS}"),
        error => error.into(),
    }
}
