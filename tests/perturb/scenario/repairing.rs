//! Objects that users, backups and other binders have left in an odd state.

use bindery_invariants::Rule;
use bindery_kit::json::{claim, merged, volume};
use serde_json::json;

use super::{in_tree, naming, plain, reserved};
use crate::user::{CLAIMS, VOLUMES, reference};

scenarios! {
    "a released volume is freed by hand", &[], |user| {
        user.bind(plain("v1")).await;
        user.delete(CLAIMS, "c1").await;
        user.until_phase(VOLUMES, "v1", "Released").await;
        user.patch(VOLUMES, "v1", json!({"spec": {"claimRef": null}})).await;
        user.create(claim("c2", json!({}))).await;
        user.until_bound("c2").await;
    }
    "a bound volume is removed by force", &[Rule::VolumeKept, Rule::ClaimPhase], |user| {
        user.bind(plain("v1")).await;
        user.remove(VOLUMES, "v1").await;
        user.until_phase(CLAIMS, "c1", "Lost").await;
    }
    "a bound pair is restored from a backup", &[Rule::PointsBack], |user| {
        user.until_led().await;
        user.create(plain("v1")).await;
        let bound = json!({"pv.kubernetes.io/bind-completed": "yes"});
        let restored = json!({"metadata": {"annotations": bound}, "spec": {"volumeName": "v1"}});
        user.create(claim("c1", restored)).await;
        user.until_bound("c1").await;
    }
    "the mark of a bound claim is removed by hand", &[Rule::Marked], |user| {
        user.create(plain("v1")).await;
        user.create(plain("v2")).await;
        user.create(claim("c1", json!({}))).await;
        user.until_bound("c1").await;
        let unmarked = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": null}}});
        user.patch(CLAIMS, "c1", unmarked).await;
        user.until("the mark is back", |user| {
            !user.object(CLAIMS, "c1")["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"].is_null()
        }).await;
    }
    "the reservation of a bound volume is removed by hand", &[Rule::PointsBack], |user| {
        user.bind(plain("v1")).await;
        user.patch(VOLUMES, "v1", json!({"spec": {"claimRef": null}})).await;
        user.until_reserved("v1").await;
    }
    "a reservation for a claim that never comes is taken back", &[], |user| {
        user.create(reserved("v1", "other")).await;
        user.create(claim("c1", json!({}))).await;
        user.until_waits("c1").await;
        user.patch(VOLUMES, "v1", json!({"spec": {"claimRef": null}})).await;
        user.until_bound("c1").await;
    }
    "a claim without volume has the status of a bound one", &[], |user| {
        user.create(naming("c1", "v1")).await;
        let capacity = json!({"storage": "1Gi"});
        let bound = json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": capacity});
        user.overwrite(CLAIMS, "c1", json!({"status": bound})).await;
        user.until_phase(CLAIMS, "c1", "Pending").await;
        user.create(plain("v1")).await;
        user.until_bound("c1").await;
    }
    "a claim that is no longer lost has the status of a lost one", &[], |user| {
        user.create(claim("c1", json!({}))).await;
        user.overwrite(CLAIMS, "c1", json!({"status": {"phase": "Lost"}})).await;
        user.until_phase(CLAIMS, "c1", "Pending").await;
        user.create(plain("v1")).await;
        user.until_bound("c1").await;
    }
    "a lost claim gets its volume back", &[Rule::VolumeKept, Rule::ClaimPhase], |user| {
        user.bind(plain("v1")).await;
        let owner = user.object(CLAIMS, "c1");
        user.remove(VOLUMES, "v1").await;
        user.until_phase(CLAIMS, "c1", "Lost").await;
        user.create(volume("v1", json!({"spec": {"claimRef": reference(&owner)}}))).await;
        user.until_bound("c1").await;
    }
    "the volume of a bound claim is given away by hand", &[Rule::PointsBack, Rule::ClaimPhase], |user| {
        user.bind(plain("v1")).await;
        user.overwrite(VOLUMES, "v1", json!({"spec": {"claimRef": {"name": "c2", "uid": "other"}}})).await;
        user.until_phase(CLAIMS, "c1", "Lost").await;
    }
    "a bound volume names another claim by hand", &[Rule::PointsBack, Rule::NotReclaimed], |user| {
        user.bind(plain("v1")).await;
        user.overwrite(VOLUMES, "v1", json!({"spec": {"claimRef": {"name": "c2"}}})).await;
        user.until("the volume names its claim", |user| {
            user.object(VOLUMES, "v1")["spec"]["claimRef"]["name"] == "c1"
        }).await;
        user.until_phase(VOLUMES, "v1", "Bound").await;
    }
    "the modes of a bound volume change", &[Rule::ClaimStatus], |user| {
        user.bind(plain("v1")).await;
        let modes = json!(["ReadWriteOnce", "ReadOnlyMany"]);
        user.patch(VOLUMES, "v1", json!({"spec": {"accessModes": modes}})).await;
        user.until("the claim has both modes", |user| {
            user.object(CLAIMS, "c1")["status"]["accessModes"][1] == "ReadOnlyMany"
        }).await;
    }
    "a reserved volume has failed", &[], |user| {
        user.create(reserved("v1", "c1")).await;
        user.overwrite(VOLUMES, "v1", json!({"status": {"phase": "Failed"}})).await;
        user.until_phase(VOLUMES, "v1", "Available").await;
        user.create(claim("c1", json!({}))).await;
        user.until_bound("c1").await;
    }
    "further volumes are reserved for a bound claim", &[Rule::Reservation], |user| {
        user.bind(plain("v1")).await;
        let owner = user.object(CLAIMS, "c1");
        let by_controller = json!({"pv.kubernetes.io/bound-by-controller": "yes"});
        for (name, annotations) in [("v2", json!({})), ("v3", by_controller)] {
            let spec = json!({"claimRef": reference(&owner)});
            user.create(volume(name, json!({"metadata": {"annotations": annotations}, "spec": spec}))).await;
        }
        // It was provisioned for another claim, so it is not surplus.
        user.create(merged(in_tree("v4"), json!({"spec": {"claimRef": reference(&owner)}}))).await;
        for name in ["v2", "v3", "v4"] {
            user.until(&format!("volume {name} is taken back"), |user| {
                let volume = user.object(VOLUMES, name);
                !volume.is_null() && volume["spec"]["claimRef"]["uid"].is_null()
            }).await;
        }
    }
}
