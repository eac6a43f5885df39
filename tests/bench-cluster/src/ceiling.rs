//! What the API server takes of the writes of a bind, from a client that decides nothing.

use std::collections::HashMap;
use std::time::Instant;

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::load::{Load, claim_name, volume_name};

/// As many as Bindery has under way.
const IN_FLIGHT: usize = 64;

/// Sets the phase of every volume to Available, as a binder does before there are claims.
pub(crate) async fn settle_volumes(client: &kube::Client, number: usize) -> Result<()> {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let volumes = &volumes;
    let available = Patch::Merge(json!({"status": {"phase": "Available"}}));
    let available = &available;
    let settle = |i: usize| async move {
        volumes.patch_status(&volume_name(i), &PatchParams::default(), available).await.map(|_| ())
    };
    stream::iter(0..number).map(settle).buffer_unordered(IN_FLIGHT).try_collect::<Vec<_>>().await?;
    Ok(())
}

/// Creates the claims and makes the four writes of a bind for each, one after the other, many claims at the same
/// time. Answers when each creation was sent.
pub(crate) async fn create_and_bind(
    client: &kube::Client,
    load: &Load,
    number: usize,
) -> Result<HashMap<String, Instant>> {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    let (volumes, claims) = (&volumes, &claims);
    let bind = |i: usize| async move {
        let sent = Instant::now();
        let uid = load.create_claim(i).await?.metadata.uid;
        let (volume, claim, params) = (volume_name(i), claim_name(i), PatchParams::default());
        let mark = "pv.kubernetes.io/bound-by-controller";
        let claim_ref = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": claim, "uid": uid,
        });
        let spec = json!({"metadata": {"annotations": {mark: "yes"}}, "spec": {"claimRef": claim_ref}});
        volumes.patch(&volume, &params, &Patch::Merge(spec)).await?;
        let status = json!({"status": {"phase": "Bound"}});
        volumes.patch_status(&volume, &params, &Patch::Merge(status)).await?;
        let annotations = json!({mark: "yes", "pv.kubernetes.io/bind-completed": "yes"});
        let spec = json!({"metadata": {"annotations": annotations}, "spec": {"volumeName": volume}});
        claims.patch(&claim, &params, &Patch::Merge(spec)).await?;
        let status =
            json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}});
        claims.patch_status(&claim, &params, &Patch::Merge(json!({"status": status}))).await?;
        anyhow::Ok((claim, sent))
    };
    stream::iter(0..number).map(bind).buffer_unordered(IN_FLIGHT).try_collect().await
}
