//! Volumes and claims that are written to etcd directly: through the API server, a bound pair takes four
//! writes.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bindery_kit::json;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{ListParams, PostParams};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{ControlPlane, Manager, is_bound, until};

/// Objects in one transaction of etcd (its `--max-txn-ops` is 128).
const BATCH: usize = 128;
/// Concurrent transactions.
const IN_FLIGHT: usize = 8;
/// How often the API server is asked whether it has all objects.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The class of the free volumes. It has no object, as often with volumes that are created by hand.
pub const BY_HAND: &str = "by-hand";
/// The capacity of the free volumes.
pub const FREE_SIZE: &str = "10Gi";
/// Label of all objects of a [`Stock`].
pub const STOCK: &str = "stock";

/// Objects that are there before a test or benchmark begins.
#[derive(Clone, Copy, Debug)]
pub struct Stock {
    /// Bound pairs of a volume and a claim. There is one more, which they are copies of.
    pub pairs: usize,
    /// Volumes that are bound to no claim.
    pub free: usize,
}

/// A bound pair as stored in etcd, to be copied.
struct Pair {
    volume: Value,
    claim: Value,
}

impl Stock {
    /// Lets upstream bind a pair and writes copies of it. Returns when the API server has all objects.
    pub async fn seed(self, plane: &mut ControlPlane) -> Result<()> {
        let client = plane.client().await?;
        plane.set_manager(Manager::BinderAlone)?;
        let pair = Pair::bind(&client).await?;
        plane.set_manager(Manager::Off)?;
        let Self { pairs, free } = self;
        let objects = (0..pairs).flat_map(|i| pair.nth(i)).chain((0..free).map(|i| pair.nth_free(i)));
        put(plane.etcd_url().parse()?, objects).await?;
        // One more for the copied pair.
        until_known::<PersistentVolume>(&client, 1 + pairs + free).await?;
        until_known::<PersistentVolumeClaim>(&client, 1 + pairs).await
    }
}

impl Pair {
    /// Creates a volume and a claim (in `default`), and reads them once they are bound, with managedFields.
    async fn bind(client: &kube::Client) -> Result<Self> {
        let volumes = Api::<PersistentVolume>::all(client.clone());
        let claims = Api::<PersistentVolumeClaim>::default_namespaced(client.clone());
        let change = json!({"metadata": {"labels": {STOCK: ""}}, "spec": {"storageClassName": "class-0"}});
        let (volume, claim) = ("volume-000000", "claim-000000");
        let created = serde_json::from_value(json::volume(volume, change.clone()))?;
        volumes.create(&PostParams::default(), &created).await?;
        let created = serde_json::from_value(json::claim(claim, change))?;
        claims.create(&PostParams::default(), &created).await?;
        let claim = until(&claims, claim, is_bound).await;
        let volume = volumes.get(volume).await?;
        let stored = |mut object: Value, kind: &str| {
            object["apiVersion"] = "v1".into();
            object["kind"] = kind.into();
            // etcd assigns the version of the copy.
            object["metadata"].as_object_mut().map(|metadata| metadata.remove("resourceVersion"));
            object
        };
        Ok(Self {
            volume: stored(serde_json::to_value(volume)?, "PersistentVolume"),
            claim: stored(serde_json::to_value(claim)?, "PersistentVolumeClaim"),
        })
    }

    /// Key and object of the volume and the claim of the copy with this number.
    fn nth(&self, i: usize) -> [(String, Value); 2] {
        let name = pair_name(i);
        let (volume_uid, claim_uid) = (uid(i, 0xa), uid(i, 0xb));
        let mut volume = self.volume.clone();
        volume["metadata"]["name"] = name.clone().into();
        volume["metadata"]["uid"] = volume_uid.into();
        volume["spec"]["claimRef"]["name"] = name.clone().into();
        volume["spec"]["claimRef"]["uid"] = claim_uid.clone().into();
        let mut claim = self.claim.clone();
        claim["metadata"]["name"] = name.clone().into();
        claim["metadata"]["uid"] = claim_uid.into();
        claim["spec"]["volumeName"] = name.clone().into();
        [
            (format!("/registry/persistentvolumes/{name}"), volume),
            (format!("/registry/persistentvolumeclaims/default/{name}"), claim),
        ]
    }

    /// Key and object of the free volume with this number.
    fn nth_free(&self, i: usize) -> (String, Value) {
        let name = free_name(i);
        let mut volume = self.volume.clone();
        volume["metadata"]["name"] = name.clone().into();
        volume["metadata"]["uid"] = uid(i, 0xc).into();
        let drop_from = |object: &mut Value, field: &str| {
            object.as_object_mut().map(|object| object.remove(field));
        };
        drop_from(&mut volume["metadata"], "annotations");
        drop_from(&mut volume["spec"], "claimRef");
        volume["spec"]["storageClassName"] = BY_HAND.into();
        volume["spec"]["capacity"]["storage"] = FREE_SIZE.into();
        volume["status"]["phase"] = "Available".into();
        (format!("/registry/persistentvolumes/{name}"), volume)
    }
}

/// Name of the volume and of the claim of a bound pair.
pub fn pair_name(i: usize) -> String {
    format!("copy-{i:06}")
}

/// Name of a free volume.
pub fn free_name(i: usize) -> String {
    format!("free-{i:06}")
}

fn uid(i: usize, kind: u8) -> String {
    format!("00000000-0000-4000-8000-{kind:x}{i:011x}")
}

/// Writes objects to etcd by their keys.
async fn put(etcd: http::Uri, objects: impl Iterator<Item = (String, Value)>) -> Result<()> {
    let etcd = kube::Client::try_from(kube::Config::new(etcd))?;
    let etcd = &etcd;
    let put = |batch: Vec<(String, Value)>| async move {
        let puts: Vec<_> = batch.into_iter().map(request_put).collect();
        let body = serde_json::to_vec(&json!({"success": puts}))?;
        let answer: Value = etcd.request(http::Request::post("/v3/kv/txn").body(body)?).await?;
        let succeeded = answer["succeeded"].as_bool().filter(|succeeded| *succeeded);
        succeeded.context("etcd refused a transaction").map(drop)
    };
    stream::iter(objects).chunks(BATCH).map(put).buffer_unordered(IN_FLIGHT).try_collect().await
}

/// A put for etcd's JSON gateway: key and value in base64.
fn request_put((key, value): (String, Value)) -> Value {
    json!({"request_put": {
        "key": ByteString(key.into_bytes()),
        "value": ByteString(value.to_string().into_bytes()),
    }})
}

/// Waits until the API server's watch cache, which also answers the lists of binders, has `number` objects.
async fn until_known<K>(client: &kube::Client, number: usize) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let objects = Api::<K>::all(client.clone());
    let cached = ListParams::default().match_any().limit(1);
    let mut ticks = tokio::time::interval(ASK_EVERY);
    loop {
        ticks.tick().await;
        let listed = objects.list_metadata(&cached).await?;
        // The watch cache ignores the limit.
        let known = listed.items.len() + usize::try_from(listed.metadata.remaining_item_count.unwrap_or(0))?;
        if known >= number {
            return Ok(());
        }
    }
}
