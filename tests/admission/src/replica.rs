//! A replica with its caches, its API server, and admission.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use bindery_controller::{Binder, Configuration, Parts, Settings};
use bindery_core::{ClaimKey, Declared, Engine, Volume};
use bindery_engine::DefaultEngine;
use bindery_kit::{InMemoryApi, json as kit};
use bindery_kube::decode;
use bindery_policy::Chain;
use bindery_store::{Delivery, Kind, Object, Observed, Store};
use bindery_webhook::{AdmissionMetrics, AdmissionSettings, MUTATE_PATH, PATH, admission};
use http_body_util::BodyExt as _;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::policies::reserved;

/// A replica, its API server, and its route of admission.
pub struct Replica {
    binder: Arc<Binder<InMemoryApi>>,
    api: InMemoryApi,
    metrics: AdmissionMetrics,
    registry: Registry,
    router: Router,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The HTTP status.
    pub status: StatusCode,
    /// The body where it is JSON.
    pub json: Option<Value>,
    /// The body.
    pub text: String,
}

/// A claim of namespace `ns` for this much, without a class, and with these fields of its spec.
pub fn claim(name: &str, storage: &str, spec: Value) -> Value {
    let metadata = json!({"namespace": "ns", "uid": format!("uid-{name}")});
    let sized = json!({"resources": {"requests": {"storage": storage}}});
    kit::claim(name, json!({"metadata": metadata, "spec": kit::merged(sized, spec)}))
}

/// A volume of this size without a class, and with these fields of its spec.
pub fn volume(name: &str, storage: &str, spec: Value) -> Value {
    let metadata = json!({"uid": format!("uid-{name}")});
    let sized = json!({"capacity": {"storage": storage}});
    kit::volume(name, json!({"metadata": metadata, "spec": kit::merged(sized, spec)}))
}

/// The review of a creation.
pub fn create(object: &Value) -> Value {
    review("CREATE", object, &Value::Null)
}

/// The review of an update.
pub fn update(new: &Value, old: &Value) -> Value {
    review("UPDATE", new, old)
}

fn review(operation: &str, new: &Value, old: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": new["kind"]},
            "operation": operation,
            "namespace": new["metadata"]["namespace"],
            "name": new["metadata"]["name"],
            "dryRun": false,
            "object": new,
            "oldObject": old,
        },
    })
}

impl Default for Replica {
    fn default() -> Self {
        Self::new(Arc::new(DefaultEngine), AdmissionSettings::default())
    }
}

impl Replica {
    /// A replica of an empty cluster with complete lists.
    pub fn new(engine: Arc<dyn Engine>, settings: AdmissionSettings) -> Self {
        Self::starting(engine, settings).synced()
    }

    /// A replica of an empty cluster with complete lists, the default engine, and the policy `reserved`: no
    /// claim gets a volume with the label `bindery.dev/reserved-for`.
    pub fn with_a_policy() -> Self {
        Self::with_policies(reserved())
    }

    /// A replica of an empty cluster with complete lists, the default engine, and these policies.
    pub fn with_policies(policies: Chain) -> Self {
        let configuration = Configuration { policies: Arc::new(policies), ..Configuration::default() };
        Self::configured(Arc::new(DefaultEngine), AdmissionSettings::default(), configuration).synced()
    }

    fn synced(self) -> Self {
        for kind in Kind::ALL {
            self.binder.store().deliver(Delivery::listed(kind, [] as [Object; 0], "1"));
        }
        self
    }

    /// A replica of an empty cluster that has listed nothing yet.
    pub fn starting(engine: Arc<dyn Engine>, settings: AdmissionSettings) -> Self {
        Self::configured(engine, settings, Configuration::default())
    }

    fn configured(
        engine: Arc<dyn Engine>,
        settings: AdmissionSettings,
        configuration: Configuration<Volume>,
    ) -> Self {
        let api = InMemoryApi::new();
        let binder = Arc::new(Binder::new(Parts {
            store: Arc::new(Store::new()),
            port: api.clone(),
            engine,
            configuration,
            settings: Settings::default(),
            journal: None,
        }));
        let metrics = AdmissionMetrics::default();
        let mut registry = Registry::default();
        metrics.register(registry.sub_registry_with_prefix("bindery"));
        let router = admission(Arc::clone(&binder), settings, metrics.clone(), None);
        Self { binder, api, metrics, registry, router }
    }

    /// Admission with other settings, the same cluster and the same counters.
    #[must_use]
    pub fn with(mut self, settings: AdmissionSettings) -> Self {
        self.router = admission(Arc::clone(&self.binder), settings, self.metrics.clone(), None);
        self
    }

    /// The route of admission.
    pub fn router(&self) -> Router {
        self.router.clone()
    }

    /// Adds objects to the API server and to the replica's caches.
    #[must_use]
    pub fn having(self, objects: &[Value]) -> Self {
        objects.iter().for_each(|object| {
            self.see(object);
            self.put(object);
        });
        self
    }

    /// Adds an object to the replica's caches only.
    ///
    /// # Panics
    ///
    /// Its kind is not watched, or it cannot be decoded.
    pub fn see(&self, object: &Value) {
        let kind = Kind::ALL.into_iter().find(|kind| object["kind"] == kind.name()).expect("it is watched");
        let object = decode::object(kind, object, Declared::NONE).expect("it has a name");
        self.binder.store().deliver(Delivery::applied(object));
    }

    /// Adds an object to the API server only.
    ///
    /// # Panics
    ///
    /// It cannot be decoded.
    pub fn put(&self, object: &Value) {
        match object["kind"].as_str() {
            Some("PersistentVolume") => {
                if let (_, Observed::Readable(volume)) =
                    decode::volume(object, Declared::NONE).expect("a volume")
                {
                    self.api.add_volume(&volume);
                }
            }
            Some("PersistentVolumeClaim") => {
                if let (_, Observed::Readable(claim)) =
                    decode::claim(object, Declared::NONE).expect("a claim")
                {
                    self.api.add_claim(&claim);
                }
            }
            _ => {}
        }
    }

    /// Removes an object from the API server only.
    pub fn remove(&self, object: &Value) {
        let name = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let mut objects = self.api.objects();
        if object["kind"] == "PersistentVolume" {
            objects.volumes.remove(name("name"));
        } else {
            objects.claims.remove(&ClaimKey::new(name("namespace"), name("name")));
        }
    }

    /// From now on live reads fail.
    pub fn fail_reads(&self) {
        self.api.fail_reads(usize::MAX);
    }

    /// How many live reads were made.
    pub fn reads(&self) -> usize {
        self.api.reads().len()
    }

    /// What was written or recorded.
    pub fn effects(&self) -> Vec<String> {
        let writes = self.api.writes().into_iter().map(|write| format!("{write:?}"));
        writes.chain(self.api.reasons().into_iter().map(str::to_owned)).collect()
    }

    /// The text of the metrics.
    pub fn scrape(&self) -> String {
        let mut metrics = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut metrics, &self.registry);
        metrics
    }

    /// Sends a review and returns its `response`.
    ///
    /// # Panics
    ///
    /// The answer is not a review.
    pub async fn response(&self, review: &Value) -> Value {
        let answer = self.send(review.to_string().into_bytes()).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        answer.json.expect("a review is JSON")["response"].clone()
    }

    /// Sends a review to the path that may change its object, and returns its `response`.
    ///
    /// # Panics
    ///
    /// The answer is not a review.
    pub async fn mutation(&self, review: &Value) -> Value {
        let answer = self.send_to(MUTATE_PATH, review.to_string().into_bytes()).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        answer.json.expect("a review is JSON")["response"].clone()
    }

    /// Sends a body.
    ///
    /// # Panics
    ///
    /// The router fails, which it never does.
    pub async fn send(&self, body: impl Into<Body>) -> Answer {
        self.send_to(PATH, body).await
    }

    async fn send_to(&self, path: &str, body: impl Into<Body>) -> Answer {
        let request = Request::post(format!("{path}?timeout=3s")).header("content-type", "application/json");
        let request = request.body(body.into()).expect("a request");
        let response = self.router().oneshot(request).await.expect("a router answers");
        let status = response.status();
        let bytes = response.into_body().collect().await.expect("the body is in memory").to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Answer { status, json: serde_json::from_str(&text).ok(), text }
    }
}

/// The warnings of a response.
///
/// # Panics
///
/// If one is not a text.
pub fn warnings(response: &Value) -> Vec<String> {
    let warnings = response["warnings"].as_array().cloned().unwrap_or_default();
    warnings.iter().map(|warning| warning.as_str().expect("warnings are texts").to_owned()).collect()
}
