//! Random requests, made from bytes: no answer is longer than its bound, all take less memory than their
//! bound, and none makes the server panic. The fuzz target `requests` runs [`run`] too; libFuzzer fails it if
//! it takes 2 GB.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;

use bindery_kit::Choices;
use bindery_sim::{RequestLog, Sim, SimOptions};
use futures::FutureExt as _;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// Most requests of one run.
const REQUESTS_MAX: usize = 12;
/// Longest answer to a run of this length: a few objects, or an error that shows a patched one.
const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;

const METHODS: [Method; 7] =
    [Method::POST, Method::PATCH, Method::PUT, Method::GET, Method::DELETE, Method::HEAD, Method::OPTIONS];
const PATHS: [&str; 32] = [
    "/api/v1/persistentvolumes",
    "/api/v1/persistentvolumes/x",
    "/api/v1/persistentvolumes/x/status",
    "/api/v1/namespaces/default/persistentvolumeclaims",
    "/api/v1/namespaces/default/persistentvolumeclaims/x",
    "/api/v1/namespaces/default/persistentvolumeclaims/x/status",
    "/api/v1/persistentvolumeclaims",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/storage.k8s.io/v1/storageclasses/x",
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/pods/x",
    "/api/v1/namespaces/default/pods/x/binding",
    "/api/v1/namespaces/default/pods/x/eviction",
    "/api/v1/namespaces",
    "/api/v1/namespaces/x",
    "/api/v1/namespaces/x/finalize",
    "/api/v1/namespaces/default/events",
    "/apis/events.k8s.io/v1/namespaces/default/events/x",
    "/apis/apps/v1/namespaces/default/statefulsets",
    "/apis/apps/v1/namespaces/default/statefulsets/x",
    "/apis/apps/v1/namespaces/default/statefulsets/x/scale",
    "/apis/apps/v1/namespaces/default/deployments/x",
    "/api/v1/namespaces/default/services/x",
    "/apis/batch/v1/namespaces/default/jobs",
    "/apis/batch/v1/namespaces/default/cronjobs/x",
    "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
    "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/x",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis",
    "/openapi/v2",
    "/openapi/v3",
    "/",
];
const QUERIES: [&str; 16] = [
    "",
    "watch=1",
    "watch=1&resourceVersion=0&allowWatchBookmarks=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan",
    "limit=1",
    "limit=1&continue=x",
    "fieldSelector=metadata.name%3Dx",
    "labelSelector=a+in+(b,c),!d",
    "resourceVersion=3&resourceVersionMatch=Exact",
    "dryRun=All",
    "fieldValidation=Strict",
    "fieldManager=x&force=1",
    "propagationPolicy=Orphan",
    "gracePeriodSeconds=-1",
    "timeoutSeconds=9223372036854775807",
    "pretty=1",
    "includeObject=Object",
];
const CONTENT_TYPES: [&str; 9] = [
    "application/json",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "",
    "text/plain; charset=x",
];
const ACCEPTS: [&str; 6] = [
    "application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/yaml",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf",
    "*/*;q=x",
];
const KINDS: [(&str, &str); 17] = [
    ("v1", "PersistentVolume"),
    ("v1", "PersistentVolumeClaim"),
    ("storage.k8s.io/v1", "StorageClass"),
    ("v1", "Pod"),
    ("v1", "Namespace"),
    ("v1", "Event"),
    ("v1", "Binding"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "Deployment"),
    ("v1", "Service"),
    ("autoscaling/v1", "Scale"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("networking.k8s.io/v1", "Ingress"),
    ("discovery.k8s.io/v1", "EndpointSlice"),
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"),
    ("v1", "DeleteOptions"),
];
const FIELDS: [&str; 21] = [
    "/metadata",
    "/metadata/annotations",
    "/metadata/annotations/a",
    "/metadata/labels",
    "/metadata/finalizers",
    "/metadata/name",
    "/metadata/generateName",
    "/metadata/resourceVersion",
    "/metadata/uid",
    "/metadata/ownerReferences",
    "/spec",
    "/spec/capacity/storage",
    "/spec/resources/requests/storage",
    "/spec/accessModes",
    "/spec/replicas",
    "/spec/claimRef",
    "/spec/csi",
    "/spec/volumeName",
    "/spec/storageClassName",
    "/status",
    "",
];

/// Sends requests that these bytes choose, to one cluster.
///
/// # Errors
///
/// An answer is longer than [`ANSWER_BYTES_MAX`], or is no JSON though JSON was asked for. A panic is a
/// failure too.
pub fn run(bytes: &[u8]) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let sim = Sim::new(SimOptions { log: RequestLog::Off, ..SimOptions::default() });
    let mut choices = Choices::new(bytes);
    let mut sent = String::new();
    for _ in 0..=choices.below(REQUESTS_MAX) {
        let (request, shown) = request(&mut choices);
        // Writing to a string cannot fail.
        let _ = writeln!(sent, "{shown}");
        runtime.block_on(answered(&sim, request)).map_err(|why| format!("{why}\n{sent}"))?;
    }
    Ok(())
}

/// A request and its text.
fn request(choices: &mut Choices<'_>) -> (Request<Full<bytes::Bytes>>, String) {
    let (method, path, query) = (choices.pick(&METHODS), choices.pick(&PATHS), choices.usually(&QUERIES));
    let (content_type, accept) = (choices.pick(&CONTENT_TYPES), choices.usually(&ACCEPTS));
    let body = body(choices, content_type);
    let uri = format!("{path}?{query}");
    let shown = format!("{method} {uri} {content_type} {accept} {}", String::from_utf8_lossy(&body));
    let request = Request::builder().method(method).uri(uri);
    let request = request.header("content-type", content_type).header("accept", accept);
    (request.body(Full::from(body)).expect("the parts are valid"), shown)
}

fn body(choices: &mut Choices<'_>, content_type: &str) -> Vec<u8> {
    let body =
        if content_type == "application/json-patch+json" { operations(choices) } else { object(choices) };
    let mut bytes = body.to_string().into_bytes();
    // Some bodies are broken.
    if choices.percent(10) {
        let at = choices.below(bytes.len().min(256));
        bytes[at] = u8::try_from(choices.below(256)).unwrap_or_default();
    }
    bytes
}

/// A JSON patch. Its copies may double what they copy.
fn operations(choices: &mut Choices<'_>) -> Value {
    let count = choices.below(40);
    let operation = |_| {
        let op = choices.pick(&["copy", "add", "replace", "remove", "move", "test", "none"]);
        let (from, path) = (choices.pick(&FIELDS), choices.pick(&FIELDS));
        let path =
            if choices.percent(50) { format!("{path}/{}", choices.below(256)) } else { path.to_owned() };
        json!({"op": op, "from": from, "path": path, "value": value(choices)})
    };
    (0..count).map(operation).collect()
}

/// An object of any kind, that most often could be created.
fn object(choices: &mut Choices<'_>) -> Value {
    let (api_version, kind) = choices.pick(&KINDS);
    let mut object = json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "x", "annotations": {"a": "b"}},
        "spec": match kind {
            "PersistentVolume" => json!({
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/x"},
            }),
            "PersistentVolumeClaim" => json!({
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            }),
            "Pod" => json!({"containers": [{"name": "x", "image": "x"}]}),
            _ => Value::Null,
        },
        "provisioner": "x",
    });
    for _ in 0..choices.below(4) {
        let field = choices.pick(&FIELDS);
        let Some((parent, name)) = field.rsplit_once('/') else { continue };
        if let Some(fields) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
            fields.insert(name.to_owned(), value(choices));
        }
    }
    object
}

fn value(choices: &mut Choices<'_>) -> Value {
    match choices.below(14) {
        0 => Value::Null,
        1 => json!("x"),
        2 => json!("a".repeat(1 << choices.below(22))),
        3 => json!(choices.below(256)),
        4 => json!(-1),
        5 => json!(1e300),
        6 => json!(i64::MAX),
        7 => json!([]),
        8 => json!(["x", "x"]),
        9 => json!({}),
        10 => json!({"$patch": choices.pick(&["delete", "replace", "merge", "x"])}),
        11 => json!({"a": {"b": {"c": [{"name": "x", "uid": "x"}]}}}),
        12 => json!(choices.pick(&["1Gi", "-1", "1e400", "0.000000000000001n", "ReadWriteMany", "default"])),
        _ => json!([{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}]),
    }
}

/// Sends a request. Of a watch, the pieces that are ready are read.
async fn answered(sim: &Sim, request: Request<Full<bytes::Bytes>>) -> Result<(), String> {
    let answer = sim.service().oneshot(request).await.map_err(|error| error.to_string())?;
    let is_json = answer.headers().get("content-type").is_some_and(|value| value == "application/json");
    let (mut body, mut received, mut has_ended) = (answer.into_body(), Vec::new(), false);
    while let Some(frame) = body.frame().now_or_never() {
        let Some(Ok(frame)) = frame else {
            has_ended = true;
            break;
        };
        received.extend(frame.into_data().unwrap_or_default());
        if received.len() > ANSWER_BYTES_MAX {
            return Err(format!("the answer has more than {ANSWER_BYTES_MAX} bytes"));
        }
    }
    if is_json && has_ended && !received.is_empty() {
        let values = serde_json::Deserializer::from_slice(&received).into_iter::<Value>();
        for value in values {
            value.map_err(|error| format!("the answer is no JSON: {error}"))?;
        }
    }
    Ok(())
}

#[test]
fn random_requests_take_bounded_memory_and_get_answers_of_bounded_size() {
    /// Most memory of the process that sends and answers all requests.
    const MEMORY_KIB_MAX: u64 = 256 * 1024;
    let bytes = proptest::collection::vec(proptest::prelude::any::<u8>(), 0..600);
    bindery_kit::check_all(&bytes, ("BINDERY_TRIALS", 2_000), |bytes| run(bytes));
    let peak = bindery_kit::peak_kib("self");
    assert!(peak <= MEMORY_KIB_MAX, "{peak} KiB");
}
