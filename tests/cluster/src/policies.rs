//! Policies and engines that are cluster objects.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::Instant;

use bindery_kit::json;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::{Cluster, LATE_BODY, in_time, poll};

/// The kinds with their plurals.
const KINDS: [(&str, &str); 3] =
    [("Engine", "engines"), ("MatchPolicy", "matchpolicies"), ("ReclaimPolicy", "reclaimpolicies")];

/// The policies and engines of a cluster.
pub struct PolicyApi(Client);

impl Cluster {
    /// The policies and engines.
    pub fn policies(&self) -> PolicyApi {
        PolicyApi::new(&self.client)
    }
}

impl PolicyApi {
    /// The policies and engines of the cluster of this client.
    pub fn new(client: &Client) -> Self {
        Self(client.clone())
    }

    /// The objects of a kind.
    pub fn of(&self, kind: &str) -> Api<DynamicObject> {
        let (_, plural) = KINDS.into_iter().find(|(known, _)| *known == kind).unwrap();
        let kind = GroupVersionKind::gvk("policy.bindery.dev", "v1alpha1", kind);
        Api::all_with(self.0.clone(), &ApiResource::from_gvk_with_plural(&kind, plural))
    }

    /// Installs the kinds of the chart, and waits until they are served.
    pub async fn install(&self) {
        let api = Api::<CustomResourceDefinition>::all(self.0.clone());
        let chart = Path::new(env!("BINDERY_CHECKOUT")).join("charts/bindery/files/crds");
        for (_, plural) in KINDS {
            let text = std::fs::read_to_string(chart.join(plural).with_extension("json")).unwrap();
            let definition = serde_json::from_str(&text).unwrap();
            api.create(&PostParams::default(), &definition).await.unwrap();
        }
        for (kind, _) in KINDS {
            let served = poll(async || self.of(kind).list(&ListParams::default()).await.ok());
            served.await.expect("the kinds are served");
        }
    }

    /// Applies an object. It tries again if [`LATE_BODY`].
    pub async fn apply(&self, kind: &str, name: &str, spec: Value) {
        let object = json::policy(kind, name, &spec);
        let apply = PatchParams::apply("test").force();
        let patch = Patch::Apply(&object);
        let applied = async {
            loop {
                match self.of(kind).patch(name, &apply, &patch).await {
                    Err(error) if error.to_string().contains(LATE_BODY) => {}
                    applied => return drop(applied.unwrap()),
                }
            }
        };
        in_time("the body comes in time", applied).await;
    }

    /// Waits until the condition `Ready` of the newest generation has a reason, and returns the status.
    pub async fn until_ready(&self, kind: &str, name: &str, reason: &str) -> Value {
        let (mut last, begun) = (Value::Null, Instant::now());
        let found = poll(async || {
            let object = self.of(kind).get(name).await.unwrap();
            last = object.data["status"].clone();
            let is_new = last["observedGeneration"] == json!(object.metadata.generation);
            (is_new && condition(&last, "Ready")["reason"] == reason).then(|| last.clone())
        });
        let found = found.await;
        eprintln!("{kind} {name}: {reason} after {:.1?}", begun.elapsed());
        found.unwrap_or_else(|| panic!("{kind} {name} does not become {reason}: {last}"))
    }
}

/// The condition of that type in a status; null if there is none.
pub fn condition<'a>(status: &'a Value, kind: &str) -> &'a Value {
    let conditions = status["conditions"].as_array();
    conditions.and_then(|all| all.iter().find(|it| it["type"] == kind)).unwrap_or(&Value::Null)
}
