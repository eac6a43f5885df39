//! Bindery and upstream's binder take turns.

use bindery_controller::Mode;
use bindery_kit::json::claim;
use serde_json::json;

use super::{in_tree, plain};
use crate::delay::pass;
use crate::user::{CLAIMS, SETTLED, User, VOLUMES, reference};

scenarios! {
    "replicas observe another binder, and bind again", &[], |user| {
        user.bind(plain("v1")).await;
        user.switch(Mode::Observe).await;
        user.create(plain("v2")).await;
        user.create(claim("c2", json!({}))).await;
        bind_as_upstream(user, "c2", "v2").await;
        user.delete(CLAIMS, "c1").await;
        user.switch(Mode::Own).await;
        user.until_phase(VOLUMES, "v1", "Released").await;
    }
    "replicas are told to observe in the middle of a bind", &[], |user| {
        user.until_led().await;
        user.create(plain("v1")).await;
        user.create(claim("c1", json!({}))).await;
        user.until_reserved("v1").await;
        user.switch(Mode::Observe).await;
        user.switch(Mode::Own).await;
        user.until_bound("c1").await;
    }
    "another binder is seen, and the operator acknowledges", &[], |user| {
        user.bind(in_tree("v1")).await;
        // One write may come by a list, which does not tell its writer; the next one comes later.
        for (claim_name, volume) in [("c2", "v2"), ("c3", "v3")] {
            user.create(claim(claim_name, json!({}))).await;
            user.create(plain(volume)).await;
            bind_as_upstream(user, claim_name, volume).await;
            pass(SETTLED).await;
        }
        user.until("the Lease is marked", User::is_marked).await;
        user.delete(CLAIMS, "c1").await;
        user.until_phase(VOLUMES, "v1", "Released").await;
        user.until("volume v1 is deleted", |user| {
            user.acknowledge();
            user.object(VOLUMES, "v1").is_null()
        }).await;
    }
}

async fn bind_as_upstream(user: &User, claim: &str, volume: &str) {
    let by_controller = json!({"pv.kubernetes.io/bound-by-controller": "yes"});
    let owner = user.object(CLAIMS, claim);
    user.overwrite(
        VOLUMES,
        volume,
        json!({
            "metadata": {"annotations": by_controller},
            "spec": {"claimRef": reference(&owner)},
            "status": {"phase": "Bound"},
        }),
    )
    .await;
    let marks =
        json!({"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"});
    let status = json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}});
    let phase = json!({
        "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "subresource": "status",
        "fieldsV1": {"f:status": {"f:phase": {}}},
    });
    let metadata = json!({"annotations": marks, "managedFields": [phase]});
    let bound = json!({"metadata": metadata, "spec": {"volumeName": volume}, "status": status});
    user.overwrite(CLAIMS, claim, bound).await;
}
