//! Released volumes of NFS, which the real recycler scrubs by pods.

use std::time::Duration;

use bindery_kit::json::{claim, volume};
use bindery_sim::FaultRule;
use serde_json::{Value, json};

use crate::user::{CLAIMS, VOLUMES, reference};

/// How long the API server takes to create a pod. A request may take a minute.
const SLOW: Duration = Duration::from_secs(5);

scenarios! {
    "a pod scrubs a volume for the next claim", &[], |user| {
        user.bind(recycled("v1")).await;
        user.create(claim("c2", json!({}))).await;
        user.delete(CLAIMS, "c1").await;
        user.until_bound("c2").await;
    }
    "a volume is given to another claim while its recycler pod is created", &[], |user| {
        user.bind(recycled("v1")).await;
        user.create(claim("c2", json!({}))).await;
        user.timeline.sim.faults().add(FaultRule::new("create", "pods").delay(SLOW));
        user.delete(CLAIMS, "c1").await;
        user.until("a pod is being created", |user| user.timeline.sim.faults().pending() == 0).await;
        user.timeline.until_up().await;
        // A pod that exists may be scrubbing the volume.
        let has_pod = !user.object("pods", "recycler-for-v1").is_null();
        if !has_pod && user.object(VOLUMES, "v1")["status"]["phase"] == "Released" {
            let given = reference(&user.object(CLAIMS, "c2"));
            user.patch(VOLUMES, "v1", json!({"spec": {"claimRef": given}})).await;
        }
        user.until_bound("c2").await;
    }
}

fn recycled(name: &str) -> Value {
    let source = json!({"server": "nfs.example", "path": format!("/{name}")});
    let policy = "Recycle";
    volume(name, json!({"spec": {"hostPath": null, "nfs": source, "persistentVolumeReclaimPolicy": policy}}))
}
