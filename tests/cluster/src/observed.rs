//! The objects of a cluster at one moment.

use anyhow::{Result, anyhow};
use bindery_invariants::Snapshot;
use kube::Client;
use serde_json::Value;

use crate::stock::STOCK;

const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLAIMS: &str = "/api/v1/persistentvolumeclaims";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
/// The most attempts: the version of the first list may be compacted before the second list.
const ATTEMPTS_MAX: usize = 3;

/// The volumes, claims and classes of a cluster, in lists of the same resourceVersion.
pub async fn snapshot(client: &Client) -> Result<Snapshot> {
    select(client, "").await
}

/// The same without the objects of a [`Stock`](crate::Stock), which are too many to be read often.
pub async fn snapshot_without_stock(client: &Client) -> Result<Snapshot> {
    select(client, &format!("!{STOCK}")).await
}

/// The same of the volumes and claims with these labels.
async fn select(client: &Client, labels: &str) -> Result<Snapshot> {
    let mut attempts = 1;
    loop {
        let claims = list(client, &format!("{CLAIMS}?labelSelector={labels}")).await?;
        let version = claims["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let exactly = format!("resourceVersion={version}&resourceVersionMatch=Exact");
        let volumes = match list(client, &format!("{VOLUMES}?labelSelector={labels}&{exactly}")).await {
            Err(kube::Error::Api(status)) if status.code == 410 && attempts < ATTEMPTS_MAX => {
                attempts += 1;
                continue;
            }
            volumes => volumes?,
        };
        let classes = list(client, CLASSES).await?;
        let snapshot = Snapshot::read(items(&volumes), items(&claims), items(&classes));
        return snapshot.map_err(|why| anyhow!(why));
    }
}

async fn list(client: &Client, uri: &str) -> Result<Value, kube::Error> {
    let request = http::Request::get(uri).body(Vec::new()).expect("a path that is written here is a path");
    client.request(request).await
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map(Vec::as_slice).unwrap_or_default()
}
