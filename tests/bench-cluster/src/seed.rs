//! Bound pairs, put straight into etcd: through the API server they would take four writes each.

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use serde_json::{Value, json};

/// Objects in one transaction of etcd (its `--max-txn-ops` is 128).
const BATCH: usize = 128;
/// Transactions that are under way at the same time.
const IN_FLIGHT: usize = 8;

/// A bound pair as it lies in etcd, to be copied.
pub(crate) struct Pair {
    volume: Value,
    claim: Value,
}

impl Pair {
    /// The pair of this volume and this claim (in `default`), with everything that the API server keeps of them,
    /// managedFields too.
    pub(crate) async fn read(client: &kube::Client, volume: &str, claim: &str) -> Result<Self> {
        let volume = Api::<PersistentVolume>::all(client.clone()).get(volume).await?;
        let claim = Api::<PersistentVolumeClaim>::default_namespaced(client.clone()).get(claim).await?;
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        ensure!(phase == Some("Bound"), "the claim to be copied is not bound: {phase:?}");
        let stored = |object: Value, kind: &str| {
            let mut object = object;
            object["apiVersion"] = "v1".into();
            object["kind"] = kind.into();
            // Of the copy etcd tells it.
            object["metadata"].as_object_mut().map(|metadata| metadata.remove("resourceVersion"));
            object
        };
        Ok(Self {
            volume: stored(serde_json::to_value(volume)?, "PersistentVolume"),
            claim: stored(serde_json::to_value(claim)?, "PersistentVolumeClaim"),
        })
    }

    /// Puts `number` copies into the etcd that listens there.
    pub(crate) async fn copy(&self, etcd: http::Uri, number: usize) -> Result<()> {
        let etcd = kube::Client::try_from(kube::Config::new(etcd))?;
        let etcd = &etcd;
        let batches = (0..number).step_by(BATCH / 2).map(|from| from..number.min(from + BATCH / 2));
        let put = |batch: std::ops::Range<usize>| async move {
            let puts: Vec<_> = batch.flat_map(|i| self.nth(i)).map(request_put).collect();
            let body = serde_json::to_vec(&json!({"success": puts}))?;
            let answer: Value = etcd.request(http::Request::post("/v3/kv/txn").body(body)?).await?;
            answer["succeeded"]
                .as_bool()
                .filter(|succeeded| *succeeded)
                .context("etcd refused a transaction")?;
            anyhow::Ok(())
        };
        stream::iter(batches).map(put).buffer_unordered(IN_FLIGHT).try_collect().await
    }

    /// Key and object of the volume and the claim of the copy with this number.
    fn nth(&self, i: usize) -> [(String, Value); 2] {
        let (volume_name, claim_name) = (format!("copy-{i:06}"), format!("copy-{i:06}"));
        let (volume_uid, claim_uid) = (uid(i, 0xa), uid(i, 0xb));
        let mut volume = self.volume.clone();
        volume["metadata"]["name"] = volume_name.clone().into();
        volume["metadata"]["uid"] = volume_uid.into();
        volume["spec"]["claimRef"]["name"] = claim_name.clone().into();
        volume["spec"]["claimRef"]["uid"] = claim_uid.clone().into();
        let mut claim = self.claim.clone();
        claim["metadata"]["name"] = claim_name.clone().into();
        claim["metadata"]["uid"] = claim_uid.into();
        claim["spec"]["volumeName"] = volume_name.clone().into();
        [
            (format!("/registry/persistentvolumes/{volume_name}"), volume),
            (format!("/registry/persistentvolumeclaims/default/{claim_name}"), claim),
        ]
    }
}

/// A UID that no other object has.
fn uid(i: usize, kind: u8) -> String {
    format!("00000000-0000-4000-8000-{kind:x}{i:011x}")
}

/// A put, as etcd's gateway for JSON wants it: keys and values in base64.
fn request_put((key, value): (String, Value)) -> Value {
    json!({"request_put": {
        "key": ByteString(key.into_bytes()),
        "value": ByteString(value.to_string().into_bytes()),
    }})
}
