//! Classes, and volumes that are provisioned.

use bindery_invariants::Rule;
use bindery_kit::json::{claim, class, volume};
use bindery_sim::FaultRule;
use serde_json::json;

use super::{in_class, provisioned_by, waiting_class};
use crate::plugin::PLUGIN;
use crate::user::{CLAIMS, DRIVER, VOLUMES, reference};

/// A plugin that is migrated to a driver.
const MIGRATED: &str = "kubernetes.io/gce-pd";
/// The driver.
const MIGRATED_TO: &str = "pd.csi.storage.gke.io";

scenarios! {
    "the in-tree plugin provisions", &[], |user| {
        user.create(class("gold", PLUGIN, json!({}))).await;
        user.create(in_class("c1", "gold")).await;
        user.until_bound("c1").await;
    }
    "a provisioned volume is deleted with its claim", &[], |user| {
        user.create(class("gold", PLUGIN, json!({}))).await;
        user.create(in_class("c1", "gold")).await;
        user.until_bound("c1").await;
        user.delete(CLAIMS, "c1").await;
        user.until("every volume is gone", |user| user.timeline.sim.objects(VOLUMES).is_empty()).await;
    }
    "a claim is deleted while its volume is provisioned", &[], |user| {
        user.create(class("gold", PLUGIN, json!({}))).await;
        user.until_led().await;
        user.create(in_class("c1", "gold")).await;
        user.until("its asset is made", |user| user.assets.count() > 0).await;
        user.delete(CLAIMS, "c1").await;
    }
    "a provisioner of its own provisions", &[], |user| {
        user.create(class("disk", DRIVER, json!({}))).await;
        user.create(in_class("c1", "disk")).await;
        user.provision("c1", DRIVER).await;
        user.until_bound("c1").await;
    }
    "a claim waits for its class", &[], |user| {
        user.create(in_class("c1", "gold")).await;
        user.until_waits("c1").await;
        user.create(class("gold", PLUGIN, json!({}))).await;
        user.until_bound("c1").await;
    }
    "a default class comes later", &[], |user| {
        user.create(claim("c1", json!({"spec": {"storageClassName": null}}))).await;
        user.until_waits("c1").await;
        let annotations = json!({"storageclass.kubernetes.io/is-default-class": "true"});
        user.create(class("gold", PLUGIN, json!({"metadata": {"annotations": annotations}}))).await;
        user.until_bound("c1").await;
    }
    "a claim waits for its consumer, and a provisioner provisions", &[], |user| {
        user.create(waiting_class("late", DRIVER)).await;
        user.create(in_class("c1", "late")).await;
        user.until_waits("c1").await;
        let selected = json!({"volume.kubernetes.io/selected-node": "n1"});
        user.patch(CLAIMS, "c1", json!({"metadata": {"annotations": selected}})).await;
        user.provision("c1", DRIVER).await;
        user.until_bound("c1").await;
    }
    "a claim waits for its consumer, and the scheduler reserves", &[], |user| {
        user.create(waiting_class("local", "kubernetes.io/no-provisioner")).await;
        user.create(volume("v1", json!({"spec": {"storageClassName": "local"}}))).await;
        user.create(in_class("c1", "local")).await;
        user.until_phase(VOLUMES, "v1", "Available").await;
        let owner = user.object(CLAIMS, "c1");
        user.patch(VOLUMES, "v1", json!({
            "metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
            "spec": {"claimRef": reference(&owner)},
        })).await;
        user.until_bound("c1").await;
    }
    "a claim gets another volume while one is provisioned for it", &[], |user| {
        user.create(class("gold", PLUGIN, json!({}))).await;
        user.until_led().await;
        user.create(in_class("c1", "gold")).await;
        user.until("its asset is made", |user| user.assets.count() > 0).await;
        user.create(volume("v1", json!({"spec": {"storageClassName": "gold"}}))).await;
        user.until_bound("c1").await;
    }
    "a provision fails at first, and the scheduler chooses again", &[], |user| {
        let node = json!({"volume.kubernetes.io/selected-node": "n1"});
        let node = json!({"metadata": {"annotations": node}});
        user.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})).await;
        user.create(waiting_class("late", PLUGIN)).await;
        user.assets.fail(1);
        user.create(in_class("c1", "late")).await;
        user.until_waits("c1").await;
        user.patch(CLAIMS, "c1", node.clone()).await;
        // Another leader does not know of the failure, and may provision at once.
        user.until("the node is taken back, or the claim is bound", |user| {
            let claim = user.object(CLAIMS, "c1");
            let node = &claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"];
            node.is_null() || claim["status"]["phase"] == "Bound"
        }).await;
        user.patch(CLAIMS, "c1", node).await;
        user.until_bound("c1").await;
    }
    "a provisioned volume cannot be created at first", &[], |user| {
        let refused = FaultRule::new("create", VOLUMES).times(5);
        let refused = refused.fail(500, "InternalError", "Internal error occurred: injected");
        user.timeline.sim.faults().add(refused);
        user.create(class("gold", PLUGIN, json!({}))).await;
        user.create(in_class("c1", "gold")).await;
        user.until_bound("c1").await;
    }
    "a claim of a migrated plugin is provisioned by its driver", &[], |user| {
        user.create(class("disk", MIGRATED, json!({}))).await;
        user.create(in_class("c1", "disk")).await;
        user.provision("c1", MIGRATED_TO).await;
        user.until_bound("c1").await;
    }
    "a volume of a migrated plugin is handed to its driver", &[Rule::Finalizer], |user| {
        user.bind(provisioned_by("v1", MIGRATED)).await;
        user.until("the volume names its driver", |user| {
            let annotations = &user.object(VOLUMES, "v1")["metadata"]["annotations"];
            annotations["pv.kubernetes.io/migrated-to"] == MIGRATED_TO
        }).await;
        user.delete(CLAIMS, "c1").await;
        user.until_phase(VOLUMES, "v1", "Released").await;
    }
}
