//! A real API server sends the same objects in JSON and in Protocol Buffers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Debug;

use bindery_cluster::{ControlPlane, Manager, Programs};
use bindery_core::{ClaimFact, Declared, VolumeFact};
use bindery_kit::json;
use bindery_kube::decode;
use bindery_kube::encoding::{ACCEPT, EncodedObject, Encoding};
use http::{Method, Request, header};
use kube::client::Body;
use serde_json::{Value, json};

const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const PODS: &str = "/api/v1/namespaces/default/pods";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

/// A fact of each kind that objects of these tests have.
fn declared() -> Declared {
    let claims = [
        ClaimFact::Label("tier".into()),
        ClaimFact::Annotation("volume.kubernetes.io/selected-node".into()),
        ClaimFact::ClassParameter("type".into()),
        ClaimFact::OwnerName,
        ClaimFact::OwnerOrdinal,
    ];
    let volumes = [
        VolumeFact::Annotation("pv.kubernetes.io/provisioned-by".into()),
        VolumeFact::Topology("zone".into()),
        VolumeFact::Driver,
    ];
    Declared { claims: claims.into(), volumes: volumes.into(), ..Declared::default() }
}

fn volume(name: &str, change: Value) -> (&'static str, Value) {
    let base = json!({"spec": {"hostPath": null, "persistentVolumeReclaimPolicy": null}});
    (VOLUMES, json::volume(name, json::merged(base, change)))
}

fn claim(name: &str, change: Value) -> (&'static str, Value) {
    let base = json!({"spec": {"resources": {"requests": {"storage": "1500m"}}, "storageClassName": null}});
    (CLAIMS, json::claim(name, json::merged(base, change)))
}

fn volumes() -> Vec<(&'static str, Value)> {
    let term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]});
    let affinity = json!({"required": {"nodeSelectorTerms": [term]}});
    let sources = [
        ("host-path", json!({"hostPath": {"path": "/srv"}})),
        ("nfs", json!({"nfs": {"server": "s", "path": "/"}})),
        ("csi", json!({"csi": {"driver": "d.example.com", "volumeHandle": "h"}, "volumeMode": "Block"})),
        ("local", json!({"local": {"path": "/mnt"}, "nodeAffinity": affinity})),
        ("fc", json!({"fc": {"targetWWNs": ["w"], "lun": 1}, "persistentVolumeReclaimPolicy": "Delete"})),
        ("iscsi", json!({"iscsi": {"targetPortal": "p", "iqn": "iqn.2026-01.com.example:t", "lun": 0}})),
        ("flex", json!({"flexVolume": {"driver": "example.com/d"}, "mountOptions": ["ro"]})),
    ];
    let mut all: Vec<_> = sources.map(|(name, spec)| volume(name, json!({"spec": spec}))).into();
    all.push(volume(
        "rich",
        json!({
            "metadata": {
                "labels": {"zone": "a", "empty": ""},
                "finalizers": ["example.com/kept"],
                "annotations": {
                    "pv.kubernetes.io/bound-by-controller": "yes",
                    "pv.kubernetes.io/provisioned-by": "p.example.com",
                    "volume.alpha.kubernetes.io/pre-resize-capacity": "1Gi",
                },
            },
            "spec": {
                "hostPath": {"path": "/srv"},
                "storageClassName": "gold",
                "claimRef": {"namespace": "default", "name": "rich", "uid": "u"},
                "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            },
        }),
    ));
    all
}

fn claims() -> Vec<(&'static str, Value)> {
    let expressions = json!([
        {"key": "a", "operator": "NotIn", "values": ["1", "2"]},
        {"key": "b", "operator": "Exists"},
    ]);
    vec![
        claim("plain", json!({})),
        claim("no-class", json!({"spec": {"storageClassName": ""}})),
        claim("empty-selector", json!({"spec": {"selector": {}}})),
        claim(
            "rich",
            json!({
                "metadata": {"finalizers": ["example.com/kept"], "annotations": {
                    "pv.kubernetes.io/bind-completed": "",
                    "volume.kubernetes.io/selected-node": "n",
                    "volume.beta.kubernetes.io/storage-class": "beta",
                }},
                "spec": {
                    "storageClassName": "beta",
                    "volumeMode": "Block",
                    "volumeName": "rich",
                    "dataSource": {"kind": "PersistentVolumeClaim", "name": "plain"},
                    "selector": {"matchLabels": {"zone": "a"}, "matchExpressions": expressions},
                },
            }),
        ),
    ]
}

fn others() -> Vec<(&'static str, Value)> {
    let container = json!({"name": "c", "image": "example.com/c:1"});
    let pod = |name: &str, change: Value| {
        let base = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [container], "automountServiceAccountToken": false},
        });
        (PODS, json::merged(base, change))
    };
    let template =
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let pod_volumes = json!([
        {"name": "a", "persistentVolumeClaim": {"claimName": "plain"}},
        {"name": "b", "ephemeral": {"volumeClaimTemplate": template}},
        {"name": "c", "emptyDir": {}},
    ]);
    let class = |name: &str, change: Value| (CLASSES, json::class(name, "p.example.com", change));
    let default = json!({"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}});
    vec![
        pod("bare", json!({})),
        pod("rich", json!({"spec": {"nodeName": "n", "volumes": pod_volumes}})),
        class("bare", json!({})),
        class(
            "rich",
            json!({"metadata": default, "volumeBindingMode": "WaitForFirstConsumer", "mountOptions": ["ro"]}),
        ),
    ]
}

async fn send(
    client: &kube::Client,
    method: Method,
    path: &str,
    accept: &str,
    body: &Value,
) -> EncodedObject {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header(header::ACCEPT, accept);
    let request = request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body)).unwrap();
    let (parts, body) = client.send(request).await.unwrap().into_parts();
    let bytes = body.collect_bytes().await.unwrap();
    assert!(parts.status.is_success(), "{path}: {}", String::from_utf8_lossy(&bytes));
    Encoding::of(&parts.headers).object(bytes).unwrap()
}

/// Compares the list at a path in both encodings.
async fn compare<T: PartialEq + Debug>(
    client: &kube::Client,
    path: &str,
    count: usize,
    decode: impl Fn(&EncodedObject) -> T,
) {
    let preferred = send(client, Method::GET, path, ACCEPT, &Value::Null).await;
    assert!(matches!(preferred, EncodedObject::Protobuf(_)), "{path}");
    let preferred = preferred.page().unwrap();
    // Both lists have the same version: the API server writes objects of its own all the time.
    let same = format!("{path}?resourceVersion={}&resourceVersionMatch=Exact", preferred.version);
    let text = send(client, Method::GET, &same, "application/json", &Value::Null).await;
    assert!(matches!(text, EncodedObject::Json(_)), "{path}");
    let text = text.page().unwrap();
    assert_eq!((preferred.version, preferred.next), (text.version, text.next), "{path}");
    assert!(text.items.len() >= count, "{path}: {} objects", text.items.len());
    let decoded = |items: &[EncodedObject]| items.iter().map(&decode).collect::<Vec<_>>();
    assert_eq!(decoded(&preferred.items), decoded(&text.items), "{path}");
}

#[tokio::test]
async fn objects_are_decoded_alike_from_json_and_protocol_buffers() {
    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::Off).await.unwrap();
    let client = plane.client().await.unwrap();
    for (path, object) in [volumes(), claims(), others()].concat() {
        send(&client, Method::POST, path, "application/json", &object).await;
    }
    // Objects that are being deleted, and statuses that a binder writes.
    send(&client, Method::DELETE, &format!("{VOLUMES}/rich"), ACCEPT, &Value::Null).await;
    send(&client, Method::DELETE, &format!("{CLAIMS}/rich"), ACCEPT, &Value::Null).await;
    for (path, name, status) in [
        (VOLUMES, "host-path", json!({"phase": "Available"})),
        (
            CLAIMS,
            "plain",
            json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "5Gi"}}),
        ),
    ] {
        let of = |path: &str| format!("{path}/{name}");
        let EncodedObject::Json(object) =
            send(&client, Method::GET, &of(path), "application/json", &Value::Null).await
        else {
            panic!("the request accepts only JSON")
        };
        let object = json::merged(serde_json::from_slice(&object).unwrap(), json!({"status": status}));
        send(&client, Method::PUT, &format!("{}/status?fieldManager=bindery", of(path)), ACCEPT, &object)
            .await;
    }
    let declared = declared();
    compare(&client, VOLUMES, volumes().len(), |object| decode::volume(object, &declared).unwrap()).await;
    compare(&client, CLAIMS, claims().len(), |object| decode::claim(object, &declared).unwrap()).await;
    compare(&client, PODS, 2, |object| decode::pod(object).unwrap()).await;
    compare(&client, CLASSES, 2, |object| decode::class(object, &declared).unwrap()).await;
    compare(&client, VOLUMES, volumes().len(), decode::authors).await;
    compare(&client, CLAIMS, claims().len(), decode::authors).await;
    compare(&client, "/api/v1/namespaces", 1, |object| decode::name(object).unwrap()).await;
}
