//! The scenarios: what users, schedulers and provisioners do while two replicas run.

use bindery_invariants::Rule;
use bindery_kit::json::{claim, class, volume};
use futures::future::BoxFuture;
use http::Method;
use serde_json::{Value, json};

use crate::plugin::PLUGIN;
use crate::user::{CLAIMS, DRIVER, User, VOLUMES, path, reference};

/// Scenarios whose end depends on what comes first.
const RACES: [&str; 1] = ["a claim gets another volume while one is provisioned for it"];

/// A scenario.
pub(crate) struct Scenario {
    /// Its name.
    pub(crate) name: &'static str,
    /// What others than the replicas do. It waits for what it needs.
    pub(crate) act: fn(&User) -> BoxFuture<'_, ()>,
    /// Rules that the user breaks.
    pub(crate) broken_by_user: &'static [Rule],
}

impl Scenario {
    /// Whether the end depends on what comes first.
    pub(crate) fn is_race(&self) -> bool {
        RACES.contains(&self.name)
    }
}

fn plain(name: &str) -> Value {
    volume(name, json!({}))
}

fn with_policy(name: &str, policy: &str) -> Value {
    volume(name, json!({"spec": {"persistentVolumeReclaimPolicy": policy}}))
}

/// A volume that was provisioned by the in-tree plugin.
fn in_tree(name: &str) -> Value {
    let annotations = json!({"pv.kubernetes.io/provisioned-by": PLUGIN});
    volume(
        name,
        json!({
            "metadata": {"annotations": annotations},
            "spec": {"persistentVolumeReclaimPolicy": "Delete"},
        }),
    )
}

fn in_class(name: &str, class: &str) -> Value {
    claim(name, json!({"spec": {"storageClassName": class}}))
}

fn waiting_class(name: &str, provisioner: &str) -> Value {
    class(name, provisioner, json!({"volumeBindingMode": "WaitForFirstConsumer"}))
}

macro_rules! scenarios {
    ($($name:literal, $broken:expr, |$user:ident| $act:block)*) => {
        /// Every scenario.
        pub(crate) const SCENARIOS: &[Scenario] = &[$(Scenario {
            name: $name,
            act: |$user| Box::pin(async move { $act }),
            broken_by_user: $broken,
        }),*];
    };
}

scenarios! {
    "a claim finds a volume", &[], |user| {
        user.bind(plain("v1")).await;
    }
    "a claim waits for its volume", &[], |user| {
        user.create(claim("c1", json!({}))).await;
        user.until_phase(CLAIMS, "c1", "Pending").await;
        user.create(plain("v1")).await;
        user.until_bound("c1").await;
    }
    "a volume names its claim", &[], |user| {
        let owner = json!({"namespace": "default", "name": "c1"});
        user.create(volume("v1", json!({"spec": {"claimRef": owner}}))).await;
        user.create(plain("v2")).await;
        user.create(claim("c1", json!({}))).await;
        user.until_bound("c1").await;
    }
    "a claim names its volume", &[], |user| {
        user.create(claim("c1", json!({"spec": {"volumeName": "v2"}}))).await;
        user.create(plain("v1")).await;
        user.create(plain("v2")).await;
        user.until_bound("c1").await;
    }
    "claim and volume name each other", &[], |user| {
        let owner = json!({"namespace": "default", "name": "c1"});
        user.create(volume("v1", json!({"spec": {"claimRef": owner}}))).await;
        user.create(claim("c1", json!({"spec": {"volumeName": "v1"}}))).await;
        user.until_bound("c1").await;
    }
    "two claims want one volume", &[], |user| {
        user.create(claim("c1", json!({}))).await;
        user.create(claim("c2", json!({}))).await;
        user.create(plain("v1")).await;
        user.until("a claim is bound", |user| {
            ["c1", "c2"].iter().any(|name| user.object(CLAIMS, name)["status"]["phase"] == "Bound")
        }).await;
    }
    "two claims name one volume", &[], |user| {
        user.create(plain("v1")).await;
        user.create(claim("c1", json!({"spec": {"volumeName": "v1"}}))).await;
        user.create(claim("c2", json!({"spec": {"volumeName": "v1"}}))).await;
        user.until("a claim is bound", |user| {
            ["c1", "c2"].iter().any(|name| user.object(CLAIMS, name)["status"]["phase"] == "Bound")
        }).await;
    }
    "three claims and three volumes", &[], |user| {
        for number in 1..=3 {
            user.create(plain(&format!("v{number}"))).await;
            user.create(claim(&format!("c{number}"), json!({}))).await;
        }
        for number in 1..=3 {
            user.until_bound(&format!("c{number}")).await;
        }
    }
    "a selector chooses", &[], |user| {
        let selector = json!({"matchLabels": {"tier": "fast"}});
        user.create(plain("v1")).await;
        user.create(volume("v2", json!({"metadata": {"labels": {"tier": "fast"}}}))).await;
        user.create(claim("c1", json!({"spec": {"selector": selector}}))).await;
        user.until_bound("c1").await;
    }
    "no volume fits until one comes", &[], |user| {
        user.create(plain("v1")).await;
        let large = json!({"spec": {"resources": {"requests": {"storage": "5Gi"}}}});
        user.create(claim("c1", large)).await;
        user.until_phase(CLAIMS, "c1", "Pending").await;
        user.create(volume("v2", json!({"spec": {"capacity": {"storage": "10Gi"}}}))).await;
        user.until_bound("c1").await;
    }
    "a retained volume is released", &[], |user| {
        user.bind(plain("v1")).await;
        user.delete(CLAIMS, "c1").await;
        user.until_phase(VOLUMES, "v1", "Released").await;
    }
    "a claim is deleted while it binds", &[], |user| {
        user.create(plain("v1")).await;
        user.create(claim("c1", json!({}))).await;
        user.until_reserved("v1").await;
        user.delete(CLAIMS, "c1").await;
        user.until_phase(VOLUMES, "v1", "Released").await;
    }
    "a claim is made again under its name", &[], |user| {
        user.bind(plain("v1")).await;
        user.delete(CLAIMS, "c1").await;
        user.create(claim("c1", json!({}))).await;
        user.create(plain("v2")).await;
        user.until_bound("c1").await;
        user.until_phase(VOLUMES, "v1", "Released").await;
    }
    "a volume is deleted with its claim", &[], |user| {
        user.bind(in_tree("v1")).await;
        user.delete(CLAIMS, "c1").await;
        user.until_gone(VOLUMES, "v1").await;
    }
    "a deleted volume stays until its claim is deleted", &[], |user| {
        user.bind(in_tree("v1")).await;
        user.delete(VOLUMES, "v1").await;
        user.delete(CLAIMS, "c1").await;
        user.until_gone(VOLUMES, "v1").await;
    }
    "a recycled volume serves again", &[], |user| {
        user.bind(with_policy("v1", "Recycle")).await;
        user.delete(CLAIMS, "c1").await;
        user.create(claim("c2", json!({}))).await;
        user.until_bound("c2").await;
    }
    "the policy of a released volume becomes Delete", &[], |user| {
        user.bind(plain("v1")).await;
        user.delete(CLAIMS, "c1").await;
        user.until_phase(VOLUMES, "v1", "Released").await;
        let policy = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}});
        user.patch(VOLUMES, "v1", policy).await;
        user.until_gone(VOLUMES, "v1").await;
    }
    "the policy of a bound volume changes", &[], |user| {
        user.bind(in_tree("v1")).await;
        let policy = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
        user.patch(VOLUMES, "v1", policy).await;
        user.delete(CLAIMS, "c1").await;
        user.until_phase(VOLUMES, "v1", "Released").await;
    }
    "a released volume is freed by hand", &[], |user| {
        user.bind(plain("v1")).await;
        user.delete(CLAIMS, "c1").await;
        user.until_phase(VOLUMES, "v1", "Released").await;
        user.patch(VOLUMES, "v1", json!({"spec": {"claimRef": null}})).await;
        user.create(claim("c2", json!({}))).await;
        user.until_bound("c2").await;
    }
    "a pod keeps its claim", &[], |user| {
        user.bind(plain("v1")).await;
        let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "c1"}}]);
        let containers = json!([{"name": "main", "image": "example.com/main"}]);
        user.create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p1", "namespace": "default"},
            "spec": {"nodeName": "n1", "volumes": volumes, "containers": containers},
        })).await;
        user.delete(CLAIMS, "c1").await;
        let now = json!({"gracePeriodSeconds": 0});
        user.send(Method::DELETE, &path("pods", "p1"), now).await;
        user.until_phase(VOLUMES, "v1", "Released").await;
    }
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
        user.provision("c1").await;
        user.until_bound("c1").await;
    }
    "a claim waits for its class", &[], |user| {
        user.create(in_class("c1", "gold")).await;
        user.until_phase(CLAIMS, "c1", "Pending").await;
        user.create(class("gold", PLUGIN, json!({}))).await;
        user.until_bound("c1").await;
    }
    "a default class comes later", &[], |user| {
        user.create(claim("c1", json!({"spec": {"storageClassName": null}}))).await;
        user.until_phase(CLAIMS, "c1", "Pending").await;
        let annotations = json!({"storageclass.kubernetes.io/is-default-class": "true"});
        user.create(class("gold", PLUGIN, json!({"metadata": {"annotations": annotations}}))).await;
        user.until_bound("c1").await;
    }
    "a claim waits for its consumer, and a provisioner provisions", &[], |user| {
        user.create(waiting_class("late", DRIVER)).await;
        user.create(in_class("c1", "late")).await;
        user.until_phase(CLAIMS, "c1", "Pending").await;
        let selected = json!({"volume.kubernetes.io/selected-node": "n1"});
        user.patch(CLAIMS, "c1", json!({"metadata": {"annotations": selected}})).await;
        user.provision("c1").await;
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
    "a bound volume is removed by force", &[Rule::VolumeKept, Rule::ClaimPhase], |user| {
        user.bind(plain("v1")).await;
        user.timeline.sim.remove(VOLUMES, None, "v1");
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
    "a claim is deleted and made again while its volume is deleted", &[], |user| {
        user.bind(in_tree("v1")).await;
        user.delete(CLAIMS, "c1").await;
        user.create(claim("c1", json!({}))).await;
        user.until_gone(VOLUMES, "v1").await;
        user.create(plain("v2")).await;
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
    "a reservation for a claim that never comes is taken back", &[], |user| {
        let other = json!({"namespace": "default", "name": "other"});
        user.create(volume("v1", json!({"spec": {"claimRef": other}}))).await;
        user.create(claim("c1", json!({}))).await;
        user.until_phase(CLAIMS, "c1", "Pending").await;
        user.patch(VOLUMES, "v1", json!({"spec": {"claimRef": null}})).await;
        user.until_bound("c1").await;
    }
    "a volume of the wrong mode is passed over", &[], |user| {
        user.create(volume("v1", json!({"spec": {"volumeMode": "Block"}}))).await;
        user.create(claim("c1", json!({}))).await;
        user.until_phase(CLAIMS, "c1", "Pending").await;
        user.create(volume("v2", json!({"spec": {"capacity": {"storage": "2Gi"}}}))).await;
        user.until_bound("c1").await;
    }
}
